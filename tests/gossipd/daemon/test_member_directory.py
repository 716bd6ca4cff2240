"""What the table of members makes of membership's words: who hears of which change."""

from __future__ import annotations

from gossipd.core.events import Event
from gossipd.daemon.member_directory import MemberDirectory
from membership import events as membership_events
from membership.events import DownReason
from membership.member import Member, MemberState, NodeId
from tests.gossipd.daemon.listeners import QuietListener
from tests.gossipd.daemon.test_state_dir import record

OWN = NodeId(b"o" * 16)


class Hearing(QuietListener):
    """A directory, and what it tells others."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.changed: list[NodeId] = []
        self.rosters = 0
        super().__init__(self.posted.append)
        self.directory = MemberDirectory(OWN)

    def hear(self, *heard: membership_events.Event) -> None:
        for event in heard:
            self.directory.hear(event, self)

    def member_changed(self, node: NodeId) -> None:
        self.changed.append(node)

    def roster_changed(self) -> None:
        self.rosters += 1


def member(number: int) -> Member:
    return Member(record(number), MemberState.ALIVE, 0, 0.0)


def test_a_member_that_was_dead_and_is_back_is_told_of_as_changed() -> None:
    hearing, one = Hearing(), member(1)
    hearing.hear(membership_events.MemberUp(one), membership_events.MemberChanged(one))
    assert hearing.changed == [one.record.node], "nothing of it is new the second time"
    hearing.hear(membership_events.MemberDown(one, DownReason.LONE), membership_events.MemberUp(one))
    assert hearing.changed == [one.record.node] * 2, "its sessions have something to mend"
    assert hearing.rosters == 2, "new and lost; its keys are what they were"
