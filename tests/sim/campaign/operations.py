"""What operators, and hosts that keep no rule, do with deployments beside the two that every run has.

What lives here: one deployment for each kind, what is done with it between a fault's begin and end, and how all hosts
must stand with it afterwards. What does not: rules that hold at every moment (``oracle``).

Orders are given to the origin, which no fault kills, unless the kind is about another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.core.targets import Targets
from gossipd.deployment.events import CancelOrdered, ManifestDropped, PauseOrdered, RemoveOrdered
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb, sign_statement
from gossipd.identity.keys import SecretKey
from membership.member import MemberState
from tests.sim.campaign.deployment_runner import WALL_S
from tests.sim.campaign.model import Model, make_model

if TYPE_CHECKING:
    from tests.sim.campaign.daemon import Daemon
    from tests.sim.campaign.faults import Fault
    from tests.sim.campaign.world import World

CHUNKS = 6
SILENCE_S = 60.0
KNOWN_S = 30.0
_PAUSED_AFTER_S, _PAUSED_S = 2.5, 3.0  # the manifest is there, and chunks are not
_AGAIN_S = 1.0  # an order that was refused, or whose host is down, is given again
_STRANGER = SecretKey(b"a key that is on no roster, 32 b")
Check = Callable[["Daemon"], str]
"""What is wrong with a host's standing; empty when nothing is."""


def _nothing() -> None:
    """Nothing follows."""


class Operations:
    """Those of one run."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._checks: list[Check] = []
        self._pending: dict[str, None] = {}
        """What is to be done yet before the run may end, in words."""

    # ---- how all must stand --------------------------------------------------------------------

    def wrong(self, daemon: Daemon) -> Iterator[str]:
        """What is wrong with one host at the end."""
        return (f"host {daemon.index} {words}" for check in self._checks if (words := check(daemon)))

    def unfinished(self) -> list[str]:
        """What has not been done yet."""
        return list(self._pending)

    def _model(self, name: str, *, version: int = 1, **fields: Any) -> Model:
        model = make_model(self._random, version=version, chunk_count=CHUNKS, name=f"org/{name}", **fields)
        self._world.models[model.manifest.id] = model
        return model

    def _complete(self, model: Model) -> Check:
        def check(daemon: Daemon) -> str:
            record = daemon.deployments.records.get(model.manifest.id)
            state = "unaware" if record is None else record.state.value
            return "" if state == HostState.COMPLETE.value else f"is {state} with {model.manifest.name}"

        return check

    # ---- orders ----------------------------------------------------------------------------------

    def drop(self, daemon: Daemon, deployment: DeploymentId) -> None:
        """Put a manifest into a host's inbox, until it is accepted."""
        what = f"host {daemon.index} was not given {self._world.models[deployment].manifest.name}"
        envelope = self._world.models[deployment].manifest.envelope
        self._order(daemon, what, ManifestDropped, envelope, "a.manifest")

    def _order(self, daemon: Daemon, what: str, kind: Any, *fields: Any, done: Callable[[], None] = _nothing) -> None:
        self._pending[what] = None
        if not daemon.is_up or daemon.is_stopped:
            if self._world.faults.should_run(daemon.index):
                self._world.after(_AGAIN_S, lambda: self._order(daemon, what, kind, *fields, done=done))
            else:
                del self._pending[what]
            return
        request, runner = daemon.deployments.order(kind, *fields), daemon.deployments

        def look() -> None:
            answer = runner.answers.get(request)
            if daemon.is_up and daemon.deployments is runner and answer is None:
                self._world.after(0.1, look)
            elif answer is None or answer.error is not None:
                self._world.after(_AGAIN_S, lambda: self._order(daemon, what, kind, *fields, done=done))
            else:
                self._pending.pop(what, None)
                done()

        look()

    @property
    def _origin(self) -> Daemon:
        return self._world.daemons[0]

    # ---- kinds -----------------------------------------------------------------------------------

    def cancel(self, fault: Fault, *, then_deploy: bool = False) -> None:
        """A deployment is cancelled on its way; with ``then_deploy`` it is deployed again afterwards."""
        model = self._model(fault.kind)
        deployment, name = model.manifest.id, model.manifest.name
        self.drop(self._origin, deployment)

        def cancelled() -> None:
            fault.has_struck = fault.has_struck or any(
                (record := daemon.deployments.records.get(deployment)) is not None and record.is_live
                for daemon in self._world.daemons
                if daemon.is_up
            )
            self._order(self._origin, f"{name} is not cancelled", CancelOrdered, name, 1, done=after)

        def after() -> None:
            if then_deploy:
                self._world.after(self._random.uniform(0.0, 2.0), lambda: self.drop(self._origin, deployment))
                self._world.after(_PAUSED_AFTER_S, self._pause, name)
                self._checks.append(self._complete(model))
            else:
                self._checks.append(check)

        def check(daemon: Daemon) -> str:
            record = daemon.deployments.records.get(deployment)
            is_here = any(one.deployment == deployment for one in daemon.store.models())
            if record is None:  # it never heard that it was deployed
                may_be_unaware = daemon.index in self._world.oracle.forgetful  # nothing tells here who deployed it
                return f"is unaware of {name} and has some of it" if is_here and not may_be_unaware else ""
            if record.state not in (HostState.CANCELLED, HostState.COMPLETE):
                return f"is {record.state.value} with {name}, which is cancelled"
            is_published = self._is_published(daemon, deployment)
            is_told = record.state is HostState.COMPLETE
            return "" if is_published is is_told else f"says {record.state.value} of {name}, published: {is_published}"

        self._world.at(self._random.uniform(self._world.now + 0.05, fault.end_s), cancelled)

    def _pause(self, name: str) -> None:
        """It is paused for a while: all complete it in the end."""
        paused, resumed = f"{name} is not paused", f"{name} is not resumed"

        def resume() -> None:
            self._order(self._origin, resumed, PauseOrdered, name, 1, True)

        self._order(self._origin, paused, PauseOrdered, name, 1, done=lambda: self._world.after(_PAUSED_S, resume))
        self._pending[resumed] = None

    def _is_published(self, daemon: Daemon, deployment: DeploymentId) -> bool:
        return any(one.deployment == deployment and one.is_published for one in daemon.store.models())

    def remove(self, fault: Fault) -> None:
        """Operators remove it from some hosts; that it is deployed again elsewhere brings it back to none of them."""
        model = self._model(fault.kind)
        deployment, name = model.manifest.id, model.manifest.name
        oracle = self._world.oracle  # which begins a new set when a host loses its state, and with it the order
        self.drop(self._origin, deployment)

        def done(index: int) -> None:
            fault.has_struck = True
            oracle.removed.add((index, deployment))

        def check(daemon: Daemon) -> str:
            if (daemon.index, deployment) not in oracle.removed:
                return self._complete(model)(daemon)
            record = daemon.deployments.records.get(deployment)
            if record is None or (record.state, record.reason) != (HostState.REMOVED, HostReason.REMOVED):
                return f"is not without {name}, which was removed from it"
            is_here = any(one.deployment == deployment for one in daemon.store.models())
            return f"has not deleted {name}" if is_here else ""

        for index in fault.hosts:
            when = self._random.uniform(self._world.now + 0.5, fault.end_s)
            self._world.at(when, self._remove, self._world.daemons[index], model, done)
        self._world.at(fault.end_s, self.drop, self._origin, deployment)
        self._checks.append(check)

    def _remove(self, daemon: Daemon, model: Model, done: Callable[[int], None]) -> None:
        record = daemon.deployments.records.get(model.manifest.id) if daemon.is_up else None
        if record is not None and record.manifest is not None:
            what = f"{model.manifest.name} is not removed from host {daemon.index}"
            self._order(daemon, what, RemoveOrdered, model.manifest.name, 1, done=lambda: done(daemon.index))

    def outside(self, fault: Fault) -> None:
        """A deployment for some hosts only: the others pass its manifest on and hold nothing of it."""
        names = tuple(self._world.daemons[index].name for index in (0, *fault.hosts))
        model = self._model(fault.kind, targets=Targets(names=names))
        deployment = model.manifest.id
        self.drop(self._origin, deployment)

        def check(daemon: Daemon) -> str:
            if daemon.name in names:
                return self._complete(model)(daemon)
            record = daemon.deployments.records.get(deployment)
            if record is None or record.manifest is None or record.is_target:
                return "does not know that a deployment is for others"
            fault.has_struck = True
            is_here = any(one.deployment == deployment for one in daemon.store.models())
            return "holds what is for others" if is_here else ""

        self._checks.append(check)

    def _rogue(self, fault: Fault) -> Daemon | None:
        return next((self._world.daemons[index] for index in fault.hosts if self._world.daemons[index].is_up), None)

    def expired(self, fault: Fault) -> None:
        """A host tells of a deployment that has expired, and has the manifest for those who ask."""
        rogue = self._rogue(fault)
        if rogue is not None:
            model = self._model(fault.kind, expires_s=int(WALL_S) - 1)
            rogue.deployments.announce(rogue.deployments.sign(model.manifest.id), model.manifest.envelope)

    def rollback(self, fault: Fault) -> None:
        """After version 2 of a model a host tells of version 1."""
        two = self._model(fault.kind, version=2)
        self.drop(self._origin, two.manifest.id)
        self._checks.append(self._complete(two))

        def announce() -> None:
            rogue = self._rogue(fault)
            if rogue is not None:
                one = self._model(fault.kind)
                rogue.deployments.announce(rogue.deployments.sign(one.manifest.id), one.manifest.envelope)

        self._world.at((fault.begin_s + fault.end_s) / 2, announce)

    def forged(self, fault: Fault) -> None:
        """A host tells statements that nobody of the roster has signed: one altered, one of a stranger's."""
        rogue = self._rogue(fault)
        if rogue is None:
            return
        altered, strange = self._model("altered"), self._model("strange")
        statement = rogue.deployments.sign(altered.manifest.id)
        signature = bytes([statement.signature[0] ^ 1]) + statement.signature[1:]
        rogue.deployments.announce(replace(statement, signature=signature), altered.manifest.envelope)
        size = len(strange.manifest.envelope)
        of_stranger = sign_statement(
            _STRANGER, strange.manifest.id, epoch=1, verb=Verb.DEPLOY, manifest_bytes=size, now_s=WALL_S
        )
        rogue.deployments.announce(of_stranger, strange.manifest.envelope)

        def check(daemon: Daemon) -> str:
            known = [one for one in (altered, strange) if daemon.deployments.records.get(one.manifest.id) is not None]
            return "believes a forged statement" if known else ""

        self._checks.append(check)

    # ---- forgotten, then silence, then a newcomer --------------------------------------------------

    def join(self, fault: Fault, *, forget: bool) -> None:
        """The host that said the last word on a deployment dies, and is perhaps forgotten; later another one joins."""
        gone, newcomer = self._world.daemons[fault.hosts[0]], self._world.newcomers.pop()
        self._pending[f"host {newcomer.index} has not joined"] = None
        model = self._model(fault.kind)
        if gone.is_up and not gone.is_stopped:
            gone.deployments.drop(model.manifest.id)
        self._world.at(fault.end_s, self._end, gone, newcomer, model, fault, forget)

    def _end(self, gone: Daemon, newcomer: Daemon, model: Model, fault: Fault, forget: bool) -> None:
        self._world.faults.end_for_good(gone)
        self._left(gone, newcomer, model, fault, forget)

    def _left(self, gone: Daemon, newcomer: Daemon, model: Model, fault: Fault, forget: bool) -> None:
        world, wires = self._world, self._world.wires
        # None: another fault had the same host forgotten.
        state = next((one.state for one in wires.swim(0).members() if one.record.node == gone.node), None)
        if state not in (None, MemberState.DEAD, MemberState.LEFT):
            world.after(_AGAIN_S, self._left, gone, newcomer, model, fault, forget)
            return
        if forget and state is not None:
            wires.swim(0).forget(gone.node, world.now + wires.hosts[0].clock_offset)
            wires.flush(0)
        world.at(max(world.now, world.faults.over_s) + SILENCE_S, self._join, newcomer, model, fault)

    def _join(self, newcomer: Daemon, model: Model, fault: Fault) -> None:
        world = self._world
        known = self._origin.deployments.records.get(model.manifest.id)
        if (
            known is not None and known.manifest is not None
        ):  # else nobody was told, or only a liar ever had the manifest
            world.opened.append(model.manifest.id)
            fault.has_struck = True
        world.faults.starts(newcomer)
        running = [daemon.index for daemon in world.daemons if daemon.is_up]
        newcomer.boot(join=tuple(self._random.sample(running, min(3, len(running)))), roster=[])
        del self._pending[f"host {newcomer.index} has not joined"]
        what = f"host {newcomer.index} has not been looked at"
        self._pending[what] = None

        def look() -> None:
            del self._pending[what]
            world.oracle.newcomer(newcomer)

        world.after(KNOWN_S, look)
