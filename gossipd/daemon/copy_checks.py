"""Asks a host for one chunk of a version that it says it has.

What lives here: the fetch, and looking at what came. What does not: who is asked and what the answer counts for
(``deployment.copy_proofs``).
"""

from __future__ import annotations

from random import SystemRandom

from blake3 import blake3
from msgspec import Struct

from gossipd.core.ids import ChunkIndex, DeploymentId, short
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.logs import get_logger
from gossipd.runtime.ports import DigestMismatchError
from gossipd.runtime.worker_threads import run_blocking
from gossipd.transfer.client import BulkClient
from gossipd.transfer.errors import TransferError
from membership.member import NodeId

CHECK_S = 10.0  # 64 MiB at 55 Mbit/s
log = get_logger("store")


class CopyChecks(Struct, frozen=True):
    """One per daemon, on the trio loop."""

    lifecycle: DeploymentTable
    directory: MemberDirectory
    client: BulkClient

    async def has(self, deployment: DeploymentId, node: NodeId) -> bool | None:
        """Whether the host sends a chunk that is drawn at random, and it is right; None where the manifest is not
        read here now, so that nothing can be asked."""
        manifest, endpoint = self.lifecycle.manifest_of(deployment), self.directory.bulk_endpoint(node)
        if manifest is None:
            return None
        if endpoint is None:
            return False
        if not manifest.chunk_count:
            return True
        chunk = ChunkIndex(SystemRandom().randrange(manifest.chunk_count))
        reason = await run_blocking(self._fault, manifest, node, endpoint, chunk)
        if reason:
            peer = self.directory.name_of(node)
            log.warning("a copy was not shown", peer=peer, deployment=short(deployment), chunk=chunk, reason=reason)
        return not reason

    def _fault(self, manifest: Manifest, node: NodeId, endpoint: tuple[str, int], chunk: ChunkIndex) -> str:
        length = manifest.chunk_length(chunk)
        try:
            incoming = self.client.fetch_chunk(node, endpoint, manifest.id, chunk, length, timeout_s=CHECK_S)
        except TransferError as error:
            return error.code
        with incoming:
            if blake3(incoming.view).digest() != manifest.digest(chunk):
                return DigestMismatchError.code
            incoming.land()  # who relays it goes on from the store
        return ""
