"""``gossipd help``: the manual as a person on a terminal and a script in a pipe get it."""

from __future__ import annotations

import re
import sys

import pytest

from gossipd.cli.help import TOPICS, page
from gossipd.cli.main import main
from gossipd.core.errors import ExitCode


def test_help_without_topic_lists_every_page_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : len(TOPICS) + 1]] == list(TOPICS)
    assert all(len(line.split(maxsplit=1)[1]) > 10 for line in lines[1 : len(TOPICS) + 1])


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_in_a_pipe_is_its_markdown(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    out = capsys.readouterr().out
    assert out == page(topic)
    assert out.startswith("# ")


def test_a_page_on_a_terminal_is_formatted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["help", "glossary"]) == 0
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "# Glossary" not in out
    assert "seed" in out
    assert max(map(len, out.splitlines())) <= 120


def test_an_unknown_topic_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "operation"]) == ExitCode.USAGE
    ended = capsys.readouterr()
    assert ended.err.startswith("E_USAGE: the manual has no topic 'operation'; it has install, operations, ")
    assert ended.out == ""
