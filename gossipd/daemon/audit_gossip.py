"""The head of this host's audit chain, told to three others once a minute; and the heads that others tell.

What lives here: when a head is told, which is believed, the alarm, and keeping the table. What does not: what two heads
prove (``audit.witness``).

It is told to a few and not passed on: heads of a thousand hosts by rumour would be most of what membership sends, and
some minutes later enough hosts have one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import trio
from msgspec import Struct

from gossipd.audit.log import AuditLog
from gossipd.audit.witness import AuditHead, Witness
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.runtime.worker_threads import run_blocking
from membership.bounds import fits
from membership.event_store import VERSION_MAX
from membership.events import PayloadHeard
from membership.host_rules import Verdict
from membership.member import NodeId

FIRST_S, TELL_S = 5.0, 60.0
WITNESSES = 3
CUTS_SHOWN_MAX = 8  # a member that brings hosts along fills no status page
STALE_MS, AHEAD_MS = 600_000, 3_600_000  # an old head proves nothing new; clocks differ
CODE = "E_AUDIT_CUT"


class HeadRules(Struct, eq=False):
    """Which heads count: signed by a member with the key of its record, of now, and newer than its last one."""

    directory: MemberDirectory
    witness: Witness
    wall_clock: Callable[[], float] = time.time

    def judge(self, key: bytes, version: int, payload: bytes) -> Verdict | None:
        """See HostRules."""
        record = self.directory.record(NodeId(key))
        now_ms = int(self.wall_clock() * 1000)
        if record is None or version < now_ms - STALE_MS:
            return None
        if not fits(version, known=0, step=0, maximum=VERSION_MAX, clock_bound=now_ms + AHEAD_MS):
            return None
        if not self.witness.is_due(key, version):
            return None
        head = AuditHead.opened(payload, record.public_key)
        return Verdict(record.public_key) if head is not None and head.issued_ms == version else None


@dataclass(slots=True, eq=False)
class AuditGossip:
    """One per daemon, on the trio loop."""

    audit: AuditLog
    witness: Witness
    membership_host: MembershipHost
    directory: MemberDirectory
    state: StateDirectory
    alarms: Alarms
    live: LiveSettings
    _told_ms: int = field(default=0, init=False)
    _shown: frozenset[str] = field(default=frozenset(), init=False)

    def heard(self, event: PayloadHeard) -> None:
        """A head that was judged."""
        record = self.directory.record(NodeId(event.key))
        head = None if record is None else AuditHead.opened(event.payload, record.public_key)
        if record is not None and head is not None and self.witness.heard(event.key, record.name, head):
            self.show()

    def show(self) -> None:
        """Begin and end the alarm. What is shown stays while it holds."""
        cuts = self.witness.cuts(int(time.time() * 1000))
        found = frozenset(sorted(cuts, key=lambda one: one not in self._shown)[:CUTS_SHOWN_MAX])
        if self._shown - found:
            self.alarms.cured(CODE)
        for sentence in sorted(found if self._shown - found else found - self._shown):
            self.alarms.ring(CODE, sentence, of_others=True)
        self._shown = found

    async def run(self) -> None:
        """Never returns."""
        kept = self.witness.revision
        self.show()
        await trio.sleep(FIRST_S)
        while True:
            self._tell()
            await trio.sleep(TELL_S)
            if self.witness.revision != kept:
                kept = self.witness.revision
                try:
                    await run_blocking(self.state.keep_witness, self.witness.to_bytes())
                except StateWriteError:
                    kept = -1
            self.show()

    def _tell(self) -> None:
        position = self.audit.position
        if position is None:
            return  # nothing was read or written yet, so what is on the disk is not known
        records, head = position
        self._told_ms = max(int(time.time() * 1000), self._told_ms + 1)
        told = AuditHead(self._told_ms, records, bytes.fromhex(head))
        self.membership_host.tell_head(self._told_ms, told.signed(self.live.keys.node), WITNESSES)
