"""Every deployment on this host, by id, and what each event means to it.

What lives here: which life a statement begins or ends, which events reach which life, counting, and the room for
deployments. What does not: the steps of one (``deployment_steps``, ``states``), and how statements merge
(``dissemination``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter
from random import Random

from msgspec.structs import replace

from gossipd.core.errors import GossipdError, QueueFullError
from gossipd.core.events import ChunkLost, ChunkStored, FinishModel, ProbeSource, ReportStall
from gossipd.core.ids import COPIED, LOCAL, SOURCE, ChunkIndex, DeploymentId, Origin, short
from gossipd.core.reasons import HostReason, reason_of_code
from gossipd.deployment import events
from gossipd.deployment.context import BrainContext
from gossipd.deployment.current_versions import CurrentVersions
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_steps import DeploymentSteps
from gossipd.deployment.ended_manifests import EndedManifests
from gossipd.deployment.manifest_holders import Holders
from gossipd.deployment.progress_record import DELETED, SUBJECT_BYTES, HostState, Progress, progress_key
from gossipd.deployment.statement import STOPS, Statement, Verb
from gossipd.deployment.statement_store import STATEMENTS_MAX
from gossipd.deployment.states import FINAL
from gossipd.manifest.manifest import Manifest
from membership.member import NodeId, node_id

_JUDGED_AGAIN = (
    HostReason.REFUSED_KEY, HostReason.REFUSED_EXPIRED, HostReason.REFUSED_SCHEMA, HostReason.VERSION_TAKEN,
    HostReason.STORE_DAMAGED,
)  # fmt: skip
_OVER = (HostState.CANCELLED, HostState.EXPIRED, *DELETED)
_BEGINS_AGAIN = (HostState.FAILED, *_OVER)


class DeploymentTable:
    """The table of deployments. Its records may be read from anywhere, and from any thread."""

    def __init__(self, context: BrainContext, rng: Random) -> None:
        self._context = context
        self._rng = rng
        self._lives: dict[DeploymentId, DeploymentSteps] = {}
        self._by_key: dict[bytes, DeploymentSteps] = {}  # under which progress is told
        self.currents = CurrentVersions(context, self.find)
        self._ended = EndedManifests(context)
        self._disk_trouble, self._is_disk_slow = HostReason.NONE, False
        self._probe_s = -math.inf

    # ---- what is said about a deployment -------------------------------------------------------------

    def act(self, statement: Statement, wall_s: float, manifest: Manifest | None = None) -> None:
        """Bring this host in line with the last statement. ``manifest``: if it is accepted and kept already."""
        life = self._lives.get(statement.deployment)
        is_new = life is None
        if life is None:
            life = self._add(statement)
        was_said, life.record.statement = life.record.statement.verb, statement
        life.record.is_proven = True
        # One that was complete when it was cancelled stays, after a restart too, also while it is being opened again.
        is_opening = is_new or life.record.state is HostState.INIT
        is_kept = is_opening and statement.deployment in self._context.complete_before
        if self._context.statements.is_evicted(statement.deployment) and statement.verb is not Verb.REMOVE:
            life.close(HostState.EVICTED, HostReason.EVICTED)
        elif self._context.statements.is_removed(statement.deployment) or statement.verb is Verb.REMOVE:
            life.close(HostState.REMOVED, HostReason.REMOVED)
        elif self._context.statements.is_superseded(statement.deployment) and not is_kept:
            if is_new:
                life.close(HostState.REMOVED, HostReason.SUPERSEDED)
                self._context.is_look_wanted = True
        elif statement.verb in STOPS and not is_kept:
            if life.record.state not in DELETED:  # what was removed everywhere holds nothing that could be cancelled
                life.close(HostState.CANCELLED)
        elif is_new or life.record.state in _BEGINS_AGAIN:
            life.begin(manifest, wall_s)
        elif manifest is not None:
            life.hand_over(manifest)
        if is_new and life.record.state in FINAL:
            self._ended.add(life.record)
        life.follow_pause()
        if statement.verb is Verb.ROLL_BACK or statement.verb is not was_said:
            life.current_may_move()

    def look_into(self, wanted: dict[DeploymentId, Statement], wall_s: float) -> None:
        """Look for the manifests of these statements, and of no others that are unproven. What was refused for good
        stays to be seen for a while.
        """
        unproven = [life for life in self._lives.values() if not life.record.is_proven]
        refused = [life for life in unproven if life.record.state is not HostState.INIT]
        for life in unproven:
            is_looked_for = life.id in wanted or life in refused[-self._context.settings.unproven_max :]
            if not is_looked_for:
                self._forget(life)
        for deployment, statement in wanted.items():
            found = self._lives.get(deployment)
            if found is None:
                found = self._add(statement)
                found.record.is_proven = False
                found.begin(None, wall_s)
            elif not found.record.is_proven and found.record.state in _BEGINS_AGAIN:
                found.record.statement = statement
                found.begin(None, wall_s)
            for node in self._context.unproven.holders(deployment):
                self.holder_heard(deployment, node)

    def _add(self, statement: Statement) -> DeploymentSteps:
        self._make_room()
        context = self._context
        record = DeploymentRecord(
            statement.deployment, statement, disk_trouble=self._disk_trouble, is_disk_slow=self._is_disk_slow
        )
        earlier = context.progress.host(context.identity.node, progress_key(record.id))
        if earlier is not None:
            record.restore(earlier.progress)
        life = DeploymentSteps(context, record, Holders(self._rng, any_share=context.settings.pull_any_share))
        self._by_key[progress_key(record.id)] = life
        return self._lives.setdefault(record.id, life)

    def _make_room(self) -> None:
        """Forget what the statement store has forgotten as too old, so that no member can fill the table."""
        if len(self._lives) < STATEMENTS_MAX:
            return
        for life in list(self._lives.values()):
            is_busy = life.record.is_open or life.has_the_store_at_work
            if is_busy or self._context.statements.statement(life.id) is not None or life.delete_kept():
                continue
            if not life.has_the_store_at_work:
                self._forget(life)

    def _forget(self, life: DeploymentSteps) -> None:
        life.forget()
        del self._lives[life.id]
        if self._by_key.get(progress_key(life.id)) is life:
            del self._by_key[progress_key(life.id)]

    def remove(self, deployment: DeploymentId, reason: HostReason = HostReason.REMOVED) -> None:
        """The deployment is marked as removed from this host, or superseded and deleted."""
        life = self._lives.get(deployment)
        if life is not None:
            life.close(HostState.REMOVED, reason)

    def evicted(self, deployment: DeploymentId) -> None:
        """The store has deleted it to make room; it is marked so."""
        life = self._lives.get(deployment)
        if life is not None:
            life.close(HostState.EVICTED, HostReason.EVICTED)

    def take_again(self, deployment: DeploymentId, wall_s: float) -> None:
        """The rack has too few copies of what this host has evicted. A host that crashes before this is on its disk has
        still evicted it, and takes it another time."""
        statements = self._context.statements
        statement = statements.statement(deployment)
        is_over = statement is None or statement.verb is not Verb.DEPLOY or statements.is_superseded(deployment)
        if statement is None or is_over or not statements.is_evicted(deployment):
            return
        statements.clear_removed(deployment)
        self.act(statement, wall_s)
        self._context.audit("taken again", subject=self._lives[deployment].record.label)

    def let_go(self, deployment: DeploymentId, *, is_told: bool) -> bool:
        """Its publisher no longer keeps it: give up what is not complete. True when nothing of it is left here, and it
        is forgotten, after others were told that it was given up. What an operator has said ``untrust`` of stays."""
        life = self._lives[deployment]
        record = life.record
        if record.state is HostState.FAILED and record.reason is HostReason.REFUSED_OPERATOR:
            return False
        if record.state not in FINAL:
            life.close(HostState.REMOVED, HostReason.SUPERSEDED)
        if life.delete_kept() or not life.is_at_rest or not is_told:
            return False
        self._forget(life)
        return True

    def trust_changed(self, wall_s: float) -> None:
        """The operator trusts a key or a model no longer: end what is running of it, and serve none of it. Or trusts
        it again: begin again. What is over stays so: it is neither used nor served.
        """
        statements = self._context.statements
        for life in list(self._lives.values()):
            record = life.record
            if record.manifest is None or record.state in _OVER:
                continue
            is_refused = record.state is HostState.FAILED and record.reason is HostReason.REFUSED_OPERATOR
            if statements.is_untrusted(record.manifest):
                sentence = "E_UNTRUSTED: an operator of this host has said gossipd untrust"
                life.close(HostState.FAILED, HostReason.REFUSED_OPERATOR, sentence)
            elif is_refused:
                self._context.names_moved[record.manifest.name] = True
                self.act(record.statement, wall_s)

    def wants_changed(self, event: events.WantsChanged, wall_s: float) -> None:
        """This host wants other parts: what is open of a name is opened again for its part, and what was refused for a
        want that meant nothing is begun again."""
        self._context.wants = event.wants
        for life in list(self._lives.values()):
            if event.frees and life.record.manifest is not None and life.record.manifest.name == event.frees:
                life.frees_next = True
            if life.record.state is HostState.FAILED and life.record.reason is HostReason.WANT:
                self.act(life.record.statement, wall_s)
            else:
                life.want_again()

    def judge_again(self, now: float, wall_s: float) -> None:
        """Keys are trusted that were not, or the clock was set: what was refused for that is looked for once more.
        Those refused last, and as many as are looked into at once.
        """
        refused = [life for life in self._lives.values() if life.record.reason in _JUDGED_AGAIN]
        for life in refused[-self._context.settings.unproven_max :]:
            statement, believed = life.record.statement, self._context.statements.statement(life.id)
            if believed is not None:
                self.act(believed, wall_s)
            else:
                self._context.unproven.add(statement, life.holders.first or node_id(statement.signer), now)

    def name_overridden(self, name: str, wall_s: float) -> None:
        """The next manifest of that name may have any version: the highest that was refused as a rollback is next."""
        refused = [
            (life.record.manifest.version, life)
            for life in self._lives.values()
            if life.record.reason is HostReason.REFUSED_ROLLBACK
            and life.record.manifest is not None
            and life.record.manifest.name == name
        ]
        if refused:
            record = max(refused, key=itemgetter(0))[1].record
            self.act(record.statement, wall_s)

    def is_served(self, deployment: DeploymentId) -> bool:
        """Whether peers may have its chunks. From any thread."""
        record = self.get(deployment)
        return record is not None and record.is_open

    def holder_heard(self, deployment: DeploymentId, node: NodeId) -> None:
        """A host has the deployment's manifest, or is about to have it."""
        life = self._lives.get(deployment)
        if life is not None and life.record.manifest is None:
            life.holders.add(node)

    def make_space(self) -> None:
        """A model does not fit: delete what is kept of the deployment that was cancelled first."""
        if self._context.is_space_wanted:
            self._context.is_space_wanted = False
            any(life.delete_kept() for life in list(self._lives.values()))

    # ---- time ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        for life in list(self._lives.values()):
            life.want_again()  # what the store was at work on when the want changed
        for deployment, retry_s in list(self._context.retries.items()):
            if retry_s <= now:
                self._lives[deployment].retry(now)
        self.currents.tick(now)
        if now >= self._probe_s:
            again_s = self._context.settings.probe_again_s
            self._probe_s = (now // again_s + 1) * again_s  # a moment at which the daemon is awake for other looks too
            for record in self:
                if record.state is HostState.DOWNLOADING and record.source_trouble is not HostReason.NONE:
                    self._context.put(ProbeSource(record.id))

    def next_deadline(self) -> float:
        """When ``tick`` is wanted next."""
        return min((self._probe_s, self.currents.next_deadline(), *self._context.retries.values()))

    # ---- what the planner and the adapters tell ------------------------------------------------------

    def handle(self, event: events.DeploymentNews) -> None:
        """Something that concerns one deployment here, or the disk of all."""
        match event:
            case ChunkStored():
                self._stored(event)
            case ChunkLost():
                self._lost(event)
            case FinishModel():
                if (life := self._lives.get(event.deployment)) is not None:
                    life.finish()
            case ReportStall():
                self._stalled(event)
            case events.ProgressHeard():
                life = self._by_key.get(event.key)
                if event.has_manifest and life is not None and life.record.manifest is None:
                    life.pull_turns.holder_found(event.node)
            case events.SourceTroubled():
                self._source_troubled(event)
            case events.DiskConditionChanged():
                self._disk_changed(event.code)
            case events.DiskWritesWait():
                self._is_disk_slow = event.is_so
                for life in self._lives.values():
                    life.record.disk_changed(self._disk_trouble, is_slow=event.is_so)

    def _stored(self, event: ChunkStored) -> None:
        record = self.get(event.deployment)
        if record is None or not record.is_open:
            return  # the store says what is here when it has opened the model
        record.held.add(event.chunk)
        if record.state is HostState.COMPLETE:
            record.changed = record.changed or not record.is_refilling
            if record.lost_chunks.is_back(event.chunk):
                self._context.audit("chunk repaired", subject=record.label, chunk=event.chunk)
            if not record.is_refilling:
                self._all_are_back(record)
        if event.supplier is SOURCE or record.source_chunks:
            record.source_gave()
        if event.supplier in (LOCAL, COPIED):
            return
        record.rate_in.add(event.length)
        rack = None if isinstance(event.supplier, Origin) else self._context.roster.rack_of(event.supplier)
        record.counters.add(event.supplier, event.length, same_rack=rack == self._context.identity.rack)

    def _all_are_back(self, record: DeploymentRecord) -> None:
        """A complete model is whole again: ``current`` may have passed it over meanwhile."""
        if record.lost_chunks.count and record.manifest is not None:
            self._context.names_moved[record.manifest.name] = True
        if untold := record.lost_chunks.all_are_back():
            self._context.info("all lost chunks are here again", deployment=record.label, untold=untold)

    def _lost(self, event: ChunkLost) -> None:
        record = self.get(event.deployment)
        if record is None or not record.is_open:
            return
        if record.held.discard(event.chunk) and record.state is HostState.COMPLETE:
            record.changed = True
            self._tell_lost(record, event.chunk)

    def _tell_lost(self, record: DeploymentRecord, chunk: ChunkIndex) -> None:
        if not record.lost_chunks.lost(chunk):
            return
        self._context.audit("chunk lost", subject=record.label, chunk=chunk)
        self._context.warning("chunk lost, fetched again", deployment=record.label, chunk=chunk)
        if record.lost_chunks.is_last_told:
            self._context.warning("more chunks may be lost, and are fetched again", deployment=record.label)

    def _stalled(self, report: ReportStall) -> None:
        record = self.get(report.deployment)
        if record is not None and record.stalls(report) and report.reason is not None:
            about = {"peer": short(report.peer)} if report.peer else {}
            self._context.warning("no progress", deployment=record.label, reason=report.reason.value, **about)

    def _source_troubled(self, event: events.SourceTroubled) -> None:
        record, error = self.get(event.deployment), event.error
        if record is not None:
            trouble = reason_of_code(error.code, HostReason.STORAGE)
            if trouble is not record.source_trouble:
                self._context.audit("source trouble", subject=record.label, code=error.code, reason=str(error.args[0]))
            record.source_trouble = trouble
            record.source_file = _file_subject(record.manifest, error)
            record.source_chunks = event.chunks if record.source_file else ()
            record.sentence = error.sentence
            record.changed = True

    def _disk_changed(self, code: str) -> None:
        self._disk_trouble = reason_of_code(code, HostReason.DISK) if code else HostReason.NONE
        if self._disk_trouble is HostReason.NO_SPACE:
            for life in list(self._lives.values()):
                life.delete_kept()
        for life in self._lives.values():  # also those whose manifest is not here yet
            life.record.disk_changed(self._disk_trouble, is_slow=self._is_disk_slow)

    # ---- questions --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[DeploymentRecord]:
        records = [life.record for life in list(self._lives.values())]
        return iter([one for one in records if _is_proven_or_begun(one)])

    def with_key(self, key: bytes) -> DeploymentRecord | None:
        """The one whose progress is told under ``key``, of those that ``iter`` gives."""
        life = self._by_key.get(key)
        return life.record if life is not None and _is_proven_or_begun(life.record) else None

    def id_with_key(self, key: bytes) -> DeploymentId | None:
        """Which deployment's progress is told under ``key``; also of one whose manifest is not here."""
        life = self._by_key.get(key)
        return None if life is None else life.id

    def progress_of(self, record: DeploymentRecord, now: float, wall_s: float) -> Progress:
        """What this host tells of a deployment. A host that waits for another, which reads storage and cannot, says
        so and for whom it waits. One that reads slow storage itself does not wait for one whose limit makes it slow.
        """
        deployer = self._context.statements.deployer(record.id)
        told = replace(record.progress(wall_s), deployer=deployer.told if deployer is not None else b"")
        if told.reason is HostReason.SOURCE_GONE and self._are_all_copies_gone(record):
            return replace(told, reason=HostReason.NO_COPY)
        if told.reason not in (HostReason.NO_HOLDER, HostReason.STORAGE):
            return told
        context = self._context
        is_slow_too = told.reason is HostReason.STORAGE and record.is_reading
        but = HostReason.READ_LIMIT if is_slow_too else HostReason.NONE
        readers = context.progress.readers_in_trouble(progress_key(record.id), context.roster.host_count, now, but=but)
        readers = [node for node in readers if node in context.roster.live()]
        if not readers:
            return told
        near = [node for node in readers if context.roster.rack_of(node) == context.identity.rack]
        return replace(told, reason=HostReason.WAITS_FOR_READER, subject=min(near or readers)[:SUBJECT_BYTES])

    def _are_all_copies_gone(self, record: DeploymentRecord) -> bool:
        """Whether hosts had the model, and none of them lives. A host that only has some of it is asked before storage
        is named as the reason.
        """
        context = self._context
        holders = context.progress.had_it_whole(progress_key(record.id))
        return bool(holders) and not any(node in context.roster.live() for node in holders)

    def count_complete(self, record: DeploymentRecord) -> tuple[int, int, int]:
        """How many targets of a deployment have it, how many have deleted it, and how many there are, as far as this
        host knows."""
        assert record.manifest is not None
        context, key = self._context, progress_key(record.id)
        targets = context.roster.targets(record.manifest)
        rows = {node: row for node in targets if (row := context.progress.host(node, key)) is not None}
        states = [row.progress.state for node, row in rows.items() if node != context.identity.node]
        if context.identity.node in targets:
            is_whole = record.told_state in (HostState.COMPLETE, HostState.VERIFYING)
            states.append(HostState.COMPLETE if is_whole else record.told_state)
        return states.count(HostState.COMPLETE), sum(state in DELETED for state in states), len(targets)

    def is_under_way(self, record: DeploymentRecord) -> bool:
        """Whether it is not complete here, or another living target has it neither whole nor given it up."""
        if record.manifest is None or record.told_state is not HostState.COMPLETE:
            return True
        if record.statement.verb is Verb.CANCEL:
            return False
        context, key = self._context, progress_key(record.id)
        for node in context.roster.targets(record.manifest):
            if node != context.identity.node and node in context.roster.live():
                row = context.progress.host(node, key)
                if row is None or row.progress.state not in FINAL:
                    return True
        return False

    def get(self, deployment: DeploymentId) -> DeploymentRecord | None:
        """What this host knows of it."""
        life = self._lives.get(deployment)
        return None if life is None else life.record

    def is_coming(self, deployment: DeploymentId) -> bool:
        """Whether its manifest is being pulled, or kept."""
        record = self.get(deployment)
        return record is not None and record.manifest is None and record.state is HostState.INIT

    def manifest_of(self, deployment: DeploymentId) -> Manifest | None:
        """The manifest, once accepted."""
        record = self.get(deployment)
        return None if record is None else record.manifest

    def model_of(self, deployment: DeploymentId) -> tuple[str, int] | None:
        """Name and version of a manifest that was accepted here, also where it is not read now."""
        return self._context.statements.model_of(deployment)

    def find(self, name: str, version: int | None = None) -> list[DeploymentRecord]:
        """Deployments of that model, newest version first."""
        named = [(one.manifest.version, one) for one in self if one.manifest is not None and one.manifest.name == name]
        newest_first = sorted(named, key=itemgetter(0), reverse=True)
        return [one for found, one in newest_first if version in (None, found)]

    def version_label(self, name: str, version: int) -> str:
        """The version for people, as its manifest says or, where that is not here, that of the newest one of the name:
        ``300.2`` for a step."""
        known = self.find(name)
        found = next((one.manifest for one in known if one.manifest and one.manifest.version == version), None)
        if found is not None:
            return found.version_label
        newest = known[0].manifest if known else None
        return newest.label_of(version) if newest is not None else str(version)

    def label(self, name: str, version: int | None) -> str:
        """``NAME@VERSION`` for people; without a version the name."""
        return name if version is None else f"{name}@{self.version_label(name, version)}"

    def check_room(self, wanted: DeploymentId) -> None:
        """Raises QueueFullError while this host may begin no further one; what it has begun needs no more room."""
        live, live_max = {one.id for one in self if one.is_live}, self._context.settings.live_max
        if wanted not in live and len(live) >= live_max:
            sentence = f"{len(live)} deployments are under way on this host, at most {live_max}: "
            sentence += "in the inbox it waits its turn, an order is to be given again later"
            raise QueueFullError(sentence)


def _is_proven_or_begun(record: DeploymentRecord) -> bool:
    return record.is_proven or record.state is not HostState.INIT


def _file_subject(manifest: Manifest | None, error: GossipdError) -> bytes:
    """The index of the file that an error of storage is about, as the subject of a record; every host has the manifest
    and can name it."""
    path = getattr(error, "path", "")
    found = [index for index, entry in enumerate(manifest.files) if entry.path == path] if manifest and path else []
    return found[0].to_bytes(SUBJECT_BYTES, "big") if found else b""
