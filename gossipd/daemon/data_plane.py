"""The adapters that hold bytes: store, bulk server and client, sources, and what they share.

What lives here: making them from the configuration, closing them in order, changing their limits. What does not: work.
"""

from __future__ import annotations

import contextlib
import time
from random import SystemRandom
from threading import Lock

from msgspec.structs import replace

from gossipd.api.schema import LimitsRow
from gossipd.config.sections import Config
from gossipd.control.control_plane import ControlPlane
from gossipd.control.requests import PeerSilentError, PeerUnreachableError, RequestRefusedError
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.daemon import settings_mapping
from gossipd.daemon.alarms import NOT_A_TARGET, Reports
from gossipd.daemon.chunk_access import ChunkAccess, SourceWriter
from gossipd.daemon.control_delegate import BulkTokens
from gossipd.daemon.link_sharing import LinkSharing
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.daemon.rechecks import Rechecks
from gossipd.daemon.scheduled_limits import LimitsSchedule
from gossipd.daemon.store_events import StoreEvents
from gossipd.daemon.unreached_peers import UnreachedPeers
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.bulk_sockets import BULK_SOCKETS
from gossipd.runtime.file_access import grant, group_number
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.assembly import Delivery
from gossipd.sources.reader import SourceReader
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.posix_disk import make_root
from gossipd.swarm.first_copies import FirstCopies
from gossipd.transfer.client import BulkClient
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.errors import PeerGoneError, PeerRefusedError, PeerSlowError
from gossipd.transfer.server import BulkServer
from gossipd.transfer.settings import Encryption
from gossipd.wire import control
from membership.member import NodeId

# The peer's kernel has answered; its program may be busy, and so may this one. Less than ``BulkSettings.handshake_s``,
# after which the peer closes the connection that the token is for.
TOKEN_WAIT_S = 1.5


class DataPlane:
    """All thread-safe. What the bulk server asks and tells (``ServerPort``) goes through here."""

    def __init__(
        self, live: LiveSettings, *, chunk_access: ChunkAccess, tokens: BulkTokens, directory: MemberDirectory,
        driver: PlannerDriver, plane: ControlPlane, reports: Reports,
    ) -> None:  # fmt: skip
        config, keys = live.config, live.keys
        self._live, self._directory, self._driver, self._plane = live, directory, driver, plane
        self.unreached = UnreachedPeers(directory)
        self.store = store = chunk_access.store
        self.chunk_access = chunk_access
        self.read_threads = config.sources.connections
        self._reports = reports
        self._rechecks = Rechecks(store, reports.bugs)
        bulk = settings_mapping.bulk_settings(config)
        is_tls = bulk.encryption is Encryption.TLS
        credentials = tls_credentials(keys.node, keys.cluster.keys) if is_tls else None
        self.sharing = LinkSharing(BULK_SOCKETS)
        self.upload, self.download = RateLimit(within=self.sharing.upload), RateLimit(within=self.sharing.download)
        self.external = RateLimit(within=self.download)
        self.limits = LimitsSchedule(
            live, {"upload": self.upload, "download": self.download, "source": self.external}, reports.audit
        )
        self._first_copies, self._first_copies_lock = FirstCopies(), Lock()
        self.pool = BufferPool(config.limits.pool_bytes)
        incoming_chunks = self.incoming_chunks = IncomingChunks(driver.post, clock_ahead_s=driver.clock_ahead_s)
        self.server = BulkServer(
            reader=self.chunk_access, settings=bulk, port=self, throttle=self.upload, credentials=credentials,
            tokens=tokens.issued, incoming_chunks=incoming_chunks,
        )  # fmt: skip
        self.client = BulkClient(
            settings=bulk, pool=self.pool, throttle=self.download, credentials=credentials,
            get_token=None if is_tls else self._token_of, incoming_chunks=incoming_chunks,
            received_tokens=tokens.received,
        )  # fmt: skip
        self.reader = SourceReader(
            Delivery(SourceWriter(store, driver), self.pool, incoming_chunks, driver.post), throttle=self.external,
            policy=SourcePolicy.parse(config.sources.allow), settings=settings_mapping.source_settings(config),
            rng=SystemRandom(),
        )  # fmt: skip

    # ---- what the bulk server asks and tells ---------------------------------------------------------

    def is_member(self, node: NodeId) -> bool:
        """See ServerPort."""
        return self._directory.is_member(node)

    def may_have(self, node: NodeId, deployment: DeploymentId) -> bool:
        """See ServerPort. Of a deployment without a manifest here there is nothing to have."""
        manifest = self.chunk_access.lifecycle.manifest_of(deployment)
        may = manifest is None or self._directory.is_target(node, manifest.targets)
        if not may:
            self._reports.audit.record(
                NOT_A_TARGET, subject=self._directory.name_of(node), by=node.hex(), deployment=deployment.hex()
            )
        return may

    def is_member_address(self, address: str) -> bool:
        """See ServerPort."""
        return self._directory.is_member_address(address)

    def slots_changed(self, free: int) -> None:
        """See ServerPort: the planner knows from its next turn on."""
        self._driver.free_slots = free

    def prefer_first_copies(self, deployment: DeploymentId, chunk_count: int) -> None:
        """This host is the origin of a deployment: each chunk leaves once before any leaves twice."""
        with self._first_copies_lock:
            self._first_copies.watch(deployment, chunk_count)

    def may_send(self, deployment: DeploymentId, chunk: ChunkIndex) -> bool:
        """See ServerPort: an origin's first copies go first."""
        with self._first_copies_lock:
            return self._first_copies.may_begin(deployment, chunk, time.monotonic())

    def upload_ended(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """See ServerPort."""
        with self._first_copies_lock:
            self._first_copies.ended(deployment, chunk)

    def chunk_sent(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex, byte_count: int) -> None:
        """See ServerPort: it is counted."""
        with self._first_copies_lock:
            self._first_copies.sent(deployment, chunk)
        self.chunk_access.sent(node, deployment, byte_count)

    def complaint_received(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """The chunk is read back, within what one member may ask for."""
        self._rechecks.want(deployment, chunk, node)

    def read_failed(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """The chunk is read back."""
        self._rechecks.want(deployment, chunk)

    # ---- limits, keys, the end -----------------------------------------------------------------------

    def limits_row(self) -> LimitsRow:
        """The limits in force, and the share of a link that others use, for the status."""
        return replace(self.limits.row(), shared_bytes_per_s=int(self.sharing.download.rate or 0))

    def settings_changed(self) -> None:
        """What a reload may change of limits and sources, and storage that was repaired meanwhile."""
        config = self._live.config
        self.limits.look(time.time())
        self.reader.set_policy(SourcePolicy.parse(config.sources.allow))
        self.reader.look_again()

    def keys_changed(self) -> None:
        """Certificates of another key ring, for connections from now on; those that are open stay."""
        keys = self._live.keys
        if settings_mapping.bulk_settings(self._live.config).encryption is Encryption.TLS:
            credentials = tls_credentials(keys.node, keys.cluster.keys)
            self.server.replace_credentials(credentials)
            self.client.replace_credentials(credentials)

    def stop_moving(self) -> None:
        """End every fetch, read and upload."""
        for throttle in (self.sharing.upload, self.sharing.download, self.upload, self.download, self.external):
            throttle.close()
        self.client.close()
        self.reader.close()
        self.server.close()

    def close(self) -> None:
        """Commit and unlock the store."""
        self._rechecks.close()
        self.store.close()

    def _token_of(self, node: NodeId) -> bytes:
        """From worker threads: a token that opens one plain bulk connection."""
        try:
            reply = self._plane.request_from_thread(node, control.TokenWanted(), TOKEN_WAIT_S)
        except PeerUnreachableError as error:
            raise PeerGoneError(f"the peer gave no token: {error}") from None
        except PeerSilentError as error:
            raise PeerSlowError(f"the peer gave no token: {error}") from None
        except RequestRefusedError as error:
            raise PeerRefusedError(f"the peer gave no token: {error}", code=error.code) from None
        assert isinstance(reply, control.Token)
        return reply.token


def open_store(config: Config, events: StoreEvents) -> ChunkStore:
    """The store of this host, open to those who may read models. Raises StoreError, StoreWriteError, OSError."""
    models = config.store.models
    make_root(models, mode=0o700)
    with contextlib.suppress(OSError):  # of another user, or on a read-only disk: the store says so next
        grant(models, int(config.store.models_mode, 8), group_number(config.store.models_group))
    settings = settings_mapping.store_settings(config)
    return ChunkStore(models, settings=settings, on_event=events.reported, before_evict=events.before_evict)
