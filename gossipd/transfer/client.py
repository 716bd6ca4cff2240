"""Fetches one chunk from one peer into memory of the pool, or one manifest.

What lives here: a fetch from the call to a lease or a typed error. What does not: choosing the peer (the planner),
hashing and writing (the caller and the store), stopping and following a fetch (``fetch``), a manifest's body
(``envelope_body``).

A fetch takes a buffer first and a connection second, so that it holds no upload slot of a peer while it waits for
memory. The length in the manifest is final: a reply with another length is the peer's fault and ends the connection.
When a peer cannot be reached, all fetches from it end at once. When a transfer falls silent, a probe tells within two
seconds whether the host is slow or gone. A fetch may be pipelined on another's connection (``pipelined_fetch``).

The path of a call: ``_exchange`` gets a connection, ``_converse`` sends the request and reads the answer,
``_part_with`` passes the connection on.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.runtime.buffer_pool import BufferPool, Lease, PoolExhaustedError
from gossipd.runtime.incoming_chunks import IncomingChunk, IncomingChunks
from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.rate_limit import RateLimit
from gossipd.runtime.system_refusals import NoThreadError
from gossipd.transfer import errors
from gossipd.transfer.channel import EXHAUSTED_PAUSE_S, Channel, Cut, DisconnectedError
from gossipd.transfer.connections import BulkConnection, BulkPeer, ConnectionPool, Endpoint
from gossipd.transfer.credentials import TlsCredentials
from gossipd.transfer.dialer import Dialer, UnreachableError, cut_error
from gossipd.transfer.envelope_body import EnvelopeRoom, receive_envelope
from gossipd.transfer.fetch import Fetch
from gossipd.transfer.pipelined_fetch import Successor
from gossipd.transfer.settings import MANIFEST_BYTES_MAX, BulkSettings
from gossipd.transfer.tokens import ReceivedTokens
from gossipd.transfer.traffic import BulkStatistics, Traffic
from gossipd.transfer.watchdog import Watchdog
from gossipd.wire import transfer as wire
from membership.member import NodeId

_Receive: TypeAlias = Callable[[Channel], None]
"""Takes the body of a reply that is no chunk."""
_REFUSALS = {
    wire.Status.UNKNOWN: "E_UNKNOWN_MANIFEST",
    wire.Status.RANGE: "E_CHUNK_RANGE",
    wire.Status.REFUSED: "E_REFUSED",
    wire.Status.VERSION: "E_BULK_VERSION",
    wire.Status.BAD_REQUEST: "E_DECODE",
    wire.Status.NOT_A_TARGET: "E_NOT_A_TARGET",
}
# No more than a host receives at once (``IncomingChunk.piece_bytes``); then what is here is passed on.
_PIECES_PATIENCE_S = 0.25
_MOMENT_S = 1e-6  # of a clock that has not moved
# After these replies the server reads on, so the connection may be used again; after OK it depends on the body.
_CONVERSATION_GOES_ON = (
    wire.Status.BUSY,
    wire.Status.NOT_HELD,
    wire.Status.FAILED,
    wire.Status.UNKNOWN,
    wire.Status.RANGE,
    wire.Status.NOT_A_TARGET,
)


class BulkClient:
    """Fetches from peers; every method is thread-safe and may block. ``throttle`` limits the bytes of all downloads
    together. In ``incoming_chunks`` the server finds chunks during their arrival, to relay them. ``credentials`` are
    for ``Encryption.TLS``. ``get_token`` is for ``Encryption.NONE``: it asks the node for a one-time token over the
    control channel, blocks, and raises TransferErrors; ``received_tokens`` were issued ahead.
    """

    def __init__(
        self, *, settings: BulkSettings, pool: BufferPool, throttle: RateLimit,
        credentials: TlsCredentials | None = None, get_token: Callable[[NodeId], bytes] | None = None,
        incoming_chunks: IncomingChunks | None = None, received_tokens: ReceivedTokens | None = None,
    ) -> None:  # fmt: skip
        self._incoming_chunks = incoming_chunks or IncomingChunks()
        self._bulk_settings = settings
        self._pool = pool
        self._throttle = throttle
        self._envelope_room = EnvelopeRoom()
        self._traffic = Traffic()
        self._lock = threading.Lock()
        self._fetches: set[Fetch] = set()
        self._probing: set[BulkPeer] = set()
        self._closed = threading.Event()
        self._watchdog = Watchdog(settings, name="bulk-watch-out", listener=self)
        self._dialer = Dialer(
            settings, self._watchdog, credentials=credentials, get_token=get_token, received_tokens=received_tokens
        )
        self._connections = ConnectionPool(settings, self._dialer.close)
        self._watchdog.start()

    def fetch_chunk(
        self, node: NodeId, endpoint: Endpoint, deployment: DeploymentId, chunk: ChunkIndex, length: int, *,
        timeout_s: float, behind: ChunkIndex | None = None,
    ) -> IncomingChunk:  # fmt: skip
        """Fetch the unchecked bytes of one chunk. The caller must ``release`` them, and before that call ``land`` once
        the store has the chunk. ``behind``: a chunk of the same deployment that this peer is sending: follow it on its
        connection. Raises TransferError: ``reason`` of the subclass says how the fetch ended.
        """
        request = wire.Request(wire.BulkVerb.CHUNK, deployment, chunk, length)
        with self._running(Fetch(BulkPeer(node, endpoint), request, timeout_s)) as fetch:
            incoming = self._incoming_chunks.begin(deployment, chunk, node, self._acquire(fetch))
            try:
                self._exchange(fetch, None, incoming, self._first(fetch, behind))
            except BaseException:
                incoming.release()
                raise
        self._traffic.add(node, bytes_in=length, chunks_in=1)
        return incoming

    def fetch_manifest(
        self, node: NodeId, endpoint: Endpoint, deployment: DeploymentId, size: int, *, timeout_s: float,
        answer_s: float = math.inf,
    ) -> bytes:  # fmt: skip
        """Fetch a signed envelope, unchecked. ``size`` is only what gossip told, and a member may tell what it likes:
        a peer that has the envelope in another size is asked again for that. ``answer_s``: until the answer begins,
        connecting included. Raises TransferError."""
        deadline = time.monotonic() + timeout_s
        try:
            return self._fetch_envelope(node, endpoint, deployment, size, timeout_s=timeout_s, answer_s=answer_s)
        except errors.OtherLengthError as error:
            if not error.length:
                raise
            left_s = deadline - time.monotonic()
            return self._fetch_envelope(node, endpoint, deployment, error.length, timeout_s=left_s)

    def _fetch_envelope(
        self, node: NodeId, endpoint: Endpoint, deployment: DeploymentId, size: int, *, timeout_s: float,
        answer_s: float = math.inf,
    ) -> bytes:  # fmt: skip
        if not 0 < size <= MANIFEST_BYTES_MAX:
            raise errors.PeerProtocolError(f"a manifest of {size} bytes is not between 1 and {MANIFEST_BYTES_MAX}")
        request = wire.Request(wire.BulkVerb.MANIFEST, deployment, 0, size)
        body = b""

        def receive(channel: Channel) -> None:
            nonlocal body
            deadline = channel.deadline or math.inf
            body = receive_envelope(
                channel, size, deadline, node=node, room=self._envelope_room, throttle=self._throttle
            )  # fmt: skip

        with self._running(Fetch(BulkPeer(node, endpoint), request, timeout_s, answer_s=answer_s)) as fetch:
            self._exchange(fetch, receive)
        self._traffic.add(node, bytes_in=size)
        return body

    def complain(
        self, node: NodeId, endpoint: Endpoint, deployment: DeploymentId, chunk: ChunkIndex, *, timeout_s: float
    ) -> None:
        """Tell a peer that its chunk did not match the digest. Raises TransferError."""
        request = wire.Request(wire.BulkVerb.COMPLAIN, deployment, chunk, 0)
        with self._running(Fetch(BulkPeer(node, endpoint), request, timeout_s)) as fetch:
            self._exchange(fetch, None)

    def cancel(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """Stop a fetch, if there is one; it raises FetchCancelledError in its own thread."""
        with self._lock:
            found = [fetch for fetch in self._fetches if fetch.is_of(node, deployment, chunk)]
        self._stop(found, Cut.CANCELLED)

    def replace_credentials(self, credentials: TlsCredentials) -> None:
        """Use these for connections dialed from now on, after a rotation of the cluster key."""
        self._dialer.credentials = credentials

    def statistics(self) -> BulkStatistics:
        return self._traffic.statistics(
            connections=self._connections.open_count, transfers=len(self._fetches), free_slots=0
        )

    def close(self) -> None:
        """End every fetch with FetchCancelledError and close every connection."""
        with self._lock:
            self._closed.set()
            running = list(self._fetches)
        self._stop(running, Cut.CLOSING)
        self._connections.close()
        self._watchdog.close(time.monotonic() + self._bulk_settings.connect_s)

    @contextmanager
    def _running(self, fetch: Fetch) -> Iterator[Fetch]:
        with self._lock:
            if self._closed.is_set():
                raise errors.FetchCancelledError("the bulk client is closed")
            self._fetches.add(fetch)
        try:
            yield fetch
        except errors.PeerBusyError:
            self._traffic.add(fetch.peer.node, busy=1)
            raise
        except errors.TransferError as error:
            self._traffic.error(error.code)
            raise
        finally:
            with self._lock:
                self._fetches.discard(fetch)

    def _acquire(self, fetch: Fetch) -> Lease:
        try:
            return self._pool.acquire(fetch.request.length, fetch.deadline - time.monotonic(), gave_up=fetch.is_stopped)
        except PoolExhaustedError as error:
            raise errors.FetchCancelledError(str(error), code=error.code) from None

    def _first(self, fetch: Fetch, behind: ChunkIndex | None) -> Fetch | None:
        """The fetch to follow, if it has not ended. None when other fetches wait for a connection: those go first."""
        if behind is None or self._connections.is_awaited(fetch.peer):
            return None
        node, deployment = fetch.peer.node, fetch.request.deployment
        with self._lock:
            return next((one for one in self._fetches if one.is_of(node, deployment, behind)), None)

    def _exchange(
        self, fetch: Fetch, receive: _Receive | None, incoming: IncomingChunk | None = None, first: Fetch | None = None
    ) -> None:
        """Ask and receive. Ask once more if a kept connection or a token issued ahead was stale."""
        connection = (fetch.await_turn(first) if first is not None else None) or self._connection(fetch)
        try:
            self._converse(fetch, connection, receive, incoming)
        except _StaleConnectionError:
            self._connections.drop_idle(fetch.peer)
            self._dialer.forget_tokens(fetch.peer.node)
            self._converse(fetch, self._connection(fetch, is_fresh=True), receive, incoming)

    def _converse(
        self, fetch: Fetch, connection: BulkConnection, receive: _Receive | None, incoming: IncomingChunk | None
    ) -> None:
        keep = answered = False
        channel = connection.channel
        try:
            fetch.attach(channel)
            channel.deadline = fetch.deadline
            channel.begin()
            self._watchdog.rouse()
            # A pipelined request was already sent, by the thread of the fetch before it.
            if not connection.is_asked:
                channel.send(connection.prefix + fetch.request.to_wire())
                connection.prefix = b""
            connection.is_asked = False
            began, usual_rate, channel.rate = time.monotonic(), channel.rate, 0.0
            if incoming is not None and usual_rate and self._throttle.rate is None:
                _await_first(channel, incoming, usual_rate)
            head = bytearray(wire.REPLY_BYTES)
            channel.receive(memoryview(head))
            answered = True
            channel.deadline = fetch.answered()
            reply = wire.Reply.from_wire(head)
            # Only these replies leave the stream at the start of a reply; all others end the connection, unless a body
            # follows and is read to its end.
            keep = reply.status in _CONVERSATION_GOES_ON
            self._check(fetch.request, reply)
            if incoming is not None:
                fetch.receives()
                self._receive_chunk(fetch, channel, incoming, is_relayed=reply.status is wire.Status.RELAYED)
                # Bytes that came before their thread look quick, so this is the mean with the chunks before.
                took_s = max(time.monotonic() - began, _MOMENT_S)
                usual_s = incoming.length / usual_rate if usual_rate else took_s
                channel.rate = 2 * incoming.length / (took_s + usual_s)
            elif receive is not None:
                receive(channel)
            keep = True
        except errors.RelayEndedError:
            # The relay ended with an empty piece, so the stream is in order.
            keep = True
            raise
        except DisconnectedError as error:
            raise self._ended(fetch, connection, error, answered=answered) from None
        except wire.HeadVersionError as error:
            raise errors.PeerRefusedError(str(error), code=error.code) from None
        except wire.HeadError as error:
            raise errors.PeerProtocolError(str(error)) from None
        finally:
            channel.end()
            channel.deadline = None
            fetch.attach(None)
            self._part_with(connection, fetch.take_next(), is_good=keep and channel.cut_by is None)

    def _part_with(self, connection: BulkConnection, place: Successor | None, *, is_good: bool) -> None:
        """Pass the connection to the following fetch, or return it to the pool, or close it."""
        if place is not None and place.hand_over(connection if is_good else None):
            if not is_good:
                self._connections.drop(connection)
        # A successor that gave up after its request was sent leaves an answer in the stream: close the connection.
        elif is_good and (place is None or not place.is_asked):
            self._connections.give_back(connection)
        else:
            self._connections.drop(connection)

    def _receive_chunk(self, fetch: Fetch, channel: Channel, incoming: IncomingChunk, *, is_relayed: bool) -> None:
        is_duplex = channel.is_duplex

        def advance(filled: int) -> None:
            # Under TLS the end is told by the bytes: the next request is sent between two of the last pieces.
            incoming.advance(filled, by_clock=is_duplex)
            fetch.ask_for_next(channel)

        incoming.on_relay(channel.hurry)
        if is_relayed:
            self._receive_relayed(channel, incoming, advance)
            return
        began = time.monotonic()
        channel.receive_body(
            incoming.view,
            self._throttle,
            piece_bytes=lambda: incoming.piece_bytes(time.monotonic() - began, is_duplex=is_duplex),
            on_piece=advance,
        )

    def _receive_relayed(self, channel: Channel, incoming: IncomingChunk, advance: Callable[[int], None]) -> None:
        """Receive a chunk that the peer is receiving itself, piece by piece. Where this host has to tell nothing of it
        meanwhile, it sleeps until several pieces are here."""
        head, is_duplex = bytearray(wire.PIECE_HEAD_BYTES), channel.is_duplex
        at, due, began = 0, 0, time.monotonic()
        while at < incoming.length:
            # The watchdog does not blame the peer for waiting.
            channel.is_waiting = True
            try:
                if at >= due and self._throttle.rate is None:
                    due = at + _expect_pieces(channel, incoming, at, time.monotonic() - began)
                channel.receive(memoryview(head))
            finally:
                channel.is_waiting = False
            length = wire.piece_length(head, incoming.length - at)
            if not length:
                raise errors.RelayEndedError(f"the chunk did not arrive at the peer, which had {at} bytes of it")
            end = at + length
            while at < end:
                most = incoming.piece_bytes(time.monotonic() - began, is_duplex=is_duplex)
                piece = self._throttle.piece(min(end - at, most))
                self._throttle.take(piece)
                channel.receive(incoming.view[at : at + piece])
                at += piece
                advance(at)

    @staticmethod
    def _check(request: wire.Request, reply: wire.Reply) -> None:
        """Raise for every reply except an OK that fits the request."""
        status = reply.status
        if status is wire.Status.BUSY:
            raise errors.PeerBusyError("no free upload slot", retry_after_s=reply.retry_after_ms / 1000)
        if status in (wire.Status.NOT_HELD, wire.Status.FAILED):
            raise errors.PeerNotHoldingError("the peer does not hold it")
        if status is wire.Status.RELAYED and request.verb is not wire.BulkVerb.CHUNK:
            raise errors.PeerProtocolError("only chunks are relayed")
        if status is wire.Status.LENGTH:
            raise errors.OtherLengthError("the peer has it in another size", length=reply.length)
        if status not in (wire.Status.OK, wire.Status.RELAYED):
            raise errors.PeerRefusedError(f"the peer answered {status.name}", code=_REFUSALS[status])
        length = 0 if request.verb is wire.BulkVerb.COMPLAIN else request.length
        if reply.chunk != request.chunk or reply.length != length:
            raise errors.PeerProtocolError(
                f"asked for chunk {request.chunk} of {length} bytes, "
                f"was offered chunk {reply.chunk} of {reply.length} bytes"
            )

    def _ended(
        self, fetch: Fetch, connection: BulkConnection, error: DisconnectedError, *, answered: bool
    ) -> Exception:
        if fetch.cut_by is not None or error.cut_by is not None:
            return cut_error(fetch.cut_by or error.cut_by or Cut.CLOSING, "while fetching")
        if not answered and connection.may_be_stale:
            return _StaleConnectionError()
        # A server closes an unencrypted connection with a bad token without an answer.
        if error.refused or (not answered and self._dialer.credentials is None):
            return errors.PeerRefusedError(f"{fetch.peer.endpoint} closed without an answer")
        return errors.PeerGoneError(str(error))

    def _connection(self, fetch: Fetch, *, is_fresh: bool = False) -> BulkConnection:
        """A pooled connection or a new one. ``is_fresh``: a new one, with a newly issued token."""
        while True:
            try:
                connection = self._connections.borrow(fetch.peer, fetch.deadline, fetch.is_stopped)
            except TimeoutError:
                if fetch.cut_by is not None:
                    raise cut_error(fetch.cut_by, "while waiting for a connection") from None
                raise errors.PeerSlowError("no connection to the peer became free in time") from None
            if connection is None:
                return self._dial_borrowed(fetch, asks=is_fresh)
            if not is_fresh:
                return connection
            self._connections.drop(connection)

    def _dial_borrowed(self, fetch: Fetch, *, asks: bool) -> BulkConnection:
        try:
            return self._dialer.dial(fetch.peer, fetch.deadline, fetch.attach, asks=asks)
        except BaseException as error:
            self._connections.forget(fetch.peer)
            if isinstance(error, UnreachableError):
                self._give_up(fetch.peer, only_silent=not error.is_certain)
            if isinstance(error, errors.NoHandleError):
                self._closed.wait(EXHAUSTED_PAUSE_S)  # nobody is blamed, so only this pause delays the next attempt
            raise
        finally:
            fetch.attach(None)

    def _give_up(self, peer: BulkPeer, *, only_silent: bool) -> None:
        """End all fetches from a lost peer; ``only_silent``: not those that still receive, as a SYN can be lost."""
        heard_since = time.monotonic() - self._bulk_settings.silence_s
        with self._lock:
            found = [fetch for fetch in self._fetches if fetch.peer == peer]
        if only_silent:
            is_silent = self._watchdog.is_silent_since
            found = [one for one in found if one.channel is not None and is_silent(one.channel, heard_since)]
        self._stop(found, Cut.GONE)
        self._connections.drop_idle(peer)

    def _stop(self, fetches: list[Fetch], reason: Cut) -> None:
        for fetch in fetches:
            fetch.stop(reason)
        if fetches:
            self._connections.wake()
            self._pool.wake()

    def connections_looked_at(self, now: float) -> None:
        """Close those that were idle for too long. Called by the watchdog's thread."""
        self._connections.drop_idle(idle_before=now - self._bulk_settings.idle_out_s)

    def transfer_fell_silent(self, channel: Channel) -> None:
        """Find out, in a thread of its own, whether the peer is there at all. Called by the watchdog's thread."""
        with self._lock:
            peers = {fetch.peer for fetch in self._fetches if fetch.channel is channel} - self._probing
            self._probing |= peers
        for peer in peers:
            try:
                NamedThread(target=self._probe_peer, args=(peer,), name="bulk-probe", daemon=True).start()
            except NoThreadError:  # no fault of the peer
                self._traffic.error("E_THREADS")
                with self._lock:
                    self._probing.discard(peer)

    def _probe_peer(self, peer: BulkPeer) -> None:
        try:
            if not self._dialer.is_there(peer.endpoint):
                self._give_up(peer, only_silent=True)
        finally:
            with self._lock:
                self._probing.discard(peer)


def _await_first(channel: Channel, incoming: IncomingChunk, usual_rate: float) -> None:
    """Sleep until the answer and the first piece of the chunk are here. A refusal, which is short, is found up to half
    of a chunk's time later, but only where the last answer on the connection was a chunk.
    """
    incoming.expect_rate(usual_rate)
    first = incoming.piece_bytes(0.0, is_duplex=channel.is_duplex)
    channel.expect(wire.REPLY_BYTES + first, min(_PIECES_PATIENCE_S, incoming.length / usual_rate / 2))


def _expect_pieces(channel: Channel, incoming: IncomingChunk, at: int, elapsed_s: float) -> int:
    """Sleep until as much is here as is to be received next, in pieces with their heads. Returns the bytes without
    heads. The last byte is not among them: the peer sends it when it has stored the chunk. Nor are heads but one: the
    peer sends what is left as one piece when it has all, so that no more may come.
    """
    most = incoming.piece_bytes(elapsed_s, is_duplex=channel.is_duplex)
    expected = min(most, incoming.length - at - 1)
    channel.expect(expected + wire.PIECE_HEAD_BYTES, _PIECES_PATIENCE_S)
    return expected


class _StaleConnectionError(Exception):
    """The peer closed a kept connection before it read us, or rejects a token issued ahead: use a fresh one."""
