"""The commands as a person or a script runs them: what they print, and how they exit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
import pytest

from gossipd import __version__
from gossipd.api.schema import AlarmRow
from gossipd.audit.chain_file import AuditFile
from gossipd.cli import main as cli
from gossipd.cli.layout import laid_out
from gossipd.cli.main import VERBS, main
from gossipd.cli.main import cli as group
from gossipd.cli.status import limits_words, page_lines
from gossipd.core.errors import ExitCode
from gossipd.core.reasons import HostReason
from gossipd.identity.key_files import read_key_ring
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row
from tests.gossipd.cli.daemons import running

CLIENT_COMMANDS = (
    "status",
    "wait",
    "members",
    "ls",
    "path",
    "verify",
    "rm",
    "cancel",
    "rollback",
    "untrust",
    "forget",
    "reload",
)


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.out)
        assert answer["schema_version"] == 1
        return answer


class Shell:
    """Runs commands in this process against one fake daemon."""

    def __init__(self, path: Path, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self.daemon, self._capsys = path, daemon, capsys

    def __call__(self, *arguments: str, socket: bool = True) -> Ended:
        code = main([*arguments, *(["--socket", str(self.path)] if socket else [])])
        out, err = self._capsys.readouterr()
        return Ended(code, out, err)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()) as daemon:
        yield Shell(path, daemon, capsys)


def test_of_many_seeds_some_are_named() -> None:
    member = {"rack": "r", "state": "alive", "seed": True}
    page = {
        "node": {"name": "a", "rack": "r", "address": "x", "version": "1", "uptime_s": 1}, "inbox": {"trouble": ""},
        "security": {"state": "ok", "bulk_encryption": "tls", "reasons": []}, "alarms": [], "deployments": [],
        "store": {"condition": "ok", "free_bytes": 1, "detail": ""},
        "members": [{**member, "name": f"n{number}"} for number in range(65)],
    }  # fmt: skip
    [line] = [line for line in laid_out(page_lines(page, colour=False), None) if line.startswith("seeds")]
    assert line.endswith("r: n5, and 59 more (gossipd members)")


def test_what_a_shared_link_leaves_is_told_beside_the_limits() -> None:
    shared = {"shared_bytes_per_s": 3 << 20}
    assert limits_words(shared) == "download 3 MiB/s while others use the link"
    assert limits_words({"upload_bytes_per_s": 1 << 20, **shared}).startswith("upload 1 MiB/s; download 3 MiB/s")
    assert limits_words({"upload_bytes_per_s": 1 << 20, "shared_bytes_per_s": 0}) == "upload 1 MiB/s"
    assert limits_words({}) == ""


def test_status_is_a_page_for_people(shell: Shell) -> None:
    ended = shell("status")
    assert ended.code == 0
    assert ended.out == (
        "node-1  rack r1  127.0.0.1:7946  gossipd 0.1.0  up 3m 20s\n"
        "members   3 alive, 1 dead  in 2 racks\n"
        "seeds     r1: node-1, r0: node-2\n"
        "security  ok, bulk tls\n"
        "store     ok, 10 TiB free\n"
        "\n"
        "org/toy@3  distributing  62.5 %  2/4 hosts  256 MiB in 1024 chunks  64 MiB/s  6 s to go\n"
        "  source 256 MiB (1.00x)  same rack 384 MiB  cross rack 0 B  duplicate 0 B  corrupt 2\n"
        "  HOST    RACK  STATE        DONE    AGE  REASON\n"
        "  node-1  r1    complete     100 %   2 s\n"
        "  node-2  r0    complete     100 %   2 s\n"
        "  node-3  r1    downloading  50.0 %  2 s  all_busy\n"
        "  node-4  r0    init         0 %     -    dead\n"
    )


def test_status_shows_what_an_operator_must_act_upon(shell: Shell) -> None:
    shell.daemon.rows = [toy_row(stall="disk")]
    shell.daemon.alarms = [AlarmRow(code="E_EQUIVOCATION", sentence="toy@3 has two hashes", since="now")]
    out = shell("status").out
    assert "ALARM     E_EQUIVOCATION: toy@3 has two hashes" in out
    assert "stalled here: disk" in out


def test_a_step_of_a_name_that_is_not_known_is_told_as_it_was_typed(shell: Shell) -> None:
    assert "no deployment run-7@300.2 is known here" in shell("why", "run-7@300.2").err
    assert "no deployment run-7@300.2 became known" in shell("wait", "run-7@300.2", "--timeout", "0").err
    assert "no deployment run-7@8589934892 is known here" in shell("why", "run-7@8589934892").err


def test_what_is_not_here_is_named_as_the_steps_that_are(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    step, other = (2 << 32) + 300, (3 << 32) + 400
    known = shell.daemon.models()[1]
    models = [msgspec.structs.replace(known, version=step, version_label="300.2")]
    monkeypatch.setattr(shell.daemon, "models", lambda: models)
    assert "org/toy@400.3 is not on this host" in shell("path", f"org/toy@{other}").err
    monkeypatch.setattr(shell.daemon, "label", lambda name, version: f"{name}@400.3")
    assert "no deployment org/toy@400.3 became known" in shell("wait", "org/toy@400.3", "--timeout", "0").err
    assert "no deployment org/toy@400.3 is known here" in shell("status", "org/toy@400.3").err
    shell.daemon.rows = [msgspec.structs.replace(shell.daemon.rows[0], version=step, version_label="300.2")]
    before = shell("latest", "org/toy", "--before", "200.2").err
    assert "no version of org/toy before 200.2 is known here; the oldest is org/toy@300.2" in before


def test_versions_that_users_see_are_named_as_steps(shell: Shell) -> None:
    [row] = shell.daemon.rows
    step, other = (2 << 32) + 300, (2 << 32) + 200
    hosts = [
        msgspec.structs.replace(host, current=one) for host, one in zip(row.hosts, (step, step, other, 7), strict=True)
    ]
    row = msgspec.structs.replace(
        row, version=step, version_label="300.2", hosts=hosts, current_labels={str(other): "200.2"}
    )
    shell.daemon.rows = [row]
    assert "current: 300.2 on 2, 200.2 on 1, 7 on 1" in shell("status").out
    assert shell("status", "--json").object["deployments"][0]["hosts"][2]["current"] == other


def test_a_sketch_draws_which_chunks_each_known_host_has(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert shell("status", "org/toy", "--sketch").out.splitlines()[1:] == [
        "  HOST    RACK  CHUNKS  AGE  WHICH",
        "  node-1  r1    1024    1 s  " + 64 * "█",
        "  node-3  r1    341     1 s  " + 31 * "█" + "▒" + 31 * "·",
        "  2 more hosts have some; node-1 has not heard which: ask there",
    ]
    monkeypatch.setenv("COLUMNS", "80")
    assert (
        "  node-3  r1    341     1 s  " + 15 * "█" + "▓" + 15 * "·" + "·"
        in shell("status", "org/toy@3", "--sketch").out
    )
    answer = shell("status", "org/toy", "--sketch", "--json").object
    assert [one["name"] for one in answer["hosts"]] == ["node-1", "node-3"]
    assert shell("status", "--sketch").code == 2
    assert shell("status", "org/other", "--sketch").code == 3


def test_status_with_nothing_deployed_says_what_to_do(shell: Shell) -> None:
    shell.daemon.rows = []
    assert "drop a manifest into the inbox" in shell("status").out


def test_status_json_is_the_daemons_own_answer(shell: Shell) -> None:
    answer = shell("status", "--json").object
    assert answer["deployments"][0]["state"] == "distributing"
    assert shell("status", "org/toy@3", "--json").object["deployments"][0]["version"] == 3
    ended = shell("status", "org/toy@4")
    assert (ended.code, ended.err) == (3, "E_NOT_FOUND: no deployment org/toy@4 is known here; see: gossipd status\n")


def test_watch_draws_a_bar_for_each_host_and_the_totals(shell: Shell) -> None:
    from rich.console import Console

    from gossipd.api.client import StatusClient
    from gossipd.cli.live_status import view

    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view(StatusClient(shell.path).status(), "gone for a moment", columns=120, lines_max=20))
    text = console.export_text()
    console.file.close()
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "━" * 40 in rows["node-1"]
    assert "100 %" in rows["node-1"]
    assert "50.0 %" in rows["node-3"]
    assert "downloading (all_busy)" in rows["node-3"]
    assert "62.5 %" in rows["all"]
    assert "2/4 hosts complete" in rows["all"]
    assert "not answering: gone for a moment" in text


def test_watch_shows_those_furthest_behind_when_not_all_fit(shell: Shell) -> None:
    from rich.console import Console

    from gossipd.api.client import StatusClient
    from gossipd.cli.live_status import view

    shell.daemon.rows = [toy_row(8, hosts=10)]
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view(StatusClient(shell.path).status(), None, columns=120, lines_max=8))
    text = console.export_text()
    console.file.close()
    assert "node-9 " in text
    assert "node-10" in text
    assert "not shown: 7 complete" in text


def test_watch_draws_again_and_again_without_a_terminal(shell: Shell) -> None:
    from gossipd.api.client import StatusClient
    from gossipd.cli.live_status import watch_status

    client, asked = StatusClient(shell.path), list[int | None]()

    def ask(hosts_max: int | None) -> dict[str, Any]:
        asked.append(hosts_max)
        return client.status(hosts_max=hosts_max)

    assert watch_status(ask, as_json=False, interval_s=0.0, rounds=3) == 0
    assert None not in asked, "it asks for no more hosts than a terminal has lines"


@pytest.mark.parametrize(
    ("complete", "hosts", "code"),
    [
        (4, "100%", 5),
        (1, "here", 0),
        (0, "here", 5),
        (2, "2", 0),
        (2, "50%", 0),
        (2, "3", 5),
        (2, "100%", 5),
        (2, "51%", 5),
    ],
)
def test_wait_ends_when_enough_hosts_are_complete_or_the_time_is_up(
    shell: Shell, complete: int, hosts: str, code: int
) -> None:
    shell.daemon.rows = [toy_row(complete)]
    ended = shell("wait", "org/toy@3", "--hosts", hosts, "--timeout", "0s")
    assert ended.code == code
    if code:
        assert ended.err.startswith("E_TIMEOUT: after 0 s org/toy@3 is complete on ")


def test_a_wait_that_ends_well_says_so_in_a_line(shell: Shell) -> None:
    shell.daemon.rows = [toy_row(2)]
    assert shell("wait", "org/toy@3", "--hosts", "2") == (0, "org/toy@3 complete on 2 of 4 hosts\n", "")


def test_wait_names_a_step_as_status_does(shell: Shell) -> None:
    shell.daemon.rows = [msgspec.structs.replace(toy_row(2), version=(2 << 32) + 300, version_label="300.2")]
    ended = shell("wait", "org/toy@300.2", "--hosts", "2", "--timeout", "2s")
    assert ended == (0, "org/toy@300.2 complete on 2 of 4 hosts\n", "")


def test_wait_json_gives_the_deployment(shell: Shell) -> None:
    assert shell("wait", "org/toy@3", "--hosts", "1", "--json").object["deployment"]["hosts_complete"] == 2


def test_wait_waits_for_what_nobody_has_heard_of_yet(shell: Shell) -> None:
    ended = shell("wait", "other@1", "--timeout", "0s", "--json")
    assert ended.code == 5
    assert ended.object["error"]["message"] == "no deployment other@1 became known within 0 s"


def test_wait_tells_a_cancelled_and_a_failed_deployment_from_a_late_one(shell: Shell) -> None:
    from msgspec.structs import replace

    row = toy_row()
    shell.daemon.rows = [replace(row, state="cancelled")]
    told = "E_CANCELLED: org/toy@3 was cancelled; it is complete on 2 of 4 hosts\n"
    assert shell("wait", "org/toy@3").err == told
    failed = [replace(host, state="failed", reason="no_space") for host in row.hosts[2:]]
    shell.daemon.rows = [replace(row, state="failed", hosts=[*row.hosts[:2], *failed])]
    ended = shell("wait", "org/toy@3")
    assert ended.code == ExitCode.PARTIAL
    assert ended.err == (
        "E_PARTIAL: org/toy@3 is complete on 2 of 4 hosts and has ended: "
        "node-3 failed no_space, node-4 failed no_space; no_space: the model does not fit on the disk (the host's "
        "disk: free some space; it is noticed within ten seconds)\n"
    )


def waited(shell: Shell, complete: int, *reasons: HostReason, state: str = "downloading") -> Ended:
    """``wait`` for all, where so many hosts are complete and the others have these reasons."""
    from msgspec.structs import replace

    row = toy_row(complete)
    rest = [
        replace(host, state=state, reason=one.value, subject="")
        for host, one in zip(row.hosts[complete:], reasons, strict=False)
    ]
    shell.daemon.rows = [replace(row, hosts=[*row.hosts[:complete], *rest], hosts_complete=complete)]
    return shell("wait", "org/toy@3", "--timeout", "1s")


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.api.long_poll.HOPELESS_S", 0.0)


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize(
    ("complete", "reason", "state", "code"),
    [
        (0, HostReason.NO_RANGES, "downloading", ExitCode.SOURCE_UNREACHABLE),
        (0, HostReason.REFUSED_KEY, "failed", ExitCode.TRUST),
        (2, HostReason.NO_RANGES, "downloading", ExitCode.PARTIAL),
        (0, HostReason.SOURCE_CHANGED, "downloading", ExitCode.SOURCE_UNREACHABLE),
        (0, HostReason.OBJECT_SHORT, "downloading", ExitCode.TIMEOUT),
        (2, HostReason.REMOVED, "removed", ExitCode.PARTIAL),
        (2, HostReason.REFUSED_KEY, "failed", ExitCode.PARTIAL),
        (0, HostReason.SOURCE_AUTH, "downloading", ExitCode.TIMEOUT),
        (2, HostReason.NO_SPACE, "downloading", ExitCode.TIMEOUT),
    ],
)
def test_wait_ends_early_with_what_no_waiting_cures(
    shell: Shell, complete: int, reason: HostReason, state: str, code: ExitCode
) -> None:
    ended = waited(shell, complete, *[reason] * 4, state=state)
    assert ended.code == code
    assert reason.sentence in ended.err
    assert reason.cure in ended.err


@pytest.mark.usefixtures("no_patience")
def test_wait_goes_on_while_enough_hosts_can_still_come(shell: Shell) -> None:
    shell.daemon.rows = [toy_row(2)]
    waited(shell, 2, HostReason.NO_RANGES, HostReason.ALL_BUSY)
    assert shell("wait", "org/toy@3", "--hosts", "3", "--timeout", "0s").code == ExitCode.TIMEOUT


def test_a_timeout_says_that_a_dead_host_counts_and_what_cures_that(shell: Shell) -> None:
    ended = shell("wait", "org/toy@3", "--timeout", "0s")
    assert "node-4 0 % dead" in ended.err
    assert "`gossipd forget` it, so that it counts no longer" in ended.err


def test_wait_waits_for_a_daemon_that_is_not_up_yet(tmp_path: Path) -> None:
    path = tmp_path / "late.sock"
    command = [sys.executable, "-m", "gossipd", "wait", "org/toy@3", "--hosts", "1", "--socket", str(path)]
    with subprocess.Popen([*command, "--timeout", "60s"], stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "waiting for it" in waiting.stderr.readline()
        with running(path, FakeDaemon()):
            assert waiting.wait(60) == 0


def test_members_ls_and_path(shell: Shell) -> None:
    members = shell("members").out.splitlines()
    assert members[0].split() == ["NAME", "RACK", "STATE", "SEED", "ADDRESS", "VERSION", "SINCE"]
    assert members[4].split()[:4] == ["node-4", "r0", "dead", "-"]
    assert len(shell("members", "--json").object["members"]) == 4
    assert "* org/toy@2  complete" in shell("ls").out
    assert len(shell("ls", "--json").object["models"]) == 2
    assert "200 MiB" in shell("ls").out
    assert shell("path", "org/toy").out == "/m/org/toy/2\n"
    assert shell("path", "org/toy@2", "--json").object["path"] == "/m/org/toy/2"
    assert shell("path", "org/toy", "--prefix", "/mnt/models").out == "/mnt/models/org/toy/2\n"
    shell.daemon.trouble = "files of it were removed"
    ended = shell("path", "org/toy")
    assert (ended.code, ended.out) == (ExitCode.NOT_FOUND, "")
    assert "org/toy is not whole at /m/org/toy/2: files of it were removed" in ended.err
    assert shell("ls").out.endswith("\norg/toy@2: files of it were removed\n")
    shell.daemon.trouble = ""
    ended = shell("path", "org/toy@3")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == ("E_NOT_FOUND: org/toy@3 is not complete on this host, it is downloading; see: gossipd wait\n")
    assert shell("path", "other").err == "E_NOT_FOUND: other is not on this host; see: gossipd ls\n"


def test_path_says_why_a_version_that_lies_here_is_not_used(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    row = toy_row()
    host = msgspec.structs.replace(row.hosts[0], state="failed", reason="refused_operator", here=True)
    shell.daemon.rows = [msgspec.structs.replace(row, hosts=[host])]
    monkeypatch.setattr(shell.daemon, "models", list)
    told = shell("path", "org/toy@3").err
    assert "org/toy@3 is not on this host, or is not used: an operator of this host has said `gossipd untrust`" in told
    assert "`gossipd untrust --undo`" in told


def test_verify_exits_with_6_and_names_the_first_ten(shell: Shell) -> None:
    assert shell("verify", "org/toy@3").out == "org/toy@3: all 1024 chunks are good\n"
    shell.daemon.bad_chunks = 13
    ended = shell("verify", "org/toy@3")
    assert ended.code == ExitCode.VERIFICATION
    assert ended.err.count("bad: ") == 10
    assert "bad: weights.safetensors bytes 9-18 (chunk 9)" in ended.err
    assert "E_VERIFICATION: 13 of 1024 chunks of org/toy@3 are bad" in ended.err
    answer = shell("verify", "org/toy@3", "--json")
    assert (answer.code, answer.object["bad_count"], answer.object["verified"]) == (6, 13, False)
    assert shell("verify", "nothing@1").code == ExitCode.NOT_FOUND


def test_verify_of_what_is_not_whole_is_neither_bad_nor_verified(shell: Shell) -> None:
    shell.daemon.missing_chunks = 24
    ended = shell("verify", "org/toy@3")
    assert (ended.code, ended.out) == (ExitCode.PARTIAL, "")
    assert ended.err == "org/toy@3 is not complete here: 1000 chunks are good, 24 have not come yet\n"
    answer = shell("verify", "org/toy@3", "--json")
    assert (answer.code, answer.object["missing_count"], answer.object["verified"]) == (9, 24, False)
    shell.daemon.bad_chunks = 1
    assert shell("verify", "org/toy@3").code == ExitCode.VERIFICATION


def test_verify_and_latest_name_a_step_as_status_does(shell: Shell) -> None:
    shell.daemon.rows = [msgspec.structs.replace(toy_row(2), version=(2 << 32) + 300, version_label="300.2")]
    assert shell("verify", "org/toy@300.2").out == "org/toy@300.2: all 1024 chunks are good\n"
    shell.daemon.bad_chunks = 1
    assert "1 of 1024 chunks of org/toy@300.2 are bad" in shell("verify", "org/toy@300.2").err
    assert shell("latest", "org/toy", "--where", "here").out == "org/toy@300.2\n"
    assert "the oldest is org/toy@300.2" in shell("latest", "org/toy", "--before", "300.2").err
    assert shell("latest", "org/toy", "--before", "two").code == ExitCode.USAGE


def test_orders_are_passed_on(shell: Shell) -> None:
    assert shell("rm", "org/toy@2", "--dry-run").out == "rm org/toy done\n"
    assert shell("cancel", "org/toy@3", "--json").object["changed"] is True
    assert shell("rollback", "org/toy").code == 0
    assert shell("rollback", "org/toy", "--everywhere").code == 0
    assert shell("rollback", "org/toy@3", "--everywhere").code == 0
    assert shell("rm", "org/toy@2", "--everywhere").code == 0
    assert shell("untrust", "org/toy@3").code == 0
    assert shell("untrust", "ab" * 16, "--undo").code == 0
    assert shell("trust", "override", "org/toy").code == 0
    assert shell("forget", "node-4").code == 0
    assert shell.daemon.orders == [
        ("rm", "org/toy", 2, True),
        ("cancel", "org/toy", 3),
        ("rollback", "org/toy"),
        ("rollback", "org/toy", None, "everywhere"),
        ("rollback", "org/toy", 3, "everywhere"),
        ("rm", "org/toy", 2, False, "everywhere"),
        ("untrust", "org/toy", 3, False),
        ("untrust", "ab" * 16, 0, True),
        ("override", "org/toy"),
        ("forget", "node-4"),
    ]
    assert shell("rollback", "org/toy@3").code == ExitCode.USAGE, "not one for this host by a slip of the pen"
    assert shell("wait", "org/toy@3", "--current", "--removed").code == ExitCode.USAGE
    waited = shell("wait", "org/toy@3", "--removed", "--timeout", "0.1")
    assert waited.code == ExitCode.TIMEOUT
    assert "org/toy@3 is removed from 0 of 4 hosts; not on: node-1 complete, " in waited.err
    ended = shell("forget", "node-1")
    assert (ended.code, ended.err) == (1, "E_ALIVE: node-1 is alive; stop it first\n")


def test_reload_exits_by_its_outcome(shell: Shell) -> None:
    assert (shell("reload").code, shell("reload").out) == (0, "applied log.level\n")
    shell.daemon.needs_restart = ["net.port"]
    ended = shell("reload", "--json")
    assert (ended.code, ended.object["needs_restart"]) == (9, ["net.port"])
    shell.daemon.problems = ["net.port", "node.name"]
    ended = shell("reload")
    assert (ended.code, ended.err.splitlines()[0]) == (2, "E_CONFIG: 2 problems")
    assert ended.err.count("/d/gossipd.toml:3: ") == 2


def test_the_version_is_told_in_words_and_as_an_object(shell: Shell) -> None:
    assert shell("version", socket=False).out == f"gossipd {__version__}\n"
    for words in (["version", "--json"], ["--version", "--json"]):
        answer = shell(*words, socket=False).object
        assert (answer["version"], "trio" in answer["libraries"]) == (__version__, True)


def test_keygen_makes_a_clusters_key_or_one_line_of_it(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    assert shell("keygen", "--cluster", str(path), socket=False).code == 0
    ring = read_key_ring(path)
    assert path.stat().st_mode & 0o777 == 0o600
    line = shell("keygen", "--cluster", socket=False).out
    path.write_text(path.read_text() + line)
    again = read_key_ring(path)
    assert (again.cluster_id, again.keys[0], len(again.keys)) == (ring.cluster_id, ring.keys[0], 2)
    assert shell("keygen", "--cluster", str(path), socket=False).code == 7
    assert shell("keygen", socket=False).code == 2


def test_a_refusal_with_json_is_an_object_and_still_a_sentence(shell: Shell) -> None:
    ended = shell("cancel", "nothing@1", "--json")
    assert ended.code == 3
    assert ended.object["error"] == {"code": "E_NOT_FOUND", "message": "nothing is not deployed here", "exit_code": 3}
    assert ended.err == "E_NOT_FOUND: nothing is not deployed here\n"


def test_latest_prints_the_version_that_a_job_resumes_from(shell: Shell) -> None:
    assert shell("latest", "org/toy", "--where", "node-1,node-2").out == "org/toy@3\n"
    assert shell("latest", "org/toy", "--where", "here", "--long").out == "org/toy@3  -\n"
    assert shell("latest", "org/toy", "--where", "here", "--json").object["deployment"]["version"] == 3
    ended = shell("latest", "org/toy")
    assert ended.code == ExitCode.PARTIAL
    assert ended.err.startswith("E_NOT_READY: no version of org/toy is complete everywhere: org/toy@3 lacks node-3")


def test_untrust_says_what_a_word_could_have_been(shell: Shell) -> None:
    assert shell("untrust", "deadbeef").err == (
        "E_USAGE: 'deadbeef' is neither a .pub file, nor a key's id of 32 hexadecimal digits, nor NAME@VERSION\n"
    )


def test_what_was_taken_back_says_so_beside_its_state(shell: Shell) -> None:
    from msgspec.structs import replace

    for word, told in (("remove", "removed everywhere"), ("roll_back", "rolled back everywhere")):
        shell.daemon.rows = [replace(toy_row(1), state="complete", word=word)]
        assert told in shell("status").out


def test_why_of_an_unknown_host_names_the_one_that_is_near(shell: Shell) -> None:
    for host, told in (("nod-3", "did you mean node-3?"), ("x", "see: gossipd members")):
        ended = shell("why", "org/toy@3", "--host", host)
        assert ended.code == 3
        assert ended.err == f"E_NOT_FOUND: {host} is no target of org/toy@3, or not on the roster; {told}\n"


def test_latest_refuses_a_word_that_no_host_is_called(shell: Shell) -> None:
    for where, told in (("node-l", "no host is called node-l"), ("r1", "r1 is a rack, and no host is called so")):
        ended = shell("latest", "org/toy", "--where", f"node-3,{where}")
        assert ended.code == ExitCode.USAGE
        assert ended.err == (
            f"E_USAGE: where: {told}; name hosts (there are node-1, node-2, node-3, node-4), or here, anywhere, "
            "everywhere, recoverable\n"
        )


def test_hold_runs_a_command_and_ends_with_its_code(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    shell.daemon.path = str(tmp_path / "1")
    code = [sys.executable, "-c", "import sys; sys.exit(7)"]
    options = ["--socket", str(shell.path)]
    assert shell("hold", *options, "org/toy@2", "--", *code, socket=False).code == 7
    ended = shell("hold", *options, "org/toy@2", "--", str(tmp_path / "none"), socket=False)
    assert (ended.code, ended.err) == (2, f"E_USAGE: {tmp_path}/none: No such file or directory\n")
    assert shell("hold", *options, "org/toy@3", socket=False).code == ExitCode.NOT_FOUND
    assert shell("hold", *options, "org/toy@2", "--", "test", "-z", "", socket=False).code == 0


def test_no_daemon_is_exit_code_4(shell: Shell, tmp_path: Path) -> None:
    for command in (["status"], ["members"], ["ls"], ["path", "a"], ["wait", "a@1", "--timeout", "0s"], ["rm", "a@1"]):
        ended = shell(*command, "--socket", str(tmp_path / "none"), socket=False)
        assert (ended.code, ended.err.split(":")[0]) == (4, "E_DAEMON_UNREACHABLE")


def test_the_socket_is_found_by_option_config_variable_or_here(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("ls", "--socket", str(shell.path), socket=False).code == 0
    config = tmp_path / "gossipd.toml"
    config.write_text("[node]\nname = 'x'\n")
    assert shell("ls", "--config", str(config), socket=False).code == 0
    assert shell("ls", "--config", str(tmp_path), socket=False).code == 0
    config.write_text("[status]\nsocket = 'elsewhere.sock'\n")
    ended = shell("ls", "--config", str(config), socket=False)
    assert (ended.code, "elsewhere.sock" in ended.err) == (4, True)
    monkeypatch.setenv("GOSSIPD_STATUS__SOCKET", str(shell.path))
    assert shell("ls", "--config", str(config), socket=False).code == 0
    config.write_text("[status\n")
    assert shell("ls", "--config", str(config), socket=False).code == 2
    assert shell("ls", "--config", str(tmp_path / "none.toml"), socket=False).code == 2
    monkeypatch.chdir(tmp_path)
    assert shell("ls", socket=False).code == 0
    monkeypatch.chdir("/")
    assert shell("ls", socket=False).code == 4
    monkeypatch.setenv("GOSSIPD_SOCKET", str(shell.path))
    assert shell("ls", socket=False).code == 0


def test_a_command_that_is_misspelt_is_answered_with_the_one_that_is_near(shell: Shell) -> None:
    assert shell("statsu").err == "E_USAGE: No such command 'statsu'. Did you mean 'status'? (see: gossipd --help)\n"
    assert shell("zzz").err == "E_USAGE: No such command 'zzz'. (see: gossipd --help)\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["status", "a@b"],
        ["status", "a@-1"],
        ["status", "@1"],
        ["wait", "toy"],
        ["wait", "toy@1", "--timeout", "soon"],
        ["wait", "toy@1", "--hosts", "0%"],
        ["wait", "toy@1", "--hosts", "101%"],
        ["wait", "toy@1", "--hosts", "0"],
        ["wait", "toy@1", "--hosts", "some"],
        ["rm"],
        ["rm", "toy@1", "extra"],
        ["status", "--loud"],
        ["run"],
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_sentence(shell: Shell, arguments: list[str]) -> None:
    ended = shell(*arguments, socket=False)
    assert ended.code == ExitCode.USAGE
    assert ended.err.startswith("E_USAGE: ")
    assert ended.err.count("\n") == 1
    assert shell(*arguments, "--json", socket=False).code == ExitCode.USAGE


@pytest.mark.parametrize("name", CLIENT_COMMANDS)
def test_every_client_command_has_json_and_help_with_examples(shell: Shell, name: str) -> None:
    ended = shell(name, "--help", socket=False)
    assert ended.code == 0
    assert "--json" in ended.out
    assert "Examples:" in ended.out
    assert f"  gossipd {name}" in ended.out or f"$(gossipd {name}" in ended.out


def _leaves(command: click.Command, name: str = "") -> Iterator[str]:
    if isinstance(command, click.Group):
        for each in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), each)
            assert found is not None
            yield from _leaves(found, f"{name} {each}".strip())
    yield name


@pytest.mark.parametrize("name", list(_leaves(group)))
def test_every_help_page_fits_a_terminal_of_80_columns(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = shell(*name.split(), "--help", socket=False).out
    assert page and all(len(line) <= 80 for line in page.splitlines()), page


def test_help_lists_every_command_and_every_exit_code(shell: Shell) -> None:
    out = shell("--help", socket=False).out
    for name in VERBS:
        assert f"\n  {name} " in out
    for code in ExitCode:
        assert f" {int(code)} " in out
    assert "status " in shell(socket=False).err  # no arguments: the same, and exit code 2
    assert shell("--version", socket=False).out == f"gossipd, version {__version__}\n"


@pytest.mark.parametrize("name", VERBS)
def test_every_command_in_the_table_exists_and_explains_itself(name: str) -> None:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    assert command.help


def test_ctrl_c_is_exit_code_130_and_a_missing_file_is_one_sentence(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossipd.api.client import StatusClient

    def interrupt(self: StatusClient) -> None:
        raise KeyboardInterrupt

    def missing(self: StatusClient) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/x")

    monkeypatch.setattr(StatusClient, "members", interrupt)
    assert shell("members").code == ExitCode.INTERRUPTED
    monkeypatch.setattr(StatusClient, "members", missing)
    ended = shell("members")
    assert (ended.code, ended.err) == (1, "E_OS: /x: No such file or directory\n")


HEAVY = (
    "trio", "zmq", "rich", "anyio", "h11", "prometheus_client", "msgspec", "blake3", "importlib.resources", "shutil",
)  # fmt: skip
LATE = (
    "rich", "asyncio", "anyio", "h11", "prometheus_client", "obstore", "difflib", "zoneinfo", "sysconfig",
    "gossipd.publish.publisher",
)  # fmt: skip


@pytest.mark.parametrize(
    "command", [["status"], ["why", "org/toy@3"], ["ls"], ["path", "org/toy"], ["wait", "org/toy@3", "--hosts", "1"]]
)
def test_client_commands_start_quickly_because_they_import_little(shell: Shell, command: list[str]) -> None:
    script = (
        "import sys; from gossipd.cli.main import main; code = main(sys.argv[1:]);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, *command, "--socket", str(shell.path)], capture_output=True, text=True
    )
    assert (ended.returncode in (ExitCode.DONE, ExitCode.PARTIAL), ended.stderr) == (True, "[]\n")


def test_the_daemon_imports_late_what_most_hosts_never_need() -> None:
    script = f"import sys; import gossipd.daemon.main;print([name for name in {LATE} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_the_local_sockets_bring_no_second_event_loop() -> None:
    loops = ("asyncio", "anyio", "starlette")
    imports = "import sys; import gossipd.daemon.main, gossipd.api.routes"
    script = f"{imports};print([name for name in {loops} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_a_pipe_that_closes_early_is_no_traceback(shell: Shell) -> None:
    shell.daemon.rows = [toy_row(8, hosts=60)] * 50
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m gossipd status --socket {shell.path} | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
    )
    assert ended.stdout.splitlines()[0].startswith("node-1")
    assert ended.stderr == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("command", ["status", "status --json", "path org/toy@2", "keygen {}/key"])
def test_closed_streams_change_no_exit_code(shell: Shell, tmp_path: Path, command: str, closed: str) -> None:
    command = command.format(tmp_path)
    named = "" if command.startswith("keygen") else f" --socket {shell.path}"
    shell.daemon.rows = [toy_row(2, hosts=1)]
    line = f"{sys.executable} -m gossipd {command}{named} {closed}; echo code $? >&7"
    (tmp_path / "told").touch()
    ended = subprocess.run(["bash", "-c", f"exec 7>{tmp_path}/told; {line}"], capture_output=True, text=True)
    assert (tmp_path / "told").read_text() == "code 0\n", ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        (("latest", "org/toy", "--where", ""), "--where"),
        (("latest", "org/toy", "--where="), "--where"),
        (("deploy", "m", "--budget", ""), "--budget"),
        (("config", "show", "--config", ""), "--config"),
        (("init", ""), "an argument"),
    ],
)
def test_an_empty_word_is_wrong_usage_and_orders_nothing(shell: Shell, words: tuple[str, ...], subject: str) -> None:
    ended = shell(*words, socket=False)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"E_USAGE: {subject} is empty. Is a variable not set?")
    assert shell.daemon.orders == []


@pytest.mark.parametrize("option", ["", " --json"])
def test_a_full_device_is_an_error_of_one_line(shell: Shell, option: str) -> None:
    line = f"{sys.executable} -m gossipd version{option} > /dev/full"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "E_OS: No space left on device\n")


def test_colour_only_on_a_terminal_and_never_with_no_color(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossipd.cli import status

    assert "\x1b[" not in shell("status").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert "\x1b[32mcomplete" in shell("status").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert not status._colour()
    assert "\x1b[" not in shell("status").out


def test_audit_verify_compares_a_log_with_what_a_witness_heard(shell: Shell, tmp_path: Path) -> None:
    from gossipd.audit.witness import AuditHead, Witness

    path, heard = tmp_path / "audit.jsonl", tmp_path / "witness"
    file, witness = AuditFile(path), Witness()
    for event in ("started", "published"):
        file.append([{"event": event}], "2027-01-15T08:00:00Z")
    witness.heard(b"n" * 16, "node-1", AuditHead(1_000, file.records, bytes.fromhex(file.head)))
    heard.write_bytes(witness.to_bytes())
    words = ("audit", "verify", str(path), "--witness", str(heard), "--host")
    assert shell(*words, "node-1", socket=False).code == 0
    unknown = shell(*words, "node-2", socket=False)
    assert (unknown.code, "knows the hosts node-1" in unknown.err) == (ExitCode.USAGE, True)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    cut = shell(*words, "node-1", socket=False)
    assert cut.code == ExitCode.VERIFICATION
    assert "its end was cut off" in cut.err
    heard.write_bytes(b"?")
    assert shell(*words, "node-1", socket=False).code == ExitCode.USAGE


def test_audit_verify_says_whether_the_chain_holds(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path)
    for event in ("started", "published", "stopped"):
        file.append([{"event": event}], "2027-01-15T08:00:00Z")
    ended = shell("audit", "verify", str(path), socket=False)
    assert ended.code == 0
    assert "3 records from 2027-01-15T08:00:00Z" in ended.out
    answer = shell("audit", "verify", str(path), "--head", file.head, "--json", socket=False)
    assert (answer.object["verified"], answer.object["head"]) == (True, file.head)
    path.write_bytes(path.read_bytes().replace(b"published", b"pubLished"))
    ended = shell("audit", "verify", str(path), socket=False)
    assert ended.code == ExitCode.VERIFICATION
    assert ended.err.startswith(f"E_AUDIT_BROKEN: {path}: line 2: the record does not match its hash")
    assert shell("audit", "verify", str(tmp_path / "none"), socket=False).code == 3


def _altered(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"name":"toy@0"', b'"name":"toy@9"', 1))


@pytest.mark.parametrize(
    ("number", "harm", "code", "said"),
    [
        ("", lambda path: None, 0, "chain whole"),
        ("", _altered, 6, "changed"),
        ("", lambda path: os.truncate(path, path.stat().st_size - 7), 6, "the line is incomplete"),
        ("", lambda path: path.unlink(), 3, "no such file"),
        (".1", _altered, 6, "changed"),
        (".1", lambda path: os.truncate(path, path.stat().st_size - 7), 6, "incomplete"),
        (".2", _altered, 6, "changed"),
    ],
)
def test_the_exit_code_of_audit_verify_tells_what_became_of_a_rotated_log(
    shell: Shell, tmp_path: Path, *, number: str, harm: Callable[[Path], object], code: int, said: str
) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path, file_bytes_max=1000)
    for _ in range(20):
        file.append([{"event": "manifest accepted", "name": "toy@0"}], "2027-01-15T08:00:00Z")
    assert path.with_name("audit.jsonl.2").exists(), "it was rotated twice"
    harm(path.with_name(f"audit.jsonl{number}"))
    ended = shell("audit", "verify", str(path), "--head", file.head, socket=False)
    assert (ended.code, said in ended.out + ended.err) == (code, True), ended.err


def test_audit_verify_finds_the_log_of_a_configuration(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gossipd.toml").touch()
    ended = shell("audit", "verify", "--config", str(tmp_path / "gossipd.toml"), socket=False)
    assert (ended.code, ended.out) == (3, "")
    AuditFile(tmp_path / "audit.jsonl").append([{"event": "start"}], "2026-07-26T12:00:00.000Z")
    for words in (["--config", str(tmp_path)], ["--config", str(tmp_path / "gossipd.toml")]):
        assert f"{tmp_path}/audit.jsonl: 1 records" in shell("audit", "verify", *words, socket=False).out
    monkeypatch.chdir(tmp_path)
    assert shell("audit", "verify", socket=False).out.startswith("audit.jsonl: 1 records")
    both = shell("audit", "verify", "audit.jsonl", "--config", str(tmp_path), socket=False)
    assert both.err == "E_USAGE: give FILE or --config, not both\n"


def test_options_of_hold_behind_the_model_are_refused_as_a_command(shell: Shell) -> None:
    ended = shell("hold", "org/toy", "--config", "x", "--", "true")
    assert ended.code == 2
    assert ended.err.startswith("E_USAGE: --config stands behind the model, where the command is")


@pytest.mark.parametrize("since", ["x", "1", "1:x", "-1:2"])
def test_a_wrong_position_of_events_is_wrong_usage(shell: Shell, since: str) -> None:
    ended = shell("events", f"--since={since}")
    assert (ended.code, ended.err) == (2, "E_USAGE: --since: must be BOOT:ID, two numbers\n")


def test_what_is_not_known_is_refused_with_the_command_that_lists_what_is(shell: Shell) -> None:
    for words in (("status", "nothing"), ("report", "nothing"), ("status", "org/toy@9")):
        assert shell(*words).err.endswith(" is known here; see: gossipd status\n"), words


def test_a_refusal_orders_nothing_of_the_terminal(shell: Shell) -> None:
    ended = shell("status", "\x1b]0;taken\x07\u202egpu\x9b2J")
    assert ended.code == 3
    assert ended.err.rstrip("\n").isprintable()
    assert r"\x1b]0;taken\x07\u202egpu\x9b2J" in ended.err
