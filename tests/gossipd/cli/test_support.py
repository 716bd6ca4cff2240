"""The archive has what helps, and no eight characters of any secret, wherever one was planted."""

from __future__ import annotations

import json
import os
import string
import tarfile
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipd.api import question_pages
from gossipd.cli.daemon_environment import unit_environment
from gossipd.cli.main import main
from gossipd.cli.support import gather, secrets_of_host, write_bundle
from gossipd.diagnosis.redaction import PIECE, Redactor, secrets_of_environment
from tests.e2e.cluster import set_up
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running

SECRET = st.text(string.ascii_letters + string.digits + "+/=", min_size=16, max_size=64)
PARTS = ("status.json", "events.json", "metrics.txt", "gossipd.toml", "audit.jsonl", "host.json")


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        return {one.name.split("/")[1]: opened.extractfile(one).read().decode() for one in opened}  # type: ignore[union-attr]


@settings(max_examples=60, deadline=None)
@given(
    secrets=st.lists(SECRET, min_size=3, max_size=3, unique=True),
    around=st.text(max_size=60),
    cut=st.integers(PIECE, 64),
)
def test_no_piece_of_a_planted_secret_is_in_the_archive(secrets: list[str], around: str, cut: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        variable, key, file = secrets
        (home / "cluster.key").write_text(f"gossipd cluster key 1\nkey {key}\n")
        (home / "token").write_text(file)
        environment = {"AWS_SECRET_ACCESS_KEY": variable, "AWS_WEB_IDENTITY_TOKEN_FILE": str(home / "token")}
        found = secrets_of_host(home / "gossipd.toml", environment)
        planted = around + around.join(secrets) + "".join(one[:cut] + one[-cut:] for one in secrets)
        write_bundle(home / "out", dict.fromkeys(PARTS, planted), Redactor(found))
        told = contents(home / "out")
        assert told.keys() == set(PARTS)
        for secret in secrets:
            for start in range(len(secret) - PIECE + 1):
                piece = secret[start : start + PIECE]
                assert not any(piece in text for text in told.values())


def test_a_bundle_of_the_longest_parts_is_under_20_mib(tmp_path: Path) -> None:
    text = Random(1).randbytes(5 << 19).hex()
    write_bundle(
        tmp_path / "out", {f"{number}.txt": text for number in range(11)} | {"host.json": "short"}, Redactor([])
    )
    assert (tmp_path / "out").stat().st_size < 20 << 20
    told = contents(tmp_path / "out")
    assert 19 << 20 >= sum(map(len, told.values())) > 15 << 20
    assert told["host.json"] == "short"
    assert all(text.endswith(one) for name, one in told.items() if name != "host.json")


def test_secrets_of_the_unit_are_no_more_in_it_than_those_of_this_shell(tmp_path: Path) -> None:
    (tmp_path / "env").write_text(
        '# S3\nAWS_SECRET_ACCESS_KEY="unit secret of ours"\n\nHTTPS_PROXY=http://proxy:3128\n'
    )
    environment = unit_environment(tmp_path / "env")
    assert environment["HTTPS_PROXY"] == "http://proxy:3128"
    assert secrets_of_host(tmp_path / "gossipd.toml", environment) == ["unit secret of ours"]
    assert unit_environment(tmp_path / "none") == {}


def test_addresses_lose_their_credentials_and_the_rest_is_kept(tmp_path: Path) -> None:
    text = "https://me:hunter2hunter2@host/a?X-Amz-Signature=abcdefabcdef and gpu-h100-dc1-r1-n07"
    write_bundle(tmp_path / "out", {"a": text}, Redactor([]))
    assert contents(tmp_path / "out")["a"] == "https://host/a?... and gpu-h100-dc1-r1-n07"


def test_only_what_holds_credentials_by_its_name_is_a_secret() -> None:
    environment = {"HF_TOKEN": "hf_abcdefghijkl", "PATH": "/usr/bin:/bin", "AWS_KEY": "/etc", "AZURE_KEY": "/+no/path"}
    assert secrets_of_environment(environment, os.path.exists) == ["hf_abcdefghijkl", "/+no/path"]


def test_a_secret_is_found_as_json_shows_it() -> None:
    secret = 'quote"and\\slash and ümlaut'
    text = json.dumps({"reason": f"so: {secret}"})
    assert Redactor([secret]).redact(text) == text.replace(
        json.dumps(secret)[1:-1], "*" * len(json.dumps(secret)[1:-1])
    )


def test_a_bundle_of_a_real_host_has_every_part_and_none_of_its_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSIPD_STORE__ANY_FILE_SYSTEM", "true")
    monkeypatch.setenv("HF_TOKEN", "hf_SomeTokenOfSomebody")
    home = tmp_path / "h"
    set_up("init", home, "--name", "h", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946")
    (home / "audit.jsonl").write_text('{"event": "x", "reason": "hf_SomeTokenOfSomebody"}\n')
    (tmp_path / "journalctl").write_text('#!/bin/sh\necho "ready, $*"\necho "with hf_SomeTokenOfSomebody"\n')
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with running(home / "gossipd.sock", FakeDaemon()):
        assert main(["support", "--config", str(home), "--out", str(tmp_path / "s.tar.gz")]) == 0
    told = contents(tmp_path / "s.tar.gz")
    assert "org/toy" in told["status.json"]
    assert "gossipd_members" in told["metrics.txt"]
    assert "all_busy" in told["why.json"]
    assert "\n  " in told["tasks.txt"] and "gossipd.api" in told["tasks.txt"]
    assert "config" in told["doctor.json"]
    assert told["log.txt"].startswith("ready, --unit gossipd --lines 5000 ")
    assert not any("SomeToken" in text for text in told.values())
    for key in home.glob("*.key"):
        for word in key.read_text().split():
            assert len(word) < 32 or not any(word in text for text in told.values())
    assert (tmp_path / "s.tar.gz").stat().st_mode & 0o777 == 0o600
    assert main(["support", "--config", str(home), "--out", str(tmp_path / "s.tar.gz")]) == 1


def test_what_could_not_be_had_is_told_with_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "h"
    set_up("init", home, "--name", "h", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946")
    (tmp_path / "log").write_text("ready\n")
    words = ["support", "--config", str(home), "--log", str(tmp_path / "log"), "--out"]
    assert main([*words, str(tmp_path / "s.tar.gz")]) == 0
    told = capsys.readouterr()
    assert "status.json" in told.out
    assert "without status.json, peers.json, tasks.txt, models.json, events.json" in told.err
    assert f"no daemon answers at {home / 'gossipd.sock'}: No such file or directory" in told.err
    assert main([*words, str(tmp_path / "j.tar.gz"), "--json"]) == 0
    lacking = json.loads(capsys.readouterr().out)["lacking"]
    assert "status.json" in lacking and "gossipd.toml" not in lacking
    os.mkfifo(tmp_path / "pipe")
    assert main(["support", "--config", str(home), "--log", str(tmp_path / "pipe"), "--out", str(tmp_path / "p")]) == 0
    assert f"without log.txt: {tmp_path / 'pipe'}: is not a file; move it away\n" in capsys.readouterr().err


def test_pipes_in_the_places_of_its_files_hold_nobody_up(tmp_path: Path) -> None:
    for name in ("gossipd.toml", "node.key", "audit.jsonl"):
        os.mkfifo(tmp_path / name)
    assert secrets_of_host(tmp_path / "gossipd.toml", {}) == []
    told = gather(tmp_path / "gossipd.toml", tmp_path / "none")
    for part in ("gossipd.toml", "audit.jsonl"):
        assert "is not a file; move it away" in told[part]


def test_a_log_may_be_a_file_and_one_that_cannot_be_had_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(6000)))
    assert gather(tmp_path / "gossipd.toml", tmp_path / "log")["log.txt"].startswith("line 1000\n")
    for script in ("exit 1", "printf ''"):
        (tmp_path / "journalctl").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "journalctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        assert gather(tmp_path / "gossipd.toml")["log.txt"].startswith("not to be had: ")


@pytest.mark.parametrize("script", ["exit 1", "printf ''", "echo '-- No entries --'"])
def test_without_a_journal_the_log_is_the_daemons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("GOSSIPD_SOCKET", str(tmp_path / "s"))
    monkeypatch.setattr(question_pages, "recent", lambda: ["one", "two"])
    with running(tmp_path / "s", FakeDaemon()):
        assert gather(tmp_path / "gossipd.toml")["log.txt"] == "one\ntwo\n"
