"""Frames in: from visitors at the entrance and on the links we dialed, to events, replies and messages.

What lives here: what may come from whom, and what becomes of it. What does not: sockets, and sending news.

A visitor that is a member may send anything; one that is a client, only what ``gossipd trigger`` sends. A link brings
replies and nothing else. What does not decode is dropped and counted by kind: a peer is told nothing about it, and no
error of a peer leaves this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import trio

from gossipd.control.authenticator import Identity
from gossipd.control.delegate import ControlPort
from gossipd.control.requests import RequestTable
from gossipd.control.subscribers import Subscribers
from gossipd.control.subscription import SubscriptionTable
from gossipd.core import events
from gossipd.core.chunkset import ChunkSet, ChunkSetError
from gossipd.core.ids import DeploymentId
from gossipd.wire import control
from gossipd.wire.control_frame import FrameError, decode, encode, indexes
from membership.member import NodeId

_TRIGGER = (control.TriggerQuery, control.ManifestPart, control.TriggerOrder)


class FrameDispatcher:
    """Understands frames on behalf of one plane."""

    def __init__(
        self,
        *,
        host: ControlPort,
        following: SubscriptionTable,
        followers: Subscribers,
        requests: RequestTable,
        send: Callable[[NodeId, control.Message], bool],
        answer: Callable[[bytes, bytes], bool],
        counters: Counter[str],
    ) -> None:
        self._host = host
        self._following, self._followers, self._requests = following, followers, requests
        self._send, self._answer = send, answer
        self._counters = counters

    def from_link(self, node: NodeId, frame: bytes) -> None:
        """A frame came on the link we dialed to ``node``: a reply."""
        decoded = self._decode(frame)
        if decoded is None:
            return
        message, number = decoded
        if not isinstance(message, control.REPLIES) or not self._requests.heard(node, number, message):
            self._counters["unasked_reply"] += 1  # or one that came after its deadline

    def from_identity(self, identity: Identity, route: bytes, frame: bytes) -> None:
        """A frame came in at the entrance, on the connection named ``route``."""
        node = identity.node
        if node is not None and self._host.endpoint_of(node) is None:
            self._counters["not_a_member"] += 1  # it was one when its connection was accepted
            return
        decoded = self._decode(frame)
        if decoded is None:
            return
        message, number = decoded

        def reply(answer: control.Message) -> None:
            self._answer(route, encode(answer, number=number))

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
            self._one_way(node, message, number)

    def follow(self, peer: NodeId, deployment: DeploymentId) -> None:
        """``peer`` follows ``deployment``, or asks anew: the planner answers with Holdings when it is open here."""
        if self._host.chunk_count_of(deployment) is None:
            self._followers.add_early(peer, deployment)
            return
        self._followers.add(peer, deployment)
        self._host.on_event(events.SubscribeHeard(peer, deployment))

    def _one_way(self, node: NodeId, message: control.Message, number: int) -> None:
        match message:
            case control.Delta():
                self._delta(node, message, number)
            case control.Holdings():
                self._holdings(node, message, number)
            case control.Subscribe(deployment=deployment):
                self.follow(node, deployment)
            case control.Unsubscribe(deployment=deployment):
                if self._followers.remove(node, deployment):
                    self._host.on_event(events.UnsubscribeHeard(node, deployment))
            case control.Hello():
                self._host.on_message(node, message)
            case _:
                self._counters["misplaced"] += 1  # a reply at the entrance

    def _holdings(self, node: NodeId, message: control.Holdings, number: int) -> None:
        chunk_count = self._host.chunk_count_of(message.deployment)
        try:
            if chunk_count is None or message.chunk_count != chunk_count:
                raise ChunkSetError("not the deployment's number of chunks")
            chunks = ChunkSet.from_wire(message.chunks, size=chunk_count)
        except ChunkSetError:
            self._counters["bad_holdings"] += 1
            return
        if self._following.heard_holdings(node, message.deployment, message.stream, number):
            if message.tokens:
                self._host.on_tokens(node, message.tokens, message.valid_s)
            self._host.on_event(events.HoldingsHeard(node, message.deployment, chunks, message.free_slots))

    def _delta(self, node: NodeId, message: control.Delta, number: int) -> None:
        deployment, ask = self._following.heard_delta(node, message.stream, number, trio.current_time())
        if deployment is None:
            return
        if ask:
            self._send(node, control.Subscribe(deployment))
        chunk_count = self._host.chunk_count_of(deployment)
        if chunk_count is None:
            return
        try:
            heard = events.DeltaHeard(
                node,
                deployment,
                indexes(message.added, chunk_count=chunk_count),
                indexes(message.dropped, chunk_count=chunk_count),
                indexes(message.reading, chunk_count=chunk_count),
                message.free_slots,
            )
        except FrameError:
            self._counters["bad_delta"] += 1
            return
        self._host.on_event(heard)

    def _decode(self, frame: bytes) -> tuple[control.Message, int] | None:
        try:
            decoded = decode(frame)
        except FrameError as error:
            self._counters[f"undecodable_{error.kind}"] += 1
            return None
        if decoded is None:
            self._counters["unknown_kind"] += 1
        return decoded
