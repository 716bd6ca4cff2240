"""Versions that their publisher no longer keeps: their words, their bytes, and the order in which these go.

What lives here: when a version is superseded on this host, and each step until nothing of it is left. What does not:
which versions live (``manifest.retention``), deleting (``store``), and ``keep_versions``, which the store follows by
itself for names whose newest manifest says nothing.

A version is superseded when by the newest manifest that this host has accepted it does not live, and a higher version
is complete on a living host or here: until then it may be the only one that a job can load. All hosts hear the same
manifests and records, so they come to the same within seconds of each other. From then on:

1. its word is neither told nor heard (``daemon.gossip_rules``), so no newcomer hears of it. That is remembered durably
   before anything is deleted, or a restart would fetch it again;
2. an unfinished copy is given up, and others are told so. A complete one stays while no higher version is complete
   here, while other hosts still fetch it, for ``supersede_grace_s`` at most, and while the store refuses, because a job
   holds it or ``current`` points to it. Then it is asked again, more and more rarely;
3. when nothing is left on the disk, the statement, the acceptance and the records are dropped, and then the manifest.

A version stays that a live one names as its parent, when that one asks for it (``keep.parents``) and is signed by the
same key: a publisher of one name must not fill the disks with the versions of another. Rejected: to keep parents
without being asked, because most runs name the step before as each step's parent.
"""

from __future__ import annotations

import math
from collections import defaultdict

from gossipd.core.ids import DeploymentId
from gossipd.core.lineage import parents_of
from gossipd.core.reasons import HostReason
from gossipd.deployment.commands import EvictModel, ForgetManifests, ForgetStatement, WorkNumber
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.events import Failure, WorkEnded, WorkFailed
from gossipd.deployment.progress_record import HostState, progress_key
from gossipd.deployment.statement import STOPS
from gossipd.deployment.states import FINAL
from gossipd.manifest.annotations import Retention
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.retention import live_rule

_FETCHING = (HostState.INIT, HostState.DOWNLOADING)
LOOK_S = 1.0  # after a change: several statements come together
TOLD_S = 10.0  # a record is told once more after three seconds, and few hosts miss both
LOOK_AGAIN_S = 10.0  # while a version waits for the newer one, or for hosts that fetch it
REFUSED_AGAIN_S, REFUSED_MAX_S = 60.0, 960.0  # while a job holds it, doubling: asking costs a look at the disk


class Supersession:
    """One per brain; the owner of the work that it asks for."""

    def __init__(self, context: BrainContext, table: DeploymentTable) -> None:
        self._context = context
        self._table = table
        self._look_s = math.inf
        self._grace_ends_s: dict[DeploymentId, float] = {}  # of superseded ones that are complete here
        self._evict_s: dict[DeploymentId, float] = {}  # when the store is asked again
        self._delay_s: dict[DeploymentId, float] = {}  # after the next refusal
        self._told_by_s: dict[DeploymentId, float] = {}  # of those given up here, until they are dropped
        self._evicting: dict[WorkNumber, DeploymentRecord] = {}
        self._keeping: WorkNumber | None = None
        self._dropped: list[DeploymentId] = []  # whose manifests are to be forgotten when that is durable

    def note(self, now: float) -> None:
        """Something has happened, perhaps to a version whose name has a ``keep``."""
        if self._context.is_look_wanted:
            self._context.is_look_wanted = False
            self._look_by(now + LOOK_S)

    def next_deadline(self) -> float:
        """When ``tick`` is wanted next."""
        return self._look_s

    def tick(self, now: float) -> None:
        """Look, when it is time."""
        if now < self._look_s:
            return
        self._look_s = math.inf
        named: defaultdict[str, list[tuple[Manifest, DeploymentRecord]]] = defaultdict(list)
        for record in self._table:
            if record.manifest is not None:
                named[record.manifest.name].append((record.manifest, record))
        parents = self._parents_that_stay()
        for name, versions in named.items():
            if (keep := self._keep_of(name, versions)) is not None:
                self._judge(versions, keep, parents, now)
        self._clear_away(now)

    def _look_by(self, when_s: float) -> None:
        self._look_s = min(self._look_s, when_s)

    # ---- which are superseded ------------------------------------------------------------------------

    def _highest(self, name: str) -> int:
        """The highest accepted version, which an operator may have overridden with a lower one; -1 for none."""
        return max(self._context.statements.state.versions.get(name, {}), default=-1)

    def _keep_of(self, name: str, versions: list[tuple[Manifest, DeploymentRecord]]) -> Retention | None:
        highest = self._highest(name)
        return next((manifest.keep for manifest, _ in versions if manifest.version == highest), None)

    def _parents_that_stay(self) -> set[tuple[str, bytes]]:
        """Ids, each with the key that may say so."""
        found: set[tuple[str, bytes]] = set()
        for record in self._table:
            manifest = record.manifest
            is_over = self._context.statements.is_superseded(record.id)
            if manifest is not None and manifest.keep is not None and manifest.keep.parents and not is_over:
                found.update((parent, manifest.signer) for parent in parents_of(manifest.about_fields()))
        return found

    def _judge(
        self, versions: list[tuple[Manifest, DeploymentRecord]], keep: Retention, parents: set[tuple[str, bytes]],
        now: float,
    ) -> None:  # fmt: skip
        """Mark those of one name that are superseded."""
        context, name = self._context, versions[0][0].name
        highest = self._highest(name)
        known = [(manifest, record) for manifest, record in versions if manifest.version <= highest]
        is_live = live_rule([one.version for one, record in known if record.statement.verb not in STOPS], keep)
        complete = [manifest.version for manifest, record in known if self._is_complete_somewhere(record)]
        for manifest, record in known:
            stays = is_live(manifest.version) or (manifest.id.hex(), manifest.signer) in parents
            if stays or context.statements.is_superseded(manifest.id):
                continue
            if any(other > manifest.version for other in complete):
                context.statements.supersede(manifest.id)
                context.put(ForgetStatement(manifest.id))
                context.audit_manifest("superseded", manifest)
                context.info("superseded", deployment=record.label)
            else:
                self._look_by(now + LOOK_AGAIN_S)

    def _is_complete_somewhere(self, record: DeploymentRecord) -> bool:
        """Dead hosts do not count."""
        live = self._context.roster.live()
        holders = self._context.progress.had_it_whole(progress_key(record.id))
        return record.state is HostState.COMPLETE or any(node in live for node in holders)

    # ---- clearing away -------------------------------------------------------------------------------

    def _clear_away(self, now: float) -> None:
        context = self._context
        superseded = [record for record in self._table if context.statements.is_superseded(record.id)]
        if not superseded and not self._dropped:
            return
        if not context.is_durable:
            if self._keeping is None:
                self._keeping = context.keep_statements(self)
            return
        if self._dropped:
            context.put(ForgetManifests(context.next_work(self), tuple(self._dropped)))
            self._dropped = []
        for record in superseded:
            if record.state in (HostState.COMPLETE, HostState.VERIFYING):
                self._evict(record, now)
            elif self._table.let_go(record.id, is_told=now >= self._told_by(record, now)):
                self._drop(record, now)
            else:
                self._look_by(now + LOOK_S)

    def _told_by(self, record: DeploymentRecord, now: float) -> float:
        """When others know that a copy was given up here: while they take it for unfinished, theirs wait for it."""
        if record.state not in FINAL:
            self._told_by_s[record.id] = now + TOLD_S
        return self._told_by_s.get(record.id, now)

    def _evict(self, record: DeploymentRecord, now: float) -> None:
        """A complete copy, when it may go."""
        if record in self._evicting.values():
            return
        grace_ends_s = self._grace_ends_s.setdefault(record.id, now + self._context.settings.supersede_grace_s)
        is_needed = now < grace_ends_s and self._is_fetched_elsewhere(record)
        if record.state is not HostState.COMPLETE or is_needed or not self._is_newer_complete_here(record):
            self._look_by(now + LOOK_AGAIN_S)
        elif now < self._evict_s.get(record.id, now):
            self._look_by(self._evict_s[record.id])
        else:
            assert record.manifest is not None
            work = self._context.next_work(self)
            self._evicting[work] = record
            self._context.put(EvictModel(work, record.id, record.manifest.name, record.manifest.version))

    def _is_fetched_elsewhere(self, record: DeploymentRecord) -> bool:
        key, progress = progress_key(record.id), self._context.progress
        rows = (progress.host(node, key) for node in self._context.roster.live())
        return any(row is not None and row.progress.state in _FETCHING for row in rows)

    def _is_newer_complete_here(self, record: DeploymentRecord) -> bool:
        assert record.manifest is not None
        found = self._table.find(record.manifest.name)  # newest first
        newer = found[: found.index(record)]
        return any(one.state is HostState.COMPLETE for one in newer)

    def _drop(self, record: DeploymentRecord, now: float) -> None:
        """Nothing of the version is left here: its statement goes too."""
        self._context.statements.drop(record.id)
        self._context.progress.drop(progress_key(record.id))
        self._grace_ends_s.pop(record.id, None)
        self._evict_s.pop(record.id, None)
        self._delay_s.pop(record.id, None)
        self._told_by_s.pop(record.id, None)
        self._dropped.append(record.id)
        self._look_by(now + LOOK_S)

    def work_ended(self, event: WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        self._keeping = None if event.work == self._keeping else self._keeping
        record = self._evicting.pop(event.work, None)
        if record is None:
            is_refused = isinstance(event, WorkFailed)
            self._look_by(now + (LOOK_AGAIN_S if is_refused else 0.0))
            return
        if isinstance(event, WorkFailed) and event.failure is not Failure.GONE:
            self._context.info("not evicted yet", deployment=record.label, reason=event.error.sentence)
            delay_s = self._delay_s.get(record.id, REFUSED_AGAIN_S)
            self._delay_s[record.id] = min(2 * delay_s, REFUSED_MAX_S)
            self._evict_s[record.id] = now + delay_s
            self._look_by(self._evict_s[record.id])
            return
        assert record.manifest is not None
        self._table.remove(record.id, HostReason.SUPERSEDED)
        self._context.audit(
            "evicted", label=record.label, name=record.manifest.name, version=record.manifest.version
        )  # fmt: skip
        self._look_by(now)
