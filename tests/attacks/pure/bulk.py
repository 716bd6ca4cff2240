"""The bulk port of one host: a real server with TLS on loopback, whose models and members are tables."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

from gossipd.core.ids import DeploymentId
from gossipd.daemon.rechecks import Rechecks
from gossipd.identity.keys import SecretKey
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.wire.transfer import REPLY_BYTES, BulkVerb, HeadError, Reply, Request
from tests.attacks.builders.bulk import Idle, Said
from tests.attacks.pure.gossip import any_stage
from tests.attacks.stage import FOR_OTHERS, Stage
from tests.gossipd.transfer.pairs import CLIENT, CLIENT_KEY, CLUSTER_KEY, MODEL, node_of, pair

_FOREIGN_KEY = b"\x66" * 32
_PATIENCE_S = 60.0
# No attack waits for one of these to pass, and none ends by one on a busy machine.
_PATIENT = BulkSettings(
    connect_s=_PATIENCE_S, handshake_s=_PATIENCE_S, handshake_crowded_s=_PATIENCE_S, first_request_s=_PATIENCE_S,
    stall_s=_PATIENCE_S, grace_s=_PATIENCE_S, silence_s=_PATIENCE_S, connections_in_max=24,
)  # fmt: skip
_LONG_AFTER_S = 3600.0  # when any idle connection has ended


def converse(endpoint: tuple[str, int], said: Said, secret: SecretKey, keys: dict[str, bytes]) -> Counter[str]:
    """Say it on a connection of one's own; the statuses of the replies, or how the connection ended.

    Args:
        secret: the member's. keys: the cluster's key for each who has one.
    """
    seen: Counter[str] = Counter()
    with ExitStack() as stack:
        try:
            sock: socket.socket = stack.enter_context(socket.create_connection(endpoint, timeout=_PATIENCE_S))
            if said.who in keys:
                key = secret if said.who == "member" else SecretKey(b"nobody's key".ljust(32, b"."))
                context = tls_credentials(key, [keys[said.who]]).client
                context.verify_mode = ssl.CERT_NONE
                sock = stack.enter_context(context.wrap_socket(sock))
            sock.sendall(said.words * said.times)
            for _ in range(said.times):
                seen[_reply(sock)] += 1
        except (OSError, EOFError):
            seen["cut off"] += 1
    return seen


def _reply(sock: socket.socket) -> str:
    head = b""
    while len(head) < REPLY_BYTES:
        part = sock.recv(REPLY_BYTES - len(head))
        if not part:
            raise EOFError
        head += part
    try:
        reply = Reply.from_wire(head)
    except HeadError:
        return "not our protocol"
    left = reply.length if reply.status.name == "OK" else 0
    while left:
        part = sock.recv(min(left, 1 << 16))
        if not part:
            raise EOFError
        left -= len(part)
    return f"reply {reply.status.name}"


class BulkSurface:
    """See Surface."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pair = self._stack.enter_context(pair(Encryption.TLS, settings=lambda _: _PATIENT))
        self._pair.outsiders.add((CLIENT, FOR_OTHERS))
        self._replies: Counter[str] = Counter()
        self._read_back: list[int] = []
        self._shut_out = 0
        self._rechecks = Rechecks(cast(Any, self), cast(Any, None))
        self.payload_bytes = 0

    @property
    def stage(self) -> Stage:
        """See Surface."""
        return any_stage(deployment=MODEL, liar_secret=CLIENT_KEY)

    def deliver(self, made: Said | Idle) -> None:
        """See Surface."""
        if isinstance(made, Idle):
            self._stay(made)
        else:
            self._say(made)
        self._until(lambda: not self._pair.server.statistics().connections)

    def _until(self, condition: Callable[[], bool]) -> None:
        """The threads of the server's connections go on by themselves. Whether it came to hold is seen at the end."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.005)

    def _stay(self, made: Idle) -> None:
        """A member fetches while they are there."""
        hosts = [SecretKey((b"idle %d" % number).ljust(32, b".")) for number in range(made.hosts)]
        if made.are_members:
            self._pair.members |= {node_of(secret) for secret in hosts}
        ask = Request(BulkVerb.CHUNK, DeploymentId(bytes(32)), 0, 1).to_wire() if made.are_members else b""
        with ExitStack() as stack:
            for secret in hosts * made.each:
                context = tls_credentials(secret, [CLUSTER_KEY]).client
                context.verify_mode = ssl.CERT_NONE
                with contextlib.suppress(OSError, EOFError):
                    raw = socket.create_connection(self._pair.endpoint, timeout=_PATIENCE_S)
                    sock = stack.enter_context(context.wrap_socket(raw))
                    sock.sendall(ask)
                    if ask:
                        _reply(sock)
            self._until(lambda: bool(self._pair.server.statistics().errors))  # one had to make room
            self._shut_out += bool(self.works())
            self._pair.client.connections_looked_at(time.monotonic() + _LONG_AFTER_S)
        self._pair.members &= {CLIENT}

    def _say(self, made: Said) -> None:
        keys = {"member": CLUSTER_KEY, "stranger": CLUSTER_KEY, "foreign": _FOREIGN_KEY}
        self._replies += converse(self._pair.endpoint, made, CLIENT_KEY, keys)
        for node, deployment, chunk in self._pair.complaints:  # as the daemon does
            self._rechecks.want(deployment, chunk, node)
        self._rechecks.close()
        self.payload_bytes = sum(count for _, _, count in self._pair.sent)

    def seen(self) -> Counter[str]:
        """See Surface."""
        ignored = Counter({"complaints_ignored": self._rechecks.ignored})
        return self._replies + Counter(self._pair.server.statistics().errors) + ignored

    def chunk_length(self, _deployment: DeploymentId, chunk: int) -> int:
        """See ChunkStore."""
        return len(self._pair.bodies[chunk])

    def recheck(self, _deployment: DeploymentId, chunk: int) -> bool:
        """See ChunkStore."""
        self._read_back.append(chunk)
        return True

    def state(self) -> dict[str, Any]:
        """See Surface."""
        figures = self._pair.server.statistics()
        return {
            "connections": figures.connections, "slots": figures.free_slots, "members": sorted(self._pair.members),
            "members shut out": self._shut_out, "chunks that were read back": len(self._read_back) // 2,
        }  # fmt: skip

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface. Nothing is kept."""
        return {}

    def works(self) -> str:
        """See Surface."""
        with contextlib.suppress(Exception):
            if self._pair.fetch(0) == self._pair.bodies[0]:
                return ""
        return "a member's fetch fails"

    def close(self) -> None:
        """See Surface."""
        self._stack.close()
