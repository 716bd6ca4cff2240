"""Which host reads storage that sends objects only whole, from their beginning.

What lives here: whose turn it is, from what is heard. What does not: that storage is such a one (``sources``), and what
is read next (``source_read_planner``).

Every reader that begins costs all bytes before the first that is missing. So one reads, in the model's order, one run
at a time, and goes on as long as it makes progress. Another begins when nobody has said for a while that it reads: the
first of the line after ``wait_s``, the next after twice as much. The same where the last reader is out of reach: a
connection that breaks is back within that time, and a host that has gone costs no more than it. A reader that says it
reads is believed as long as the whole object may take, because after a break it drops bytes for hours; its adapter ends
a read that is silent, and membership a host. One that lies delays the others by that time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from membership.member import NodeId


class ReadingTurn:
    """Of one deployment, since ``now``."""

    def __init__(self, now: float) -> None:
        self._last: NodeId | None = None
        self._since = now

    def heard(self, reader: NodeId, now: float) -> None:
        """A source reader reads, has just ended a read, or read until it was out of reach."""
        self._last, self._since = reader, now

    def kept_first(
        self, lines: tuple[tuple[NodeId, ...], ...], heard: Collection[NodeId]
    ) -> tuple[tuple[NodeId, ...], ...]:
        """The readers' lines with the last reader first, elected or not, if it is one of those that are heard: another
        would begin at the first byte."""
        last = self._last
        if last is None or last not in heard:
            return lines
        return tuple((last, *(node for node in line if node != last)) for line in lines)

    def is_mine(self, own: NodeId, line: Sequence[NodeId], now: float, wait_s: float) -> bool:
        """Whether this host may begin a read, when no other says that it reads."""
        if self._last is None:
            place = line.index(own)
        elif own == self._last:
            place = 0
        else:
            place = 1 + [node for node in line if node != self._last].index(own)
        return now - self._since >= place * wait_s
