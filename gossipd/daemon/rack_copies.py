"""Whether this host is one of those that keep a version for their rack.

What lives here: which hosts hold it, as they have told, and the question. What does not: the order among them
(``deployment.eviction_plan``), and evicting (``watermarks``).
"""

from __future__ import annotations

from dataclasses import dataclass

from gossipd.core.ids import DeploymentId
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.eviction_plan import keepers
from gossipd.deployment.progress_record import HostState, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId


@dataclass(frozen=True, slots=True)
class RackCopies:
    """One per daemon, on the trio loop."""

    live: LiveSettings
    table: ClusterProgress
    directory: MemberDirectory

    def keeps(self, deployment: DeploymentId) -> bool:
        """Whether it is kept here for the rack. Of hosts that live, those count that have all of it."""
        own, rack = self.directory.own, self.live.config.node.rack
        holders = [own, *(node for node in self.directory.live() if self._holds(node, rack, deployment))]
        return own in keepers(deployment, holders, self.live.config.store.replicas)

    def _holds(self, node: NodeId, rack: str, deployment: DeploymentId) -> bool:
        record, row = self.directory.record(node), self.table.host(node, progress_key(deployment))
        if record is None or record.rack != rack or row is None or node == self.directory.own:
            return False
        return row.progress.state is HostState.COMPLETE and not row.progress.chunks_wanted
