"""The hands that hold bytes: store, bulk server and client, sources, and what they share.

What lives here: making them from the configuration, closing them in order, changing their limits. What does not: work.
"""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom

from gossipd.config.keys import Keys
from gossipd.config.sections import Config
from gossipd.control.requests import PeerSilentError, PeerUnreachableError, RequestRefusedError
from gossipd.core.events import Event, SlotsChanged
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.daemon import settings_mapping
from gossipd.daemon.chunk_access import ChunkAccess, SourceWriter
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.state_dir import StateDirectory
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.assembly import Delivery
from gossipd.sources.clients import start_runtime
from gossipd.sources.reader import SourceReader
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.durable import make_root
from gossipd.store.notices import ModelEvicted, StoreEvent
from gossipd.transfer.client import BulkClient
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.errors import PeerGoneError
from gossipd.transfer.server import BulkServer
from gossipd.transfer.settings import Encryption
from gossipd.transfer.tokens import IssuedTokens, ReceivedTokens
from membership.member import NodeId


class DataPlane:
    """All thread-safe. What the bulk server asks and tells (``ServerPort``) goes through here."""

    def __init__(
        self,
        config: Config,
        keys: Keys,
        *,
        state: StateDirectory,
        cluster: MemberDirectory,
        on_store: Callable[[StoreEvent], None],
        post: Callable[[Event], None],
        token_of: Callable[[NodeId], bytes],
        recheck: Callable[[DeploymentId, int], None],
        before_evict: Callable[[ModelEvicted], None],
        is_coming: Callable[[DeploymentId], bool],
    ) -> None:
        """Opens the store. Raises StoreError, StoreWriteError."""
        limits = config.limits
        self._cluster, self._post, self._recheck = cluster, post, recheck
        bulk = settings_mapping.bulk_settings(config)
        is_tls = bulk.encryption is Encryption.TLS
        credentials = tls_credentials(keys.node, keys.cluster.keys) if is_tls else None
        self.upload = RateLimit(settings_mapping.rate(limits.upload_bytes_per_s))
        self.download = RateLimit(settings_mapping.rate(limits.download_bytes_per_s))
        self.external = RateLimit(settings_mapping.rate(limits.source_bytes_per_s), within=self.download)
        self.pool = BufferPool(limits.pool_bytes)
        self.tokens = None if is_tls else IssuedTokens()
        self.received_tokens = ReceivedTokens()
        make_root(config.store.models, mode=0o750)
        settings = settings_mapping.store_settings(config)
        self.store = ChunkStore(config.store.models, settings=settings, on_event=on_store, before_evict=before_evict)
        self.chunk_access = ChunkAccess(
            self.store, state, is_rack_peer=lambda node: _rack(cluster, node) == config.node.rack, is_coming=is_coming
        )
        incoming_chunks = IncomingChunks(post)
        self.server = BulkServer(
            reader=self.chunk_access,
            settings=bulk,
            port=self,
            throttle=self.upload,
            credentials=credentials,
            tokens=self.tokens,
            incoming_chunks=incoming_chunks,
        )
        self.client = BulkClient(
            settings=bulk,
            pool=self.pool,
            throttle=self.download,
            credentials=credentials,
            get_token=None if is_tls else lambda node: _token(token_of, node),
            incoming_chunks=incoming_chunks,
            received_tokens=self.received_tokens,
        )
        start_runtime()
        self.reader = SourceReader(
            Delivery(SourceWriter(self.store, post), self.pool, incoming_chunks),
            throttle=self.external,
            policy=SourcePolicy.parse(config.sources.allow),
            settings=settings_mapping.source_settings(config),
            rng=SystemRandom(),
        )

    # ---- what the bulk server asks and tells ---------------------------------------------------------

    def is_member(self, node: NodeId) -> bool:
        """See ServerPort."""
        return self._cluster.is_member(node)

    def slots_changed(self, free: int) -> None:
        """The planner wants to know."""
        self._post(SlotsChanged(free))

    def chunk_sent(self, node: NodeId, deployment: DeploymentId, byte_count: int) -> None:
        """It is counted."""
        self.chunk_access.sent(node, deployment, byte_count)

    def complaint_received(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """The chunk is read back."""
        self._recheck(deployment, chunk)

    def read_failed(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """The chunk is read back."""
        self._recheck(deployment, chunk)

    # ---- limits, keys, the end -----------------------------------------------------------------------

    def change_limits(self, config: Config) -> None:
        """What SIGHUP may change."""
        self.upload.set_rate(settings_mapping.rate(config.limits.upload_bytes_per_s))
        self.download.set_rate(settings_mapping.rate(config.limits.download_bytes_per_s))
        self.external.set_rate(settings_mapping.rate(config.limits.source_bytes_per_s))
        self.reader.set_policy(SourcePolicy.parse(config.sources.allow))

    def set_keys(self, keys: Keys) -> None:
        """Certificates of another key ring, for connections from now on; those that are open stay."""
        if self.tokens is None:
            credentials = tls_credentials(keys.node, keys.cluster.keys)
            self.server.replace_credentials(credentials)
            self.client.replace_credentials(credentials)

    def stop_moving(self) -> None:
        """End every fetch, read and upload."""
        for throttle in (self.upload, self.download, self.external):
            throttle.close()
        self.client.close()
        self.reader.close()
        self.server.close()

    def close(self) -> None:
        """Commit and unlock the store."""
        self.store.close()


def _rack(cluster: MemberDirectory, node: NodeId) -> str | None:
    record = cluster.record(node)
    return None if record is None else record.rack


def _token(token_of: Callable[[NodeId], bytes], node: NodeId) -> bytes:
    try:
        return token_of(node)
    except (PeerUnreachableError, PeerSilentError, RequestRefusedError) as error:
        raise PeerGoneError(f"the peer gave no token: {error}") from None
