"""``doctor`` on a host that was just set up, without its daemon, as its operator runs it."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from pwd import getpwnam
from typing import Any

import pytest

from gossipd.api.client import StatusClient
from gossipd.cli import disk_readings, host_readings
from gossipd.cli.disk_readings import read_apart, read_directories, why_silent, why_unreadable
from gossipd.cli.host_readings import foreign_units, read_host, refused_by_reason
from gossipd.cli.main import main
from gossipd.config.load import load_config
from gossipd.config.sections import Config
from gossipd.core.errors import UsageError
from tests.e2e.cluster import set_up
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOSSIPD_STORE__ANY_FILE_SYSTEM", "true")
    set_up("keygen", tmp_path / "p.key")
    set_up("init", tmp_path / "h", "--name", "h", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946",
           "--trust", tmp_path / "p.key.pub")  # fmt: skip
    return tmp_path / "h"


def verdicts(home: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, str]]:
    code = main(["doctor", "--config", str(home), "--json", *more])
    told = json.loads(capsys.readouterr().out)
    return code, {check["code"]: check["verdict"] for check in told["checks"]}


def test_a_new_host_lacks_nothing_but_its_daemon(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verdicts(home, capsys)
    assert code == 1
    assert [name for name, verdict in found.items() if verdict == "fail"] == ["daemon"]
    assert main(["doctor", "--config", str(home)]) == 1
    assert "cure: systemctl start gossipd" in capsys.readouterr().out


def test_what_was_set_up_wrong_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "cluster.key").chmod(0o644)
    text = (home / "gossipd.toml").read_text().replace("port = 7946", "port = 0")
    (home / "gossipd.toml").write_text(text)
    assert verdicts(home, capsys)[1]["config"] == "fail"
    (home / "gossipd.toml").write_text(text.replace("port = 0", "port = 7946"))
    assert verdicts(home, capsys)[1]["keys"] == "fail"


@pytest.mark.needs("root")
def test_a_user_who_may_not_enter_the_models_is_told_the_directory(public_path: Path) -> None:
    models = public_path / "models"
    models.mkdir(0o755)
    assert why_unreadable(models, getpwnam("nobody")) == ""
    models.chmod(0o750)
    assert "mode 0750" in why_unreadable(models, getpwnam("nobody"))
    assert why_unreadable(models, getpwnam("root")) == ""


def test_a_user_whom_the_host_does_not_know_is_a_wrong_use(home: Path) -> None:
    with pytest.raises(UsageError, match="there is no user"):
        read_host(home / "gossipd.toml", client=StatusClient(home / "none"), as_user="nobody-at-all")


def test_directories_that_do_not_answer_are_told_and_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(config: Config) -> dict[str, Any]:
        time.sleep(3)
        return {}

    config = load_config(home / "gossipd.toml")
    well = read_directories(config, None)
    assert (well["answers_problem"], well["places_problem"]) == ("", "")
    monkeypatch.setattr(disk_readings, "_places", hang)
    read = read_directories(config, None, wait_s=0.1)
    assert read == {"answers_problem": "the directories of this host have not answered for 0.1 s"}


def fail() -> dict[str, Any]:
    raise OSError("the disk is gone")


def die() -> dict[str, Any]:
    os._exit(0)


@pytest.mark.parametrize(("read", "words"), [(fail, "the disk is gone"), (die, "was ended")])
def test_a_reading_that_fails_is_told_and_never_well(read: Callable[[], dict[str, Any]], words: str) -> None:
    given = read_apart(read)
    assert words in given.pop("places_problem") and given == {"answers_problem": ""}


@pytest.mark.parametrize("call", ["stat", "statvfs"])
def test_a_directory_that_cannot_be_reached_cannot_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    config, look = load_config(home / "gossipd.toml"), getattr(os, call)

    def closed(path: Any, *words: Any, **more: Any) -> Any:
        if path == config.store.models:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, *words, **more)

    monkeypatch.setattr(os, call, closed)
    assert read_directories(config, None)["unwritable"] == (str(config.store.models),)


def test_of_directories_that_do_not_answer_nothing_more_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(host_readings, "read_directories", lambda *_: {"answers_problem": "silent"})
    monkeypatch.setattr(host_readings, "read_storage", lambda *_, has_disk: asked.append(has_disk))
    assert read_host(home / "gossipd.toml", client=StatusClient(home / "none")).places_problem is None
    assert asked == [False]


def test_a_configuration_whose_disk_hangs_is_told_and_not_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why_silent(str(home)) == "" == why_silent(str(home / "nowhere"))
    monkeypatch.setattr(disk_readings, "load_config", lambda _: time.sleep(3))
    words = why_silent(str(home), wait_s=0.1)
    assert words == "the directories of this host have not answered for 0.1 s"
    monkeypatch.setattr(disk_readings, "why_silent", lambda _: words)
    assert verdicts(home, capsys) == (1, {"answers": "fail"})


def test_a_unit_of_another_version_is_named_and_the_first_one_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, older = tmp_path / "ours", tmp_path / "older"
    assert foreign_units((ours, older)) is None, "no systemd here"
    assert main(["assets", "unit"]) == 0
    ours.write_text(capsys.readouterr().out)
    older.write_text("[Service]\n")
    assert foreign_units((ours, older)) == ()
    assert foreign_units((older, ours)) == (str(older),)


def test_what_a_daemon_turned_away_is_read_from_its_metrics(tmp_path: Path) -> None:
    with running(tmp_path / "s", FakeDaemon()) as daemon:
        counted = refused_by_reason(StatusClient(tmp_path / "s").metrics())
    assert counted == {reason: count for reason, count in daemon.counters().refused.items() if count}
    assert counted
