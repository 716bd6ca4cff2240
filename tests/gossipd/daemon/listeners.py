"""A ``MemberListener`` for tests: passes planner events on, and does nothing else unless a subclass says so."""

from __future__ import annotations

from collections.abc import Callable

from gossipd.core.events import Event
from membership.events import PayloadHeard
from membership.member import NodeId


class QuietListener:
    """See MemberListener."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post

    def post(self, event: Event) -> None:
        self._post(event)

    def member_changed(self, node: NodeId) -> None:
        pass

    def ask(self, node: NodeId) -> None:
        pass

    def roster_changed(self) -> None:
        pass

    def payload_heard(self, event: PayloadHeard) -> None:
        pass

    def probe_wanted(self, node: NodeId) -> None:
        pass

    def alarm(self, code: str, sentence: str) -> None:
        pass

    def cured(self, code: str) -> None:
        pass
