"""What the rest of the daemon does for deployments: the body of ``deployment_executor.SwarmPort``.

What lives here: which parts hear of an open or closed deployment, and in which order. What does not: deciding.
"""

from __future__ import annotations

from gossipd.control.control_plane import ControlPlane
from gossipd.core.events import DeploymentClosed, DeploymentOpened, ProbeSource
from gossipd.core.ids import DeploymentId
from gossipd.daemon.driver import PlannerDriver
from gossipd.daemon.executor import CommandExecutor
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.membership_host import MembershipHost
from gossipd.deployment.commands import OpenSwarm
from gossipd.deployment.statement import Statement
from gossipd.sources.reader import SourceReader


class SwarmActions:
    """See SwarmPort."""

    def __init__(
        self, *, live: LiveSettings, driver: PlannerDriver, plane: ControlPlane, executor: CommandExecutor,
        reader: SourceReader, membership_host: MembershipHost,
    ) -> None:  # fmt: skip
        self._live = live
        self._driver = driver
        self._plane = plane
        self._executor = executor
        self._reader = reader
        self._membership_host = membership_host

    def trusted(self) -> dict[bytes, tuple[str, ...]]:
        """See SwarmPort."""
        return self._live.trusted()

    def open_swarm(self, command: OpenSwarm) -> None:
        """See SwarmPort."""
        manifest = command.manifest
        opened = DeploymentOpened(manifest.id, manifest.shape(), command.held, manifest.priority, manifest.targets)
        self._driver.post(opened)
        self._plane.hear(opened)

    def close_swarm(self, deployment: DeploymentId) -> None:
        """See SwarmPort."""
        closed = DeploymentClosed(deployment)
        self._driver.post(closed)
        self._plane.hear(closed)
        self._reader.forget(deployment)

    def probe_source(self, command: ProbeSource) -> None:
        """See SwarmPort."""
        self._executor.perform(command)

    def tell_statement(self, statement: Statement) -> None:
        """See SwarmPort."""
        self._membership_host.publish_statement(statement)
