"""A deployment's steps on one simulated host: what ``gossipd.daemon.deployments`` and ``spread`` do with tasks.

What lives here: a statement heard by gossip, its manifest pulled from a holder, room made, the planner told,
publishing, and each step's way of trying again. What does not: signatures, rollback, expiry, targets, cancelling: they
have tests of their own, and no fault of this campaign touches them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gossipd.core.errors import GossipdError
from gossipd.core.events import DeploymentOpened
from gossipd.core.ids import DeploymentId
from gossipd.daemon.app import PROBE_AGAIN_S
from gossipd.daemon.deployments import PULL_RETRY_FIRST_S, PULL_RETRY_MAX_S, SPACE_RETRY_S
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.errors import NotWholeError
from membership.events import PayloadHeard, PayloadKind
from membership.member import NodeId

if TYPE_CHECKING:
    from tests.sim.campaign.daemon import Daemon

_PULL_S = 0.01


class Step(Enum):
    """How far a deployment is on this host."""

    PULLING = "pulling"
    RESERVING = "reserving"
    DOWNLOADING = "downloading"
    FINISHING = "finishing"
    COMPLETE = "complete"


@dataclass(slots=True)
class Life:
    """One deployment."""

    step: Step = Step.PULLING
    delay_s: float = PULL_RETRY_FIRST_S
    has_trouble: bool = False


class Deploying:
    """All deployments of one life of a host."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._world = daemon.world
        self.by_id: dict[DeploymentId, Life] = {}
        self._holders: dict[DeploymentId, list[NodeId]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether everything known is complete."""
        return all(life.step is Step.COMPLETE for life in self.by_id.values())

    def begin(self) -> None:
        """At start: act on what was believed in the last run."""
        for deployment in self._daemon.kept:
            self._tell(deployment)
        self._daemon.after(PROBE_AGAIN_S, self._probe_again)

    def order(self, deployment: DeploymentId) -> None:
        """An operator gives this host the manifest."""
        self._daemon.kept[deployment] = None
        self._tell(deployment)

    def heard(self, event: PayloadHeard) -> None:
        """A statement from gossip."""
        if event.kind is not PayloadKind.STATEMENT:
            return
        deployment = DeploymentId(event.payload)
        holders = self._holders.setdefault(deployment, [])
        if event.forwarder not in holders:
            holders.append(event.forwarder)
        if deployment not in self.by_id:
            self._act(deployment)

    def _tell(self, deployment: DeploymentId) -> None:
        if deployment in self.by_id:
            return
        wires = self._world.wires
        wires.swim(self._daemon.index).publish(PayloadKind.STATEMENT, deployment[:16], 1, bytes(deployment), wires.now)
        self._daemon.after(0.0, wires.flush, self._daemon.index)
        self._act(deployment)

    def _act(self, deployment: DeploymentId) -> None:
        self.by_id[deployment] = Life()
        self._daemon.after(0.0, self._pull, deployment)

    def _pull(self, deployment: DeploymentId) -> None:
        """Dissemination.pull: one that is known to have it, now and then any."""
        daemon, life = self._daemon, self.by_id[deployment]
        if deployment in daemon.kept:
            life.step = Step.RESERVING
            self._reserve(deployment)
            return
        live = daemon.members.live()
        known = [node for node in self._holders.get(deployment, []) if node in live]
        candidates = known if known and daemon.random.random() < 0.8 else sorted(live)
        if candidates:
            peer = self._world.daemons[self._world.index_of[daemon.random.choice(candidates)]]
            if (
                peer.is_up
                and not peer.is_stopped
                and deployment in peer.kept
                and self._world.wires.is_whole(daemon.index, peer.index)
            ):
                daemon.after(_PULL_S, self._pulled, deployment)
                return
        daemon.after(life.delay_s, self._pull, deployment)
        life.delay_s = min(2 * life.delay_s, PULL_RETRY_MAX_S)

    def _pulled(self, deployment: DeploymentId) -> None:
        self._daemon.kept[deployment] = None
        self._pull(deployment)

    def _reserve(self, deployment: DeploymentId) -> None:
        daemon, life = self._daemon, self.by_id[deployment]
        manifest = self._world.models[deployment].manifest
        try:
            held = daemon.store.open(manifest)
        except GossipdError:
            daemon.after(SPACE_RETRY_S, self._reserve, deployment)
            return
        self._world.oracle.opened(daemon, deployment, held)
        complete = held.is_full and daemon.store.is_published(manifest.id)
        life.step = Step.COMPLETE if complete else Step.DOWNLOADING
        if complete:
            self._world.oracle.published(daemon, deployment)
        opened = DeploymentOpened(manifest.id, manifest.shape(), held, manifest.priority, manifest.targets)
        daemon.post(opened)
        daemon.plane.hear(opened)

    def finish_wanted(self, deployment: DeploymentId) -> None:
        """The planner says that everything is held."""
        life = self.by_id[deployment]
        if life.step is Step.DOWNLOADING:
            life.step = Step.FINISHING
            self._daemon.after(self._daemon.disk_wait_s(), self._finish, deployment)

    def _finish(self, deployment: DeploymentId) -> None:
        """Publish. Chunks that a sync lost are fetched again, a disk that refuses is tried again."""
        daemon, life = self._daemon, self.by_id[deployment]
        try:
            daemon.store.finish(deployment)
        except (NotWholeError, StoreWriteError):
            daemon.after(SPACE_RETRY_S, self._finish, deployment)
        else:
            life.step = Step.COMPLETE
            self._world.oracle.published(daemon, deployment)
        self._world.oracle.committed(daemon)

    def source_trouble(self, deployment: DeploymentId, *, bad: bool) -> None:
        """What this host has against the source now."""
        self.by_id[deployment].has_trouble = bad

    def _probe_again(self) -> None:
        """Node._probe_sources_again."""
        for deployment, life in self.by_id.items():
            if life.step is Step.DOWNLOADING and life.has_trouble:
                self._daemon.probe(deployment)
        self._daemon.after(PROBE_AGAIN_S, self._probe_again)

    def chunk_count_of(self, deployment: DeploymentId) -> int | None:
        """Of an open deployment."""
        life = self.by_id.get(deployment)
        if life is None or life.step in (Step.PULLING, Step.RESERVING):
            return None
        return self._world.models[deployment].manifest.chunk_count
