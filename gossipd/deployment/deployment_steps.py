"""The steps of one deployment on this host, from a statement to a published directory.

What lives here: what each step asks for, what its end leads to, and when it is tried again. What does not: the tables
of steps and states (``states``), whom the manifest is asked of (``pull_turns``), which deployments there are
(``deployment_table``), which chunk comes from where (the planner).

A life ends by a failure, a cancel, a removal or an eviction, in any step. Work that is under way then is
abandoned, and its end is waited for: the store cannot be cut short. Only then what is not published is deleted, and
only after that the next life begins, so that it counts what the store really holds.

A cancel deletes no chunk: what is verified stays until space is needed, and the next life goes on from it.
What is whole and being published when the cancel comes is kept like what is complete; otherwise hosts would differ by
the second in which they heard of it.
"""

from __future__ import annotations

from copy import copy

from gossipd.core.errors import GossipdError
from gossipd.core.ids import short
from gossipd.core.reasons import HostReason, reason_of_code, reason_of_refusal
from gossipd.deployment import commands, events
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.events import Failure
from gossipd.deployment.manifest_holders import Holders
from gossipd.deployment.progress_record import DELETED, SUBJECT_BYTES, HostState
from gossipd.deployment.pull_turns import PullTurns
from gossipd.deployment.statement import STOPS, Verb
from gossipd.deployment.states import COMMANDS, STEPS, Step
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest

# What a flipped bit in a manifest that was right when it was kept can look like.
_ROTTEN = ("E_SIG_INVALID", "E_SIG_MISSING", "E_SIG_THRESHOLD", "E_DECODE", "E_SCHEMA_VERSION", "E_LIMIT")
_TOO_OLD = ("E_ROLLBACK", "E_EXPIRED")
_ENDS_COMPLETE = (HostReason.REMOVED, HostReason.SUPERSEDED, HostReason.EVICTED, HostReason.REFUSED_OPERATOR)


class DeploymentSteps:
    """One deployment's steps."""

    def __init__(self, context: BrainContext, record: DeploymentRecord, holders: Holders) -> None:
        self._context = context
        self.id = record.id
        self.record = record
        self.holders = holders
        self.step = Step.IDLE
        self._work: commands.WorkNumber | None = None
        self._fields: tuple[object, ...] = ()
        """Of the present step's command, for another attempt."""
        self._is_stale = False
        """The work under way belongs to a life that was ended."""
        self._begins_next = self._deletes_next = False
        self._is_held_up = False
        """The planner was told to pause."""
        self._may_hold_chunks = False  # of a life that was cancelled, in this run or an earlier one
        self._given: Manifest | None = None
        """The manifest, given by an order that has accepted and kept it."""
        self._manifest: Manifest | None = None
        self.pull_turns = PullTurns(context, record.id, holders)
        self._is_from_disk = False
        self.frees_next = False
        """When it is opened next, what is here and wanted no longer goes."""

    @property
    def has_the_store_at_work(self) -> bool:
        """Whether the store is opening or deleting it, so that it must not be forgotten."""
        return self.step is Step.DELETE or (self.step is Step.RESERVE and self._work is not None)

    @property
    def is_at_rest(self) -> bool:
        """Whether no work is under way for it, none waits to be tried again, and none follows."""
        return self.step is Step.IDLE and self._work is None and not self._deletes_next

    @property
    def keeps_chunks(self) -> bool:
        """Whether it is cancelled, and perhaps has chunks on the disk."""
        return self._may_hold_chunks and self.record.state is HostState.CANCELLED

    # ---- beginning and ending ------------------------------------------------------------------------

    def begin(self, given: Manifest | None, wall_s: float) -> None:
        """A new life. ``given``: the manifest, if it is accepted and kept already."""
        self._given = given
        self.record.elapsed_s = 0
        self.record.enter(HostState.INIT)
        if not self.record.started_s:
            self.record.started_s = int(wall_s)
        self._begins_next = True
        self._go_on()

    def hand_over(self, manifest: Manifest) -> None:
        """Give the manifest to a life that is still looking for it."""
        if self.record.state is not HostState.INIT:
            return
        if self._begins_next:
            self._given = manifest
        elif self.step in (Step.READ, Step.PULL, Step.OPEN):
            self._stop()
            self._given, self._begins_next = manifest, True
            self._go_on()

    def follow_pause(self) -> None:
        """The last word, or the state, may be another: the planner fetches, or does not."""
        record = self.record
        if record.is_open and record.is_paused is not self._is_held_up:
            self._is_held_up = record.is_paused
            self._context.put(commands.PauseSwarm(self.id, record.is_paused))
        record.changed = True

    def current_may_move(self) -> None:
        """The version is here whole, and was rolled back or is no longer: ``current`` may have to lead elsewhere."""
        record, moved = self.record, self._context.names_moved
        if record.manifest is None or record.state is not HostState.COMPLETE:
            return
        name, verb = record.manifest.name, record.statement.verb
        moved[name] = moved.get(name, False) or (verb in (Verb.DEPLOY, Verb.PAUSE) and record.statement.epoch > 1)

    def forget(self) -> None:
        """No statement on it is kept any more: end the life without a trace."""
        self._stop(is_forgotten=True)

    def close(self, state: HostState, reason: HostReason = HostReason.NONE, sentence: str = "") -> None:
        """End the life. A complete model stays on disk, and the chunks of a cancelled one; else it is deleted."""
        record = self.record
        was_complete = record.state is HostState.COMPLETE
        if was_complete and reason not in _ENDS_COMPLETE:
            return
        if state is HostState.CANCELLED and self.step is Step.PUBLISH and self._work is not None:
            return
        self._stop()
        was_open, record.is_open = record.is_open, False
        if was_open:
            self._context.put(commands.CloseSwarm(self.id))
        if not was_complete and self.step is not Step.DELETE:
            # It may be just about to open, or was left by an earlier run.
            self._may_hold_chunks = self._may_hold_chunks or state is HostState.CANCELLED
            if state is HostState.CANCELLED:
                self._deletes_next = was_open and not record.chunks_verified
            else:
                self._deletes_next = state in DELETED or was_open or self._may_hold_chunks
        self._deletes_next = self._deletes_next or self._is_removed_everywhere
        if state in DELETED:
            record.hold_nothing()
        record.enter(state, reason, sentence)
        self._look_for_superseded()
        if reason is HostReason.REFUSED_OPERATOR and record.manifest is not None:
            self._context.names_moved.setdefault(record.manifest.name, False)
        why = {"why": sentence} if state is HostState.FAILED and sentence else {}
        self._context.info("deployment ended", deployment=record.label, state=state.value, reason=reason.value, **why)
        self._go_on()

    def _look_for_superseded(self) -> None:
        manifest = self.record.manifest
        if manifest is not None and manifest.keep is not None:
            self._context.is_look_wanted = True

    def delete_kept(self) -> bool:
        """Space is needed: delete the chunks of a life that was cancelled. False when there is nothing to delete."""
        if not self.keeps_chunks or self._deletes_next or self.step is Step.DELETE:
            return False
        self._deletes_next = True
        self._context.info("deleted for space", deployment=self.record.label)
        self._go_on()
        return True

    def _stop(self, *, is_forgotten: bool = False) -> None:
        """End what is under way. A verified manifest is kept all the same, for hosts that ask for it. A forgotten life
        ends by itself: giving up its pull frees a share though its thread waits, and liars could hold all threads."""
        self._begins_next = False
        self._given = None
        if self.step is Step.DELETE:
            return
        self._context.retries.pop(self.id, None)
        if self._work is None:
            self._enter(Step.IDLE)
        elif not self._is_stale:
            self._is_stale = True
            if self.step not in (Step.KEEP, Step.PUBLISH) and not is_forgotten:
                self._context.put(commands.AbandonWork(self._work))

    def _go_on(self) -> None:
        """What comes after the life that ended: deleting first."""
        if self.step is not Step.IDLE or self._work is not None:
            return
        if self._deletes_next:
            self._deletes_next = False
            self._ask(Step.DELETE, self.id, self._is_removed_everywhere)
        elif self._begins_next:
            self._begins_next = False
            self.pull_turns.begin()
            given, self._given = self._given, None
            if given is not None:
                self._accepted(given)
            else:
                self._ask(Step.READ, self.id, self._accepted_signer)

    @property
    def _is_removed_everywhere(self) -> bool:
        return self.record.statement.verb is Verb.REMOVE

    def _enter(self, step: Step) -> None:
        assert step in STEPS[self.step], (self.step, step)
        self.step = step

    def _fail(self, error: GossipdError, otherwise: HostReason | None = None) -> None:
        reason = reason_of_code(error.code, otherwise) if otherwise else reason_of_refusal(error.code)
        self._context.unproven.take(self.id)
        label, why = self.record.label, str(error.args[0])
        self._context.audit("refused", label=label, deployment=self.id.hex(), code=error.code, reason=why)
        self.close(HostState.EXPIRED if error.code in _TOO_OLD else HostState.FAILED, reason, error.sentence)
        if isinstance(error, ManifestError):
            self.record.subject = error.subject[:SUBJECT_BYTES]

    # ---- asking for work -----------------------------------------------------------------------------

    def _ask(self, step: Step, *fields: object) -> None:
        """Enter a step and ask for its work, whose command has these fields."""
        self._enter(step)
        self._fields = fields
        if step is Step.REGISTER:
            self._work = self._context.keep_statements(self)
        else:
            self._work = self._context.next_work(self)
            self._context.put(COMMANDS[step](self._work, *fields))

    def retry(self, now: float) -> None:
        """The deployment's time among the ``retries`` has come."""
        del self._context.retries[self.id]
        if self.step is Step.PULL:
            self._pull(now)
        elif self.step is Step.RESERVE and self._manifest is not None:
            self._reserve(self._manifest, frees=bool(self._fields[-1]))  # a narrower want may fit
        else:
            self._ask(self.step, *self._fields)

    def _pull(self, now: float) -> None:
        asked = self.pull_turns.take(self.record.statement, now)
        if asked is None:
            self._enter(Step.PULL)
        else:
            self._ask(Step.PULL, self.id, *asked)

    def _look_further(self, now: float) -> None:
        """What was found is not the manifest."""
        if self._is_from_disk:
            self._pull(now)
        else:
            self._enter(Step.PULL)
            self.pull_turns.wait(now)

    # ---- how work ended ------------------------------------------------------------------------------

    def work_ended(self, event: events.WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        assert event.work == self._work
        self._work = None
        if self.step is Step.PULL:
            self.pull_turns.end()
        if self._is_stale:
            self._is_stale = False
            if self.step is Step.PUBLISH and isinstance(event, events.WorkDone):
                self._note_published()  # removed meanwhile
            if isinstance(event, events.SpaceReserved) and self.keeps_chunks:
                self.record.hold(event.held)
                self._deletes_next = not event.held
            self._enter(Step.IDLE)
            self._go_on()
            return
        match event:
            case events.EnvelopeFound(envelope=envelope):
                self._found(envelope, now)
            case events.ManifestOpened(manifest=manifest):
                self._opened(manifest, now, wall_s)
            case events.ManifestRefused():
                self._refused(event, now)
            case events.SpaceReserved():
                self._reserved(event)
            case events.WorkDone():
                self._done()
            case events.WorkFailed():
                self._failed(event, now)
            case events.WorkAbandoned():
                raise AssertionError("only work that was abandoned ends so")

    def _found(self, envelope: bytes | None, now: float) -> None:
        self._is_from_disk = self.step is Step.READ
        if envelope is None:
            self._look_further(now)
        else:
            self._ask(Step.OPEN, envelope, self.id, self._accepted_signer)

    @property
    def _accepted_signer(self) -> bytes:
        accepted = self._context.statements.accepted(self.id)
        return accepted.signer if accepted is not None else b""

    def _opened(self, manifest: Manifest, now: float, wall_s: float) -> None:
        if manifest.id != self.id:
            self._look_further(now)
            return
        self.pull_turns.verified()
        was_unproven = not self.record.is_proven
        self._prove(manifest.signer)
        if not self.record.is_proven:
            self._enter(Step.IDLE)  # nobody who may has said anything of it: it is forgotten
            return
        is_kept = self.id in self._context.complete_before
        if was_unproven and self.record.statement.verb in STOPS and not is_kept:
            self.record.manifest = manifest
            if not self._is_from_disk:
                self._ask(Step.KEEP, manifest)  # for hosts that ask: none would believe the cancel without it
            if self._is_removed_everywhere:
                self.close(HostState.REMOVED, HostReason.REMOVED)
            else:
                self.close(HostState.CANCELLED)
            return
        try:
            self._context.statements.accept(manifest, wall_s, is_heard=True, is_here=is_kept)
        except ManifestError as error:
            self.record.manifest = manifest  # so that it can be named
            self._context.is_look_wanted = True  # refused as too old, it may be superseded
            if self._context.is_for_the_clock(manifest, error, wall_s):
                self.record.enter(HostState.INIT, HostReason.CLOCK_WRONG, error.sentence)
                self._context.retries[self.id] = now + self._context.settings.clock_retry_s
            else:
                self._fail(error)
            return
        self._manifest = manifest
        if self._is_from_disk:
            self._register()
        else:
            self._ask(Step.KEEP, manifest)

    def _prove(self, publisher: bytes) -> None:
        """The manifest is verified: what was said of it counts now."""
        context, record = self._context, self.record
        context.believe_unproven(self.id, publisher)
        last = context.statements.statement(self.id)
        record.statement = last or record.statement
        record.is_proven = record.is_proven or last is not None

    def _register(self) -> None:
        assert self._manifest is not None
        if self._context.is_durable:
            self._accepted(self._manifest)
        else:
            self._ask(Step.REGISTER)

    def _refused(self, event: events.ManifestRefused, now: float) -> None:
        error = event.error
        if self._is_from_disk:
            is_final, words = error.code not in _ROTTEN, "kept manifest is damaged"
        else:
            is_final, words = self.pull_turns.is_last_refusal(event.is_as_announced), "manifest came wrong"
        self._context.warning(words, deployment=short(self.id), code=error.code)
        if is_final:
            self._fail(error)
        else:
            self._look_further(now)

    def _accepted(self, manifest: Manifest) -> None:
        """The manifest is trusted, and that is durable."""
        record, self._manifest = self.record, manifest
        self._take(manifest)
        self._look_for_superseded()
        self.holders.clear()
        record.enter(HostState.INIT)
        self._context.info("manifest accepted", deployment=record.label, id=short(manifest.id), target=record.is_target)
        if record.is_target:
            self._reserve(manifest)
        else:
            self._enter(Step.IDLE)

    def _take(self, manifest: Manifest) -> None:
        self.record.take(manifest, self._context.identity.name, self._context.identity.rack)

    def _reserve(self, manifest: Manifest, *, frees: bool = False) -> None:
        frees, self.frees_next = frees or self.frees_next, False
        self._ask(Step.RESERVE, manifest, self._context.want_of(manifest.name), frees)

    def _reserved(self, event: events.SpaceReserved) -> None:
        record, manifest = self.record, self._manifest
        assert manifest is not None
        record.wanted, record.want = event.wanted, self._context.want_of(manifest.name)
        record.bytes_wanted = event.bytes_wanted
        record.hold(event.held if event.wanted is None else event.held & event.wanted)
        is_complete = not record.is_lacking and event.is_published
        if record.statement.verb in STOPS and not event.is_published:  # it was here whole once, and is no longer
            self._enter(Step.IDLE)
            self.close(HostState.CANCELLED)
            self._deletes_next = not event.held
            self._go_on()
            return
        self._may_hold_chunks = False
        record.is_open, record.is_published = True, event.is_published
        record.base = copy(record.counters)
        record.enter(HostState.COMPLETE if is_complete else HostState.DOWNLOADING)
        self._look_for_superseded()
        self._enter(Step.IDLE if is_complete else Step.FETCH)
        self._context.put(commands.OpenSwarm(manifest, event.held, event.copies, event.wanted))
        self._is_held_up = False
        self.follow_pause()
        self.current_may_move()

    def want_again(self) -> bool:
        """This host wants another part: open it in the store. False while the store is at work, whose end asks again;
        where nothing is open, because the next life asks anyway; and of one that was cancelled: nobody fetches it."""
        record, manifest = self.record, self._manifest
        if manifest is None or not record.is_target or record.statement.verb in STOPS:
            return False
        if record.want == self._context.want_of(manifest.name) and not self.frees_next:
            return False
        if not record.is_open or self._work is not None or self.step not in (Step.IDLE, Step.FETCH):
            return False
        self._context.put(commands.CloseSwarm(self.id))
        record.is_open = False
        record.elapsed_s = 0
        record.enter(HostState.INIT)
        self._reserve(manifest)
        return True

    def finish(self) -> None:
        """The planner says that everything wanted is held."""
        if self.step is Step.FETCH:
            self.record.enter(HostState.VERIFYING)
            self._ask(Step.PUBLISH, self.id)

    def _done(self) -> None:
        match self.step:
            case Step.KEEP:
                self._register()
            case Step.REGISTER:
                assert self._manifest is not None
                self._accepted(self._manifest)
            case Step.PUBLISH:
                self._note_published()
                assert self._manifest is not None
                self.record.hold_all(self._manifest)
                self.record.enter(HostState.COMPLETE)
                self._look_for_superseded()
                self._enter(Step.IDLE)
                self._context.info("model complete", deployment=self.record.label)
                self.current_may_move()
            case _:
                assert self.step is Step.DELETE
                self._may_hold_chunks = False
                if self.record.state is HostState.CANCELLED:
                    self.record.hold_nothing()
                    self.record.changed = True
                self._enter(Step.IDLE)
                self._go_on()

    def _note_published(self) -> None:
        assert self._manifest is not None
        self._context.audit_manifest("published", self._manifest)
        self._context.names_moved.setdefault(self._manifest.name, False)  # it may have been refused meanwhile

    def _failed(self, event: events.WorkFailed, now: float) -> None:
        record, error = self.record, event.error
        was_told = record.state, record.reason, record.changed
        match event.failure:
            case _ if self.step is Step.DELETE:
                self._context.warning("not deleted yet", deployment=record.label, reason=error.sentence)
            case _ if self.step is Step.PUBLISH and record.statement.verb in STOPS:
                self._enter(Step.IDLE)  # cancelled meanwhile, and it is not whole
                self.close(HostState.CANCELLED)
                return
            case Failure.FINAL:
                self._enter(Step.IDLE)
                self._fail(error, HostReason.DISK)
                return
            case Failure.GONE:  # given up while it was published, which has a reason of its own; or the store closes
                self._enter(Step.IDLE)
                return
            case Failure.NO_SPACE:
                reason = reason_of_code(error.code, HostReason.NO_SPACE)
                if record.reason is not reason:
                    self._context.warning("no space", deployment=record.label, reason=error.sentence)
                record.enter(record.state, reason, error.sentence)
                self._context.is_space_wanted = True
            case Failure.NOT_WHOLE:
                self._context.warning("not whole", deployment=record.label, reason=error.sentence)
                record.enter(HostState.DOWNLOADING, HostReason.DISK, error.sentence)
                self.follow_pause()
            case Failure.DISK:
                if self.step in (Step.KEEP, Step.REGISTER) and self._manifest is not None:
                    self._take(self._manifest)  # so that it can be named, and others are told why it is not begun
                state = HostState.VERIFYING if self.step is Step.PUBLISH else HostState.INIT
                record.enter(state, reason_of_code(error.code, HostReason.DISK), error.sentence)
        if (record.state, record.reason) == was_told[:2]:  # dozens that wait would all be told again every few seconds
            record.changed = was_told[2]
        self._context.retries[self.id] = now + self._context.settings.space_retry_s
