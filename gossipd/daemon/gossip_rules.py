"""What membership asks this host about words from the network: the clock, and what a statement must be.

What lives here: the body of ``membership.host_rules.HostRules``. What does not: the judgement of a statement
(``deployment.statement_rules``), and what it does once it is believed (``deployment.dissemination``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from gossipd.daemon.audit_gossip import HeadRules
from gossipd.daemon.roster import ClusterRoster
from gossipd.deployment.statement import Statement
from gossipd.deployment.statement_rules import check_issued, is_moot, judge_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.manifest.errors import ManifestError
from membership.events import PayloadKind
from membership.host_rules import Verdict
from membership.member import NODE_ID_BYTES

CLOCK_SLACK_S = 3600  # between two hosts' clocks


class Refusals(Protocol):
    """Where refused words are written down, so many of each member."""

    def word_refused(self, signer: bytes | None, code: str) -> None:
        """``signer`` has signed what is refused; None: nobody has."""


class GossipRules:
    """See HostRules. Boot numbers are seconds since 1970. Who may sign and cancel is asked at each use."""

    def __init__(
        self,
        statements: StatementStore,
        roster: ClusterRoster,
        heads: HeadRules,
        refusals: Refusals,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._statements = statements
        self._roster = roster
        self._heads = heads
        self._refusals = refusals
        self._wall_clock = wall_clock

    def latest_boot(self) -> int:
        """See HostRules. A clock that is earlier than a manifest that was accepted is wrong."""
        return int(max(self._wall_clock(), self._statements.state.last_signed_s)) + CLOCK_SLACK_S

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        """See HostRules."""
        if kind is PayloadKind.AUDIT:
            return self._heads.judge(key, version, payload)
        if kind is PayloadKind.PROGRESS:
            return Verdict(key[:NODE_ID_BYTES])
        try:
            statement = Statement.decode(payload)
        except ManifestError as error:
            self._refusals.word_refused(None, error.code)
            return None
        if key != statement.deployment or version != statement.rank:
            return None
        return self._judge_statement(statement)

    def _judge_statement(self, statement: Statement) -> Verdict | None:
        try:
            check_issued(statement, self._wall_clock())
            judge_statement(statement, self._statements, self._roster.signers, self._roster)
        except ManifestError as error:
            if error.code == "E_KEY_UNKNOWN":
                return Verdict(statement.signer, is_known=False)
            self._refusals.word_refused(statement.signer, error.code)
            return None
        return Verdict(statement.signer, is_known=not is_moot(statement, self._statements, self._roster))
