"""``gossipd help``: the manual as a person on a terminal and a script in a pipe get it."""

from __future__ import annotations

import re
import sys

import pytest

from gossipd.cli.help import SETTINGS, page
from gossipd.cli.main import main
from gossipd.cli.manual_entries import entry
from gossipd.config.sections import SECTIONS
from gossipd.core.errors import ExitCode
from gossipd.core.reasons import HostReason
from gossipd.web.manual_pages import TOPICS


def test_help_without_topic_lists_every_page_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : len(TOPICS) + 2]] == [*TOPICS, SETTINGS]
    assert all(len(line.split(maxsplit=1)[1]) > 10 for line in lines[1 : len(TOPICS) + 2])


@pytest.mark.parametrize("topic", [*TOPICS, SETTINGS])
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


def test_every_setting_is_on_the_page_of_settings_and_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    every = [f"{name}.{item.name}" for name, section in SECTIONS.items() for item in section.settings]
    assert re.findall(r"(?m)^### (\S+)$", page(SETTINGS)) == every
    assert main(["help", "store.replicas_after_s"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### store.replicas_after_s\n\nHow long a rack")
    assert out.endswith('Default "15m". *Reload.*\n')


@pytest.mark.parametrize(
    ("word", "meant"),
    [("runbok", "runbook"), ("refusedkey", "refused_key"), ("E_DRFT", "E_DRIFT"), ("store.replica", "store.replicas")],
)
def test_a_misspelt_topic_is_answered_with_the_one_that_is_near(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["help", word]) == 2
    assert capsys.readouterr().err.endswith(f"by its name. Did you mean '{meant}'?\n")


def test_an_alarm_an_alert_and_a_reason_are_found_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    words = re.findall(r"(?m)^### (\S+)$", page("runbook"))
    assert {"E_WATERMARK", "GossipdDown"} <= set(words)
    for word in (*words, *(one.value for one in HostReason if one.value)):
        assert main(["help", word]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"### {word}\n\n") and out.count("### ") == 1 and out.endswith(".\n"), out
    assert "free some space" in str(entry("no_space", page))
    assert entry("", page) is None and entry("###", page) is None
