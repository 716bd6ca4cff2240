"""Fetches between simulated hosts: asked, served from a slot, cut, cancelled, and always ended by one event.

What lives here: what ``gossipd.transfer`` does with connections, on the virtual clock, with its upload slots and its
times; chunks that are relayed while they come (``gossipd.runtime.incoming_chunks``); fetches that follow others on
their connection; and what the daemon's performer makes of the outcome. What does not: bytes on a wire. How long a
transfer takes is settled when it begins, by who else uses the two links then; that of a relay ends with that of its
upstream if that is later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipd.core.errors import GossipdError
from gossipd.core.events import ChunkArriving, ChunkEnding, FailReason, FetchFailed, StartFetch
from gossipd.core.ids import SOURCE, DeploymentId, Supplier
from gossipd.core.timing import ENDING_SHARE, TOLD_SHARE
from gossipd.runtime.ports import DigestMismatchError, NotHeldError, StoreWriteError
from gossipd.swarm.first_copies import FirstCopies
from gossipd.transfer.settings import BulkSettings
from gossipd.transfer.slots import UploadSlots
from membership.member import NodeId

if TYPE_CHECKING:
    from tests.sim.campaign.daemon import Daemon

_SETTINGS = BulkSettings()
_REFUSED_S = 0.001
_PROBED_S = _SETTINGS.silence_s + _SETTINGS.probe_s  # until a host that is not there is given up


class Fetch:
    """One fetch: from the command to its event. Ended when it is no longer in its taker's ``fetches``."""

    __slots__ = (
        "began_s",
        "body",
        "chunk",
        "deployment",
        "due_s",
        "has_slot",
        "next",
        "peer",
        "server",
        "server_life",
        "taker",
    )

    def __init__(self, taker: Daemon, server: Daemon, command: StartFetch, now: float) -> None:
        self.taker = taker
        self.server = server
        self.server_life = -1
        self.deployment = command.deployment
        self.chunk = command.chunk
        self.peer = command.peer
        self.began_s = now
        self.due_s = now
        self.body = b""
        self.has_slot = False
        self.next: Fetch | None = None  # waits for our connection

    @property
    def key(self) -> tuple[DeploymentId, int, NodeId]:
        """As the taker knows it."""
        return self.deployment, self.chunk, self.peer


class Arrival:
    """A chunk on its way to a host, and the fetches of it that wait there for its end."""

    __slots__ = ("relays", "supplier")

    def __init__(self, supplier: Supplier) -> None:
        self.supplier = supplier
        self.relays: list[Fetch] = []


class Bulk:
    """Both sides of one host in one life."""

    upload_bytes: int | None = None
    """A slot is lent where an upload of known length takes long, by the machine's clock: not here."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._world = daemon.world
        self.fetches: dict[tuple[DeploymentId, int, NodeId], Fetch] = {}
        self.arrivals: dict[tuple[DeploymentId, int], Arrival] = {}
        self.slots = UploadSlots(_SETTINGS.slots, _SETTINGS.slots_per_peer, on_change=daemon.slots_changed)
        self.slot_count = _SETTINGS.slots
        self.slots_per_peer = _SETTINGS.slots_per_peer
        self.serving: dict[NodeId, int] = {}
        self.first_copies = FirstCopies()

    # ---- the taker's side ----------------------------------------------------------------------

    def start(self, command: StartFetch) -> None:
        """Perform the command."""
        daemon, world = self._daemon, self._world
        server = world.daemons[world.index_of[command.peer]]
        fetch = Fetch(daemon, server, command, world.now)
        self.fetches[fetch.key] = fetch
        if daemon.members.bulk_endpoint(command.peer) is None:
            daemon.after(0.0, self._fail, fetch, FailReason.GONE)
            return
        daemon.after(command.timeout_s, self._fail, fetch, FailReason.SLOW)
        if not world.wires.is_whole(daemon.index, server.index) or not server.is_powered:
            daemon.after(_SETTINGS.connect_s, self._fail, fetch, FailReason.GONE)
        elif not server.is_up:
            daemon.after(_REFUSED_S, self._fail, fetch, FailReason.GONE)
        elif server.is_stopped:
            daemon.after(_SETTINGS.stall_s, self._fail, fetch, FailReason.SLOW)
        elif not self._follows(fetch, command):
            world.after(2 * world.delay(), server.bulk.asked, fetch)

    def _follows(self, fetch: Fetch, command: StartFetch) -> bool:
        if command.behind is None:
            return False
        first = self.fetches.get((command.deployment, command.behind, command.peer))
        if first is None or not first.has_slot or first.next is not None:
            return False
        first.next = fetch
        self._world.oracle.looked["followed"] += 1
        return True

    def cancel(self, peer: NodeId, deployment: DeploymentId, chunk: int) -> None:
        """Perform the command."""
        fetch = self.fetches.get((deployment, chunk, peer))
        if fetch is not None:
            self._fail(fetch, FailReason.CANCELLED)

    def _fail(self, fetch: Fetch, reason: FailReason) -> None:
        if self.fetches.get(fetch.key) is fetch:
            del self.fetches[fetch.key]
            self._hang_up(fetch)
            self.arrival_ended(fetch.deployment, fetch.chunk, fetch.peer, has_landed=False)
            self._daemon.post(FetchFailed(fetch.deployment, fetch.chunk, fetch.peer, reason))

    def _hang_up(self, fetch: Fetch) -> None:
        server = fetch.server
        if fetch.has_slot:
            fetch.has_slot = False
            self._world.after(self._world.delay(), server.bulk.release, fetch)
        following, fetch.next = fetch.next, None
        if following is not None:
            self._world.after(2 * self._world.delay(), server.bulk.asked, following)

    def arrived(self, fetch: Fetch) -> None:
        """The last byte is here."""
        if self.fetches.get(fetch.key) is not fetch:
            return
        self._hang_up(fetch)
        self._daemon.after(self._daemon.disk_wait_s(), self._put, fetch)

    def _put(self, fetch: Fetch) -> None:
        """CommandExecutor._fetched, from the body on."""
        if self.fetches.get(fetch.key) is not fetch:
            return
        daemon, reason = self._daemon, None
        try:
            is_new = daemon.store.put(
                fetch.deployment, fetch.chunk, memoryview(fetch.body), fetch.peer, self._world.now - fetch.began_s
            )
            reason = None if is_new else FailReason.CANCELLED
        except DigestMismatchError:
            reason = FailReason.CORRUPT
            self._world.oracle.blamed(daemon, fetch, fetch.peer)
            self._complain(fetch)
        except StoreWriteError:
            reason = FailReason.DISK
        except NotHeldError:
            reason = FailReason.CANCELLED
        del self.fetches[fetch.key]
        self.arrival_ended(fetch.deployment, fetch.chunk, fetch.peer, has_landed=reason is None)
        if reason is not None:
            daemon.post(FetchFailed(fetch.deployment, fetch.chunk, fetch.peer, reason))

    def _complain(self, fetch: Fetch) -> None:
        server = fetch.server
        if server.is_up and self._world.wires.is_whole(self._daemon.index, server.index):
            server.after(2 * self._world.delay(), server.recheck, fetch.deployment, fetch.chunk)

    # ---- chunks that others may have while they come -------------------------------------------

    def arriving_in(self, took_s: float, deployment: DeploymentId, chunk: int, supplier: Supplier) -> None:
        """A fetch or read begins that takes so long: others may ask for its chunk when so much of it is here."""
        ending_at_s = self._world.now + (1 - ENDING_SHARE) * took_s
        self._daemon.after(TOLD_SHARE * took_s, self._arriving, deployment, chunk, supplier, ending_at_s)

    def _arriving(self, deployment: DeploymentId, chunk: int, supplier: Supplier, ending_at_s: float) -> None:
        if supplier is not SOURCE and (deployment, chunk, supplier) not in self.fetches:
            return
        if (deployment, chunk) in self.arrivals:
            self._daemon.post(ChunkEnding(deployment, chunk, supplier, ending_at_s))
        else:
            self.arrivals[deployment, chunk] = Arrival(supplier)
            self._daemon.post(ChunkArriving(deployment, chunk, supplier, ending_at_s))

    def arrival_ended(self, deployment: DeploymentId, chunk: int, supplier: Supplier, *, has_landed: bool) -> None:
        """A fetch or read has ended: with the chunk its relays may end, without it they must."""
        arrival = self.arrivals.get((deployment, chunk))
        if arrival is None or arrival.supplier != supplier:
            return
        del self.arrivals[deployment, chunk]
        for relay in arrival.relays:
            if not (has_landed and self._send(relay)):
                relay.taker.after(self._world.delay(), relay.taker.bulk._fail, relay, FailReason.NOT_HELD)

    # ---- the server's side ---------------------------------------------------------------------

    def asked(self, fetch: Fetch) -> None:
        """A request is here."""
        daemon, world, taker = self._daemon, self._world, fetch.taker
        if taker.bulk.fetches.get(fetch.key) is not fetch:
            return
        if not daemon.is_up or daemon.bulk is not self:
            taker.after(_REFUSED_S, taker.bulk._fail, fetch, FailReason.GONE)
            return
        if daemon.is_stopped:
            taker.after(_SETTINGS.stall_s, taker.bulk._fail, fetch, FailReason.SLOW)
            return
        if not daemon.members.is_member(taker.node):
            taker.after(world.delay(), taker.bulk._fail, fetch, FailReason.REFUSED)
            return
        may_begin = self.first_copies.may_begin(fetch.deployment, fetch.chunk, world.now)
        if not (may_begin and self.slots.acquire(taker.node, self.upload_bytes)):
            if may_begin:
                self.first_copies.ended(fetch.deployment, fetch.chunk)
            taker.after(world.delay(), taker.bulk._fail, fetch, FailReason.BUSY)
            return
        world.oracle.upload_began(daemon, taker.node)
        fetch.has_slot = True
        fetch.server_life = daemon.life
        self.serving[taker.node] = self.serving.get(taker.node, 0) + 1
        took_s = self._transfer_s(fetch)
        fetch.due_s = world.now + took_s
        arrival = self.arrivals.get((fetch.deployment, fetch.chunk))
        if not self._send(fetch):
            if arrival is None or arrival.supplier == taker.node:
                taker.after(world.delay(), taker.bulk._fail, fetch, FailReason.NOT_HELD)
                return
            arrival.relays.append(fetch)
            world.oracle.looked["relayed"] += 1
        taker.bulk.arriving_in(took_s, fetch.deployment, fetch.chunk, fetch.peer)

    def _send(self, fetch: Fetch) -> bool:
        """Send a chunk from the store; False when it is not there, or cannot be read."""
        body = self._read(fetch)
        if body is None:
            return False
        fetch.body = body
        self._world.after(max(0.0, fetch.due_s - self._world.now), self._sent, fetch, False)
        return True

    def _transfer_s(self, fetch: Fetch) -> float:
        load = max(sum(self.serving.values()), len(fetch.taker.bulk.fetches) / 2, 1.0)
        slow = max(self._daemon.link_slowness, fetch.taker.link_slowness)
        if slow > 1.0:
            for end in (self._daemon, fetch.taker):
                self._world.faults.struck("slow_link", end.index)
        return self._world.chunk_s * load * slow * self._daemon.random.uniform(0.8, 1.2)

    def _read(self, fetch: Fetch) -> bytes | None:
        """The chunk's bytes as they are on our disk, or as a liar sends them."""
        daemon = self._daemon
        try:
            opened = daemon.store.open_chunk(fetch.deployment, fetch.chunk)
        except NotHeldError as error:
            if error.code == "E_CHUNK_UNAVAILABLE":
                daemon.recheck(fetch.deployment, fetch.chunk)
            return None
        parts = []
        try:
            for span in opened.spans:
                part = bytearray(span.length)
                got = daemon.disk.read_some(span.descriptor, memoryview(part), span.offset)
                parts.append(bytes(part[:got]))
        except OSError:
            daemon.recheck(fetch.deployment, fetch.chunk)
            return None
        finally:
            opened.close()
        return daemon.said(b"".join(parts))

    def _sent(self, fetch: Fetch, waited: bool) -> None:
        """The last byte should be there now."""
        taker, daemon, world = fetch.taker, self._daemon, self._world
        if taker.bulk.fetches.get(fetch.key) is not fetch:
            return
        if not daemon.is_up or daemon.life != fetch.server_life:
            wait_s = 0.0 if daemon.is_powered else _PROBED_S
            taker.after(wait_s, taker.bulk._fail, fetch, FailReason.GONE)
        elif world.wires.is_whole(daemon.index, taker.index) and not daemon.is_stopped:
            self.first_copies.sent(fetch.deployment, fetch.chunk)
            taker.after(0.0, taker.bulk.arrived, fetch)
        elif waited:
            stopped = daemon.is_stopped
            taker.after(0.0, taker.bulk._fail, fetch, FailReason.SLOW if stopped else FailReason.GONE)
        else:
            world.after(_SETTINGS.stall_s if daemon.is_stopped else _PROBED_S, self._sent, fetch, True)

    def release(self, fetch: Fetch) -> None:
        """The connection has ended, or the taker has hung up."""
        node = fetch.taker.node
        if self._daemon.bulk is not self or self._daemon.life != fetch.server_life:
            return
        left = self.serving[node] - 1
        if left:
            self.serving[node] = left
        else:
            del self.serving[node]
        self.slots.release(node, self.slot_began_s(fetch))
        self.first_copies.ended(fetch.deployment, fetch.chunk)

    def slot_began_s(self, fetch: Fetch) -> float:
        """When its upload began, on the clock of the slots."""
        return 0.0

    def end_all(self) -> None:
        """The process is gone: its connections are reset and the slots that it held elsewhere are free."""
        for fetch in self.fetches.values():
            self._hang_up(fetch)
        self.fetches.clear()
        for arrival in self.arrivals.values():
            for relay in arrival.relays:
                self._world.after(0.0, self._sent, relay, False)
        self.arrivals.clear()

    def limit_uploads(self, slots: int) -> None:
        """Perform the command."""
        self.slot_count = slots
        self.slots.resize(slots)


def recheck_quietly(daemon: Daemon, deployment: DeploymentId, chunk: int) -> None:
    """CommandExecutor._recheck."""
    try:
        daemon.store.recheck(deployment, chunk)
    except GossipdError:
        return
