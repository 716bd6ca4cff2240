"""Looks at the members for identities that are seen twice, and tells them as alarms and audit records.

What lives here: membership's events and the roster on their way to the watch, and its findings on their way to the
operator. What does not: what is worth one (``identity_watch``).
"""

from __future__ import annotations

import trio

from gossipd.daemon.alarms import Reports
from gossipd.daemon.identity_watch import IdentityFinding, IdentityWatch
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.runtime.look_interval import until_next_look
from membership import events as membership_events

LOOK_S = 5.0
CODES = ("E_IDENTITY_TWICE", "E_NAME_CONFLICT", "E_ADDRESS_CONFLICT")


class IdentityAlarms:
    """One per daemon, on the trio loop."""

    def __init__(self, directory: MemberDirectory, reports: Reports, watch: IdentityWatch) -> None:
        self.directory = directory
        self.reports = reports
        self.watch = watch
        self._shown: frozenset[IdentityFinding] = frozenset()
        self._revision = -1  # of the directory, at the last look

    def hear(self, event: membership_events.Event) -> None:
        """Whatever membership tells."""
        match event:
            case membership_events.MemberUp(member) | membership_events.MemberChanged(member):
                if member.record.node != self.directory.own:
                    self.watch.heard(member.record, trio.current_time())
            case membership_events.NameConflict(name, other, address):
                self.watch.conflict(name, other, address, trio.current_time())
            case membership_events.OwnRecordOutdone(ours, address):
                self.watch.outdone(ours, address, trio.current_time())

    async def run(self) -> None:
        """Never returns."""
        while True:
            self.look()
            await until_next_look(LOOK_S)

    def look(self) -> None:
        """Begin and end alarms. Of members that are as they were at the last look nothing is new, unless time decides:
        there may be 10,000 of them."""
        directory = self.directory
        if self._revision == directory.revision and self.watch.is_settled:
            return
        self._revision = directory.revision
        live, heard = (nodes | {directory.own} for nodes in (directory.live(), directory.answered()))
        found = frozenset(self.watch.look(directory.records, live, trio.current_time(), heard=heard))
        for code in CODES:
            before = {one for one in self._shown if one.code == code}
            after = {one for one in found if one.code == code}
            if before - after:
                self.reports.alarms.cured(code)
            for one in sorted(after if before - after else after - before, key=lambda one: one.sentence):
                self.reports.alarms.ring(code, one.sentence, of_others=True)
            for one in after - before:
                self.reports.audit.record(
                    "identity seen twice", subject=one.subject, by=code, code=code, reason=one.sentence
                )
        self._shown = found
