"""What membership asks this host about words from the network: the clock, and what a statement must be.

What lives here: the body of ``membership.host_rules.HostRules``. What does not: what a statement does once it is
believed (``deployment.dissemination``), and who may order what.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container

from gossipd.deployment.statement import EPOCH_MAX, Statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.manifest.errors import ManifestError
from membership.bounds import fits
from membership.events import PayloadKind
from membership.host_rules import Verdict
from membership.member import NODE_ID_BYTES

CLOCK_SLACK_S = 3600  # between two hosts' clocks
EPOCH_STEP = 1_000  # statements on one deployment that a host has missed


class GossipRules:
    """See HostRules. Boot numbers are seconds since 1970.

    Args:
        signers: keys that may sign statements, as known at each use.
    """

    def __init__(
        self, statements: StatementStore, signers: Container[bytes], *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._statements = statements
        self._signers = signers
        self._wall_clock = wall_clock

    def latest_boot(self) -> int:
        """See HostRules. A clock that is earlier than a manifest that was accepted is wrong."""
        return int(max(self._wall_clock(), self._statements.state.last_signed_s)) + CLOCK_SLACK_S

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        """See HostRules."""
        if kind is PayloadKind.PROGRESS:
            return Verdict(key[:NODE_ID_BYTES])
        try:
            statement = Statement.decode(payload)
        except ManifestError:
            return None
        if key != statement.deployment or version != statement.rank or not self._is_epoch_possible(statement):
            return None
        return Verdict(statement.signer, is_known=statement.signer in self._signers)

    def _is_epoch_possible(self, statement: Statement) -> bool:
        """Epochs count up by one, so those that the clock explains are more than enough for a host that is new."""
        known = self._statements.statement(statement.deployment)
        return fits(
            statement.epoch, known=known.epoch if known else 0, step=EPOCH_STEP, maximum=EPOCH_MAX,
            clock_bound=int(self._wall_clock()),
        )  # fmt: skip
