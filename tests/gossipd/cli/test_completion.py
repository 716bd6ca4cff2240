"""Commands, options and names in a shell: by the program in the scripts, by a real bash, and by click's own way."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gossipd.api.client import find_sockets
from gossipd.cli import completion, completion_program
from gossipd.cli.main import cli, main
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running

RELOAD = "Have the daemon read its configuration and keys again, and wait for the outcome"
PROGRAM = completion.program_text(cli, with_help=True)
# What is tested is not how quick this machine is.
PATIENT = PROGRAM.replace(f"ASKED_S = {completion_program.ASKED_S}", "ASKED_S = 30.0")
assert PATIENT != PROGRAM


def completed(path: Path, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What click offers for the last of ``words``."""
    monkeypatch.setenv("COMP_WORDS", f"gossipd {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(f"gossipd {words}".split(" ")) - 1))
    monkeypatch.setenv("_GOSSIPD_COMPLETE", "bash_complete")
    monkeypatch.setenv("GOSSIPD_SOCKET", str(path))
    with pytest.raises(SystemExit):
        main([])
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]


NAMES = pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("wait ", ["org/toy@3"]),
        ("wait org", ["org/toy@3"]),
        ("wait nothing", []),
        ("status ", ["org/toy", "org/toy@3"]),
        ("status org/toy@", ["org/toy@3"]),
        ("why org/toy@3 --host node-", ["node-1", "node-2", "node-3", "node-4"]),
        ("forget node-4", ["node-4"]),
        ("latest o", ["org/toy"]),
        ("rollback org/toy@", ["org/toy@3"]),
        ("publish . --targets ", ["rack=", "name="]),
        ("publish . --targets rack=", ["rack=r1", "rack=r0"]),
        ("publish . --targets rack=r0,name=node-4", ["rack=r0,name=node-4"]),
    ],
)


@NAMES
def test_names_are_completed_from_the_daemon(
    words: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s"
    monkeypatch.setattr(completion, "ASKED_S", 30.0)  # not how quick this machine is
    with running(path, FakeDaemon()):
        assert completed(path, words, monkeypatch, capsys) == offered


def program(
    words: str, *, text: str = PATIENT, shell: str = "bash", after: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The program of a script, run as the script runs it, for the last of ``words``."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", text + after, shell, *words.split(" ")],
        capture_output=True, text=True, timeout=60, check=True, env=environment,
    )  # fmt: skip


def plain(words: str, **environment: str) -> list[str]:
    done = program(words, **environment)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line.startswith("plain,")]


@NAMES
def test_the_scripts_program_offers_the_same_names(words: str, offered: list[str], tmp_path: Path) -> None:
    with running(tmp_path / "s", FakeDaemon()):
        assert plain(words, GOSSIPD_SOCKET=str(tmp_path / "s")) == offered
        assert plain(f"{words.partition(' ')[0]} --socket {tmp_path}/s {words.partition(' ')[2]}") == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("wai", ["wait"]),
        ("config ", ["check", "show"]),
        ("config sh", ["show"]),
        ("assets completion ", ["bash", "zsh", "fish"]),
        ("publish --chunk-borders p", ["plain"]),
        ("publish --chunk-borders=t", ["tensors"]),
        ("status --wa", ["--watch"]),
        ("status -- --wa", []),
        ("nothing such ", []),
        ("wait org/toy@3 --timeout ", []),
        ("hold org/toy -- python ", []),
    ],
)
def test_commands_options_and_choices_need_no_daemon(words: str, offered: list[str]) -> None:
    assert plain(words) == offered


@pytest.mark.parametrize(("words", "kind"), [("status --config ", "file"), ("assets man ", "dir"), ("sign /e", "file")])
def test_places_are_left_to_the_shell(words: str, kind: str) -> None:
    assert program(words).stdout == f"{kind},{words.rpartition(' ')[2]}\n"


def test_every_command_and_option_is_in_the_table() -> None:
    def compare(command: click.Command, row: Any) -> int:
        shown = {name for one in command.get_params(click.Context(command)) if isinstance(one, click.Option)
                 for name in one.opts}  # fmt: skip
        assert shown <= row[1].keys(), command.name
        below = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
        assert list(row[3]) == below
        found = [command.get_command(click.Context(command), name) for name in below]  # type: ignore[attr-defined]
        return 1 + sum(compare(one, row[3][name]) for name, one in zip(below, found, strict=True))

    assert compare(cli, completion.command_row(cli, click.Context(cli), with_help=False)) > 45


@pytest.mark.parametrize(
    "given",
    [
        {}, {"--socket": "/run/x/gossipd.sock"}, {"--config": "home"}, {"--config": "home/gossipd.toml"},
        {"--socket": "s", "--config": "home"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("environment", [{}, {"GOSSIPD_SOCKET": "/e/s"}, {"GOSSIPD_STATUS__READ_SOCKET": "/e/r"}])
def test_the_program_looks_for_the_sockets_where_commands_do(
    given: dict[str, str], environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "gossipd.toml").write_text('[status]\nsocket = "run/orders"\n')
    monkeypatch.chdir(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert list(map(Path, completion_program.sockets(given))) == list(
        find_sockets(given.get("--socket"), given.get("--config"))
    )


def test_a_pipe_in_the_place_of_a_configuration_holds_no_shell(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gossipd.toml")
    assert len(completion_program.sockets({"--config": str(tmp_path)})) == 2


def test_names_that_a_shell_would_run_are_not_offered(tmp_path: Path) -> None:
    class Hostile(FakeDaemon):
        def names(self) -> Iterator[tuple[str, str]]:
            for name in ("gpu-1", "$(reboot)", "a;reboot", "a b", "`x`", "a\x1b[2J", "ü", "a&b", "-rf", "~root"):
                yield "name", name

    with running(tmp_path / "s", Hostile()):
        assert plain("forget ", GOSSIPD_SOCKET=str(tmp_path / "s")) == ["gpu-1"]


def test_a_daemon_that_does_not_answer_holds_up_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        began = time.monotonic()
        assert program("wait ", text=PROGRAM, GOSSIPD_SOCKET=str(tmp_path / "s")).stdout == ""
        assert time.monotonic() - began < 30  # two seconds, on a busy machine


def test_the_program_imports_little_and_takes_under_50_ms_of_cpu(tmp_path: Path) -> None:
    with running(tmp_path / "s", FakeDaemon()):
        where = {"GOSSIPD_SOCKET": str(tmp_path / "s")}
        done = program("wait ", after="print(*sys.modules)", **where)
        assert {"json", "re", "socket", "pathlib", "gossipd", "click"}.isdisjoint(done.stdout.splitlines()[-1].split())
        costs = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            program("wait ", **where)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) < 0.05, costs


def test_other_shells_get_the_help_of_each_word() -> None:
    assert program("reloa", shell="fish").stdout == f"plain,reload\t{RELOAD}\n"
    assert program("reloa", shell="zsh").stdout == f"plain\nreload\n{RELOAD}\n"


def test_without_a_daemon_nothing_is_offered_and_nothing_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(tmp_path / "none", "wait ", monkeypatch, capsys) == []
    assert completed(tmp_path / "none", "wait --config /nothing/g.toml ", monkeypatch, capsys) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("gossipd wait ", "org/toy@3"),
        ("gossipd wait org/toy@", "3"),
        ("gossipd wai", "wait"),
        ("gossipd publish . --targets rack=r0,name=node-4", "node-4"),
        ("gossipd why --host=node-4", "node-4"),
    ],
)
def test_bash_completes_a_version_behind_the_at_sign(line: str, reply: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    script = subprocess.run(
        [sys.executable, "-m", "gossipd", "assets", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    (tmp_path / "gossipd").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gossipd "$@"\n')
    (tmp_path / "gossipd").chmod(0o755)
    (tmp_path / "script").write_text(
        f'{script}\nCOMP_LINE="{line}" COMP_POINT={len(line)}\n_gossipd_completion gossipd\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GOSSIPD_SOCKET": str(path)}
    with running(path, FakeDaemon()):
        words = ["bash", "--norc", str(tmp_path / "script")]
        told = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (told.stdout.splitlines(), told.stderr) == ([reply], "")
