"""Why no chunk has come for a while, in one word for status.

What lives here: recent failures and the choice among reasons. Causes at home come before causes abroad: a full disk
also makes peers look busy.
"""

from __future__ import annotations

from gossipd.core.events import FailReason, StallReason

_HOME = {FailReason.DISK: StallReason.DISK, FailReason.CORRUPT: StallReason.VERIFICATION}


class StallWatch:
    """Watches one deployment."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._last: dict[StallReason, float] = {}
        self.reported: StallReason | None = None

    def failed(self, reason: FailReason, now: float) -> None:
        """A fetch or read ended without a chunk."""
        if reason in _HOME:
            self._last[_HOME[reason]] = now
        elif reason is FailReason.SOURCE:
            self._last[StallReason.STORAGE] = now

    def judge(self, *, progress_s: float, now: float, alone: bool, holders: bool, readers: bool) -> StallReason | None:
        """The reason, or None while chunks come.

        Args:
            progress_s: when the last chunk came.
            alone: no peer is usable though there should be some, or reading waits for the view to settle.
            holders: some peer holds something that we want.
            readers: somebody may read storage.
        """
        if now - progress_s < self._stall_s:
            return None
        for reason in (StallReason.DISK, StallReason.VERIFICATION):
            if now - self._last.get(reason, -1e9) <= 4 * self._stall_s:
                return reason
        if holders:
            return StallReason.ALL_BUSY
        if now - self._last.get(StallReason.STORAGE, -1e9) <= 30.0 or not readers:
            return StallReason.STORAGE
        return StallReason.MEMBERSHIP if alone else StallReason.NO_HOLDER
