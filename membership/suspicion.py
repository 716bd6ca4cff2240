"""One suspicion: its accusers, and how long the subject has to contradict.

What lives here: a formula and a small value. What does not: timers, and what to do when the time is over (``judge``).

Theory. No node spreads verdicts. Accusations are spread, each signed by its accuser, and every node lets its own clock
run from when it heard of them. Two accusers in two living racks other than the subject's (as far as there are such
racks) make a *corroborated* suspicion, which lasts ``suspicion_s`` times a factor that falls to 1 as the accusers
become four (Lifeguard's decay, with K = 3); a lone accuser's lasts six times as long. So a member that is cut off, or
lies, cannot condemn another by itself, and a stale accusation that a healing network releases is answered by its
subject long before any clock runs out. A node that is slow itself (local health) waits up to four times as long,
because it may not have heard the answer yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from membership.member import Handle
from membership.settings import SwimSettings

ACCUSERS_MAX = 4  # more change nothing; each costs 94 B per member and crash
_CONFIRMED = 4


class Suspicion:
    """Mutable: gains accusers, and its deadline may come nearer."""

    __slots__ = ("accusers", "deadline", "incarnation", "is_asked", "is_firm", "racks", "since_s")

    def __init__(self, incarnation: int, now: float) -> None:
        self.incarnation = incarnation
        self.since_s = now
        self.deadline = float("inf")
        self.is_asked = False
        self.is_firm = False  # corroborated when last looked at
        self.accusers: dict[Handle, bytes] = {}
        self.racks: dict[Handle, str] = {}

    def add(self, accuser: Handle, rack: str, signed_item: bytes) -> None:
        """Another accuser with its signed accusation."""
        self.accusers[accuser] = signed_item
        self.racks[accuser] = rack

    def has_room_for(self, rack: str, subject_rack: str) -> bool:
        """Whether another accuser from ``rack`` can change anything; a useless accuser makes way for a useful one."""
        if len(self.accusers) < ACCUSERS_MAX:
            return True
        if rack == subject_rack or rack in self.racks.values():
            return False
        seen: set[str] = {subject_rack}
        for accuser, known in self.racks.items():
            if known in seen:
                del self.racks[accuser], self.accusers[accuser]
                return True
            seen.add(known)
        return False

    def is_corroborated(self, subject_rack: str, live_racks: Mapping[str, int]) -> bool:
        """Whether there are enough accusers, far enough apart."""
        if len(self.accusers) < 2:
            return False
        others = len(live_racks) - (subject_rack in live_racks)
        seen = {rack for rack in self.racks.values() if rack != subject_rack and rack in live_racks}
        return len(seen) >= min(2, others)

    def wait_s(self, settings: SwimSettings, members: int, subject_rack: str, live_racks: Mapping[str, int]) -> float:
        """Seconds from the start of the suspicion to the verdict."""
        base = settings.suspicion_s(members)
        self.is_firm = self.is_corroborated(subject_rack, live_racks)
        if not settings.corroborate:
            return base
        if not self.is_firm:
            return base * settings.suspicion_lone_factor
        missing = max(0, _CONFIRMED - len(self.accusers)) / (_CONFIRMED - 2)
        return base * (1 + (settings.suspicion_pair_factor - 1) * missing)


class Credit:
    """How often each accuser was contradicted lately; one that was contradicted too often is not believed for a while.
    A score falls by half in 30 s. Above 4 an accuser counts no more: a healthy member at 5 % loss is contradicted less
    than once an hour, a liar, or a member behind a half-broken cable, several times a minute. Bounded."""

    _HALF_LIFE_S = 30.0
    _LIMIT = 4.0
    _ACCUSERS_MAX = 4096

    def __init__(self) -> None:
        self._scores: dict[Handle, tuple[float, float]] = {}

    def contradicted(self, accuser: Handle, now: float) -> None:
        """The living subject answered this accuser's accusation in time."""
        self._scores[accuser] = (self._score(accuser, now) + 1, now)
        if len(self._scores) > self._ACCUSERS_MAX:
            del self._scores[next(iter(self._scores))]

    def is_believed(self, accuser: Handle, now: float) -> bool:
        """Whether its accusations count."""
        return accuser not in self._scores or self._score(accuser, now) <= self._LIMIT

    def _score(self, accuser: Handle, now: float) -> float:
        score, at = self._scores.get(accuser, (0.0, now))
        return score * float(0.5 ** ((now - at) / self._HALF_LIFE_S))
