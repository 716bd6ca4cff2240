"""Whether this node hears enough of the others to judge any of them.

Two measures over our own probes: did *anything* answer lately (else this node is cut off), and did the members outside
our rack mostly answer (else a group may be cut off together and hear only itself). The second needs several silent
members, so that one dead host in a small other rack does not silence a whole rack.
"""

from __future__ import annotations

from collections import deque

from membership.member import Handle

_LOOK_BACK = 64  # outcomes kept; at two probes a second more than any suspicion lasts


class Isolation:
    """Outcomes of our probes of members outside our rack, and how many in a row nobody answered."""

    def __init__(self, share: float, window: int, subjects_min: int) -> None:
        self._failed_share_max = share
        self._window = window
        self._subjects_min = subjects_min
        self._outside: deque[tuple[float, Handle, bool]] = deque(maxlen=_LOOK_BACK)
        self.silent = 0

    def answered(self) -> None:
        """A probe of ours was answered: by an ack, or by a helper's nack."""
        self.silent = 0

    def note_outside(self, now: float, subject: Handle, *, answered: bool) -> None:
        """The outcome of a probe of a member outside our rack."""
        self._outside.append((now, subject, answered))

    def note_silence(self) -> None:
        """Neither subject nor helpers answered a probe."""
        self.silent += 1

    def clear(self) -> None:
        """Past outcomes say nothing any more, because this node was stopped."""
        self._outside.clear()
        self.silent = 0

    def hears_nobody(self) -> bool:
        """Two probes in a row without any answer."""
        return self.silent >= 2

    def hears_only_own_rack(self) -> bool:
        """Most of the latest probes outside our rack failed."""
        return self._mostly_failed(list(self._outside)[-self._window :], self._failed_share_max)

    def failed_mostly_since(self, since: float) -> bool:
        """More than half of the probes outside our rack since then failed."""
        return self._mostly_failed([row for row in self._outside if row[0] >= since], 0.5000001)

    def _mostly_failed(self, rows: list[tuple[float, Handle, bool]], share: float) -> bool:
        silent = [subject for _, subject, answered in rows if not answered]
        return len(silent) >= share * len(rows) and len(set(silent)) >= self._subjects_min
