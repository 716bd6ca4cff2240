"""What operators order: manifests dropped here, statements sent by trigger, cancel, ``rm``, and evictions.

What lives here: each order's steps until its one answer. What does not: who may give orders (the inbox's and the
socket's mode, the control port's keys), and what a deployment does afterwards (``lifecycle``).

An order to deploy goes through these steps, each once, and any of them may refuse it:

1. the manifest is verified, and there is room for one more deployment;
2. the manifest is accepted (rollback, equivocation, expiry) and made durable;
3. its statement is made or taken in, and the statement store is made durable: once for both;
4. the statement is told, and the lifecycle begins with the manifest in hand.

When the disk refuses step 3 the statement is withdrawn: nothing was told yet, and the order can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gossipd.core.errors import GossipdError, NotFoundError, QueueFullError
from gossipd.deployment import commands, events
from gossipd.deployment.context import BrainContext
from gossipd.deployment.dissemination import Dissemination
from gossipd.deployment.events import Failure
from gossipd.deployment.lifecycle import Lifecycle
from gossipd.deployment.record import DeploymentRecord
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_store import Acceptance, Heard
from gossipd.identity.trust import key_id
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest


@dataclass(slots=True, eq=False)
class Orders:
    """Begins what is ordered; each order then is the owner of its own work."""

    context: BrainContext
    lifecycle: Lifecycle
    dissemination: Dissemination

    def handle(self, order: events.Order, wall_s: float) -> None:
        """Begin an order; its answer may come at once."""
        match order:
            case events.ManifestDropped():
                _Drop(self, order.request, order.file_name).verify(order.envelope)
            case events.OrderTriggered():
                _Trigger(self, order.request, order.statement).begin(order.envelope, wall_s)
            case events.CancelOrdered():
                self._cancel(order, wall_s)
            case events.RemoveOrdered():
                self._remove(order)
            case events.EvictionBegun():
                self.context.statements.mark_removed(order.deployment)
                _Eviction(self.context, order.request).begin()

    def answer(self, request: int, sentence: str, *, is_changed: bool = True) -> None:
        """It is done."""
        self.context.put(commands.Answer(request, sentence, is_changed))

    def refuse(self, request: int, error: GossipdError) -> None:
        """It is not."""
        self.context.put(commands.Answer(request, is_changed=False, error=error))

    def _one(self, order: events.CancelOrdered | events.RemoveOrdered) -> DeploymentRecord | None:
        found = self.lifecycle.find(order.name, order.version)
        if not found:
            label = f"{order.name}@{order.version}"
            self.refuse(order.request, NotFoundError(f"no deployment {label} is known here"))
            return None
        return found[0]

    def _cancel(self, order: events.CancelOrdered, wall_s: float) -> None:
        record = self._one(order)
        if record is None:
            return
        if record.statement.verb is Verb.CANCEL:
            self.answer(order.request, f"{record.label} is cancelled already", is_changed=False)
            return
        size = record.statement.manifest_bytes
        self.dissemination.tell(self.dissemination.sign(record.id, Verb.CANCEL, size, wall_s), wall_s)
        _Cancel(self, order).begin()

    def _remove(self, order: events.RemoveOrdered) -> None:
        record = self._one(order)
        if record is None:
            return
        assert record.manifest is not None
        was_removed = self.context.statements.is_removed(record.id)
        if order.is_dry_run:
            words = f"would remove {record.label}, {record.manifest.bytes_total} bytes, from this host"
            self.answer(order.request, _REMOVED_BEFORE.format(record.label) if was_removed else words, is_changed=False)
            return
        self.context.statements.mark_removed(record.id)
        _Removal(self, order, record, was_removed).begin()


_REMOVED_BEFORE = "{} was removed from this host before"


class _Deploy:
    """The steps that a dropped and a triggered manifest share; see the module."""

    def __init__(self, orders: Orders, request: int) -> None:
        self._orders = orders
        self._context = orders.context
        self._request = request
        self._manifest: Manifest | None = None
        self._statement: Statement | None = None
        self._before: Statement | None = None
        self._was_removed = False
        self._is_kept = False
        self._acceptance = Acceptance.NEW

    def verify(self, envelope: bytes) -> None:
        """Step 1."""
        self._context.put(commands.OpenManifest(self._context.next_work(self), envelope, None))

    def work_ended(self, event: events.WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        match event:
            case events.ManifestOpened(manifest=manifest):
                self._opened(manifest, wall_s)
            case events.ManifestRefused(error=error):
                self._refuse(error)
            case events.WorkDone() if not self._is_kept:
                self._is_kept = True
                self._take_in(wall_s)
            case events.WorkDone():
                assert self._statement is not None
                self._orders.dissemination.tell(self._statement, wall_s, self._manifest)
                self._deployed(self._statement)
            case events.WorkFailed(error=failure):
                self._withdraw()
                self._refuse(failure)
            case _:
                raise AssertionError(event)

    def _opened(self, manifest: Manifest, wall_s: float) -> None:
        self._accept(manifest, wall_s)

    def _accept(self, manifest: Manifest, wall_s: float) -> None:
        self._manifest = manifest
        try:
            self._orders.lifecycle.check_room(manifest.id)
            self._acceptance = self._context.statements.accept(manifest, wall_s)
        except (ManifestError, QueueFullError) as error:
            self._refuse(error)
            return
        self._context.put(commands.KeepManifest(self._context.next_work(self), manifest))

    def _take_in(self, wall_s: float) -> None:
        assert self._manifest is not None
        statements, deployment = self._context.statements, self._manifest.id
        self._before = statements.statement(deployment)
        self._statement = self._stated(self._manifest, wall_s)
        if self._statement is None:
            return
        self._was_removed = statements.is_removed(deployment)
        statements.clear_removed(deployment)
        self._context.keep_statements(self)

    def _withdraw(self) -> None:
        if self._statement is not None:
            self._context.statements.withdraw(self._statement, self._before)
            if self._was_removed:
                self._context.statements.mark_removed(self._statement.deployment)

    def _stated(self, manifest: Manifest, wall_s: float) -> Statement | None:
        """The statement to tell, in the store; None when the order has been answered."""
        raise NotImplementedError

    def _deployed(self, statement: Statement) -> None:
        """Say that it is done."""
        raise NotImplementedError

    def _refuse(self, error: GossipdError) -> None:
        self._orders.refuse(self._request, error)


class _Drop(_Deploy):
    """A file in the inbox. Refused with QueueFullError it is offered again later."""

    def __init__(self, orders: Orders, request: int, file_name: str) -> None:
        super().__init__(orders, request)
        self._file_name = file_name

    def _stated(self, manifest: Manifest, wall_s: float) -> Statement | None:
        return self._orders.dissemination.sign(manifest.id, Verb.DEPLOY, len(manifest.envelope), wall_s)

    def _deployed(self, statement: Statement) -> None:
        manifest = self._manifest
        assert manifest is not None
        self._context.audit(
            "manifest accepted", deployment=manifest.id.hex(), name=manifest.name, version=manifest.version,
            signer=key_id(manifest.signer).hex(), epoch=statement.epoch,
        )  # fmt: skip
        words = "accepted" if self._acceptance is Acceptance.NEW else "was known already; deployed again"
        self._orders.answer(self._request, f"{manifest.name}@{manifest.version} {words}")

    def _refuse(self, error: GossipdError) -> None:
        if isinstance(error, ManifestError):
            self._context.audit("manifest refused", file=self._file_name, code=error.code, reason=str(error.args[0]))
        elif not isinstance(error, QueueFullError):  # the disk: it is worth asking again
            error = QueueFullError(str(error), code=error.code)
        super()._refuse(error)


class _Trigger(_Deploy):
    """A statement of a member or client. Believed for its signature, once; saying it again changes nothing."""

    def __init__(self, orders: Orders, request: int, statement: Statement) -> None:
        super().__init__(orders, request)
        self._order = statement

    def begin(self, envelope: bytes | None, wall_s: float) -> None:
        """Verify the manifest, if it was sent; else it must be here."""
        manifest = self._orders.lifecycle.manifest_of(self._order.deployment)
        if envelope is not None:
            self.verify(envelope)
        elif manifest is not None:
            self._opened(manifest, wall_s)
        else:
            words = "the manifest of this deployment is not here; send it first"
            self._refuse(ManifestError(words, code="E_UNKNOWN_MANIFEST"))

    def _opened(self, manifest: Manifest, wall_s: float) -> None:
        self._manifest = manifest
        try:
            is_news = self._context.statements.judge(self._order, self._context.roster.signers) is Heard.NEWS
        except ManifestError as error:
            self._refuse(error)
            return
        if not is_news:
            self._answer(is_news=False)
        elif self._order.verb is Verb.DEPLOY:
            self._accept(manifest, wall_s)
        elif self._stated(manifest, wall_s) is not None:
            self._orders.dissemination.tell(self._order, wall_s)
            self._deployed(self._order)

    def _stated(self, manifest: Manifest, wall_s: float) -> Statement | None:
        try:
            heard = self._context.statements.hear(self._order, self._context.roster.signers)
        except ManifestError as error:  # its signer was forgotten while the manifest was kept
            self._refuse(error)
            return None
        if heard is not Heard.NEWS:
            self._answer(is_news=False)
            return None
        return self._order

    def _deployed(self, statement: Statement) -> None:
        self._answer(is_news=True)

    def _answer(self, *, is_news: bool) -> None:
        manifest, order = self._manifest, self._order
        assert manifest is not None
        verb = "deploy" if order.verb is Verb.DEPLOY else "cancel"
        self._context.audit(
            "trigger accepted", verb=verb, deployment=order.deployment.hex(), epoch=order.epoch,
            signer=key_id(order.signer).hex(), new=is_news,
        )  # fmt: skip
        words = "is known already" if not is_news else "accepted" if verb == "deploy" else "cancelled"
        self._orders.answer(self._request, f"{manifest.name}@{manifest.version} {words}", is_changed=is_news)


@dataclass(slots=True, eq=False)
class _Cancel:
    """Told already, so that a full disk is no reason not to; the answer waits until it is durable."""

    orders: Orders
    order: events.CancelOrdered

    def begin(self) -> None:
        """Make it durable."""
        self.orders.context.keep_statements(self)

    def work_ended(self, event: events.WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        order, orders = self.order, self.orders
        if isinstance(event, events.WorkFailed):
            orders.refuse(order.request, event.error)
            return
        orders.context.audit("cancelled", name=order.name, version=order.version)
        label = f"{order.name}@{order.version}"
        orders.answer(order.request, f"{label} is cancelled; hosts that are complete keep it")


class _RemovalStep(Enum):
    MARK = "mark"
    DELETE = "delete"
    MARK_AGAIN = "mark again"


@dataclass(slots=True, eq=False)
class _Removal:
    """Marked, and that made durable; then deleted. A disk too full for the mark is cured by deleting, then marked."""

    orders: Orders
    order: events.RemoveOrdered
    record: DeploymentRecord
    was_removed: bool
    step: _RemovalStep = _RemovalStep.MARK
    is_marked: bool = False

    def begin(self) -> None:
        """Make the mark durable."""
        self.orders.context.keep_statements(self)

    def work_ended(self, event: events.WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        failed = event if isinstance(event, events.WorkFailed) else None
        match self.step:
            case _RemovalStep.MARK:
                self._delete(is_marked=failed is None)
            case _RemovalStep.DELETE if failed is not None and failed.failure is not Failure.GONE:
                self.orders.refuse(self.order.request, failed.error)
            case _RemovalStep.DELETE if failed is not None and self.was_removed:
                self.orders.answer(self.order.request, _REMOVED_BEFORE.format(self.record.label), is_changed=False)
            case _RemovalStep.DELETE if not self.is_marked:
                self.step = _RemovalStep.MARK_AGAIN
                self.orders.context.keep_statements(self)
            case _ if failed is not None and self.step is _RemovalStep.MARK_AGAIN:
                self.orders.refuse(self.order.request, failed.error)
            case _:  # deleted; or it was never begun here, and the mark is what counts
                self.orders.context.audit("removed", name=self.order.name, version=self.order.version)
                words = f"{self.record.label} is removed from this host and stays removed"
                self.orders.answer(self.order.request, words)

    def _delete(self, *, is_marked: bool) -> None:
        context = self.orders.context
        self.is_marked, self.step = is_marked, _RemovalStep.DELETE
        self.orders.lifecycle.remove(self.record.id)
        context.put(commands.RemoveModel(context.next_work(self), self.order.name, self.order.version))


@dataclass(slots=True, eq=False)
class _Eviction:
    """The store waits for the answer before it deletes. A disk too full to remember it is cured by deleting."""

    context: BrainContext
    request: int

    def begin(self) -> None:
        """Make the mark durable."""
        self.context.keep_statements(self)

    def work_ended(self, event: events.WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        self.context.put(commands.Answer(self.request, is_changed=isinstance(event, events.WorkDone)))
