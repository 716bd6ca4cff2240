"""What other hosts want of the models that are open here: looked for in their progress records, told to the planner.

What lives here: the chunks that a told want means, worked out in a thread, once for each want. What does not: the
record (``deployment.progress_record``), and what the planner does with it (``swarm.interests``).

A host that wants everything, and any host before there were parts, tells no want. A want that is too long to be told,
or that means nothing here, counts as wanting nothing: nobody relies on that host. One that wants something else again
and again is looked at later: to work out what a want means is a pass over all files. What no host tells any more makes
room, so one that changes its mind does not use up the room of others.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import trio

from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import GossipdError
from gossipd.core.events import PeerWantHeard
from gossipd.core.ids import DeploymentId
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.deployment.progress_record import progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.states import FINAL
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import choose_part
from gossipd.parts.want import read_want
from gossipd.runtime.look_interval import next_look_s
from gossipd.runtime.quotas import Quotas
from gossipd.runtime.worker_threads import run_blocking
from membership.member import NodeId

LOOK_S = 0.25  # while a model that is open here is under way
RESTING_LOOK_S = 1.0  # while none is: when the daemon is awake anyway
WANTS_MAX = 1024  # different ones of one model at a time; more are not worked out
# Of one host: one for each deployment that may be under way at once, and again; then far more than jobs begin there.
WANTS_BURST, WANTS_PER_S = 128.0, 0.5


@dataclass(slots=True, kw_only=True, eq=False)
class PeerWants:
    """One per daemon; on the trio loop."""

    driver: PlannerDriver
    directory: MemberDirectory
    progress: ClusterProgress
    _manifests: dict[DeploymentId, Manifest] = field(default_factory=dict, init=False)
    _told: dict[DeploymentId, dict[NodeId, str | None]] = field(default_factory=dict, init=False)
    _meant: dict[DeploymentId, dict[str, ChunkSet]] = field(default_factory=dict, init=False)
    _begun: set[DeploymentId] = field(default_factory=set, init=False)
    _late: dict[bytes, set[NodeId]] = field(default_factory=dict, init=False)
    """By progress key: hosts whose want is looked at later."""
    _quotas: Quotas[NodeId] = field(default_factory=lambda: Quotas(burst=WANTS_BURST, per_s=WANTS_PER_S), init=False)
    _woken: trio.Event = field(default_factory=trio.Event, init=False)

    def begin(self, manifest: Manifest) -> None:
        """The planner has opened the deployment, perhaps again, and knows of no want."""
        self._manifests[manifest.id] = manifest
        self._told[manifest.id] = {}
        self._begun.add(manifest.id)
        self._woken.set()

    def end(self, deployment: DeploymentId) -> None:
        """The planner has forgotten it."""
        for table in (self._manifests, self._told, self._meant):
            table.pop(deployment, None)

    async def run(self) -> None:
        """Never returns."""
        while True:
            with trio.move_on_at(next_look_s(RESTING_LOOK_S if self._have_all_ended() else LOOK_S)):
                await self._woken.wait()
            begun, news = self._begun, self.progress.take_wants_news()
            late, self._late = self._late, {}
            for key, nodes in late.items():
                news.setdefault(key, set()).update(nodes)
            self._begun, self._woken = set(), trio.Event()
            if not begun and not news:
                continue
            for deployment, manifest in list(self._manifests.items()):
                key = progress_key(deployment)
                if deployment in begun:
                    await self._look(manifest, self.progress.wants(key))
                elif key in news:
                    await self._look(manifest, self.progress.wants(key, news[key]))

    def _have_all_ended(self) -> bool:
        rows = [self.progress.host(self.directory.own, progress_key(one)) for one in self._manifests]
        return all(row is not None and row.progress.state in FINAL for row in rows)

    async def _look(self, manifest: Manifest, wants: dict[NodeId, tuple[str, int]]) -> None:
        deployment = manifest.id
        for node, (text, count) in wants.items():
            want = text if count else None
            told = self._told.get(deployment)
            if told is None:
                return
            if node == self.directory.own or told.get(node) == want:
                continue
            if not self._may_look(node, deployment, want):
                self._late.setdefault(progress_key(deployment), set()).add(node)
                continue
            chunks = await self._chunks(manifest, want)
            if (told := self._told.get(deployment)) is None:
                return  # closed meanwhile
            told[node] = want
            self.driver.post(PeerWantHeard(node, deployment, chunks))

    def _may_look(self, node: NodeId, deployment: DeploymentId, want: str | None) -> bool:
        """Whether what a host wants may be worked out now, or need not be."""
        if not want or want in self._meant.get(deployment, {}):
            return True
        return self._quotas.take(node, trio.current_time())

    async def _chunks(self, manifest: Manifest, want: str | None) -> ChunkSet:
        if want is None:
            return ChunkSet.full(manifest.chunk_count)
        meant = self._meant.setdefault(manifest.id, {})
        if want not in meant:
            if len(meant) >= WANTS_MAX:
                told = set(self._told[manifest.id].values())
                meant = self._meant[manifest.id] = {one: chunks for one, chunks in meant.items() if one in told}
            chunks = ChunkSet(manifest.chunk_count)
            if want and len(meant) < WANTS_MAX:
                with suppress(GossipdError):
                    chunks = (await run_blocking(choose_part, manifest, read_want(want))).wanted
            meant[want] = chunks
        return meant[want]
