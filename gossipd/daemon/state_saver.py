"""What is written to ``DIR/state`` while the daemon runs, and once more at its end.

What lives here: when. What does not: the files (``state_dir``). What must be on disk before it is acted on is written
by the part that acts (``deployment_executor``); this catches up with the rest.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial

import trio
from msgspec import Struct, field

from gossipd.audit.witness import Witness
from gossipd.core.ids import short
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.history import Histories
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement_file import snapshot
from gossipd.deployment.statement_store import StatementStore
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from membership.member import Record
from membership.swim import Swim
from membership.tombstones import Tombstone

LOOK_S = 1.0
HISTORIES_S = 60.0  # a crash costs at most so much of a report's course
KEEP_S = 5.0  # a crash costs at most this much of the roster, which gossip brings again, and of our own counters
REFRESHED_KEEP_S = 60.0  # and of records whose time alone is new: at rest every host repeats its own now and then
KEEP_BYTES_PER_S = 1 << 18  # a large table of progress is written more rarely: 100,000 records are 7 MB


class StateSaver(Struct, kw_only=True, eq=False):
    """One task; owned by the trio loop."""

    state: StateDirectory
    register: StatementStore
    lifecycle: DeploymentTable
    swim: Swim
    table: ClusterProgress
    alarms: Alarms
    witness: Witness
    histories: Histories = field(default_factory=Histories)
    budgets: OrderedBudgets = field(default_factory=OrderedBudgets)

    async def run(self) -> None:
        """Never returns."""
        kept_revision, kept_progress, table_s, table_bytes = self.register.revision, -1, -math.inf, 0
        kept_roster, roster_s = self._roster(), trio.current_time()
        kept_histories, histories_s = self.histories.revision, trio.current_time()
        kept_budgets = self.budgets.revision
        self._show_equivocations()
        while True:
            await until_next_look(LOOK_S)
            writes: list[Callable[[], None]] = []
            if self.register.revision != kept_revision:
                kept_revision = self.register.revision
                self._show_equivocations()
                writes.append(partial(self.state.keep_register, *snapshot(self.register)))
            if self.budgets.revision != kept_budgets:
                kept_budgets = self.budgets.revision
                writes.append(partial(self.state.keep_budgets, self.budgets.to_bytes()))
            now = trio.current_time()
            if now - roster_s > KEEP_S:
                roster, roster_s = self._roster(), now
                if roster != kept_roster:
                    kept_roster = roster
                    writes.append(partial(self.state.keep_roster, *roster))
            # Our own counters are in it, and nobody else can tell us those after a crash.
            rest_s = KEEP_S if self.table.revision != kept_progress else REFRESHED_KEEP_S
            if now - table_s > max(rest_s, table_bytes / KEEP_BYTES_PER_S):
                kept_progress, table_s, table = self.table.revision, now, self.table.to_bytes()
                table_bytes = len(table)
                writes.append(partial(self.state.keep_progress, table))
            if now - histories_s > HISTORIES_S and self.histories.revision != kept_histories:
                kept_histories, histories_s = self.histories.revision, now
                writes.append(partial(self.state.keep_histories, self.histories.to_bytes()))
            try:
                if writes:
                    await run_blocking(_call_all, writes)
                    self.alarms.cured(StateWriteError.code)
            except StateWriteError as error:
                # All of it is tried again at the next look.
                kept_revision, kept_progress, kept_roster, table_s, roster_s = -1, -1, ([], []), -math.inf, -math.inf
                kept_histories = kept_budgets = -1
                self.alarms.ring(error.code, str(error.args[0]))

    def _roster(self) -> tuple[list[Record], list[Tombstone]]:
        return self.swim.roster_records(), self.swim.tombstones()

    def _show_equivocations(self) -> None:
        for one in self.register.alarms():
            self.alarms.ring(
                "E_EQUIVOCATION",
                f"{self.lifecycle.label(one.name, one.version)} has two contents: {short(one.trusted)} is trusted, "
                f"{short(one.offered)} was offered; the publisher used the version twice, or its key is stolen",
            )

    def keep_all(self) -> None:
        """At the end; a disk that refuses costs what gossip brings again."""
        with contextlib.suppress(StateWriteError):
            self.state.keep_roster(*self._roster())
            self.state.keep_register(*snapshot(self.register))
            self.state.keep_progress(self.table.to_bytes())
            self.state.keep_histories(self.histories.to_bytes())
            self.state.keep_witness(self.witness.to_bytes())
        self.state.close()


def _call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()
