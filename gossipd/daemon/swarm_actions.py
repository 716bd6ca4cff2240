"""Opens, pauses and closes a deployment's swarm: which parts of the daemon hear of it, and in which order. Called on
the trio loop; nothing waits.

What lives here: which parts hear of an open or closed deployment, and in which order. What does not: deciding.
"""

from __future__ import annotations

from msgspec import Struct

from gossipd.control.control_plane import ControlPlane
from gossipd.core.events import DeploymentClosed, DeploymentOpened, DeploymentPaused, ProbeSource
from gossipd.core.ids import DeploymentId
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.peer_wants import PeerWants
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.daemon.planner_executor import CommandExecutor
from gossipd.deployment.commands import OpenSwarm, PauseSwarm
from gossipd.deployment.statement import Statement
from gossipd.sources.reader import SourceReader


class SwarmActions(Struct, kw_only=True, eq=False):
    """One per daemon."""

    live: LiveSettings
    driver: PlannerDriver
    plane: ControlPlane
    executor: CommandExecutor
    reader: SourceReader
    membership_host: MembershipHost
    peer_wants: PeerWants

    def trusted(self) -> dict[bytes, tuple[str, ...]]:
        """Ed25519 keys of publishers whose manifests are accepted, with patterns of the names that each may sign."""
        return self.live.trusted()

    @property
    def frees(self) -> bool:
        """Whether what is here and wanted no longer is deleted."""
        return self.live.config.parts.frees

    def open_swarm(self, command: OpenSwarm) -> None:
        """The planner and the sessions hear of an open deployment."""
        manifest = command.manifest
        opened = DeploymentOpened(
            manifest.id, manifest.shape(), command.held, manifest.priority, manifest.targets, command.copies,
            manifest.name, manifest.version, command.wanted,
        )  # fmt: skip
        self.driver.post(opened)
        self.plane.hear(opened)
        self.peer_wants.begin(manifest)
        self.judge_statements()  # the manifest is verified: a cancel that was kept back may count now

    def close_swarm(self, deployment: DeploymentId) -> None:
        """The planner, the sessions and the source reader forget it."""
        closed = DeploymentClosed(deployment)
        self.driver.post(closed)
        self.plane.hear(closed)
        self.peer_wants.end(deployment)
        self.reader.forget(deployment)

    def pause_swarm(self, command: PauseSwarm) -> None:
        """The planner begins nothing, or goes on."""
        self.driver.post(DeploymentPaused(command.deployment, command.is_paused))

    def probe_source(self, command: ProbeSource) -> None:
        """Find out whether a source can be read."""
        self.executor.perform(command)

    def tell_statement(self, statement: Statement) -> None:
        """Gossip it."""
        self.membership_host.publish_statement(statement)

    def judge_statements(self) -> None:
        """Gossip judges again what it keeps back."""
        self.membership_host.judge_again()

    def forget_statement(self, deployment: DeploymentId) -> None:
        """Gossip it no longer."""
        self.membership_host.forget_statement(deployment)
