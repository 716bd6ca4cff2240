"""What is written to ``DIR/state`` while the daemon runs, and once more at its end.

What lives here: when. What does not: the files (``state_dir``). What must be on disk before it is acted on is written
by the part that acts (``deployment_executor``); this catches up with the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from gossipd.audit.witness import Witness
from gossipd.core.ids import short
from gossipd.daemon.reports import Alarms
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement_file import snapshot
from gossipd.deployment.statement_store import StatementStore
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from membership.swim import Swim

LOOK_S = 1.0
ROSTER_KEEP_S = 5.0  # a crash costs at most this much of what gossip brings again


@dataclass(slots=True, kw_only=True, eq=False)
class StateSaver:
    """One task; owned by the trio loop."""

    state: StateDirectory
    register: StatementStore
    swim: Swim
    table: ClusterProgress
    alarms: Alarms
    witness: Witness

    async def run(self) -> None:
        """Never returns."""
        kept_revision, kept_s, kept_table = self.register.revision, trio.current_time(), b""
        self._show_equivocations()
        while True:
            await until_next_look(LOOK_S)
            writes: list[Callable[[], None]] = []
            if self.register.revision != kept_revision:
                kept_revision = self.register.revision
                self._show_equivocations()
                writes.append(partial(self.state.keep_register, *snapshot(self.register)))
            if trio.current_time() - kept_s > ROSTER_KEEP_S:
                kept_s = trio.current_time()
                writes.append(partial(self.state.keep_roster, self.swim.roster_records()))
            table = self.table.to_bytes()
            if table != kept_table:  # our own counters are in it, and nobody else can tell us those after a crash
                kept_table = table
                writes.append(partial(self.state.keep_progress, table))
            try:
                for write in writes:
                    await run_blocking(write)
                if writes:
                    self.alarms.cured(StateWriteError.code)
            except StateWriteError as error:
                kept_revision, kept_table = -1, b""  # all of it is tried again at the next look
                self.alarms.ring(error.code, str(error.args[0]))

    def _show_equivocations(self) -> None:
        for one in self.register.alarms():
            self.alarms.ring(
                "E_EQUIVOCATION",
                f"{one.name}@{one.version} has two contents: {short(one.trusted)} is trusted, {short(one.offered)} was "
                "offered; the publisher used the version twice, or its key is stolen",
            )

    def keep_all(self) -> None:
        """At the end; a disk that refuses costs what gossip brings again."""
        with contextlib.suppress(StateWriteError):
            self.state.keep_roster(self.swim.roster_records())
            self.state.keep_register(*snapshot(self.register))
            self.state.keep_progress(self.table.to_bytes())
            self.state.keep_witness(self.witness.to_bytes())
        self.state.close()
