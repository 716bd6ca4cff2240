"""A server and a client on loopback, in either mode, with everything they need made up."""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gossipd.core.events import ChunkArriving, ChunkEnding
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.identity.keys import SecretKey
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.client import BulkClient
from gossipd.transfer.connections import Endpoint
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.errors import PeerBusyError
from gossipd.transfer.server import BulkServer
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.tokens import IssuedTokens, ReceivedTokens
from membership.member import NodeId, node_id
from tests.contracts.chunk_store_fakes import FakeChunkStore

CLUSTER_KEY = b"\x07" * 32
SERVER_KEY = SecretKey(b"\x01" * 32)
CLIENT_KEY = SecretKey(b"\x02" * 32)
MODEL = DeploymentId(b"\x0a" * 32)
CHUNK_BYTES = 256 * 1024
WAIT_S = 120.0  # for things that take milliseconds; only a failing test waits so long


def node_of(secret: SecretKey) -> NodeId:
    return node_id(secret.public.ed25519)


SERVER = node_of(SERVER_KEY)
CLIENT = node_of(CLIENT_KEY)


def bodies(count: int = 4, nbytes: int = CHUNK_BYTES) -> list[bytes]:
    rng = random.Random(1)
    return [rng.randbytes(nbytes) for _ in range(count)] + [b"a short last chunk"]


@dataclass
class Pair:
    """A running server, a client, and what can be observed of both."""

    server: BulkServer
    client: BulkClient
    endpoint: Endpoint
    store: FakeChunkStore
    tokens: IssuedTokens
    pool: BufferPool
    members: set[NodeId]
    bodies: list[bytes]
    upload: RateLimit
    download: RateLimit
    slots_changed: threading.Condition
    slots_seen: list[int] = field(default_factory=list)
    complaints: list[tuple[NodeId, DeploymentId, ChunkIndex]] = field(default_factory=list)
    bad_reads: list[tuple[DeploymentId, ChunkIndex]] = field(default_factory=list)
    sent: list[tuple[NodeId, DeploymentId, int]] = field(default_factory=list)
    arriving: IncomingChunks = field(default_factory=IncomingChunks)
    """At the server."""
    received: IncomingChunks = field(default_factory=IncomingChunks)
    """At the client; ``listed`` is what it told of."""
    listed_changed: threading.Condition = field(default_factory=threading.Condition)
    listed: list[tuple[DeploymentId, ChunkIndex, Supplier]] = field(default_factory=list)
    ended: list[tuple[DeploymentId, ChunkIndex, Supplier]] = field(default_factory=list)
    """What the client has told that little is left of."""
    received_tokens: ReceivedTokens = field(default_factory=ReceivedTokens)
    """The client's."""
    asked: list[NodeId] = field(default_factory=list)
    """Whom the client has asked for a token."""
    outsiders: set[tuple[NodeId, DeploymentId]] = field(default_factory=set)
    """Members that are no target of a deployment."""
    held_back: set[ChunkIndex] = field(default_factory=set)
    """Chunks that the server lets others go before."""
    uploads_ended: list[tuple[ChunkIndex, int]] = field(default_factory=list)
    """Each with the number of chunks that had been sent."""

    def await_free_slots(self, count: int) -> None:
        """Until the server has this many free upload slots."""
        with self.slots_changed:
            assert self.slots_changed.wait_for(lambda: self.server.statistics().free_slots == count, WAIT_S)

    def await_dropped(self, addresses: set[str]) -> None:
        """Until the server has the kernel drop new connections from these."""
        ended, give_up_s = threading.Event(), time.monotonic() + WAIT_S
        while set(self.server.dropped_addresses) != addresses:
            assert time.monotonic() < give_up_s, self.server.dropped_addresses
            ended.wait(0.02)

    def await_listed(self, chunk: ChunkIndex) -> None:
        """Until the client has told that it could relay this chunk."""
        with self.listed_changed:
            assert self.listed_changed.wait_for(lambda: (MODEL, chunk, SERVER) in self.listed, WAIT_S)

    def fetch(
        self, chunk: int, *, length: int | None = None, timeout_s: float = WAIT_S, behind: int | None = None
    ) -> bytes:
        length = len(self.bodies[chunk]) if length is None else length
        with self.client.fetch_chunk(
            SERVER, self.endpoint, MODEL, chunk, length, timeout_s=timeout_s, behind=behind
        ) as lease:
            return bytes(lease.view)

    def fetch_when_free(self, chunk: int) -> bytes:
        """Asks again while the server is busy with requests that nobody waits for any more."""
        give_up_s = time.monotonic() + WAIT_S
        while True:
            try:
                return self.fetch(chunk)
            except PeerBusyError:
                assert time.monotonic() < give_up_s


class _Port:
    """The server's; it remembers what it was told."""

    def __init__(self, members: set[NodeId]) -> None:
        self._members = members
        self.slots_changed_condition = threading.Condition()
        self.slots_seen: list[int] = []
        self.complaints: list[tuple[NodeId, DeploymentId, ChunkIndex]] = []
        self.bad_reads: list[tuple[DeploymentId, ChunkIndex]] = []
        self.outsiders: set[tuple[NodeId, DeploymentId]] = set()
        self.sent: list[tuple[NodeId, DeploymentId, int]] = []
        self.held_back: set[ChunkIndex] = set()
        self.uploads_ended: list[tuple[ChunkIndex, int]] = []

    def is_member(self, node: NodeId) -> bool:
        return node in self._members

    def may_have(self, node: NodeId, deployment: DeploymentId) -> bool:
        return (node, deployment) not in self.outsiders

    def may_send(self, deployment: DeploymentId, chunk: ChunkIndex) -> bool:
        return chunk not in self.held_back

    def upload_ended(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        self.uploads_ended.append((chunk, len(self.sent)))

    def is_member_address(self, address: str) -> bool:
        return address == "127.0.0.1"

    def slots_changed(self, free: int) -> None:
        with self.slots_changed_condition:
            self.slots_seen.append(free)
            self.slots_changed_condition.notify_all()

    def chunk_sent(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex, byte_count: int) -> None:
        self.sent.append((node, deployment, byte_count))

    def complaint_received(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        self.complaints.append((node, deployment, chunk))

    def read_failed(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        self.bad_reads.append((deployment, chunk))


@contextmanager
def pair(
    encryption: Encryption,
    *,
    settings: Callable[[Encryption], BulkSettings] = lambda encryption: BulkSettings(encryption=encryption),
    store: FakeChunkStore | None = None,
    members: set[NodeId] | None = None,
    host: str = "127.0.0.1",
) -> Iterator[Pair]:
    chosen = settings(encryption)
    store = FakeChunkStore() if store is None else store
    store.add_model(MODEL, bodies(), held=True)
    tokens, pool, upload, download = IssuedTokens(), BufferPool(8 * 1024 * 1024), RateLimit(), RateLimit()
    members = {CLIENT} if members is None else members
    port = _Port(members)
    listed: list[tuple[DeploymentId, ChunkIndex, Supplier]] = []
    listed_changed = threading.Condition()

    ended: list[tuple[DeploymentId, ChunkIndex, Supplier]] = []

    def post(event: ChunkArriving | ChunkEnding) -> None:
        with listed_changed:
            told = (event.deployment, event.chunk, event.supplier)
            if isinstance(event, ChunkArriving):
                listed.append(told)
            if isinstance(event, ChunkEnding) or event.ending_at_s is not None:
                ended.append(told)
            listed_changed.notify_all()

    arriving = IncomingChunks()
    received = IncomingChunks(post)

    is_tls = encryption is Encryption.TLS
    server = BulkServer(
        reader=store,
        settings=chosen,
        port=port,
        throttle=upload,
        credentials=tls_credentials(SERVER_KEY, [CLUSTER_KEY]) if is_tls else None,
        tokens=tokens,
        incoming_chunks=arriving,
    )
    received_tokens = ReceivedTokens()
    asked: list[NodeId] = []

    def ask(node: NodeId) -> bytes:
        asked.append(node)
        return tokens.issue(CLIENT)

    client = BulkClient(
        settings=chosen,
        pool=pool,
        throttle=download,
        credentials=tls_credentials(CLIENT_KEY, [CLUSTER_KEY]) if is_tls else None,
        get_token=None if is_tls else ask,
        incoming_chunks=received,
        received_tokens=received_tokens,
    )
    endpoint = server.start(host, 0)
    try:
        yield Pair(
            server, client, endpoint, store, tokens, pool, members, bodies(), upload, download,
            port.slots_changed_condition, port.slots_seen, port.complaints, port.bad_reads, port.sent, arriving,
            received, listed_changed, listed, ended, received_tokens, asked, port.outsiders,
            held_back=port.held_back, uploads_ended=port.uploads_ended,
        )  # fmt: skip
    finally:
        client.close()
        server.close()


@contextmanager
def no_handles() -> Iterator[None]:
    """The process can open nothing more; what is open stays so."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def no_threads() -> Iterator[None]:
    """The process can start no thread: none has room for a stack of 64 TiB."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)
