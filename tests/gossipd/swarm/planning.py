"""Values that the tests of the planner's parts share."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import Command, DeploymentOpened, PeerSeen, SourceProbed
from gossipd.core.ids import DeploymentId
from gossipd.core.model import PeerView, Shape
from gossipd.swarm.deployment_swarm import DeploymentSwarm
from gossipd.swarm.planner import Planner
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

C = TypeVar("C")
DEPLOYMENT = DeploymentId(b"d" * 32)
SETTINGS = PlannerSettings()
CHUNK_BYTES = 1 << 20


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


OWN = node(0)


def view(number: int, rack: str = "a", *, term: int = 0, reads: bool = True, name: str = "") -> PeerView:
    return PeerView(node(number), rack, "", reads, term, name)


def of(kind: type[C], commands: list[Command]) -> list[C]:
    """Those of the commands that are of that kind."""
    return [command for command in commands if isinstance(command, kind)]


def shape(chunks: int, *, extent: int = 1) -> Shape:
    return Shape(chunks, CHUNK_BYTES, chunks * CHUNK_BYTES, extent)


def opened(chunks: int, held: tuple[int, ...] = (), *, extent: int = 1) -> DeploymentOpened:
    return DeploymentOpened(DEPLOYMENT, shape(chunks, extent=extent), ChunkSet.of(chunks, held))


class Driven:
    """A planner with a clock, fed and drained."""

    def __init__(self, *, rack: str = "a", settings: PlannerSettings = SETTINGS, reads: bool = True) -> None:
        self.now = 100.0
        self.planner = Planner(node=OWN, rack=rack, settings=settings, rng=Random(7), can_read_sources=reads)

    def tell(self, *events: object, after: float = 0.0) -> list[Command]:
        """Let time pass, hear events, plan, drain."""
        self.now += after
        for event in events:
            self.planner.handle(event, self.now)  # type: ignore[arg-type]
        self.planner.plan(self.now)
        return self.planner.drain()

    def wait(self, seconds: float, step: float = 0.25) -> list[Command]:
        """Let time pass as the daemon does, planning now and then."""
        commands: list[Command] = []
        for _ in range(round(seconds / step)):
            commands += self.tell(after=step)
        return commands

    def swarm(self, deployment: DeploymentId = DEPLOYMENT) -> DeploymentSwarm:
        """One that is open."""
        swarm = self.planner._deployments.get(deployment)
        assert swarm is not None
        return swarm

    def meet(self, *views: PeerView) -> list[Command]:
        return self.tell(*[PeerSeen(one) for one in views])


def seed_alone(chunks: int, *, extent: int = 1) -> Driven:
    """A planner that has elected itself, has opened a deployment and may read its source."""
    driven = Driven()
    driven.wait(4.0)
    driven.tell(opened(chunks, extent=extent))
    driven.planner.handle(SourceProbed(DEPLOYMENT, True), driven.now)
    return driven
