"""Frames in: from accepted connections and on the links we dialed, to messages for the sessions, requests and replies.

What lives here: which kind of message may come from whom, and who takes it. What does not: sockets, and what a message
about a deployment means (``gossipd.sessions``).

A member may send anything; a client, only what ``gossipd trigger`` sends. A link that we dialed brings replies and
nothing else. What does not decode is dropped and counted by kind: the peer is told nothing about it, and no error of a
peer leaves this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from gossipd.control.authenticator import Identity
from gossipd.control.delegate import ControlPort
from gossipd.control.requests import RequestTable
from gossipd.control.session_driver import SessionDriver
from gossipd.sessions.events import MessageHeard
from gossipd.wire import control
from gossipd.wire.control_frame import FrameError, decode, encode
from membership.member import NodeId

Answer: TypeAlias = Callable[[bytes], bool]
_TRIGGER = (control.TriggerQuery, control.ManifestPart, control.TriggerOrder)


class FrameDispatcher:
    """Understands frames on behalf of one plane."""

    def __init__(
        self, *, host: ControlPort, requests: RequestTable, driver: SessionDriver, counters: Counter[str]
    ) -> None:
        self._host, self._requests, self._driver, self._counters = host, requests, driver, counters

    def from_link(self, node: NodeId, frame: bytes) -> None:
        """A frame came on the link we dialed to ``node``: a reply."""
        decoded = self._decode(frame)
        if decoded is None:
            return
        message, number = decoded
        if not isinstance(message, control.REPLIES) or not self._requests.heard(node, number, message):
            self._counters["unasked_reply"] += 1  # or one that came after its deadline

    def from_identity(self, identity: Identity, answer: Answer, frame: bytes) -> None:
        """A frame came in on an accepted connection; ``answer`` sends one back on it."""
        node = identity.node
        if node is not None and self._host.endpoint_of(node) is None:
            self._counters["not_a_member"] += 1  # it was one when its connection was accepted
            return
        decoded = self._decode(frame)
        if decoded is None:
            return
        message, number = decoded

        def reply(message: control.Message) -> None:
            answer(encode(message, number=number))

        if isinstance(message, _TRIGGER):
            self._host.on_request(identity, message, reply)
        elif node is None:
            self._counters["refused_to_client"] += 1
            reply(control.Refused("E_NOT_ALLOWED", "a client may only trigger"))
        elif isinstance(message, control.Ping):
            reply(control.Pong())
        elif isinstance(message, control.REQUESTS):
            self._host.on_request(identity, message, reply)
        else:
            self._driver.feed(MessageHeard(node, message, number))

    def _decode(self, frame: bytes) -> tuple[control.Message, int] | None:
        try:
            decoded = decode(frame)
        except FrameError as error:
            self._counters[f"undecodable_{error.kind}"] += 1
            return None
        if decoded is None:
            self._counters["unknown_kind"] += 1
        return decoded
