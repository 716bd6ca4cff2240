"""Everything that the audit log is told has its type of event, and progress becomes one only when it matters."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, cast

from gossipd.api import events
from gossipd.api.events import EventRing
from gossipd.audit.log import AuditLog
from gossipd.core.reasons import HostReason
from gossipd.core.versions import step_version
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.event_feed import HOST_EVENTS_BURST, HOST_EVENTS_PER_S, TYPE_OF_RECORD, EventFeed
from gossipd.deployment.progress_record import HostState, Progress
from membership import events as membership_events
from membership.member import Member, MemberState, NodeId
from tests.gossipd.daemon.test_state_dir import record

NODE = NodeId(b"n" * 16)
ROOT = Path(__file__).parents[3] / "gossipd"


def bodies(feed: EventFeed) -> list[events.Body]:
    return [row.body for row in feed.ring.since(None, 0, 100)]


def recorded_kinds() -> set[str]:
    """The first argument of every call that tells the audit log something."""
    found = set()
    for path in (*(ROOT / "daemon").glob("*.py"), *(ROOT / "deployment").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("audit.record", ".audit", "audit")):
                found |= (
                    {one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)}
                    if node.args
                    else set()
                )
    return {kind for kind in found if isinstance(kind, str)}


def test_every_kind_of_record_has_a_type() -> None:
    kinds = recorded_kinds()
    assert len(kinds) > 15
    assert kinds <= TYPE_OF_RECORD.keys()


def test_records_and_alarms_become_events_in_order(tmp_path: Path) -> None:
    feed = EventFeed(EventRing(7))
    audit = AuditLog(tmp_path / "audit.jsonl", listener=feed)
    alarms = Alarms(audit, feed.alarm_ended)
    audit.record("published", deployment="ab", name="toy", version=3)
    alarms.ring("E_ALONE", "hears no other")
    alarms.ring_as("E_ALONE", "hears no other; another key")
    alarms.cured("E_ALONE")
    audit.record("quarantined", subject="node-3", deployment="ab", chunk=4, code="E_DIGEST")
    told = bodies(feed)
    assert told[0] == events.DeploymentEvent(what="published", deployment="toy@3")
    assert [(one.state, one.reason) for one in told[1:] if isinstance(one, events.AlarmEvent)] == [
        ("begun", "hears no other"), ("ended", "hears no other"), ("begun", "hears no other; another key"),
        ("ended", "hears no other; another key"),
    ]  # fmt: skip
    assert len(told) == 5, "none for a chunk"


def test_a_changed_setting_says_which_model_it_is_about(tmp_path: Path) -> None:
    feed = EventFeed(EventRing(7))
    audit = AuditLog(tmp_path / "audit.jsonl", listener=feed)
    audit.record("want ended", subject="org/toy", want="everything")
    audit.record("started", version="0.2.0")
    told = [one.reason for one in bodies(feed) if isinstance(one, events.ConfigEvent)]
    assert told == ["org/toy want=everything", "version=0.2.0"]


def test_events_of_records_call_a_deployment_as_the_status_does(tmp_path: Path) -> None:
    feed = EventFeed(EventRing(7))
    audit = AuditLog(tmp_path / "audit.jsonl", listener=feed)
    step = step_version(300, 2)
    audit.record("published", label="run@300.2", deployment="ab" * 32, name="run", version=step)
    audit.record("evicted", label="run@300.2", reason="keep_versions", name="run", version=step)
    audit.record("pinned", subject=f"run@{step}", label="run@300.2")
    audit.record("budget ordered", label="run@300.2", bytes_max=9, name="run", version=step)
    audit.record("untrust", label="run@300.2", what=f"run@{step}", undone=True)
    audit.record("trust override", name="run", highest=step)
    audit.record("deployed by several", label="run@300.2", deployment="ab" * 32)
    audit.record("refused", deployment="ab" * 32, code="E_KEY_UNKNOWN", reason="signed by another")
    assert bodies(feed) == [
        events.DeploymentEvent(what="published", deployment="run@300.2"),
        events.StoreStateEvent(what="evicted", reason="run@300.2: keep_versions"),
        events.StoreStateEvent(what="pinned", reason="run@300.2"),
        events.ConfigEvent(what="budget ordered", reason="run@300.2 bytes_max=9"),
        events.SecurityEvent(what="untrust", subject="run@300.2", reason="undone"),
        events.SecurityEvent(what="trust override", subject="run"),
        events.SecurityEvent(what="deployed by several", subject="run@300.2"),
        events.DeploymentEvent(
            what="refused", deployment="ab" * 6, code="E_KEY_UNKNOWN", reason="signed by another"
        ),
    ]  # fmt: skip
    assert "300.2" not in str(audit._waiting), "files keep the number"


def test_a_file_that_is_no_manifest_and_a_word_are_told_in_events(tmp_path: Path) -> None:
    feed = EventFeed(EventRing(7))
    audit = AuditLog(tmp_path / "audit.jsonl", listener=feed)
    audit.record("manifest refused", file="m.manifest", code="E_DECODE", reason="the envelope is empty")
    audit.record("statement", subject="cd" * 6, verb="cancel", deployment="ab" * 32)
    refused, heard = cast(Any, bodies(feed))
    assert refused.reason == "m.manifest: the envelope is empty"
    assert (heard.deployment, heard.reason) == ("ab" * 6, "cancel")


def test_progress_is_an_event_only_when_state_or_cause_change() -> None:
    feed = EventFeed(EventRing(7))
    steps = [
        Progress(state=HostState.DOWNLOADING), Progress(state=HostState.DOWNLOADING, chunks_verified=9),
        Progress(state=HostState.DOWNLOADING, reason=HostReason.ALL_BUSY),
        Progress(state=HostState.DOWNLOADING, reason=HostReason.NO_SPACE), Progress(state=HostState.COMPLETE),
    ]  # fmt: skip
    before: Progress | None = None
    for now in steps:
        feed.host_progressed(NODE, "node-2", "toy@3", before, now)
        before = now
    told = [(one.state, one.reason) for one in bodies(feed) if isinstance(one, events.HostStateEvent)]
    assert told == [("downloading", ""), ("downloading", "no_space"), ("complete", "")]


def test_a_host_whose_state_goes_to_and_fro_pushes_out_no_event_of_others() -> None:
    now = [0.0]
    feed = EventFeed(EventRing(7, rows_max=2000), clock=lambda: now[0])
    feed.host_progressed(NODE, "node-2", "toy@3", None, Progress(state=HostState.COMPLETE))
    member = Member(record(3), MemberState.ALIVE, 0, 0.0)
    states = Progress(state=HostState.DOWNLOADING), Progress(state=HostState.FAILED)
    for number in range(6000):
        now[0] += 0.1
        feed.host_progressed(member.record.node, "node-2", f"{number}", states[number % 2], states[1 - number % 2])
        feed.member_heard(membership_events.MemberUp(member))
    told = [row.body for row in feed.ring.since(None, 0, 2000)]
    assert told[0] == events.HostStateEvent(host="node-2", deployment="toy@3", state="complete")
    assert HOST_EVENTS_BURST < len(told) <= HOST_EVENTS_BURST + 600 * HOST_EVENTS_PER_S + 2
    now[0] += 10
    feed.member_heard(membership_events.MemberLeft(member))
    assert cast(Any, feed.ring.since(None, 0, 2000)[-1].body).state == "left"


def test_this_hosts_own_states_have_no_bound() -> None:
    feed, states = EventFeed(EventRing(7), clock=lambda: 0.0), (HostState.DOWNLOADING, HostState.COMPLETE)
    for number in range(3000):
        before, now = (Progress(state=states[(number + add) % 2]) for add in (0, 1))
        feed.host_progressed(None, "node-1", "toy@3", before, now)
    assert len(feed.ring.since(None, 0, 10_000)) == 3000


def test_members_that_come_and_go_are_events() -> None:
    feed = EventFeed(EventRing(7))
    member = Member(record(2), MemberState.ALIVE, 0, 0.0)
    feed.member_heard(membership_events.MemberUp(member))
    feed.member_heard(membership_events.MemberLeft(member))
    feed.member_heard(membership_events.Isolated(True))
    feed.member_heard(membership_events.MemberForgotten(member.record.node, member.record.name))
    assert [cast(Any, one).state for one in bodies(feed)] == ["up", "left", "forgotten"]
