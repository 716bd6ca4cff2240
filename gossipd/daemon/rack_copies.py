"""Which hosts of this host's rack keep a version, and which have evicted it, as they have told.

What lives here: the questions. What does not: the order among hosts (``deployment.eviction_plan``), evicting
(``watermarks``), and taking a version again (``deployment.lost_copies``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import CuredBy
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.eviction_plan import keepers
from gossipd.deployment.lost_copies import RackView
from gossipd.deployment.progress_record import HostState, Progress, progress_key
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
        own = self.directory.own
        holders = [own, *(node for node, told in self._told(deployment) if _has_all(told))]
        return own in keepers(deployment, holders, self.live.config.store.replicas)

    def view(self, deployment: DeploymentId) -> RackView:
        """How it stands with a version that this host has evicted."""
        told = list(self._told(deployment))
        evicted = {node for node, one in told if one.state is HostState.EVICTED}
        copies = sum(_has_all(one) or _will_have_all(one) for _, one in told)
        return RackView(copies, frozenset(evicted | {self.directory.own}))

    def _told(self, deployment: DeploymentId) -> Iterator[tuple[NodeId, Progress]]:
        """What the other living hosts of the rack have told of it."""
        rack, key = self.live.config.node.rack, progress_key(deployment)
        for node in self.directory.live():
            record, row = self.directory.record(node), self.table.host(node, key)
            if record is not None and record.rack == rack and row is not None and node != self.directory.own:
                yield node, row.progress


def _has_all(told: Progress) -> bool:
    return told.state is HostState.COMPLETE and not told.chunks_wanted


def _will_have_all(told: Progress) -> bool:
    is_under_way = told.state in (HostState.INIT, HostState.DOWNLOADING, HostState.VERIFYING)
    return is_under_way and not told.chunks_wanted and told.reason.cured_by is not CuredBy.DISK
