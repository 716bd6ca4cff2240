"""Which words from the network membership may believe and pass on: clocks, statements, records of progress.

What lives here: the body of ``membership.host_rules.HostRules``. What does not: the judgement of a statement
(``deployment.statement_rules``) and of progress (``deployment.signed_progress``), and what either does once it is
believed (``deployment.dissemination``, ``progress_publisher``).
"""

from __future__ import annotations

import time
from typing import Protocol

from gossipd.core.ids import DeploymentId
from gossipd.core.timing import CLOCKS_APART_MAX_S
from gossipd.daemon.audit_gossip import HeadRules
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.progress_record import refresh_interval_s
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_progress import Belief, ProgressJudge, ProgressKey
from gossipd.deployment.statement import Statement, Verb, same_word, signer_of, verb_of
from gossipd.deployment.statement_rules import check_issued, is_moot, judge_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.manifest.errors import ManifestError
from gossipd.runtime.quotas import Quotas
from membership.event_store import WRITERS_SHARE
from membership.events import PayloadKind
from membership.host_rules import Verdict
from membership.member import NODE_ID_BYTES, NodeId
from membership.settings import SwimSettings

# Records of one host: far more than deployments that change at once, and far less than what would crowd out the records
# of others. In large clusters, where all have less room, fewer.
PROGRESS_PER_S, PROGRESS_BURST = 16.0, 256.0
_PROGRESS_FULL_S = 5.0
# New statements of one signer: as many as may be under way at once, then more than a host can deploy in a second. A
# host that has just started is told all at once that the others keep of each signer's.
STATEMENTS_PER_S, STATEMENTS_BURST = 16.0, 64.0
STATEMENTS_FIRST_S = 30.0
STATEMENTS_FIRST_BURST = float(SwimSettings().statement_count_max // WRITERS_SHARE)
TWO_WORDS = "E_TWO_WORDS"


def progress_quotas(share: float = 1.0) -> Quotas[bytes]:
    """How much progress each host may tell, or a share of that."""
    return Quotas(burst=share * PROGRESS_BURST, per_s=share * PROGRESS_PER_S)


def progress_amount(hosts: int) -> float:
    """What one record costs of it in a cluster of so many hosts."""
    return max(1.0, refresh_interval_s(hosts) / _PROGRESS_FULL_S)


class Clocks(Protocol):
    """What time it is."""

    def wall_s(self) -> float:
        """Seconds since 1970."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""


class SystemClocks:
    """The machine's own."""

    def wall_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()


class Refusals(Protocol):
    """Where refused words are written down, so many of each member."""

    def word_refused(self, signer: bytes | None, code: str) -> None:
        """``signer`` has signed what is refused; None: nobody has."""


class GossipRules:
    """See HostRules. Boot numbers are seconds since 1970. Who may sign and cancel is asked at each use."""

    def __init__(
        self, statements: StatementStore, roster: ClusterRoster, progress: ClusterProgress, heads: HeadRules,
        refusals: Refusals, *, clocks: Clocks | None = None, cluster_clock: ClusterClock | None = None,
    ) -> None:  # fmt: skip
        self._statements = statements
        self._roster = roster
        self._heads = heads
        self._refusals = refusals
        self._table = progress
        self._progress = ProgressJudge(roster, progress)
        self._progress_quotas = progress_quotas()
        self._first_quotas: Quotas[tuple[bytes, str]] = Quotas(burst=STATEMENTS_FIRST_BURST, per_s=STATEMENTS_PER_S)
        self._statement_quotas: Quotas[tuple[bytes, str]] = Quotas(burst=STATEMENTS_BURST, per_s=STATEMENTS_PER_S)
        self._clocks = clocks or SystemClocks()
        self._cluster_clock = cluster_clock or ClusterClock()
        self._first_until_s = self._clocks.monotonic_s() + STATEMENTS_FIRST_S

    def latest_boot(self) -> int:
        """See HostRules. A clock that is earlier than a manifest that was accepted is wrong."""
        return int(self._latest_s()) + CLOCKS_APART_MAX_S

    def _latest_s(self) -> float:
        return max(self._cluster_clock.latest_s(self._clocks.wall_s()), self._statements.state.last_signed_s)

    def named_writer(self, key: bytes, statement: bytes) -> bytes:
        """See HostRules."""
        return signer_of(statement)

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        """See HostRules."""
        if kind is PayloadKind.AUDIT:
            return self._heads.judge(key, version, payload)
        if kind is PayloadKind.PROGRESS:
            return self._judge_progress(key, version, payload)
        if self._statements.is_superseded(DeploymentId(key)):
            return Verdict(signer_of(payload), is_over=True)
        quota, now = self._quota(DeploymentId(key), payload), self._clocks.monotonic_s()
        quotas = self._first_quotas if now < self._first_until_s else self._statement_quotas
        if not quotas.has(quota, now):
            return Verdict(signer_of(payload), is_too_much=True)
        verdict = self._judge_statement(key, version, payload)
        if verdict is not None:
            quotas.take(quota, now)
        return verdict

    def told_twice(self, kind: PayloadKind, key: bytes, version: int, known: bytes, other: bytes) -> bool:
        """See HostRules. Two statements of one rank that differ in their time or signer say the same: a client may
        trigger two hosts."""
        if kind is PayloadKind.STATEMENT and same_word(known, other):
            return True
        verdict = self.judge(kind, key, version, other)
        if verdict is None or not verdict.is_known or verdict.is_too_much or verdict.is_over:
            return verdict is not None
        if kind is PayloadKind.PROGRESS:
            writer = self._roster.progress_writer(NodeId(verdict.writer))
            self._refusals.word_refused(None if writer is None else writer.public_key, TWO_WORDS)
        elif verdict.writer == signer_of(known):
            self._refusals.word_refused(verdict.writer, TWO_WORDS)
        return True

    def _quota(self, deployment: DeploymentId, payload: bytes) -> tuple[bytes, str]:
        """Against what a statement counts when its signer has signed it; what is beyond a bound is not looked at.

        What is not kept can be said again by anybody, so it must not use up what its signer has for that which counts:
        words on manifests that were verified here, deploys of others, and whatever else is said of others have a bound
        each. Keys that may sign nothing have one together: anybody can make thousands.
        """
        signer, is_deploy = signer_of(payload), verb_of(payload) is Verb.DEPLOY
        is_proven = self._statements.is_proven(deployment)
        is_open = not is_deploy and self._statements.deployer(deployment) is None  # as ``is_moot`` says
        about = "proven" if is_proven and not is_open else "deploy" if is_deploy else "moot"
        may_sign = signer in self._roster.signers or signer == self._statements.authors(deployment).publisher
        return (signer if may_sign else b""), about

    def _judge_statement(self, key: bytes, version: int, payload: bytes) -> Verdict | None:
        try:
            statement = Statement.decode(payload)
        except ManifestError as error:
            self._refusals.word_refused(None, error.code)
            return None
        if key != statement.deployment or version != statement.rank:
            return None
        try:
            check_issued(statement, self._cluster_clock.latest_s(self._clocks.wall_s()))
            moot = is_moot(statement, self._statements, self._roster)
            if moot:
                self._statements.judge(statement, self._roster.signers)
            else:
                judge_statement(statement, self._statements, self._roster.signers, self._roster)
        except ManifestError as error:
            if error.code == "E_KEY_UNKNOWN":
                return Verdict(statement.signer, is_known=False)
            self._refusals.word_refused(statement.signer, error.code)
            return None
        return Verdict(statement.signer, is_known=not moot)

    def _judge_progress(self, key: bytes, version: int, payload: bytes) -> Verdict | None:
        """Only what a writer has signed counts against its bound; what is beyond it is not looked at."""
        writer, now = NodeId(key[:NODE_ID_BYTES]), self._clocks.monotonic_s()
        amount = progress_amount(self._roster.host_count)
        is_own = writer == self._roster.own
        if not is_own and not self._progress_quotas.has(writer, now, amount):
            return Verdict(writer, is_known=False)
        belief = self._progress.judge(key, version, payload, self._latest_s())
        if belief is Belief.NO and version / 1000 > self._latest_s():
            self._note_clock(self._progress.told_s(key, version, payload))
        if belief is Belief.YES and ProgressKey.decode(key).is_signed and version > self._table.latest_version(writer):
            self._note_clock((writer, version / 1000))  # an old one, sent again, tells what the time was
        if belief is Belief.YES and not is_own:
            self._progress_quotas.take(writer, now, amount)
        return None if belief is Belief.NO else Verdict(writer, is_known=belief is Belief.YES)

    def _note_clock(self, told: tuple[NodeId, float] | None) -> None:
        if told is not None and told[0] != self._roster.own:
            self._cluster_clock.heard(*told, self._clocks.monotonic_s())
