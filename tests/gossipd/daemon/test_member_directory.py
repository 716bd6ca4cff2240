"""What the table of members makes of membership's words: who hears of which change."""

from __future__ import annotations

from msgspec.structs import replace

from gossipd.core.events import Event, PeerSeen
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.progress_record import KEY_BYTES
from gossipd.deployment.signed_progress import ProgressKey
from gossipd.swarm.capabilities import NodeCapabilities
from membership import events as membership_events
from membership.events import DownReason, PayloadHeard, PayloadKind
from membership.member import Member, MemberState, NodeId
from tests.gossipd.daemon.listeners import QuietListener
from tests.gossipd.daemon.test_state_dir import record

OWN = record(9).node


class Hearing(QuietListener):
    """A directory, and what it tells others."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.changed: list[NodeId] = []
        self.asked: list[NodeId] = []
        self.heard: list[PayloadHeard] = []
        self.rosters = 0
        super().__init__(self.posted.append)
        self.directory = MemberDirectory(OWN)

    def hear(self, *heard: membership_events.Event) -> None:
        for event in heard:
            self.directory.hear(event, self)

    def member_changed(self, node: NodeId) -> None:
        self.changed.append(node)

    def payload_heard(self, event: PayloadHeard) -> None:
        self.heard.append(event)

    def ask(self, node: NodeId) -> None:
        self.asked.append(node)

    def roster_changed(self) -> None:
        self.rosters += 1


def member(number: int, *, rack: str = "r", seed_term: int = 0) -> Member:
    said = NodeCapabilities(True, seed_term).to_bytes()
    return Member(replace(record(number), rack=rack, payload=said), MemberState.ALIVE, 0, 0.0)


def test_a_member_that_was_dead_and_is_back_is_told_of_as_changed() -> None:
    hearing, one = Hearing(), member(1)
    hearing.hear(membership_events.MemberUp(one), membership_events.MemberChanged(one))
    assert hearing.changed == [one.record.node], "nothing of it is new the second time"
    hearing.hear(membership_events.MemberDown(one, DownReason.LONE), membership_events.MemberUp(one))
    assert hearing.changed == [one.record.node] * 2, "its sessions have something to mend"
    assert hearing.rosters == 2, "new and lost; its keys are what they were"


def test_the_planner_hears_whether_a_member_has_spoken_to_this_host() -> None:
    hearing, one = Hearing(), member(1)
    hearing.hear(membership_events.MemberUp(one), membership_events.MemberAnswered(one.record.node))
    seen = [event for event in hearing.posted if isinstance(event, PeerSeen)]
    assert [event.has_answered for event in seen] == [False, True]
    assert seen[0].peer == seen[1].peer
    moved = Member(replace(one.record, host="10.0.0.2"), MemberState.ALIVE, 0, 0.0)
    hearing.hear(membership_events.MemberChanged(moved))
    assert hearing.posted[-1].has_answered is False, "not from there"  # type: ignore[union-attr]


def test_an_answer_of_a_member_that_is_dead_tells_the_planner_nothing() -> None:
    hearing, one = Hearing(), member(1)
    hearing.hear(membership_events.MemberUp(one), membership_events.MemberDown(one, DownReason.LONE))
    count = len(hearing.posted)
    hearing.hear(membership_events.MemberAnswered(one.record.node))
    assert len(hearing.posted) == count


def test_members_that_matter_at_once_are_asked_and_each_other_rack_once() -> None:
    hearing = Hearing()
    hearing.directory.begin(record(9), [])
    near, far, other_far, seed = member(1), member(2, rack="f"), member(3, rack="f"), member(4, rack="f", seed_term=2)
    for one in (near, far, other_far, seed):
        hearing.hear(membership_events.MemberUp(one))
    assert hearing.asked == [near.record.node, far.record.node, seed.record.node]
    hearing.hear(membership_events.MemberAnswered(seed.record.node), membership_events.MemberChanged(seed))
    assert hearing.asked.count(seed.record.node) == 1, "it has spoken"


def progress(of: Member, version: int = 1) -> PayloadHeard:
    key = ProgressKey(of.record.node, b"d" * KEY_BYTES, is_signed=True)
    return PayloadHeard(of.record.node, OWN, PayloadKind.PROGRESS, key.encode(), version, b"record")


def test_progress_of_a_member_that_never_spoke_waits_for_its_answer() -> None:
    hearing, one = Hearing(), member(1, rack="f")
    hearing.hear(membership_events.MemberUp(one))
    hearing.asked.clear()
    hearing.hear(progress(one), progress(one, version=2))
    assert (hearing.heard, hearing.asked) == ([], [one.record.node] * 2)
    hearing.hear(membership_events.MemberAnswered(one.record.node))
    assert hearing.heard == [progress(one, version=2)]
    hearing.hear(progress(one, version=3))
    assert hearing.heard[-1] == progress(one, version=3)


def test_progress_of_a_member_that_was_forgotten_unheard_comes_to_nobody() -> None:
    hearing, one = Hearing(), member(1)
    hearing.hear(membership_events.MemberUp(one), progress(one))
    hearing.hear(membership_events.MemberForgotten(one.record.node, "node-1"))
    hearing.hear(membership_events.MemberUp(one), membership_events.MemberAnswered(one.record.node))
    assert hearing.heard == []


def test_other_words_and_words_that_cannot_be_read_are_passed_on() -> None:
    hearing, one = Hearing(), member(1)
    hearing.hear(membership_events.MemberUp(one))
    statement = PayloadHeard(one.record.node, OWN, PayloadKind.STATEMENT, b"k", 1, b"word")
    nonsense = PayloadHeard(one.record.node, OWN, PayloadKind.PROGRESS, b"k", 1, b"word")
    hearing.hear(statement, nonsense)
    assert hearing.heard == [statement, nonsense]
