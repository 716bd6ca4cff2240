"""Who hears of a member, a statement, a record of progress, and a wanted probe."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing
from trio.testing import MockClock

from gossipd.control.requests import PeerSilentError
from gossipd.core.events import IsolationChanged, PeerLost
from gossipd.daemon.member_events import PINGS_MAX, ROSTER_PAUSE_S, MemberEvents
from gossipd.deployment.events import ProgressHeard, RosterChanged, StatementHeard
from gossipd.deployment.progress_record import ProgressFormatError
from membership.events import PayloadHeard, PayloadKind
from membership.member import NodeId

PEER, OWN = NodeId(b"p" * 16), NodeId(b"o" * 16)


class Parts:
    """Stands for all hearers; notes who heard what, in order."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.heard: list[tuple[str, object]] = []
        self.answers = True
        self.asking = 0
        self.refuses = False
        note = self._note
        self.events = MemberEvents(
            cast(Any, SimpleNamespace(post=note("planner"))),
            cast(Any, SimpleNamespace(hear=note("sessions"), member_changed=note("moved"), request=self._request)),
            cast(Any, SimpleNamespace(post=note("deployments"))), cast(Any, SimpleNamespace(heard=self._progress)),
            cast(Any, SimpleNamespace(answered=note("answered"), judge_again=lambda: note("judge again")(None))),
            cast(Any, None), cast(Any, SimpleNamespace(heard=note("audit"))), nursery,
        )  # fmt: skip

    def _note(self, who: str) -> Any:
        return lambda what: self.heard.append((who, what))

    def _progress(self, key: bytes, *_: object) -> ProgressHeard | None:
        if self.refuses:
            raise ProgressFormatError("too short")
        return None if key.startswith(OWN) else ProgressHeard(PEER, b"key")

    async def _request(self, node: NodeId, *_: object) -> None:
        self.asking += 1
        if not self.answers:
            await trio.sleep(1)
            raise PeerSilentError("no answer")


async def test_heads_of_audit_chains_go_to_their_part() -> None:
    async with trio.open_nursery() as nursery:
        parts = Parts(nursery)
        head = PayloadHeard(PEER, PEER, PayloadKind.AUDIT, PEER, 1, b"head")
        parts.events.payload_heard(head)
    assert parts.heard == [("audit", head)]


async def test_sessions_hear_of_a_loss_after_the_planner() -> None:
    async with trio.open_nursery() as nursery:
        parts = Parts(nursery)
        parts.events.post(PeerLost(PEER))
        parts.events.post(IsolationChanged(True))
    assert parts.heard == [
        ("planner", PeerLost(PEER)),
        ("sessions", PeerLost(PEER)),
        ("planner", IsolationChanged(True)),
    ]


async def test_statements_and_rosters_go_to_the_deployment_brain() -> None:
    async with trio.open_nursery() as nursery:
        parts = Parts(nursery)
        parts.events.payload_heard(PayloadHeard(PEER, OWN, PayloadKind.STATEMENT, b"k", 1, b"word"))
        parts.events.roster_changed()
    assert parts.heard == [
        ("deployments", StatementHeard(b"word", b"k", OWN)),
        ("deployments", RosterChanged()),
        ("judge again", None),
    ]


async def test_progress_of_others_counts_and_nonsense_is_ignored() -> None:
    async with trio.open_nursery() as nursery:
        parts = Parts(nursery)
        for node in (PEER, OWN):
            parts.events.payload_heard(PayloadHeard(node, node, PayloadKind.PROGRESS, node + b"key", 1, b"record"))
        parts.refuses = True
        parts.events.payload_heard(PayloadHeard(PEER, PEER, PayloadKind.PROGRESS, PEER + b"key", 2, b"?"))
    assert parts.heard == [("deployments", ProgressHeard(PEER, b"key"))]


async def test_probes_are_bounded_and_only_an_answer_is_told(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        parts = Parts(nursery)
        parts.answers = False
        for _ in range(3 * PINGS_MAX):
            parts.events.probe_wanted(PEER)
        await trio.testing.wait_all_tasks_blocked()
        assert parts.asking == PINGS_MAX
        await trio.sleep(2)
        assert parts.heard == []
        parts.answers = True
        parts.events.probe_wanted(PEER)
    assert parts.heard == [("answered", PEER)]


async def test_a_member_that_begins_many_lives_has_words_judged_again_now_and_then(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        parts = Parts(nursery)
        parts.events.roster_changed()
        assert parts.heard == [("deployments", RosterChanged()), ("judge again", None)], "at once"
        for _ in range(1000):
            parts.events.roster_changed()
            await trio.sleep(0.002)
        await trio.sleep(ROSTER_PAUSE_S)
        count = parts.heard.count(("judge again", None))
        assert 2.0 / ROSTER_PAUSE_S <= count <= 2.0 / ROSTER_PAUSE_S + 2
        await trio.sleep(5)
        assert parts.heard.count(("judge again", None)) == count, "the last change was followed"
