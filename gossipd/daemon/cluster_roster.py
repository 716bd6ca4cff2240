"""Whose keys may sign statements and which hosts are targets, as the deployment brain asks (``RosterPort``).

What lives here: answers from the member directory and the configured clients, taken at each question. A member that
may be made up is no host, but its key is known. What does not: the directory itself.
"""

from __future__ import annotations

from msgspec import Struct

from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.signed_progress import ProgressWriter
from gossipd.identity.cancel_rights import Authors, may_cancel
from gossipd.manifest.manifest import Manifest
from gossipd.swarm.capabilities import NodeCapabilities
from membership.member import NodeId, node_id


class Signers(Struct, frozen=True, eq=False):
    """The keys that may sign statements. Nothing is copied, so nothing can be out of date."""

    directory: MemberDirectory
    live: LiveSettings

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, bytes):
            return False
        record = self.directory.record(node_id(key))
        is_member = record is not None and record.public_key == key
        return is_member or any(key == one.ed25519 for one in self.live.clients)


class ClusterRoster:
    """The body of ``RosterPort``, which says what each answer means."""

    def __init__(self, directory: MemberDirectory, live: LiveSettings) -> None:
        self._directory = directory
        self._live = live
        self.signers = Signers(directory, live)
        self._signing = -1, False  # whether all sign progress, at a revision of the directory

    def vouchers(self) -> frozenset[bytes]:
        records = map(self._directory.record, (self._directory.own, *self._directory.live()))
        keys = [record.public_key for record in records if record is not None]
        return frozenset(keys + [client.ed25519 for client in self._live.clients])

    def may_cancel(self, signer: bytes, authors: Authors) -> bool:
        """See RosterPort."""
        return may_cancel(signer, authors, roles=self._live.may_cancel, is_client=self.is_client(signer))

    def is_client(self, signer: bytes) -> bool:
        """See RosterPort."""
        return any(signer == one.ed25519 for one in self._live.clients)

    @property
    def own(self) -> NodeId:
        """This host."""
        return self._directory.own

    def progress_writer(self, node: NodeId) -> ProgressWriter | None:
        """See WriterPort. Boot numbers are seconds since 1970."""
        record = self._directory.record(node)
        if record is None:
            return None
        signs = NodeCapabilities.from_bytes(record.payload).signs_progress
        return ProgressWriter(record.public_key, signs, began_s=record.boot)

    def all_sign_progress(self) -> bool:
        """Whether every living host reads signed progress, so that none needs the unsigned form."""
        revision, answer = self._signing
        if revision != self._directory.revision:
            records = map(self._directory.record, self.live())
            answer = all(one is None or NodeCapabilities.from_bytes(one.payload).signs_progress for one in records)
            self._signing = self._directory.revision, answer
        return answer

    @property
    def host_count(self) -> int:
        return len(self._directory.records) - len(self._directory.unheard)

    def key_of(self, node: NodeId) -> bytes | None:
        """See RosterPort."""
        record = None if node == self.own else self._directory.record(node)
        return None if record is None else record.public_key

    def live(self) -> set[NodeId]:
        return self._directory.live() - self._directory.unheard

    def answered(self) -> set[NodeId]:
        return self._directory.answered()

    def targets(self, manifest: Manifest) -> list[NodeId]:
        """See RosterPort."""
        records, unheard = self._directory.records.values(), self._directory.unheard
        return [one.node for one in records if one.node not in unheard and manifest.is_target(one.name, one.rack)]

    def rack_of(self, node: NodeId) -> str | None:
        record = self._directory.record(node)
        return None if record is None else record.rack
