"""Which hosts of this host's rack keep a version, and which have evicted it, as they have told and shown.

What lives here: the questions. What does not: the order among hosts (``deployment.eviction_plan``), what a word counts
for (``deployment.copy_proofs``), evicting (``watermarks``), and taking a version again (``deployment.lost_copies``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

import trio
from msgspec import Struct, field

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import CuredBy
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.copy_proofs import SHOWN_S, SHOWN_TO_WATCH_S, CopyProofs
from gossipd.deployment.eviction_plan import keepers
from gossipd.deployment.lost_copies import RackView
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

# Rounds of questions before one eviction: all of the first that fail are one round, and the next look goes on.
_ROUNDS_MAX = 3


class CopyCheck(Protocol):
    """Asks a host for a chunk."""

    async def has(self, deployment: DeploymentId, node: NodeId) -> bool | None:
        """Whether it has sent a right one; None where it was not asked."""


class RackCopies(Struct, frozen=True):
    """One per daemon, on the trio loop."""

    live: LiveSettings
    table: ClusterProgress
    directory: MemberDirectory
    check: CopyCheck
    proofs: CopyProofs = field(default_factory=CopyProofs)

    def keeps(self, deployment: DeploymentId) -> bool:
        """Whether it is kept here for the rack. Of hosts that live, those count that have all of it."""
        own, now = self.directory.own, trio.current_time()
        holders = [node for node in self._holders(deployment) if not self.proofs.has_failed(deployment, node, now)]
        return own in keepers(deployment, [own, *holders], self.live.config.store.replicas)

    async def is_spare(self, deployment: DeploymentId) -> bool:
        """Whether the rack has copies enough without this host's. Those that count have shown theirs; who has not shown
        its own lately is asked."""
        for _ in range(_ROUNDS_MAX):
            if self.keeps(deployment):
                return False
            now = trio.current_time()
            holders = [node for node in self._holders(deployment) if not self.proofs.has_failed(deployment, node, now)]
            first = keepers(deployment, holders, self.live.config.store.replicas)
            asked = self.proofs.to_ask(deployment, first, now, shown_s=SHOWN_S)
            if not asked:
                return True
            await self._ask(deployment, asked, counts_unasked=True)
        return False

    async def look_again(self, deployment: DeploymentId) -> bool:
        """Ask those that count as copies of a version that this host has evicted, and that have shown none for long;
        whether there were such."""
        holders = self._holders(deployment)
        failed = [node for node in holders if self.proofs.has_failed(deployment, node)]
        good = [node for node in holders if node not in failed]
        first = keepers(deployment, good, self.live.config.store.replicas)
        asked = self.proofs.to_ask(deployment, [*first, *failed], trio.current_time(), shown_s=SHOWN_TO_WATCH_S)
        await self._ask(deployment, asked)
        return bool(asked)

    async def _ask(
        self, deployment: DeploymentId, nodes: Collection[NodeId], *, counts_unasked: bool = False
    ) -> None:  # fmt: skip
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self._ask_one, deployment, node, counts_unasked)

    async def _ask_one(self, deployment: DeploymentId, node: NodeId, counts_unasked: bool) -> None:
        """``counts_unasked``: one that could not be asked has shown nothing."""
        is_shown = await self.check.has(deployment, node)
        if is_shown is not None or counts_unasked:
            self.proofs.note(deployment, node, is_shown=bool(is_shown), now=trio.current_time())

    def view(self, deployment: DeploymentId) -> RackView:
        """How it stands with a version that this host has evicted. A copy that was not shown when it was asked for last
        is none, nor one that is on its way for ever."""
        told, now = list(self._told(deployment)), trio.current_time()
        evicted = {node for node, one in told if one.state is HostState.EVICTED}
        whole = [node for node, one in told if _has_all(one)]
        copies = sum(not self.proofs.has_failed(deployment, node) for node in whole)
        copies += sum(_will_have_all(one) and self.proofs.is_promised(deployment, node, now) for node, one in told)
        return RackView(copies, frozenset(evicted | {self.directory.own}))

    def _holders(self, deployment: DeploymentId) -> list[NodeId]:
        """The others that say that they have all of it."""
        return [node for node, told in self._told(deployment) if _has_all(told)]

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
