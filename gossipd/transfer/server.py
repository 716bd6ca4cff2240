"""Serves verified chunks and manifests to members of the cluster only.

What lives here: an accepted connection until its last reply. What does not: where chunks are (``ChunkReader``), who is
a member (``ServerPort``), how a peer is authenticated (``credentials``, ``tokens``).

Each connection has a thread that mostly blocks in the kernel; it reads, answers and sends without waking another. A
peer over its slots is told BUSY at once; a peer that breaks the protocol gets at most a one-byte status and is cut.
Membership is checked for every request, so a removed member is refused from then on; so are a deployment's targets.
Manifests are for every member: each host shows and cancels what it is no target of, and hands the manifest on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Protocol

from gossipd.core.errors import GossipdError
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.identity.certificates import CertificateError
from gossipd.runtime.incoming_chunks import IncomingChunk, IncomingChunks
from gossipd.runtime.ports import ChunkReader, NotHeldError, Span
from gossipd.runtime.quotas import Quotas
from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.channel import Channel, Cut, DisconnectedError, FileReadError
from gossipd.transfer.credentials import TlsCredentials
from gossipd.transfer.listener import BulkListener
from gossipd.transfer.refusal_pace import RefusalPace
from gossipd.transfer.scratch import ScratchMemory
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.slots import UploadSlots
from gossipd.transfer.tokens import IssuedTokens
from gossipd.transfer.traffic import BulkStatistics, Traffic
from gossipd.transfer.watchdog import SERVER_TICK_S, Watchdog
from gossipd.wire import transfer as wire
from membership.member import NodeId

# More precise replies for the codes of a reader's NotHeldError (bad-input table, B27).
_STATUS_OF = {"E_UNKNOWN_MANIFEST": wire.Status.UNKNOWN, "E_CHUNK_RANGE": wire.Status.RANGE}
_LOOK_S = 0.25  # how often a waiting relay checks that its peer is still there
CLOSE_S = 0.9  # for all threads together; the daemon has 5 s for everything


class ServerPort(Protocol):
    """What the server asks and tells, from any thread."""

    def is_member(self, node: NodeId) -> bool:
        """Whether a node may be served now; quick."""

    def may_have(self, node: NodeId, deployment: DeploymentId) -> bool:
        """Whether a member is one of the deployment's targets, as far as its manifest is known here; quick."""

    def may_send(self, deployment: DeploymentId, chunk: ChunkIndex) -> bool:
        """Whether a chunk may be sent now, or others first; quick. ``upload_ended`` follows where it may."""

    def upload_ended(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """An upload has ended, after ``chunk_sent`` if all of it has gone, or could not begin; quick."""

    def is_member_address(self, address: str) -> bool:
        """Whether a member's record names this address; quick."""

    def slots_changed(self, free: int) -> None:
        """The number of uploads that could begin now; quick."""

    def chunk_sent(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex, byte_count: int) -> None:
        """A whole chunk has gone to a member; quick."""

    def complaint_received(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """A member says that this chunk of ours is bad; may take as long as a re-hash."""

    def read_failed(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """Our own file could not be opened, or read to its end; may take as long as a re-hash."""


class BulkServer:
    """Serves what ``reader`` holds, and relays ``incoming_chunks``, which are arriving. ``credentials`` are for
    ``Encryption.TLS``, ``tokens`` for ``Encryption.NONE``. ``throttle`` limits the bytes of all uploads together.
    """

    def __init__(
        self, *, reader: ChunkReader, settings: BulkSettings, port: ServerPort, throttle: RateLimit,
        credentials: TlsCredentials | None = None, tokens: IssuedTokens | None = None,
        incoming_chunks: IncomingChunks | None = None,
    ) -> None:  # fmt: skip
        assert (credentials if settings.encryption is Encryption.TLS else tokens) is not None
        self._reader = reader
        self._incoming_chunks = incoming_chunks or IncomingChunks()
        self._bulk_settings = settings
        self._port = port
        self._throttle = throttle
        self._credentials = credentials
        self._tokens = tokens
        self._slots = UploadSlots(settings.slots, settings.slots_per_peer, on_change=port.slots_changed)
        self._manifest_slots = UploadSlots(settings.manifest_slots, max(1, settings.manifest_slots // 2))
        self._manifest_quotas = Quotas[NodeId](burst=settings.manifests_burst, per_s=settings.manifests_per_s)
        self._manifest_lock = threading.Lock()
        self._refusal_pace = RefusalPace()
        self._traffic = Traffic()
        self._scratch = ScratchMemory(settings.tls_piece_bytes + wire.REPLY_BYTES)
        self._watchdog = Watchdog(settings, name="bulk-watch-in", listener=self._scratch, tick_s=SERVER_TICK_S)
        self._listener = BulkListener(settings, self._traffic, self)
        self._serving_threads: set[threading.Thread] = set()

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen. Returns the bound address. Raises OSError."""
        self._watchdog.start()
        return self._listener.open(host, port)

    def replace_credentials(self, credentials: TlsCredentials) -> None:
        """Use these for connections accepted from now on, after a rotation of the cluster key."""
        self._credentials = credentials

    def limit_uploads(self, slots: int) -> None:
        """Serve this many chunks at once, at most the setting; uploads in progress continue."""
        self._slots.resize(max(1, min(slots, self._bulk_settings.slots)))

    def note_received(self, byte_count: int, elapsed_s: float) -> None:
        """A chunk has come here from elsewhere in that time."""
        self._slots.note_received(byte_count, elapsed_s)

    def close(self) -> None:
        """Cut every connection and wait for the threads, less than a second in all."""
        deadline = time.monotonic() + CLOSE_S
        self._listener.close(CLOSE_S / 2)
        for channel in self._watchdog.channels():
            channel.cut(Cut.CLOSING)
        for thread in list(self._serving_threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._watchdog.close(deadline)

    @property
    def turned_away(self) -> int:
        """See ``BulkListener``."""
        return self._listener.turned_away

    @property
    def dropped_addresses(self) -> tuple[str, ...]:
        """See ``BulkListener``."""
        return self._listener.dropped_addresses

    def statistics(self) -> BulkStatistics:
        return self._traffic.statistics(
            connections=self._listener.connections, transfers=self._slots.busy, free_slots=self._slots.free
        )

    def is_member_address(self, address: str) -> bool:
        """See ListenerPort."""
        return self._port.is_member_address(address)

    def serve(self, channel: Channel) -> None:
        """See ListenerPort."""
        thread = threading.current_thread()
        self._serving_threads.add(thread)
        self._watchdog.add(channel)
        node: NodeId | None = None
        try:
            node = self._authenticate(channel)
            if self._listener.known(channel, node, is_member=self._port.is_member(node)):
                channel.deadline = time.monotonic() + self._bulk_settings.first_request_s
                self._converse(channel, node)
            else:
                self._traffic.error("E_CONNECTIONS")
        except DisconnectedError as error:
            self._count_end(error, node)
        except (wire.HeadError, CertificateError, FileReadError, _StrangerError) as error:
            self._traffic.error(error.code)
        finally:
            self._watchdog.remove(channel)
            channel.close()
            self._listener.left(channel)
            self._serving_threads.discard(thread)

    def _count_end(self, error: DisconnectedError, node: NodeId | None) -> None:
        """Count unauthenticated and cut connections as errors; a peer may close between requests."""
        if error.cut_by is not None and error.cut_by is not Cut.CLOSING:
            self._traffic.error(f"E_{error.cut_by.name}")
        elif error.refused or node is None:
            self._traffic.error("E_HANDSHAKE")

    def _authenticate(self, channel: Channel) -> NodeId:
        if self._bulk_settings.encryption is Encryption.TLS:
            assert self._credentials is not None
            return channel.start_tls(self._credentials.server, is_server=True)
        assert self._tokens is not None
        head = bytearray(wire.HELLO_BYTES)
        channel.receive(memoryview(head))
        node = self._tokens.redeem(wire.token_of(head))
        if node is None:
            raise _StrangerError("a connection in clear without a valid token")
        return node

    def _converse(self, channel: Channel, node: NodeId) -> None:
        head = bytearray(wire.REQUEST_BYTES)
        view = memoryview(head)
        while True:
            channel.receive(view)
            # From here on the watchdog demands progress instead of a deadline.
            channel.deadline = None
            try:
                request = wire.Request.from_wire(head)
            except wire.HeadError as error:
                status = wire.Status.VERSION if isinstance(error, wire.HeadVersionError) else wire.Status.BAD_REQUEST
                channel.send(self._head(status, 0))
                raise
            after = self._answer(channel, node, request)
            if after is _After.ENDS:
                return
            if after is _After.REFUSED and (pause_s := self._refusal_pace.pause_s(node, time.monotonic())):
                self._traffic.error("E_TOO_MANY_ASKS")
                time.sleep(pause_s)
            channel.deadline = time.monotonic() + self._bulk_settings.idle_in_s

    def _answer(self, channel: Channel, node: NodeId, request: wire.Request) -> _After:
        """Answer one request."""
        if not self._port.is_member(node):
            self._traffic.error("E_REFUSED")  # before the peer hears of it, as everywhere below
            channel.send(self._head(wire.Status.REFUSED, request.chunk))
            return _After.ENDS
        if request.verb is wire.BulkVerb.MANIFEST:
            return self._answer_manifest(channel, node, request)
        if not self._port.may_have(node, request.deployment):
            self._traffic.error("E_NOT_A_TARGET")
            channel.send(self._head(wire.Status.NOT_A_TARGET, request.chunk))
            return _After.REFUSED
        if request.verb is wire.BulkVerb.CHUNK:
            return self._answer_chunk(channel, node, request)
        if not self._slots.acquire(node):
            return self._answer_busy(channel, node, request, self._slots)
        with self._in_slot(channel, node):
            self._port.complaint_received(node, request.deployment, request.chunk)
        channel.send(self._head(wire.Status.OK, request.chunk))  # not in a slot: one that does not read would keep it
        return _After.SERVED

    @contextlib.contextmanager
    def _in_slot(self, channel: Channel, node: NodeId) -> Iterator[None]:
        """What is done in a slot that was acquired."""
        self._listener.upload_began(channel)
        started = time.monotonic()
        try:
            yield
        finally:
            channel.end()
            self._listener.upload_ended(channel)
            self._slots.release(node, started)

    def _answer_chunk(self, channel: Channel, node: NodeId, request: wire.Request) -> _After:
        """Send a chunk, unless every slot is busy or other chunks go first."""
        if not self._port.may_send(request.deployment, request.chunk):
            return self._answer_busy(channel, node, request, self._slots)
        if not self._slots.acquire(node, request.length):
            self._port.upload_ended(request.deployment, request.chunk)
            return self._answer_busy(channel, node, request, self._slots)
        try:
            with self._in_slot(channel, node):
                return self._send_chunk(channel, node, request)
        finally:
            self._port.upload_ended(request.deployment, request.chunk)

    def _send_chunk(self, channel: Channel, node: NodeId, request: wire.Request) -> _After:
        incoming = self._incoming_chunks.find(request.deployment, request.chunk)  # first: the chunk may land meanwhile
        try:
            opened = self._reader.open_chunk(request.deployment, request.chunk)
        # A chunk that arrives is relayed only to a node that is not its supplier, else two hosts would wait for each
        # other.
        except (NotHeldError, OSError) as error:
            if isinstance(error, NotHeldError) and incoming is not None and self._may_relay(incoming, node, request):
                return self._relay(channel, node, request, incoming)
            self._tell_if_bad(request, error)
            return self._answer_missing(channel, request, error)
        started = time.monotonic()
        with contextlib.closing(opened):
            if opened.length != request.length:
                self._traffic.error("E_LENGTH")
                channel.send(self._head(wire.Status.LENGTH, request.chunk))
                return _After.ENDS
            head = self._head(wire.Status.OK, request.chunk, opened.length)
            try:
                self._send_spans(channel, request, head, opened.spans)
            except DisconnectedError as error:
                if error.cut_by in (Cut.SLOW, Cut.STALLED):
                    self._slots.note_upload(node, 0, started)
                raise
            self._slots.note_upload(node, request.length, started)
        self._count_sent(node, request)
        return _After.SERVED

    def _send_spans(self, channel: Channel, request: wire.Request, head: bytes, spans: Sequence[Span]) -> None:
        channel.begin()
        self._watchdog.rouse()
        try:
            with self._scratch_memory() as scratch:
                channel.send_file(head, spans, self._throttle, scratch)
        except FileReadError:
            self._port.read_failed(request.deployment, request.chunk)
            raise

    def _count_sent(self, node: NodeId, request: wire.Request) -> None:
        self._traffic.add(node, bytes_out=request.length, chunks_out=1)
        self._port.chunk_sent(node, request.deployment, request.chunk, request.length)

    @staticmethod
    def _may_relay(incoming: IncomingChunk, node: NodeId, request: wire.Request) -> bool:
        return incoming.supplier != node and incoming.length == request.length

    def _relay(self, channel: Channel, node: NodeId, request: wire.Request, incoming: IncomingChunk) -> _After:
        """Send a chunk during its arrival: from memory what is here, the rest from the store after it has landed."""
        channel.begin()
        self._watchdog.rouse()
        channel.send(self._head(wire.Status.RELAYED, request.chunk, request.length))
        at = 0
        while True:
            with incoming.piece(at, _LOOK_S) as piece:
                # None: the chunk has landed or was given up. Empty: nothing new came within ``_LOOK_S``.
                if piece is None:
                    break
                if piece:
                    if not channel.is_moving:
                        channel.begin()
                        self._watchdog.rouse()
                    channel.send_memory(wire.piece_head(len(piece)), piece, self._throttle, whole_bytes=request.length)
                    at += len(piece)
                    continue
                channel.end()  # waiting is not the peer's fault
                if not channel.is_open():
                    raise DisconnectedError("the peer has gone while its chunk was arriving", cut_by=channel.cut_by)
        if not (incoming.is_landed and self._send_rest(channel, request, at)):
            # An empty piece tells the peer that no more will come; the connection stays usable.
            self._traffic.error("E_RELAY_ENDED")
            channel.send(wire.piece_head(0))
            return _After.REFUSED
        self._count_sent(node, request)
        return _After.SERVED

    def _send_rest(self, channel: Channel, request: wire.Request, at: int) -> bool:
        """Send the last piece from the store; False when the chunk was already dropped."""
        try:
            opened = self._reader.open_chunk(request.deployment, request.chunk)
        except (NotHeldError, OSError) as error:
            self._tell_if_bad(request, error)
            return False
        with contextlib.closing(opened):
            self._send_spans(channel, request, wire.piece_head(request.length - at), _beyond(opened.spans, at))
        return True

    def _tell_if_bad(self, request: wire.Request, error: NotHeldError | OSError) -> None:
        """Report a file that could not be opened, unless the chunk is just not held."""
        if not isinstance(error, NotHeldError) or error.code == "E_CHUNK_UNAVAILABLE":
            self._port.read_failed(request.deployment, request.chunk)

    def _answer_manifest(self, channel: Channel, node: NodeId, request: wire.Request) -> _After:
        with self._manifest_lock:
            is_granted = self._manifest_quotas.take(node, time.monotonic())
        if not (is_granted and self._manifest_slots.acquire(node, request.length)):
            return self._answer_busy(channel, node, request, self._manifest_slots)
        self._listener.upload_began(channel)
        started = time.monotonic()
        try:
            body = self._reader.manifest_bytes(request.deployment)
            if len(body) != request.length:
                self._traffic.error("E_LENGTH")
                channel.send(self._head(wire.Status.LENGTH, request.chunk, len(body)))
                return _After.ENDS
            channel.begin()
            self._watchdog.rouse()
            channel.send_memory(self._head(wire.Status.OK, request.chunk, len(body)), body, self._throttle)
        except (NotHeldError, OSError) as error:
            return self._answer_missing(channel, request, error)
        finally:
            channel.end()
            self._listener.upload_ended(channel)
            self._manifest_slots.release(node, started)
        self._traffic.add(node, bytes_out=len(body))
        return _After.SERVED

    def _answer_busy(self, channel: Channel, node: NodeId, request: wire.Request, slots: UploadSlots) -> _After:
        retry_after_ms = int(slots.retry_after_s * 1000)
        self._traffic.add(node, busy=1)
        channel.send(wire.Reply(wire.Status.BUSY, request.chunk, 0, self._slots.free, retry_after_ms).to_wire())
        return _After.REFUSED

    def _answer_missing(self, channel: Channel, request: wire.Request, error: NotHeldError | OSError) -> _After:
        if isinstance(error, OSError):
            self._traffic.error("E_STORE_READ")
            status = wire.Status.FAILED
        else:
            status = _STATUS_OF.get(error.code, wire.Status.NOT_HELD)
        channel.send(self._head(status, request.chunk))
        return _After.REFUSED

    def _head(self, status: wire.Status, chunk: ChunkIndex, length: int = 0) -> bytes:
        return wire.Reply(status, chunk, length, self._slots.free).to_wire()

    def _scratch_memory(self) -> contextlib.AbstractContextManager[memoryview | None]:
        """Memory to encrypt from; none where nothing is encrypted."""
        return contextlib.nullcontext() if self._bulk_settings.encryption is Encryption.NONE else self._scratch.piece()


def _beyond(spans: Sequence[Span], at: int) -> list[Span]:
    """The spans without their first ``at`` bytes."""
    rest: list[Span] = []
    for span in spans:
        skipped = min(at, span.length)
        at -= skipped
        if skipped < span.length:
            rest.append(Span(span.descriptor, span.offset + skipped, span.length - skipped))
    return rest


class _After(Enum):
    """What the connection does after an answer."""

    SERVED = "served"
    REFUSED = "refused"
    """It goes on; nothing of use was sent."""
    ENDS = "ends"


class _StrangerError(GossipdError):
    """An unencrypted connection without a valid token. Fault: the client. It is closed without a reply."""

    code = "E_TOKEN"
