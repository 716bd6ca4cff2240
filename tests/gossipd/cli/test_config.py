"""``gossipd config``: what is wrong and what is in force, without a daemon."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from pathlib import Path

import pytest

from gossipd.cli.main import main


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    for name in [name for name in os.environ if name.startswith("GOSSIPD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOSSIPD_STORE__ANY_FILE_SYSTEM", "true")
    words = ["init", str(tmp_path / "a"), "--name", "a", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946"]
    assert main(words) == 0
    capsys.readouterr()
    return tmp_path / "a" / "gossipd.toml"


def test_a_good_file_is_told_so_by_path_directory_or_from_here(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    for words in ([str(file)], [str(file.parent)], [], ["--config", str(file)]):
        assert main(["config", "check", *words]) == 0
        assert "nothing is wrong" in capsys.readouterr().out


def test_all_problems_are_told_at_once_with_exit_code_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text().replace("port = 7946", "port = 0").replace('rack = "r"', 'rakc = "r"'))
    assert main(["config", "check", str(file)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("E_CONFIG: 3 problems\n")
    assert all(key in shown for key in ("net.port", "node.rakc", "node.rack"))
    assert main(["config", "check", str(file), "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert [problem["key"] for problem in answer["problems"]] == ["node.rakc", "node.rack", "net.port"]


def test_a_missing_file_is_a_problem_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(tmp_path / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_show_is_toml_with_the_values_in_force(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", str(file)]) == 0
    tables = tomllib.loads(capsys.readouterr().out)
    assert tables["net"]["port"] == 7946
    assert tables["store"]["models"] == str(file.parent / "models")
    assert tables["store"]["any_file_system"] is True


def test_show_origin_tells_default_line_and_variable(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSIPD_LOG__LEVEL", "debug")
    monkeypatch.setenv("GOSSIPD_NET_PORT", "7")
    assert main(["config", "show", "--origin", str(file)]) == 0
    out, err = capsys.readouterr()
    line = 1 + file.read_text().splitlines().index("port = 7946")
    assert f"net.port = 7946  # {file}:{line}\n" in out
    assert 'log.level = "debug"  # environment variable GOSSIPD_LOG__LEVEL\n' in out
    assert "limits.upload_slots = 24  # default\n" in out
    assert err == (
        "warning: environment variable GOSSIPD_NET_PORT is ignored: it names no setting; "
        "did you mean GOSSIPD_NET__PORT?\n"
    )
    assert main(["config", "show", "--json", str(file)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"]["net.port"] == {"value": 7946, "origin": f"{file}:{line}"}
    assert len(answer["warnings"]) == 1


@pytest.mark.needs("root")
def test_root_checks_as_the_owner_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as open_to_all:  # the others' parents are closed to that user
        Path(open_to_all).chmod(0o755)
        home = Path(shutil.copytree(file.parent, f"{open_to_all}/a"))
        for path in (home, *home.rglob("*")):
            os.chown(path, 54_321, 54_321)
        assert main(["config", "check", str(home)]) == 0, capsys.readouterr().err
        assert os.geteuid() == 0
        os.chown(home / "node.key", 54_322, 0)
        assert main(["config", "check", str(home)]) == 2
        assert "security.node_key" in capsys.readouterr().err
