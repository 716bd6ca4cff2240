"""The bulk port: hellos and requests into a server, replies into a client, on a channel in memory.

Real: the server's and the client's conversations, tokens, slots and heads, and reading a peer's certificate. Made up:
the socket, the disk behind the server, dialing. TLS and tokens come before any of this; a change before sealing is one
in the fields of a head, written as a genuine peer would write it.
"""

from __future__ import annotations

import contextlib
import math
import ssl
import struct
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, cast

from cryptography.utils import CryptographyDeprecationWarning

from gossipd.core.ids import DeploymentId
from gossipd.identity.certificates import CertificateError, node_pem, public_key_of
from gossipd.identity.keys import SecretKey
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.runtime.ports import NotHeldError, Span
from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.channel import Channel, Cut, DisconnectedError, FileReadError
from gossipd.transfer.client import BulkClient
from gossipd.transfer.connections import BulkConnection, BulkPeer
from gossipd.transfer.envelope_body import EnvelopeRoom, receive_envelope
from gossipd.transfer.errors import TransferError
from gossipd.transfer.fetch import Fetch
from gossipd.transfer.server import BulkServer, _StrangerError
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.tokens import IssuedTokens
from gossipd.wire.transfer import BulkVerb, HeadError, Reply, Request, Status, hello, piece_head
from membership.member import NodeId
from tests.fuzz.mutations import mutate_bytes, mutate_integer, pick
from tests.fuzz.surface import Case
from tests.gossipd.transfer.server_port import QuietPort

MODEL = DeploymentId(b"m" * 32)
CHUNKS, CHUNK_BYTES = 40, 4096
ENVELOPE = b"e" * 700
_PEER = BulkPeer(NodeId(b"p" * 16), ("10.0.0.2", 7947))
_STRANGER = NodeId(b"s" * 16)
_SENDABLE_BYTES = 64 * 1024  # of one conversation: more requests than that in one input say nothing new
_REQUEST = struct.Struct("!BBHII32s")
_REPLY = struct.Struct("!BBHIIHH")


class _Channel:
    """A connection whose peer has already said everything."""

    def __init__(self, said: bytes) -> None:
        self._said = memoryview(said)
        self._at = 0
        self.sent_bytes = 0
        self.deadline: float | None = None
        self.cut_by: Cut | None = None
        self.is_moving = self.is_waiting = False
        self.rate = 1e6

    is_duplex = True

    def hurry(self, at_least: int) -> None:
        """See Channel."""

    def expect(self, want: int, patience_s: float) -> None:
        """See Channel."""

    def try_send(self, data: bytes) -> bool:
        """See Channel."""
        self.send(data)
        return True

    def begin(self) -> None:
        """See Channel."""

    def end(self) -> None:
        """See Channel."""

    def close(self) -> None:
        """See Channel."""

    def receive(self, view: memoryview) -> None:
        """See Channel."""
        end = self._at + len(view)
        if end > len(self._said):
            raise DisconnectedError("closed", cut_by=self.cut_by)
        view[:] = self._said[self._at : end]
        self._at = end

    def receive_body(
        self,
        view: memoryview,
        throttle: RateLimit,
        *,
        piece_bytes: Callable[[], int] | None = None,
        on_piece: Callable[[int], None] | None = None,
    ) -> None:
        """See Channel."""
        self.receive(view)
        if on_piece is not None:
            on_piece(len(view) // 2)

    def send(self, head: bytes) -> None:
        """See Channel."""
        self.sent_bytes += len(head)
        if self.sent_bytes > _SENDABLE_BYTES:
            raise DisconnectedError("it does not read", cut_by=Cut.STALLED)

    def send_memory(self, head: bytes, body: bytes, throttle: RateLimit) -> None:
        """See Channel."""
        self.send(head + body)

    def send_file(self, head: bytes, spans: Sequence[Span], throttle: RateLimit, scratch: memoryview | None) -> None:
        """See Channel."""
        self.send(head)
        self.sent_bytes += sum(span.length for span in spans)

    def is_quiet(self) -> bool:
        """See Channel."""
        return False


class _Chunk:
    def __init__(self, length: int) -> None:
        self.length = length
        self.spans = (Span(-1, 0, length),)

    def close(self) -> None:
        """Nothing is open."""


class _Reader:
    """Chunks as a store has them: some held, some not, and a disk that fails now and then."""

    def open_chunk(self, deployment: DeploymentId, chunk: int) -> _Chunk:
        """See ChunkReader."""
        if deployment != MODEL:
            raise NotHeldError("no such deployment", code="E_UNKNOWN_MANIFEST")
        if not 0 <= chunk < CHUNKS:
            raise NotHeldError("no such chunk", code="E_CHUNK_RANGE")
        if chunk % 5 == 4:
            raise NotHeldError("not held")
        if chunk == 7:
            raise OSError(5, "the disk fails")
        return _Chunk(CHUNK_BYTES)

    def manifest_bytes(self, deployment: DeploymentId) -> bytes:
        """See ChunkReader."""
        if deployment != MODEL:
            raise NotHeldError("no such deployment", code="E_UNKNOWN_MANIFEST")
        return ENVELOPE


class _Port(QuietPort):
    def is_member(self, node: NodeId) -> bool:
        return node != _STRANGER


class BulkSurface:
    """See the module."""

    name = "bulk"
    share = 3.0

    def __init__(self, rng: Random) -> None:
        settings = BulkSettings(encryption=Encryption.NONE)
        self._tokens = IssuedTokens(life_s=1e9)
        self._pool = BufferPool(1 << 20)
        self._incoming_chunks = IncomingChunks(lambda event: None)
        self._server = BulkServer(
            reader=cast(Any, _Reader()), settings=settings, port=_Port(),
            throttle=RateLimit(None), tokens=self._tokens,
            incoming_chunks=_with_one_that_did_not_come(self._pool),
        )  # fmt: skip
        self._client = BulkClient(
            settings=settings, pool=self._pool, throttle=RateLimit(None), get_token=lambda node: bytes(32),
        )  # fmt: skip
        self._client.close()  # its watchdog has nothing to watch
        requests = [Request(BulkVerb.CHUNK, MODEL, chunk, CHUNK_BYTES) for chunk in (0, 1, 4, 7, CHUNKS)]
        requests += [Request(BulkVerb.MANIFEST, MODEL, 0, len(ENVELOPE)), Request(BulkVerb.COMPLAIN, MODEL, 3, 0)]
        requests.append(Request(BulkVerb.CHUNK, DeploymentId(b"x" * 32), 0, CHUNK_BYTES))
        self._requests = [request.to_wire() for request in requests]
        self._asked = requests[:3] + requests[5:7]
        self._replies = [Reply(status, 0, CHUNK_BYTES, 3, 250).to_wire() for status in Status]
        self._replies += [Reply(Status.OK, 0, len(ENVELOPE), 3).to_wire(), Reply(Status.OK, 3, 0, 8).to_wire()]
        pem = node_pem(SecretKey(b"s" * 32), b"k" * 32).partition("-----BEGIN PRIVATE")[0]
        self._certificate = ssl.PEM_cert_to_DER_cert(pem)
        self._room = EnvelopeRoom()

    def case(self, rng: Random) -> Case:
        """See Surface."""
        kind = pick(rng, ("server",) * 5 + ("client",) * 5 + ("hello",) * 2 + ("certificate",))
        if kind == "certificate":
            return Case(kind, mutate_bytes(self._certificate, rng), False)
        before = rng.random() < 0.6
        if kind == "hello":
            # The token is filled in when it is sealed; what follows is a first request.
            head = bytearray(hello(bytes(32)))
            if before:
                at = pick(rng, (0, 1, 2, 3))
                head[at] = mutate_integer(head[at], rng) & 0xFF
            body = bytes(head) + pick(rng, self._requests)
            return Case(kind, body if before else mutate_bytes(body, rng, self._requests), before, before)
        corpus = self._requests if kind == "server" else self._replies
        parts = [pick(rng, corpus) for _ in range(1 + int(rng.random() * 3 * (kind == "server")))]
        asked = pick(rng, self._asked) if kind == "client" else None
        if before:
            at = int(rng.random() * len(parts))
            parts[at] = _change_head(_REQUEST if kind == "server" else _REPLY, parts[at], rng, asked)
        body = b"".join(parts)
        if kind == "client":
            bodies = (0, 1, len(ENVELOPE), CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1)
            body += _pieces(rng) if rng.random() < 0.3 else bytes(int(pick(rng, bodies)))
        return Case(kind, body if before else mutate_bytes(body, rng, corpus), before, asked)

    def seal(self, case: Case) -> tuple[str, bytes, Any]:
        """See Surface."""
        if case.kind == "hello" and case.context:
            token = self._tokens.issue(_PEER.node)
            return case.kind, case.body[:4] + token + case.body[36:], None
        return case.kind, case.body, case.context

    async def deliver(self, arrived: tuple[str, bytes, Any]) -> None:
        """See Surface."""
        kind, body, asked = arrived
        if kind == "certificate":
            _read_certificate(body)
            return
        channel = cast(Any, _Channel(body))
        if kind == "client":
            self._ask(channel, asked)
            return
        try:
            node = self._server._authenticate(channel) if kind == "hello" else _PEER.node
            self._server._converse(channel, node if len(body) % 13 else _STRANGER)
        except (DisconnectedError, HeadError, CertificateError, FileReadError, _StrangerError):
            pass  # what the server's thread takes for the end of a connection
        assert self._server.statistics().transfers == 0

    def _ask(self, channel: Any, asked: Request) -> None:
        link = BulkConnection(_PEER, channel)
        fetch = Fetch(_PEER, asked, 30.0)
        links = self._client._connections
        assert links.borrow(_PEER, 1e18, lambda: False) is None  # counts a link to be
        with contextlib.suppress(TransferError):
            if asked.verb is not BulkVerb.CHUNK:
                receive = None if asked.verb is BulkVerb.COMPLAIN else partial(self._receive, asked.length)
                self._client._converse(fetch, link, receive, None)
            else:
                lease = self._pool.acquire(asked.length)
                with self._incoming_chunks.begin(asked.deployment, asked.chunk, _PEER.node, lease) as incoming:
                    self._client._converse(fetch, link, None, incoming)
        assert self._pool.statistics().leased_bytes == 0
        assert links.open_count == 0

    def _receive(self, length: int, channel: Channel) -> None:
        receive_envelope(
            channel, length, math.inf, node=_PEER.node, room=self._room, throttle=RateLimit(None)
        )  # fmt: skip

    def rest(self) -> None:
        """See Surface."""

    def close(self) -> None:
        """See Surface."""


def _pieces(rng: Random) -> bytes:
    """A relayed chunk, sometimes too much or too little of it, sometimes given up."""
    lengths = [pick(rng, (0, 1, CHUNK_BYTES // 3, CHUNK_BYTES // 2, CHUNK_BYTES, CHUNK_BYTES + 1)) for _ in range(3)]
    return b"".join(piece_head(length) + bytes(length) for length in lengths)


def _with_one_that_did_not_come(pool: BufferPool) -> IncomingChunks:
    """Of a chunk that the reader does not hold: a relay of it ends at once."""
    incoming_chunks = IncomingChunks()
    incoming = incoming_chunks.begin(MODEL, 4, _STRANGER, pool.acquire(CHUNK_BYTES))
    incoming.release()
    incoming_chunks.list((MODEL, 4), incoming)
    return incoming_chunks


def _read_certificate(der: bytes) -> None:
    """As after a handshake: TLS has verified the chain, and what is in it is whatever the peer put there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # of serial numbers, which are not asked for
        try:
            assert len(public_key_of(der)) == 32
        except CertificateError:
            return


def _change_head(form: struct.Struct, head: bytes, rng: Random, asked: Request | None) -> bytes:
    fields = list(form.unpack(head))
    if asked is not None and rng.random() < 0.5:  # a reply that fits the question, but for what is changed next
        fields[3], fields[4] = asked.chunk, 0 if asked.verb is BulkVerb.COMPLAIN else asked.length
    for _ in range(1 + int(rng.random() * 2)):
        at = int(rng.random() * len(fields))
        if isinstance(fields[at], bytes):
            fields[at] = mutate_bytes(fields[at], rng)[:32].ljust(32, b"\0")
        else:
            width = (1, 1, 2, 4, 4, 2, 2)[at]
            fields[at] = mutate_integer(fields[at], rng) & (1 << 8 * width) - 1
    return form.pack(*fields)
