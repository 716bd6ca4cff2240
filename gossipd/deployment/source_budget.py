"""How much of a deployment the cluster may read from external storage, in bytes and in money.

What lives here: the budget, what is spent of it, whether a read fits, and whether it waits. What does not: reading
(``daemon.planner_executor``, which asks before each read), and the counters (``progress_table``).

What is spent is the sum of what all hosts have told to have read, forgotten ones and earlier runs among them, of what
this host has read since it told, and of its reads that are under way. Other seeds are taken to have read as much since
they told: where that would not fit, a read waits until this host has told, and they. So the budget is passed only by
what others read between their words and the hearing of them. Rejected: a share of the budget for each seed, which would
strand the shares of seeds that die.

The word of another host counts up to the size of the model. A host reads no chunk twice, unless it has lost it; and a
number without a bound, told once by one liar, would hold the reads of all hosts for ever, since counters never fall.
"""

from __future__ import annotations

import re

from msgspec import Struct

from gossipd.core.units import parse_bytes, show_bytes
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import BUDGET_BYTES_MAX, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

GB = 1_000_000_000  # what storage vendors charge by
_READERS_MAX = 64  # beside a thousand false seeds a host would read one chunk each time that it has told
_MONEY = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,4})?", re.ASCII)


class SourceBudget(Struct, frozen=True):
    """For each deployment. 0 is no limit; ``money`` is in the currency of ``money_per_gb``; ``ordered_bytes``: given
    with the deployment."""

    bytes_max: int = 0
    money: float = 0.0
    money_per_gb: float = 0.0
    ordered_bytes: int = 0

    @property
    def limit_bytes(self) -> int | None:
        """The lowest, in bytes; None without any."""
        limits = [one for one in (self.bytes_max, self.ordered_bytes) if one]
        if self.money and self.money_per_gb:
            limits.append(int(self.money / self.money_per_gb * GB))
        return min(limits, default=None)


class Spent(Struct, frozen=True):
    """What was read of a deployment from storage, as far as one host knows. ``told_bytes``: by all hosts.
    ``since_bytes``: by this one since it told. ``under_way_bytes``: of its reads that have not ended."""

    told_bytes: int
    since_bytes: int
    under_way_bytes: int = 0

    @property
    def untold_bytes(self) -> int:
        """What other hosts do not know."""
        return self.since_bytes + self.under_way_bytes

    @property
    def total_bytes(self) -> int:
        return self.told_bytes + self.untold_bytes

    def must_wait(self, limit_bytes: int, wanted_bytes: int, readers: int) -> bool:
        """Whether so many more bytes would not fit if each of the ``readers`` had as much untold; never when this
        host has nothing untold. They are members' words, so more than ``_READERS_MAX`` slow nobody down."""
        others_too = (self.untold_bytes + wanted_bytes) * min(readers, _READERS_MAX)
        return self.untold_bytes > 0 and others_too > limit_bytes - self.told_bytes


def spent(table: ClusterProgress, record: DeploymentRecord, own: NodeId, under_way_bytes: int = 0) -> Spent:
    """What all hosts have read of it from storage, as far as this one knows."""
    key = progress_key(record.id)
    told = table.host(own, key)
    since = record.counters.source_bytes - (told.progress.source_bytes if told is not None else 0)
    each_max = BUDGET_BYTES_MAX if record.manifest is None else record.manifest.bytes_total
    return Spent(table.source_bytes(key, own=own, each_max=each_max), max(0, since), under_way_bytes)


def why_held(budget: SourceBudget, spent: int, wanted: int) -> str | None:
    """Why ``wanted`` more bytes may not be read, in words; None when they may."""
    limit = budget.limit_bytes
    if limit is None or spent + wanted <= limit:
        return None
    words = f"{show_bytes(spent)} of {show_bytes(limit)} are read"
    if budget.money and budget.money_per_gb and limit not in (budget.bytes_max, budget.ordered_bytes):
        words += f", {spent / GB * budget.money_per_gb:.2f} of {budget.money:.2f} in money"
    is_ordered = limit == budget.ordered_bytes
    cure = "deploy it again with a higher --budget" if is_ordered else "raise it on every host, then reload"
    return f"the budget of this deployment is spent: {words}; {cure}"


def parse_budget(text: str, money_per_gb: float) -> int:
    """Bytes of a budget as a person writes it: ``600GB``, an amount of money such as ``50`` or ``12.50``, or ``none``,
    which is 0. Raises ValueError: the text, or money without a price."""
    if text.strip() == "none":
        return 0
    if _MONEY.fullmatch(text.strip()):
        if not money_per_gb:
            raise ValueError(f"{text!r} without a unit is money, and this host has no sources.money_per_gb")
        limit = int(float(text) / money_per_gb * GB)
    else:
        try:
            limit = parse_bytes(text)
        except ValueError as error:
            raise ValueError(f"{error}, nor an amount of money such as 50, nor none") from None
    if not 1 <= limit <= BUDGET_BYTES_MAX:
        raise ValueError(f"{text!r} is not between 1 byte and 256 TiB; none takes the budget away")
    return limit
