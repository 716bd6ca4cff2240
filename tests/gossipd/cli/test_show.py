"""``gossipd show``, ``lineage`` and ``export``, of files and of what a daemon knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from gossipd.api.manifest_row import manifest_row
from gossipd.api.schema import ManifestRow
from gossipd.cli.main import main
from gossipd.core.versions import step_version
from gossipd.manifest.annotations import pack_about
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running
from tests.gossipd.manifest.making import manifest

IDS = [f"{number:02x}" * 32 for number in range(8)]


def row(number: int, *parents: int, **about: Any) -> ManifestRow:
    about = {"step": number * 100, "parents": [IDS[parent] for parent in parents], **about}
    made = manifest(name="run-7", version=number * 100, about=pack_about(about))
    return msgspec.structs.replace(manifest_row(made), id=IDS[number])


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setenv("GOSSIPD_SOCKET", str(tmp_path / "gossipd.sock"))
    with running(tmp_path / "gossipd.sock", FakeDaemon()) as made:
        yield made


def key_in(directory: Path) -> Path:
    assert main(["keygen", str(directory / "publisher.key")]) == 0
    return directory / "publisher.key"


def test_a_published_step_is_shown_with_all_that_its_publisher_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "step-300"
    (tree / "logs").mkdir(parents=True)
    save_file({"w": np.zeros((600, 1000), np.uint8), "b": np.zeros(5, np.float32)}, tree / "model.safetensors")
    (tmp_path / "about.json").write_text(json.dumps({"run": "r7", "metrics": {"loss": 1.5}}))
    out = tmp_path / "run.manifest"
    words = ["publish", str(tree), "--name", "run-7", "--step", "300", "--attempt", "2", "--keep-last", "3",
             "--keep-every", "1000", "--label", "team=rl", "--about", str(tmp_path / "about.json"), "--out", str(out),
             "--key", str(key_in(tmp_path))]  # fmt: skip
    assert main(words) == 0
    assert "run-7@300.2 " in capsys.readouterr().out
    assert main(["show", str(out)]) == 0
    page = capsys.readouterr().out
    for words_of in (
        f"model      run-7@300.2 (version {step_version(300, 2)})", "schema     2: hosts", "signed     not checked",
        "which begin at tensors; an index of 2 tensors", "empty      logs", "label team rl",
        "keep       the last 3, and each step that 1000 divides", '  "run": "r7"', '    "loss": 1.5',
    ):  # fmt: skip
        assert words_of in page
    assert main(["show", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["version_label"], shown["tensors"], shown["directories"]) == ("300.2", 2, ["logs"])
    assert shown["about"] == {"run": "r7", "metrics": {"loss": 1.5}, "step": 300, "attempt": 2}


def test_a_plain_large_version_is_not_taken_for_a_step(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.manifests = [manifest_row(manifest(name="m", version=20261125120000))]
    assert main(["show", "m"]) == 0
    assert "model      m@20261125120000\n" in capsys.readouterr().out


def test_a_daemon_is_asked_for_a_name_and_answers_with_the_newest(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.manifests = [row(1), row(3), row(2)]
    assert main(["show", "run-7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == IDS[3]
    assert main(["show", "run-7@200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == IDS[2]
    assert main(["show", "other"]) == 3
    assert "no manifest other is known here" in capsys.readouterr().err


def test_export_prints_the_lineage_as_an_in_toto_statement_about_the_manifest(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.manifests = [row(4, 3, run="r7")]
    assert main(["export", "run-7", "--in-toto"]) == 0
    statement = json.loads(capsys.readouterr().out)
    assert (statement["_type"], statement["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "urn:gossipd:about:v1",
    )
    (subject,) = statement["subject"]
    assert (subject["name"], subject["digest"]) == ("run-7@400", {"blake3": IDS[4]})
    assert statement["predicate"] == daemon.manifests[0].about
    assert main(["export", "run-7", "--in-toto", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["statement"] == statement
    assert main(["export", "run-7"]) == 2


def test_lineage_follows_parents_and_says_what_is_unknown_and_what_repeats(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = {"code": {"commit": "0123456789abcdef", "dirty": True}}
    daemon.manifests = [row(4, 3, 2), row(3, 1, **commit), row(2, 1), row(1, 7, 4)]
    assert main(["lineage", "run-7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  20")[0].rstrip() for line in lines] == [
        f"run-7@400  {IDS[4][:16]}", f"  run-7@300  {IDS[3][:16]}", f"    run-7@100  {IDS[1][:16]}",
        f"      {IDS[7][:16]}  not known here", f"      run-7@400  {IDS[4][:16]}", f"  run-7@200  {IDS[2][:16]}",
        f"    run-7@100  {IDS[1][:16]}",
    ]  # fmt: skip
    assert lines[1].endswith("code 0123456789ab and changes")
    assert lines[4].endswith("(shown above)")
    assert main(["lineage", "run-7@100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["lineage"]
    assert [(one["id"], one["generation"], one["known"]) for one in found][:2] == [
        (IDS[1], 0, True),
        (IDS[7], 1, False),
    ]


def test_bytes_that_are_no_manifest_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(b"nothing")
    assert main(["show", str(tmp_path / "x")]) == 7
    assert capsys.readouterr().err.startswith("E_")
