"""What every command says of a file that is not there: one rule, which the manual tells under *Exit codes*.

3 for what a command reads; 2 for a configuration, and for a place to write to; 7 for a key of gossipd. The table has
every option and argument of every command that names a file, so that a new one needs a line here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gossipd.cli.main import VERBS, cli, main
from gossipd.core.errors import ExitCode

READ, CONFIGURATION, PLACE, KEY = ExitCode.NOT_FOUND, ExitCode.USAGE, ExitCode.USAGE, ExitCode.TRUST
_INIT = "init h --name h --rack r --bind 127.0.0.1 --port 7946"
_PUBLISH = "publish model --name m --version 1 --key p.key --out m.manifest"
_TRIGGER = "trigger 127.0.0.1:1"
LINES = {
    ("audit verify", "file"): ("audit verify MISSING", READ),
    ("audit verify", "--witness"): ("audit verify log --witness MISSING --host a", READ),
    ("config check", "file"): ("config check MISSING", CONFIGURATION),
    ("config show", "file"): ("config show MISSING", CONFIGURATION),
    ("demo", "--report"): ("demo --report MISSING/r.html", PLACE),
    ("deploy", "manifest"): ("deploy MISSING", READ),
    ("export", "manifest"): ("export ./MISSING --in-toto", READ),
    ("init", "--cluster-key"): (f"{_INIT} --cluster-key MISSING", KEY),
    ("init", "--trust"): (f"{_INIT} --trust MISSING", KEY),
    ("key add", "file"): ("key add MISSING", KEY),
    ("key drop", "file"): ("key drop MISSING", KEY),
    ("key use", "file"): ("key use MISSING", KEY),
    ("keygen", "path"): ("keygen MISSING/p.key", KEY),
    ("publish", "--about"): (f"{_PUBLISH} --about MISSING", READ),
    ("publish", "--key"): ("publish model --name m --version 1 --key MISSING --out m.manifest", KEY),
    ("publish", "--model-sig"): (f"{_PUBLISH} --model-sig MISSING", READ),
    ("publish", "--model-sig-out"): (f"{_PUBLISH} --model-sig p.key --model-sig-out MISSING/s", PLACE),
    ("publish", "--out"): ("publish model --name m --version 1 --key p.key --out MISSING/m.manifest", PLACE),
    ("publish", "--require-model-signature"): (f"{_PUBLISH} --require-model-signature MISSING", READ),
    ("publish", "source"): ("publish MISSING --name m --version 1 --key p.key --out m.manifest", READ),
    ("report", "--out"): ("report m@1 --out MISSING/r.html", PLACE),
    ("show", "manifest"): ("show MISSING.manifest", READ),
    ("sign", "--key"): ("sign old.manifest --key MISSING --trust p.key.pub", KEY),
    ("sign", "--out"): ("sign old.manifest --key p.key --trust p.key.pub --out MISSING/m", PLACE),
    ("sign", "--trust"): ("sign old.manifest --key p.key --trust MISSING", KEY),
    ("sign", "manifest"): ("sign MISSING --key p.key --trust p.key.pub", READ),
    ("simulate", "--plot"): ("simulate --hosts 2 --chunks 4 --plot MISSING/p.png", PLACE),
    ("simulate", "--report"): ("simulate --hosts 2 --chunks 4 --report MISSING/r.html", PLACE),
    ("support", "--log"): ("support --out s.tar.gz --log MISSING", READ),
    ("support", "--out"): ("support --out MISSING/s.tar.gz", PLACE),
    ("trigger", "--key"): (f"{_TRIGGER} old.manifest --key MISSING --server-key p.key.pub", KEY),
    ("trigger", "--server-key"): (f"{_TRIGGER} old.manifest --key p.key --server-key MISSING", KEY),
    ("trigger", "model"): (f"{_TRIGGER} MISSING.manifest --key p.key --server-key p.key.pub", READ),
    ("untrust", "target"): ("untrust MISSING.pub", KEY),
    ("watch", "directory"): ("watch MISSING --name m", READ),
    ("web", "--tls-cert"): ("web --tls-cert MISSING --tls-key p.key", READ),
    ("web", "--tls-key"): ("web --tls-cert p.key --tls-key MISSING", READ),
    ("web", "--token-file"): ("web --token-file MISSING", READ),
}
"""Command lines by command and parameter, with what they end."""
NEEDED = {
    "cancel": "m@1", "deploy": "old.manifest", "export": "m --in-toto", "forget": "a", "latest": "m", "lineage": "m",
    "path": "m", "pause": "m@1", "pin": "m", "report": "m", "resume": "m@1", "rm": "m@1", "rollback": "m",
    "show": "m", "support": "--out s.tar.gz", "trigger": "127.0.0.1:1 m@1", "trust override": "m", "unpin": "m",
    "untrust": "m@1", "verify": "m@1", "wait": "m@1 --timeout 0s", "want": "m files:*", "warm": "m",
    "watch": "model --name m", "why": "m",
}  # fmt: skip
"""What commands with ``--config`` need besides."""
NO_FILES = {
    ("assets man", "directory"),  # it is made
    ("hold", "--prefix"),  # where models are mounted; what is below is judged
    ("init", "directory"),  # it is made
    ("path", "--prefix"),
    ("watch", "--marker"),  # a name below DIR
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


ALL = dict(commands(cli))


def names_a_file(parameter: click.Parameter) -> bool:
    words = ("FILE", "DIR", "PEM", "CLIENT_KEY", "KEY|", "MANIFEST")
    metavar = parameter.metavar or ""
    return isinstance(parameter.type, click.Path) or any(word in metavar for word in words)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "log").touch()
    assert main(["keygen", "p.key"]) == 0
    assert main(["publish", "model", "--name", "m", "--version", "1", "--key", "p.key", "--out", "old.manifest"]) == 0
    capsys.readouterr()


def test_every_parameter_that_names_a_file_has_a_line() -> None:
    assert VERBS.keys() == {name.split()[0] for name in ALL}
    named = {(command, one.opts[0]) for command, found in ALL.items() for one in found.params if names_a_file(one)}
    sockets_and_configurations = {one for one in named if one[1] in ("--config", "--socket")}
    assert named - sockets_and_configurations - NO_FILES == LINES.keys()


@pytest.mark.parametrize(("line", "code"), LINES.values(), ids=[line for line, _ in LINES.values()])
def test_a_file_that_is_not_there_ends_a_command_by_one_rule(
    line: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == code
    said = capsys.readouterr().err
    assert "MISSING" in said
    assert said.startswith("E_NOT_FOUND: ") is (code is READ)


@pytest.mark.parametrize(
    "command", [name for name, one in ALL.items() if any("--config" in p.opts for p in one.params)]
)
def test_a_configuration_that_is_not_there_is_wrong_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = [*command.split(), "--config", "MISSING", *NEEDED.get(command, "").split()]
    if command == "hold":
        line = ["hold", "--config", "MISSING", "m"]
    assert main(line) == CONFIGURATION, command
    assert "MISSING" in capsys.readouterr().err
