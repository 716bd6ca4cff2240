"""When this host signs and tells its progress, of which deployments, and how many records at a time.

What lives here: when a record is published. What does not: the record and the table (``deployment.progress_record``,
``signed_progress``, ``progress_table``), and keeping the table on disk (``state_saver``).

Every record is signed. While a living host reads only the unsigned form, it is told beside.

A record is published when a deployment's state changes and, while something runs, every ``max(1 s, hosts / 50 s)``;
when all is done, a slow refresh keeps newcomers, and hosts that missed a word, up to date; its first comes after some
seconds. The refreshes of all hosts together have a share of what gossip carries, however many versions there are: where
they take more than it carries, a change waits behind them for up to a minute.

Others look at so many records of a host and no more (``gossip_rules``), so this one tells a share of that: what has
changed first, then what it has told longest ago. A host without CPU enough tells mere numbers less often: where all
hosts share a machine, each has every other's records to verify, and these took a third of the CPU.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import trio
from msgspec import Struct
from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.core.timing import CLOCKS_APART_MAX_S
from gossipd.daemon.chunk_access import ChunkAccess
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.daemon.gossip_rules import progress_amount, progress_quotas
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.sketch_sampler import SketchSampler
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.events import ProgressHeard
from gossipd.deployment.history import Histories
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_record import (
    MANIFEST_REFUSED,
    REFRESH_HOSTS_PER_S,
    HostState,
    Progress,
    next_record_version,
    progress_key,
    refresh_interval_s,
)
from gossipd.deployment.progress_table import ClusterProgress, HostProgress
from gossipd.deployment.signed_progress import ProgressKey, read_progress, sign_progress
from gossipd.deployment.states import FINAL
from gossipd.identity.keys import SecretKey
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.quotas import Quotas
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import StoreUnreadableError
from membership.member import NodeId

TICK_S = 1.0
LOOK_S = 0.25  # while a deployment is under way, a change of its state is published within this
_SHARE = 0.75  # the rest covers records that were delayed on their way
TOLD_MAX = 16  # of one look: a record is signed, judged and kept, and a look may hold up the loop for some milliseconds
SLOW_FACTOR_MAX = 4  # below ``STALE_REFRESHES``, so that the rates of a slow host still count
SETTLED_FACTOR = 15  # refreshes are so much rarer when nothing moves: 15 s for small clusters, 5 minutes at 1,000
REPEATED_FACTOR = 3  # but the first: of small clusters one or two hosts in a hundred miss a word
SETTLED_PER_S = REFRESH_HOSTS_PER_S / SETTLED_FACTOR  # of all hosts together; gossip carries some 13, at 1,000 some 5


class _Telling(Struct):
    """When a record was told last, and how often again since its last change."""

    at_s: float
    refreshes: int


_NEVER = _Telling(-1e9, 0)


class ProgressListener(Protocol):
    """Hears that a host has told another record."""

    def host_progressed(
        self, node: NodeId | None, host: str, deployment: str, before: Progress | None, now: Progress
    ) -> None: ...

    def tell_states(self) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class ProgressPublisher:
    """One task; owned by the trio loop."""

    table: ClusterProgress
    lifecycle: DeploymentTable
    store: ChunkStore
    chunk_access: ChunkAccess
    directory: MemberDirectory
    roster: ClusterRoster
    secret: SecretKey = field(repr=False)
    membership_host: MembershipHost
    clock: ClusterClock
    histories: Histories = field(default_factory=Histories)
    budgets: OrderedBudgets = field(default_factory=OrderedBudgets)
    listener: ProgressListener | None = None
    sampler: SketchSampler | None = None
    incoming: IncomingChunks = field(default_factory=IncomingChunks)
    tellings: dict[DeploymentId, _Telling] = field(default_factory=dict, init=False)
    refreshed_s: float = field(default=-1e9, init=False)
    """Until then no settled record is told again."""
    refusal_told_s: float = field(default=-1e9, init=False)
    quotas: Quotas[bytes] = field(default_factory=lambda: progress_quotas(_SHARE), init=False)

    def heard(self, wire_key: bytes, version: int, payload: bytes) -> ProgressHeard | None:
        """A record that was judged; what it tells the deployment brain, if anything. Raises ProgressFormatError."""
        key = ProgressKey.decode(wire_key)
        progress = read_progress(key, payload)
        if key.node == self.directory.own or (not key.is_signed and self._signs(key.node)):
            return None
        now, before = trio.current_time(), self.table.host(key.node, key.deployment)
        heard_s = self.clock.true_s(time.time())
        self.table.record(
            key.node, key.deployment, version, progress, now=now, is_signed=key.is_signed, heard_s=heard_s
        )
        self._told_on(key.node, key.deployment, before)
        has_manifest = progress.state not in MANIFEST_REFUSED
        tells_budget, tells_deployer = progress.budget is not None, progress.deployer != b""
        if not has_manifest and not tells_budget and not tells_deployer:
            return None
        return ProgressHeard(key.node, key.deployment, has_manifest, tells_budget, tells_deployer)

    def _told_on(self, node: NodeId, short_key: bytes, before: HostProgress | None) -> None:
        row = self.table.host(node, short_key)
        if row is None or row is before:
            return
        known = self.lifecycle.with_key(short_key)
        earlier = None if before is None else before.progress
        if known is not None and known.manifest is not None:
            chunk_count = known.manifest.chunk_count
            record = self.directory.record(node)
            self.histories.heard(
                short_key, node, earlier, row.progress, chunk_count=chunk_count, wall_s=time.time(),
                boot=0 if record is None else record.boot,
            )  # fmt: skip
        if self.listener is None:
            return
        label = short_key.hex()[:12] if known is None else known.label
        other = None if node == self.directory.own else node
        self.listener.host_progressed(other, self.directory.name_of(node), label, earlier, row.progress)

    def _signs(self, node: NodeId) -> bool:
        writer = self.roster.progress_writer(node)
        return writer is not None and writer.signs

    async def run(self) -> None:
        """Never returns."""
        ticked_s = trio.current_time()
        while True:
            is_resting = all(one.state in FINAL and one.id in self.tellings for one in self.lifecycle)
            await until_next_look(TICK_S if is_resting else LOOK_S)
            now = trio.current_time()
            if now - ticked_s >= TICK_S:
                self._tick(now - ticked_s)
                ticked_s = now
            self.tell_due(now)

    def tell_due(self, now: float) -> None:
        """Publish what is due, as far as others look at it, and no more than one look may; the rest at the next."""
        self._note_currents()
        amount = progress_amount(self.roster.host_count)
        due = [one for one in self.lifecycle if self._is_due(one, now)]
        due.sort(key=self._turn)
        told = 0
        for deployment in due:
            if told >= TOLD_MAX:
                return
            if self._is_due(deployment, now) and self.quotas.take(self.directory.own, now, amount):
                if self._is_refresh(deployment):
                    self.refreshed_s = max(self.refreshed_s, now - TICK_S) + self.roster.host_count / SETTLED_PER_S
                self.tell(deployment)
                told += 1

    def _note_currents(self) -> None:
        """The version that ``current`` has left and the one to which it leads are told at once. The others tell it with
        their next refresh: of a name with hundreds of versions each new one would else have all told again."""
        for one in self.lifecycle:
            if not one.current_moved or one.manifest is None:
                continue
            one.current_moved = False
            row = self.table.host(self.directory.own, progress_key(one.id))
            with suppress(StoreUnreadableError):  # then the next refresh tells
                is_current = self.store.current(one.manifest.name) == one.manifest.version
                was_told_so = row is not None and row.progress.current == one.manifest.version
                one.changed = one.changed or is_current is not was_told_so

    def tell(self, deployment: DeploymentRecord) -> None:
        """Publish the deployment's record now."""
        now, wall_s = trio.current_time(), self.clock.true_s(time.time())
        last = self.tellings.get(deployment.id)
        refreshes = 0 if deployment.changed else 1 if last is None else last.refreshes + 1
        self.tellings[deployment.id] = _Telling(now, refreshes)
        deployment.changed = False
        if not deployment.is_proven:
            self.refusal_told_s = now
        if not deployment.is_target or (deployment.manifest is None and deployment.state is HostState.INIT):
            return
        own, short_key = self.directory.own, progress_key(deployment.id)
        progress = self.lifecycle.progress_of(deployment, now, wall_s)
        if progress.state is HostState.COMPLETE and deployment.manifest is not None:
            with suppress(StoreUnreadableError):  # none is told, as of a name without one
                progress = replace(progress, current=self.store.current(deployment.manifest.name))
        progress = replace(progress, budget=self.budgets.told(short_key))
        self.table.take_back(own, short_key, int((wall_s + CLOCKS_APART_MAX_S) * 1000))
        version = next_record_version(self.table.version(own, short_key), wall_s)
        before = self.table.host(own, short_key)
        if not self.table.record(own, short_key, version, progress, now=now, is_signed=True):
            return
        self._told_on(own, short_key, before)
        key = ProgressKey(own, short_key, is_signed=True)
        host = self.membership_host
        host.publish_progress(key.encode(), version, sign_progress(self.secret, key, version, progress))
        if not self.roster.all_sign_progress():
            row = self.table.host(own, short_key)
            assert row is not None
            host.publish_progress(replace(key, is_signed=False).encode(), version, row.record)

    def _turn(self, deployment: DeploymentRecord) -> tuple[bool, bool, int, float]:
        """What has changed goes first, and of that what moves or has moved in this run: after a start all is to be
        told. Then what has been told least often since."""
        last = self.tellings.get(deployment.id)
        is_of_earlier_run = last is None and deployment.is_of_earlier_run and deployment.state in FINAL
        last = last or _NEVER
        return not deployment.changed, is_of_earlier_run, last.refreshes, last.at_s

    def _is_refresh(self, deployment: DeploymentRecord) -> bool:
        """Whether others have heard this of a settled deployment, which may wait."""
        is_moving = deployment.rate_in.bytes_per_s or deployment.rate_out.bytes_per_s
        is_settled = deployment.state in FINAL and not is_moving
        return is_settled and not deployment.changed and deployment.id in self.tellings

    def _is_due(self, deployment: DeploymentRecord, now: float) -> bool:
        since_s = now - self.tellings.get(deployment.id, _NEVER).at_s
        interval_s = refresh_interval_s(self.roster.host_count)
        # Anybody who may sign can have all hosts refuse many manifests: they must not crowd out the rest.
        if not deployment.is_proven and now - self.refusal_told_s < interval_s:
            return False
        if self._is_refresh(deployment):
            if now < self.refreshed_s:
                return False
            interval_s *= SETTLED_FACTOR if self.tellings[deployment.id].refreshes else REPEATED_FACTOR
        slowness = min(SLOW_FACTOR_MAX, self.membership_host.slowness())
        return deployment.changed or since_s >= interval_s * slowness

    def _tick(self, elapsed_s: float) -> None:
        if self.listener is not None:
            self.listener.tell_states()
        if self.sampler is not None:
            self.sampler.look(time.time())
        uploaded, cut_off = self.chunk_access.take_uploaded(), self.incoming.take_cut_off()
        models = self.store.statistics().models
        known = {one.id for one in self.lifecycle}
        if len(self.tellings) > 2 * len(known):
            self.tellings = {one: telling for one, telling in self.tellings.items() if one in known}
        for deployment in self.lifecycle:
            deployment.rate_out.add(uploaded.pop(deployment.id, 0))
            deployment.counters.cancelled_bytes += cut_off.get(deployment.id, 0)
            deployment.rate_in.tick(elapsed_s)
            deployment.rate_out.tick(elapsed_s)
            figures = models.get(deployment.id)
            if figures is not None:
                corrupt = figures.mismatch_count + figures.rotten_count
                deployment.take_figures(figures.duplicate_bytes, corrupt, figures.mismatch_bytes)
