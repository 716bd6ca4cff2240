"""What operators order: manifests dropped here, statements sent by trigger, cancel, ``rm``, and evictions.

What lives here: each order's steps until its one answer. What does not: who may give orders (the inbox's and the
socket's mode, the control port's keys), and what a deployment does afterwards (``deployment_table``).

An order is a script: a generator that asks for work and is resumed with its end. It returns what was done, or raises
the error that refuses the order. An order to deploy has these steps, each once:

1. the manifest is verified, and there is room for one more deployment;
2. the manifest is accepted (rollback, equivocation, expiry) and made durable;
3. its statement is made or taken in, and the statement store is made durable: once for both;
4. the statement is told, and the lifecycle begins; it is given the manifest.

When the disk refuses step 3 the statement is withdrawn: nothing was told yet, and the order can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from gossipd.core.errors import GossipdError, LocalError, NotFoundError, QueueFullError
from gossipd.core.ids import DeploymentId
from gossipd.core.units import show_bytes
from gossipd.deployment import commands, events
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.dissemination import Dissemination
from gossipd.deployment.events import Failure
from gossipd.deployment.statement import STOPS, Statement, Verb
from gossipd.deployment.statement_rules import why_not
from gossipd.deployment.statement_store import Acceptance, Heard, StatementStore
from gossipd.identity.trust import key_id
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest

Done: TypeAlias = tuple[str, bool]
"""A sentence for a person, and whether the order changed anything."""
_T = TypeVar("_T")
Steps: TypeAlias = Generator[commands.WorkNumber, events.WorkEnded, _T]
Script: TypeAlias = Steps[Done]
_UNKNOWN = "no deployment {} is known here; see: gossipd status"
_NOT_DEPLOYED = "{} is not deployed; see: gossipd status"
_ANY_VERSION = "the next manifest of {} may have any version, also one below {}"
_NOT_HERE = (
    "this host may not cancel, pause, roll back or remove {}: security.may_cancel allows none of its roles{}; by "
    "default those may: the host or client that alone has deployed it, and every client (gossipd trigger --cancel, "
    'which cancels only); for the rest add "member" to security.may_cancel on all hosts, and run gossipd reload there'
)
_NONE_BEFORE = "no host is known to have a version of {} before {} complete that is not rolled back"
_REMOVED_BEFORE = "{} was removed from this host before"
_STAYS_REMOVED = (
    "; it was removed from this host and stays so, until a client triggers it here or its manifest is dropped"
)
_DONE = {
    Verb.DEPLOY: "accepted", Verb.CANCEL: "cancelled", Verb.PAUSE: "paused", Verb.ROLL_BACK: "rolled back",
    Verb.REMOVE: "removed",
}  # fmt: skip


class Orders:
    """Begins what is ordered."""

    def __init__(self, context: BrainContext, lifecycle: DeploymentTable, dissemination: Dissemination) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._dissemination = dissemination

    def handle(self, order: events.Order, wall_s: float) -> None:
        """Begin an order; its answer may come at once."""
        running = _Order(self._context, order, wall_s)
        match order:
            case events.ManifestDropped():
                running.run(self._drop(order, running))
            case events.OrderTriggered():
                running.run(self._trigger(order, running))
            case events.CancelOrdered():
                running.run(self._cancel(order, running))
            case events.PauseOrdered():
                running.run(self._resume(order, running) if order.is_undone else self._pause(order, running))
            case events.RemoveOrdered():
                remove = self._remove_everywhere if order.is_everywhere else self._remove
                running.run(remove(order, running))
            case events.RollbackOrdered():
                running.run(self._roll_back(order, running))
            case events.UntrustOrdered():
                running.run(self._untrust(order, running))
            case events.OverrideOrdered():
                running.run(self._override(order, running))
            case events.EvictionBegun():
                running.run(self._evict(order, running))

    # ---- deploying -----------------------------------------------------------------------------------

    def _drop(self, order: events.ManifestDropped, running: _Order) -> Script:
        """A file in the inbox. Refused with QueueFullError it is offered again later."""

        def sign(manifest: Manifest) -> Statement:
            return _deploying_word(self._context, self._dissemination, manifest, running.wall_s)

        try:
            manifest = yield from running.verify(order.envelope)
            acceptance, statement = yield from self._deploy(manifest, sign, running)
        except ManifestError as error:
            self._context.audit("manifest refused", file=order.file_name, code=error.code, reason=str(error.args[0]))
            raise
        except QueueFullError:
            raise
        except GossipdError as error:  # the disk: it is worth asking again
            raise QueueFullError(str(error), code=error.code, code_of_exit=error.code_of_exit) from error
        self._context.audit_manifest(
            "manifest accepted", manifest, signer=key_id(manifest.signer).hex(), epoch=statement.epoch
        )  # fmt: skip
        words = "accepted" if acceptance is Acceptance.NEW else "was known already; deployed again"
        return f"{manifest.label} {words}", True

    def _deploy(
        self, manifest: Manifest, take_in: Callable[[Manifest], Statement], running: _Order
    ) -> Steps[tuple[Acceptance, Statement]]:
        """Steps 1 to 4; ``take_in`` puts the statement into the store."""
        statements, deployment = self._context.statements, manifest.id
        statements.check_superseded(manifest)
        self._lifecycle.check_room(deployment)
        try:
            acceptance = statements.accept(manifest, running.wall_s)
        except ManifestError as error:
            if self._context.is_for_the_clock(manifest, error, running.wall_s):
                raise QueueFullError(f"this host's clock is wrong: {error.args[0]}", code="E_CLOCK") from error
            raise
        yield from running.work(lambda number: commands.KeepManifest(number, manifest))
        self._context.believe_unproven(deployment, manifest.signer)
        before, deployer = statements.statement(deployment), statements.deployer(deployment)
        was_removed, was_evicted = statements.is_removed(deployment), statements.is_evicted(deployment)
        statement = take_in(manifest)
        statements.note_order(deployment, statement.signer)
        _clear_removed(self._context, statement)
        try:
            yield from running.keep_statements()
        except GossipdError:
            statements.withdraw(statement, before, deployer)
            if was_evicted:
                statements.mark_evicted(deployment)
            elif was_removed:
                statements.mark_removed(deployment)
            raise
        self._dissemination.tell(statement, running.wall_s, manifest)
        return acceptance, statement

    def _trigger(self, order: events.OrderTriggered, running: _Order) -> Script:
        """A statement of a member or client, believed for its signature, once: saying it again changes nothing."""
        statement, context = order.statement, self._context
        manifest = self._lifecycle.manifest_of(statement.deployment)
        if order.envelope is not None:
            manifest = yield from running.verify(order.envelope)
        elif manifest is None:
            raise ManifestError("the manifest of this deployment is not here; send it first", code="E_UNKNOWN_MANIFEST")

        def hear(_manifest: Manifest) -> Statement:
            if context.believe(statement, context.roster.signers, None) is not Heard.NEWS:
                raise _KnownAlready
            return statement

        verb, is_news, kept = statement.verb.name.lower(), True, ""
        try:
            if context.statements.judge(statement, context.roster.signers) is not Heard.NEWS:
                context.believe(statement, context.roster.signers, None)
                raise _KnownAlready
            if statement.verb is Verb.DEPLOY:
                yield from self._deploy(manifest, hear, running)
            else:
                if statement.verb is Verb.CANCEL:
                    kept = _what_is_kept(self._lifecycle, self._lifecycle.get(statement.deployment), is_forced=False)
                self._dissemination.tell(hear(manifest), running.wall_s)
        except _KnownAlready:
            is_news = False
        context.audit(
            "trigger accepted", label=manifest.label, verb=verb, deployment=statement.deployment.hex(),
            epoch=statement.epoch, signer=key_id(statement.signer).hex(), new=is_news,
        )  # fmt: skip
        words = _done(context, statement, kept) if is_news else "is known already"
        return f"{manifest.label} {words}", is_news

    # ---- ending --------------------------------------------------------------------------------------

    def _one(self, name: str, version: int) -> DeploymentRecord:
        found = self._lifecycle.find(name, version)
        if not found:
            raise NotFoundError(_UNKNOWN.format(self._lifecycle.label(name, version)))
        return found[0]

    def _cancel(self, order: events.CancelOrdered, running: _Order) -> Script:
        record = self._one(order.name, order.version)
        if record.statement.verb in STOPS:
            return f"{record.label} is {_DONE[record.statement.verb]} already", False
        kept = _what_is_kept(self._lifecycle, record, is_forced=order.is_forced)
        yield from self._say(record, Verb.CANCEL, running, "cancelled")
        return f"{record.label} is cancelled{kept}", True

    def _pause(self, order: events.PauseOrdered, running: _Order) -> Script:
        """Told at once, as a cancel is."""
        record = self._one(order.name, order.version)
        if record.statement.verb is Verb.PAUSE:
            return f"{record.label} is paused already", False
        if record.statement.verb in STOPS:
            raise LocalError(f"{record.label} is {_DONE[record.statement.verb]}; deploy it again", code="E_CANCELLED")
        complete, removed, hosts = self._lifecycle.count_complete(record)
        if complete + removed == hosts:
            return f"{record.label} is complete on all {complete} hosts that were to have it: nothing to pause", False
        yield from self._say(record, Verb.PAUSE, running, "paused")
        return f"{record.label} is paused: hosts begin no fetch and serve what they have", True

    def _resume(self, order: events.PauseOrdered, running: _Order) -> Script:
        record = self._one(order.name, order.version)
        if record.statement.verb is not Verb.PAUSE:
            return f"{record.label} is not paused", False
        yield from self._say(record, Verb.DEPLOY, running, "resumed")
        return f"{record.label} goes on", True

    def _say(self, record: DeploymentRecord, verb: Verb, running: _Order, done: str) -> Steps[None]:
        """Told at once, so that a full disk is no reason not to; the answer waits until it is durable."""
        manifest = record.manifest
        assert manifest is not None
        with _told_for_people(record, self._context.statements):
            statement = self._dissemination.sign(record.id, verb, len(manifest.envelope), running.wall_s)
        self._dissemination.tell(statement, running.wall_s)
        self._context.audit(done, label=record.label, name=manifest.name, version=manifest.version)
        yield from running.keep_statements(f"{record.label} is {done} all the same")

    def _remove(self, order: events.RemoveOrdered, running: _Order) -> Script:
        """Marked durably, then deleted. A disk too full for the mark is cured by deleting, and marked then."""
        statements, label = self._context.statements, self._lifecycle.label(order.name, order.version)
        deployment, size = _removable(self._lifecycle, self._context, order)
        was_removed = statements.is_removed(deployment)
        if order.is_dry_run:
            words = _REMOVED_BEFORE.format(label) if was_removed else f"would remove {label}, {size}, from this host"
            return words, False
        statements.mark_removed(deployment)
        is_marked = yield from running.try_to_keep_statements()
        self._lifecycle.remove(deployment)
        ended = yield running.ask(lambda number: commands.RemoveModel(number, order.name, order.version))
        if isinstance(ended, events.WorkFailed):
            if ended.failure is not Failure.GONE:
                raise ended.error
            if was_removed:  # it was never begun here, or is deleted; the mark is what counts
                return _REMOVED_BEFORE.format(label), False
        self._context.audit("removed", label=label, name=order.name, version=order.version)
        if not is_marked:
            yield from running.keep_statements(f"{label} is removed all the same")
        return f"{label} is removed from this host and stays removed", True

    def _remove_everywhere(self, order: events.RemoveOrdered, running: _Order) -> Script:
        """Told at once, as a cancel is. No mark is left: it comes back when it is deployed again."""
        record = self._one(order.name, order.version)
        if record.statement.verb is Verb.REMOVE:
            return f"{record.label} is removed everywhere already", False
        complete, _, hosts = self._lifecycle.count_complete(record)
        if order.is_dry_run:
            return f"would remove {record.label} everywhere: {complete} of {hosts} hosts have it complete", False
        yield from self._say(record, Verb.REMOVE, running, "removed everywhere")
        return f"{record.label} is removed from every host, from those too that hear of it later", True

    def _roll_back(self, order: events.RollbackOrdered, running: _Order) -> Script:
        found = self._lifecycle.find(order.name, order.version)
        deployed = [one for one in self._lifecycle.find(order.name) if one.statement.verb not in STOPS]
        record = found[0] if order.version is not None and found else next(iter(deployed), None)
        if record is None or record.manifest is None or not found:
            raise NotFoundError(_NOT_DEPLOYED.format(self._lifecycle.label(order.name, order.version)))
        if record.statement.verb in (Verb.ROLL_BACK, Verb.REMOVE):
            return f"{record.label} is {_DONE[record.statement.verb]} already", False
        version, told = record.manifest.version, record.manifest.version_label
        older = [one for one in deployed if one.manifest is not None and one.manifest.version < version]
        complete, hosts = 0, 0
        if older:
            complete, _, hosts = self._lifecycle.count_complete(older[0])
        if not complete:
            raise NotFoundError(_NONE_BEFORE.format(order.name, told))
        yield from self._say(record, Verb.ROLL_BACK, running, "rolled back everywhere")
        return (
            f"{record.label} is rolled back: current leads to {older[0].label} on hosts that have it, {complete} of "
            f"{hosts}, and no host goes on to fetch {record.label}"
        ), True

    def _untrust(self, order: events.UntrustOrdered, running: _Order) -> Script:
        """Acts at once, and is durable before it is answered."""
        record = None if order.key else self._one(order.name, order.version)
        what = f"key {order.key.hex()}" if record is None else f"{order.name}@{order.version}"
        label = what if record is None else record.label
        words = "trusted again" if order.is_undone else "no longer trusted"
        if not self._context.statements.untrust(order.key, record.id if record else None, is_undone=order.is_undone):
            return f"{label} is {words} already", False
        self._lifecycle.trust_changed(running.wall_s)
        self._context.audit("untrust", label=label, what=what, undone=order.is_undone)
        yield from running.keep_statements(f"{label} is {words} all the same")
        return f"{label} is {words} on this host", True

    def _override(self, order: events.OverrideOrdered, running: _Order) -> Script:
        highest = self._context.statements.override(order.name)
        words = _ANY_VERSION.format(order.name, self._lifecycle.version_label(order.name, highest))
        self._context.audit("trust override", name=order.name, highest=highest)
        self._lifecycle.name_overridden(order.name, running.wall_s)
        yield from running.keep_statements(f"{words} all the same")
        return words, True

    def _evict(self, order: events.EvictionBegun, running: _Order) -> Script:
        """The store waits for the answer before it deletes. A disk too full to remember it is cured by deleting."""
        self._context.statements.mark_evicted(order.deployment)
        is_kept = yield from running.try_to_keep_statements()
        return "", is_kept


def _removable(
    lifecycle: DeploymentTable, context: BrainContext, order: events.RemoveOrdered
) -> tuple[DeploymentId, str]:
    """What an operator removes from this host, and its size: where the register was lost only the store has it."""
    found = lifecycle.find(order.name, order.version)
    untold = context.statements.accepted_version(order.name, order.version)
    if found:
        return found[0].id, show_bytes(found[0].bytes_here)
    if untold is None or untold not in context.complete_before:
        raise NotFoundError(_UNKNOWN.format(lifecycle.label(order.name, order.version)))
    return untold, "all of it"


class _KnownAlready(Exception):
    """The triggered statement is no news."""


class _Order:
    """One order under way: the owner of its script's work."""

    def __init__(self, context: BrainContext, order: events.Order, wall_s: float) -> None:
        self._context = context
        self._request = order.request
        self._is_dry_run = isinstance(order, events.RemoveOrdered) and order.is_dry_run
        self.wall_s = wall_s

    def work_ended(self, event: events.WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        self.wall_s = wall_s
        self._go_on(lambda: self._script.send(event))

    def run(self, script: Script) -> None:
        """Begin."""
        self._script = self._durably(script)
        self._go_on(lambda: next(self._script))

    def _durably(self, script: Script) -> Script:
        """What is so already is durable too, before that is said: the disk may have refused the order that made it
        so."""
        sentence, is_changed = yield from script
        if not is_changed and not self._is_dry_run and not self._context.is_durable:
            yield from self.keep_statements()
        return sentence, is_changed

    def _go_on(self, step: Callable[[], object]) -> None:
        try:
            step()
        except StopIteration as stop:
            sentence, is_changed = stop.value
            self._context.put(commands.Answer(self._request, sentence, is_changed))
        except GossipdError as error:
            self._context.put(commands.Answer(self._request, is_changed=False, error=error))

    def ask(self, work_of: Callable[[commands.WorkNumber], commands.Work]) -> commands.WorkNumber:
        """Ask for work, to be yielded."""
        number = self._context.next_work(self)
        self._context.put(work_of(number))
        return number

    def work(self, work_of: Callable[[commands.WorkNumber], commands.Work]) -> Steps[events.WorkEnded]:
        """Work that must succeed. Raises its error."""
        ended = yield self.ask(work_of)
        if isinstance(ended, events.WorkFailed | events.ManifestRefused):
            raise ended.error
        return ended

    def verify(self, envelope: bytes) -> Steps[Manifest]:
        """The manifest in an envelope. Raises ManifestError."""
        ended = yield from self.work(lambda number: commands.OpenManifest(number, envelope, None))
        assert isinstance(ended, events.ManifestOpened)
        return ended.manifest

    def keep_statements(self, acts: str = "") -> Steps[None]:
        """Make the statement store durable. Raises the error of the disk; ``acts``: what is so although it refused."""
        ended = yield self._context.keep_statements(self)
        if isinstance(ended, events.WorkFailed) and acts:
            sentence = f"{acts}, but a restart of this host may forget it: {ended.error.args[0]}"
            raise LocalError(sentence, code=ended.error.code, code_of_exit=ended.error.code_of_exit) from ended.error
        if isinstance(ended, events.WorkFailed):
            raise ended.error

    def try_to_keep_statements(self) -> Steps[bool]:
        """Keep the statements on disk; False when the disk refuses."""
        ended = yield self._context.keep_statements(self)
        return not isinstance(ended, events.WorkFailed)


def _clear_removed(context: BrainContext, statement: Statement) -> None:
    """What was removed from this host comes back by an order of a client or of this host, and of no other host."""
    if statement.signer == context.identity.secret.public.ed25519 or context.roster.is_client(statement.signer):
        context.statements.clear_removed(statement.deployment)


def _done(context: BrainContext, statement: Statement, kept: str) -> str:
    is_removed = statement.verb is Verb.DEPLOY and context.statements.is_removed(statement.deployment)
    return _DONE[statement.verb] + (_STAYS_REMOVED if is_removed else kept)


def _deploying_word(
    context: BrainContext, dissemination: Dissemination, manifest: Manifest, wall_s: float
) -> Statement:
    """This host's next word on it. Where a member has used up the numbers that members have, and it is deployed, that
    member's: it is as good as ours. This host has deployed it all the same."""
    last = context.statements.statement(manifest.id)
    try:
        return dissemination.sign(manifest.id, Verb.DEPLOY, len(manifest.envelope), wall_s)
    except ManifestError as error:
        if error.code != "E_STATEMENT_BOUNDS" or last is None or last.verb is not Verb.DEPLOY:
            raise
        context.statements.note_order(manifest.id, context.identity.secret.public.ed25519)
        return last


@contextmanager
def _told_for_people(record: DeploymentRecord, statements: StatementStore) -> Iterator[None]:
    """What this host may not say is refused by the deployment's name, and with who may."""
    try:
        yield
    except ManifestError as error:
        if error.code != "E_MAY_NOT_CANCEL":
            raise
        sentence = _NOT_HERE.format(record.label, why_not(record.id, statements))
        raise ManifestError(sentence, code=error.code) from error


def _what_is_kept(lifecycle: DeploymentTable, record: DeploymentRecord | None, *, is_forced: bool) -> str:
    """What a cancel leaves complete, in words. Raises LocalError ``E_COMPLETE`` when there is nothing to stop."""
    if record is None or record.manifest is None:
        return ""
    complete, removed, hosts = lifecycle.count_complete(record)
    if complete and complete + removed == hosts and not is_forced:
        raise LocalError(
            f"{record.label} is complete on all {complete} hosts that were to have it: there is nothing to stop; "
            "`gossipd rm` removes it from one, `gossipd cancel --force` keeps it from hosts that join later",
            code="E_COMPLETE",
        )
    return f"; {complete} of {hosts} hosts have it complete and keep it" if complete else ""
