"""Alarms for the operator, by code, and bugs that stop the daemon.

What lives here: the two collections and their bundle with the audit log. What does not: what is worth a report.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import trio
from msgspec import Struct, field

from gossipd.api.schema import AlarmRow
from gossipd.audit.log import AuditLog
from gossipd.core.units import printable, timestamp
from gossipd.daemon.member_directory import MemberDirectory
from membership.member import node_id

ALARMS_MAX = 64
NOT_A_TARGET = "not a target refused"  # of chunks on the bulk port, of holdings on the control port


class Alarms(Struct):
    """What an operator must act on; the same code and sentence is one alarm, recorded when it begins."""

    audit: AuditLog
    ended: Callable[[str, str], None] = lambda code, sentence: None
    """Told of the code and sentence of an alarm that ends."""
    rows: dict[tuple[str, str], AlarmRow] = field(default_factory=dict)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    """One for each beginning: an alarm that goes on in other words keeps it."""
    begun: int = 0
    """How many have begun."""

    def ring(self, code: str, sentence: str, *, of_others: bool = False) -> None:
        """Begin to show it, if it is not shown. ``of_others``: other hosts' words bring it about, and may bring ever
        new sentences: some of that code are written down, further ones counted."""
        sentence = printable(sentence)
        if (code, sentence) in self.rows:
            return
        if len(self.rows) >= ALARMS_MAX:
            most = Counter(known for known, _ in self.rows).most_common(1)[0][0]
            self._forget(next(row for row in self.rows if row[0] == most))
        self.begun += 1
        self.numbers[code, sentence] = self.begun
        self.rows[code, sentence] = AlarmRow(code=code, sentence=sentence, since=timestamp(time.time()) or "")
        bound = {"subject": code} if of_others else {}
        self.audit.record("alarm", code=code, reason=sentence, **bound)

    def ring_as(self, code: str, sentence: str) -> None:
        """Like ``ring``, where only one sentence of this code holds at a time."""
        sentence = printable(sentence)
        before = [row for row in self.rows.values() if row.code == code and row.sentence != sentence]
        numbers = [self.numbers[row.code, row.sentence] for row in before]
        is_known = (code, sentence) in self.rows
        self._end(before)
        self.ring(code, sentence)
        if numbers and not is_known:
            self.numbers[code, sentence] = numbers[0]

    def cured(self, code: str) -> None:
        """Nothing of this code is wrong any more."""
        self._end([row for row in self.rows.values() if row.code == code])

    def _forget(self, key: tuple[str, str]) -> None:
        del self.rows[key], self.numbers[key]

    def _end(self, rows: list[AlarmRow]) -> None:
        for row in rows:
            self._forget((row.code, row.sentence))
            self.ended(row.code, row.sentence)


class BugTrap:
    """Errors that cannot happen. The first one stops the daemon, with everything verified kept."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._errors: list[BaseException] = []
        self._found = trio.Event()

    def report(self, error: BaseException) -> None:
        """From any thread."""
        self._errors.append(error)
        self._token.run_sync_soon(self._found.set)

    async def run(self) -> None:
        """Never returns: raises when a bug was reported."""
        await self._found.wait()
        raise AssertionError("a worker thread met what it should not have") from self._errors[0]


class Reports(Struct, frozen=True):
    """One per daemon."""

    audit: AuditLog
    alarms: Alarms
    bugs: BugTrap


class WordRefusals(Struct, frozen=True):
    """Statements that gossip brings and nobody may say, in the audit log: some of each member, and of all others."""

    audit: AuditLog
    directory: MemberDirectory

    def word_refused(self, signer: bytes | None, code: str) -> None:
        """See ``gossip_rules.Refusals``."""
        record = None if signer is None else self.directory.record(node_id(signer))
        name, by = ("no member", "") if record is None else (record.name, record.node.hex())
        self.audit.record("statement refused", subject=name, by=by, code=code)
