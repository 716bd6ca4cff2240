"""Budgets for reads of storage that were ordered with a deployment, beside those of the configuration.

What lives here: the latest order for each deployment, and their bytes for the disk. What does not: who may order
(``identity.cancel_rights``, asked in ``daemon.budget_orders`` for this host, in ``followed_budgets`` for others), and
whether a read fits (``source_budget``).

The host where it was ordered tells it in its progress record, so it comes with what all hosts hear anyway, and hosts
that know no budgets skip it. Every host keeps what it has heard, so that a budget outlives the host that tells it.
Rejected: a budget in the manifest, which only its publisher can change.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from gossipd.core.errors import ExitCode, LocalError
from gossipd.deployment.progress_record import BUDGET_BYTES_MAX, KEY_BYTES, Budget

ORDERS_MAX = 1_024  # deployments; the oldest order gives way


_CURE = "; move it away, then order the budgets of deployments again (gossipd deploy --budget)"


class OrderedBudgetsError(LocalError):
    """The file of ordered budgets cannot be read. Fault: this host's disk. State: unchanged. Retry: when the file was
    moved away; without it this host might read more than was allowed."""

    code = "E_BUDGETS"
    exit_code = ExitCode.VERIFICATION


class _Row(msgspec.Struct, array_like=True):
    """On the disk."""

    key: bytes
    ordered_ms: int
    bytes_max: int
    is_own: bool
    signer: bytes = b""
    signature: bytes = b""


class OrderedBudgets(Struct):
    """By the key of progress records. ``own``: those that were ordered on this host."""

    latest: dict[bytes, Budget] = field(default_factory=dict)
    own: set[bytes] = field(default_factory=set)
    revision: int = 0
    """Grows with each change."""

    def is_news(self, key: bytes, budget: Budget) -> bool:
        """Whether no later order is known."""
        known = self.latest.get(key)
        return known is None or known.ordered_ms < budget.ordered_ms

    def take(self, key: bytes, budget: Budget, *, is_own: bool) -> None:
        """Follow an order, unless a later one is known."""
        if not self.is_news(key, budget):
            return
        self.latest[key] = budget
        (self.own.add if is_own else self.own.discard)(key)
        self.revision += 1
        while len(self.latest) > ORDERS_MAX:
            oldest = min(self.latest, key=lambda one: self.latest[one].ordered_ms)
            del self.latest[oldest]
            self.own.discard(oldest)

    def drop(self, key: bytes) -> None:
        """Follow no order for it."""
        self.restore(key, (None, False))

    def snapshot(self, key: bytes) -> tuple[Budget | None, bool]:
        """The budget of one deployment as it is now, for ``restore``."""
        return self.latest.get(key), key in self.own

    def restore(self, key: bytes, before: tuple[Budget | None, bool]) -> None:
        """Put back what ``snapshot`` gave, as if no order had been given since."""
        budget, is_own = before
        self.latest.pop(key, None)
        self.own.discard(key)
        if budget is not None:
            self.latest[key] = budget
            self.own |= {key} if is_own else set()
        self.revision += 1

    def limit_bytes(self, key: bytes) -> int:
        """What may be read of it; 0 is no limit."""
        budget = self.latest.get(key)
        return 0 if budget is None else budget.bytes_max

    def told(self, key: bytes) -> Budget | None:
        """What this host is to tell of it."""
        return self.latest.get(key) if key in self.own else None

    def to_bytes(self) -> bytes:
        """The budgets for the disk."""
        rows = [
            _Row(key, one.ordered_ms, one.bytes_max, key in self.own, one.signer, one.signature)
            for key, one in self.latest.items()
        ]
        return msgspec.msgpack.encode(rows)

    @classmethod
    def from_bytes(cls, kept: bytes) -> OrderedBudgets:
        """Raises OrderedBudgetsError."""
        try:
            rows = msgspec.msgpack.decode(kept, type=list[_Row])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise OrderedBudgetsError(f"state/budgets cannot be read: {error}{_CURE}") from None
        found = cls()
        for row in rows:
            is_sound = len(row.key) == KEY_BYTES and (len(row.signer), len(row.signature)) in ((0, 0), (32, 64))
            if not is_sound or not 0 < row.ordered_ms < 2**63 or not 0 <= row.bytes_max <= BUDGET_BYTES_MAX:
                raise OrderedBudgetsError(f"state/budgets cannot be read: a number is out of bounds{_CURE}")
            budget = Budget(row.ordered_ms, row.bytes_max, row.signer, row.signature)
            found.take(row.key, budget, is_own=row.is_own)
        return found
