"""Every command that prints rows or sentences, with the longest names, at 80 columns: nothing is cut, nothing sticks
out; and in a pipe a row is a line."""

from __future__ import annotations

import ast
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from gossipd.api.events import MemberEvent
from gossipd.api.manifest_row import manifest_row
from gossipd.api.schema import AlarmRow, MemberRow, ModelRow, StatusSnapshot, WantRow
from gossipd.cli.deploy import plan_lines
from gossipd.cli.doctor import lines_of as doctor_lines
from gossipd.cli.layout import Part, TextTable, cut_in_the_middle, folded, laid_out
from gossipd.cli.main import main
from gossipd.cli.members import drift_lines
from gossipd.cli.top_frame import frame_lines, look, rates
from gossipd.cli.wait import progress_line
from gossipd.cli.why import lines_of as why_lines
from gossipd.core.versions import show_step, step_version
from gossipd.diagnosis.causes import diagnose
from gossipd.diagnosis.checks import CHECKS, CheckFinding, CheckVerdict
from gossipd.diagnosis.drift import compare
from gossipd.diagnosis.plan import Plan, PlannedHost
from gossipd.manifest.annotations import pack_about
from tests.gossipd.api.fake_daemon import MIB, FakeDaemon, toy_row
from tests.gossipd.cli import large_clusters
from tests.gossipd.cli.daemons import running
from tests.gossipd.manifest.making import manifest

COLUMNS = 80
STEP = step_version(123_450, 2)
NAME = "research/" + "m" * 55
HOSTS = [f"gpu-h100-80gb-{'x' * 45}-{number:03}" for number in range(1, 5)]
RACK = "row-12-rack-7-of-the-second-hall"
SENTENCE = "hosts differ that should be the same: trust: gpu-epsilon has 8a592b38, and the most have a663ee6c, so look"


class LongNames(FakeDaemon):
    """Hosts with names of 63 characters, racks of 32, models of 64, and versions that are steps."""

    def snapshot(self) -> StatusSnapshot:
        found = super().snapshot()
        node = msgspec.structs.replace(found.node, name=HOSTS[0], rack=RACK)
        members = [_renamed(one, at) for at, one in enumerate(found.members)]
        store = msgspec.structs.replace(found.store, detail="the last write of it ended with an error of the device")
        return msgspec.structs.replace(found, node=node, members=members, store=store)

    def models(self) -> list[ModelRow]:
        path = f"/var/lib/gossipd/models/{NAME}/{STEP}"
        return [
            ModelRow(
                name=NAME, version=STEP, version_label=show_step(STEP), state="complete", current=True,
                bytes_total=200 * MIB, path=path, lineage="run=llama-70b step=123450",
            )
        ]  # fmt: skip

    def wants(self) -> list[WantRow]:
        terms = "\n".join(f"tensors:model.layers.{number}.*" for number in range(9))
        return [WantRow(name=NAME, want=terms, configured=None, ordered=terms)]


def _renamed(member: MemberRow, at: int) -> MemberRow:
    return msgspec.structs.replace(member, name=HOSTS[at], rack=RACK, address=f"[2001:db8:1234:5678:9abc:def0::{at}]:1")


def daemon() -> LongNames:
    row = toy_row()
    hosts = [msgspec.structs.replace(host, name=HOSTS[at], rack=RACK) for at, host in enumerate(row.hosts)]
    row = msgspec.structs.replace(
        row, name=NAME, version=STEP, version_label=show_step(STEP), hosts=hosts, lineage="run=llama-70b step=123450"
    )
    about = pack_about({"run": "llama-70b", "note": "from the checkpoint that was the best by then"})
    made = manifest(name=NAME, version=STEP, about=about, labels={"note": SENTENCE})
    found = LongNames(
        rows=[row],
        manifests=[manifest_row(made)],
        alarms=[AlarmRow(code="E_DRIFT", sentence=SENTENCE, since="2026-11-25T12:00:00Z")],
    )
    for number in range(3):
        found.ring.append(MemberEvent(name=HOSTS[number], state="down", rack=RACK), "2026-11-25T12:00:00Z")
    return found


COMMANDS = [
    ["status"], ["status", "--all"], ["members"], ["ls"], ["ls", "--long"], ["why", NAME], ["report", NAME],
    ["events"], ["latest", NAME, "--where", HOSTS[0], "--long"], ["verify", f"{NAME}@{STEP}"],
    ["wait", f"{NAME}@{STEP}", "--hosts", "2"], ["wait", f"{NAME}@{STEP}", "--timeout", "0"], ["prune"],
    ["pin", f"{NAME}@{STEP}"], ["want", "--list"], ["rm", f"{NAME}@{STEP}"], ["lineage", NAME], ["show", NAME],
    ["forget", "node-1"], ["status", "--sketch"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_fits_80_columns_and_loses_no_word(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    path = tmp_path / "gossipd.sock"
    with running(path, daemon()):
        codes = [main([*words, "--socket", str(path)])]
        in_a_pipe = capsys.readouterr()
        monkeypatch.setattr("gossipd.cli.layout.columns_of_terminal", lambda **_: COLUMNS)
        codes.append(main([*words, "--socket", str(path)]))
        on_a_terminal = capsys.readouterr()
    assert codes[0] == codes[1]
    for piped, shown in ((in_a_pipe.out, on_a_terminal.out), (in_a_pipe.err, on_a_terminal.err)):
        fits(shown.splitlines())
        assert Counter(shown.split()) == Counter(piped.split())


def plan() -> list[Part]:
    row = {"name": NAME, "version": STEP, "version_label": show_step(STEP), "bytes_total": 5 << 30, "chunks_total": 9}
    hosts = [PlannedHost(name, RACK, ("lacks the publisher's key",), ("the disk may be full",)) for name in HOSTS]
    hosts.append(PlannedHost("small", RACK, (), (), 1 << 30))
    return plan_lines(row | {"signed_by": "ab" * 16}, Plan(tuple(hosts), 3 << 30, 400.0, "storage"), 1.25e9, 1.25e9)


def drift() -> list[Part]:
    member: dict[str, Any] = {"name": HOSTS[0], "state": "alive", "version": "0.1"}
    return drift_lines(compare([member, member | {"name": HOSTS[1], "version": "0.2"}]))


def why() -> list[str]:
    hosts = [
        large_clusters.host(n, state="downloading", chunks=7, reason="source_auth", subject=HOSTS[1]) for n in range(9)
    ]
    for host in hosts:
        host["name"] = f"{HOSTS[0][:-1]}{host['name'][-1]}"
    row = large_clusters.deployment(hosts, name=NAME, version=STEP, version_label=show_step(STEP))
    return why_lines(diagnose(large_clusters.page(row), row))


def doctor() -> list[Part]:
    verdicts = [CheckFinding(CheckVerdict.FAIL, f"{HOSTS[0]}: port 7947/tcp does not answer, {SENTENCE}")] * len(CHECKS)
    return doctor_lines(list(zip(CHECKS, verdicts, strict=True)))


@pytest.mark.parametrize("parts", [plan, drift, why, doctor])
def test_what_needs_a_cluster_to_be_said_fits_too(parts: Callable[[], list[Part]]) -> None:
    shown, whole = laid_out(parts(), COLUMNS), laid_out(parts(), None)
    fits(shown)
    assert max(map(len, whole)) > COLUMNS
    assert Counter(" ".join(shown).split()) == Counter(" ".join(whole).split())


def fits(lines: list[str]) -> None:
    """A word that is wider than the terminal, such as a path, may stick out, alone in its line."""
    assert [line for line in lines if len(line) > COLUMNS and " " in line.strip()] == []


def test_a_table_that_fits_has_no_blanks_at_the_ends_of_lines() -> None:
    assert laid_out([TextTable(("A", "LONG"), [("xyz", ""), ("1", "2")])], 80) == ["A    LONG", "xyz", "1    2"]


def test_the_last_column_is_folded_below_itself() -> None:
    rows = [("node-1", "no answer to 3 datagrams of 1,400 bytes"), ("node-22", "ok")]
    assert laid_out([TextTable(("HOST", "FOUND"), rows, "  ")], 40) == [
        "  HOST     FOUND",
        "  node-1   no answer to 3 datagrams of",
        "           1,400 bytes",
        "  node-22  ok",
    ]


def test_columns_that_do_not_fit_stand_below_their_row() -> None:
    rows = [("a" * 30, "rack-3", "downloading", "all_busy"), ("b", "r", "complete", "")]
    assert laid_out([TextTable(("HOST", "RACK", "STATE", "REASON"), rows)], 40) == [
        "HOST                            RACK",
        "    STATE        REASON",
        f"{'a' * 30}  rack-3",
        "    downloading  all_busy",
        f"b{' ' * 31}r",
        "    complete",
    ]


def test_a_label_has_its_sentence_beside_it_and_figures_keep_their_units() -> None:
    assert folded("store     ok, 10 TiB free; the last write ended with an error", 40) == [
        "store     ok, 10 TiB free; the last",
        "          write ended with an error",
    ]
    assert folded("  source 256 MiB (1.00x)  same rack 384 MiB  cross rack 0 B", 40) == [
        "  source 256 MiB (1.00x)",
        "      same rack 384 MiB  cross rack 0 B",
    ]


def test_colours_take_no_columns_and_a_terminal_of_no_width_folds_nothing() -> None:
    row = (click.style("complete", fg="green"), "x")
    [_, line] = laid_out([TextTable(("STATE", "NAME"), [row])], 20)
    assert click.unstyle(line) == "complete  x"
    assert laid_out(["word " * 40], 0) == ["word " * 40]


def test_one_line_of_progress_keeps_its_figures_and_shows_what_is_cut() -> None:
    row = large_clusters.deployment([large_clusters.host(n, state="downloading", chunks=9) for n in range(9)])
    line = progress_line(f"{NAME}@{STEP}", row, "complete", COLUMNS - 1)
    assert len(line) <= COLUMNS - 1
    assert line.startswith("research/m")
    assert "…" in line
    assert line.endswith("0/9 hosts  3 GiB/s  2m 10s to go")
    assert progress_line(f"{NAME}@{STEP}", row, "complete", 40).endswith("…")
    assert cut_in_the_middle("short", 9) == "short"


def test_a_frame_of_traffic_with_long_names_has_a_line_a_peer() -> None:
    page = large_clusters.page(members=3, alarms=[{"code": "E_DRIFT", "sentence": SENTENCE * 4, "since": "now"}])
    for at, member in enumerate(page["members"]):
        member["name"], member["rack"] = HOSTS[at], RACK
    page["node"]["name"], page["node"]["rack"] = HOSTS[0], RACK
    figures = {page["members"][n]["id"]: {"bytes_in": 9, "bytes_out": 9, "busy_in": 0, "busy_out": 0} for n in (1, 2)}
    now = look(page, figures, "", 0.0)
    lines = frame_lines(page, rates(now, now), "in", columns=COLUMNS, lines_max=24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= COLUMNS
    assert sum(line.startswith("gpu-h100") and "0/s" in line for line in lines) == 2
    assert "deployments under way" in "\n".join(lines)
    assert any(line.endswith(" ...") for line in lines), "the alarm goes on in gossipd status"
    wide = frame_lines(page, rates(now, now), "in", columns=None, lines_max=10_000, has_keys=False)
    assert sum(HOSTS[1] in line and RACK in line for line in wide) == 1


def test_what_is_folded_is_as_wide_as_the_terminal_is() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    ended = subprocess.run([sys.executable, "-m", "gossipd", "help"], stdout=theirs, env=environment, check=True)
    shown = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    os.close(theirs)
    assert ended.returncode == 0
    assert 40 < max(map(len, shown)) <= 50


PRINTED_AS_THEY_ARE = {
    "assets": 5, "completion_program": 2, "config": 1, "demo": 1, "events": 1, "help": 1, "init": 2, "keygen": 1,
    "layout": 1, "live_status": 1, "main": 1, "models": 1, "options": 1, "publish": 1, "show": 1, "traces": 1,
    "trigger": 1, "verify": 2, "version": 1, "wait": 2,
}  # fmt: skip
"""How often a module of commands prints without the layout: files, JSON, values for a script, a line that is drawn
over."""


def test_all_else_is_printed_by_the_layout() -> None:
    found: Counter[str] = Counter()
    for file in Path("gossipd/cli").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print"):
                found[file.stem] += 1
    assert {name: count for name, count in found.items() if count > PRINTED_AS_THEY_ARE.get(name, 0)} == {}
