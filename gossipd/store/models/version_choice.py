"""Which version of a name ``current`` leads to: the newest complete one, unless something else was said.

What lives here: what was said, as a value, and its file. What does not: the link (``current_link``).

Two may say something, and neither word is lost when the other is taken back. The operator of this host rolls back: that
chooses the version before the current one, and judges only the versions that were complete then. Which versions are
avoided, because they were rolled back in the whole cluster or are trusted no longer, the deployment brain says, each
time for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

FILE_BYTES_MAX = 16_384
_AVOIDED_MAX = 500  # of 20 digits each; of more the highest are kept
_HEADER = "gossipd-pin 1"
_NOT_CHOSEN = "cluster"
_AVOIDED = "without "


class VersionChoice(Struct, frozen=True):
    """``chosen``: by the operator's roll back, until a version above ``above`` is complete. ``avoided``: versions."""

    chosen: int | None = None
    above: int = 0
    avoided: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        return self.chosen is None and not self.avoided

    def still_valid(self, shown: Sequence[int]) -> VersionChoice:
        """What still holds where these versions are complete, in ascending order. Where none is in sight, parts may be
        growing: all of it."""
        return self if not shown or shown[-1] <= self.above else VersionChoice(avoided=self.avoided)

    def without(self, version: int, others: Collection[int]) -> VersionChoice:
        """What still holds when this version was removed, and these others are left."""
        return replace(self, avoided=self.avoided - {version}) if others else VersionChoice()

    def pick(self, shown: Sequence[int], now: int | None, unfit: Collection[int] = ()) -> int:
        """One of ``shown``, at least one in ascending order. ``now``: the current one, which stays where all others are
        avoided. ``unfit``: versions that nothing is led to, but where nothing else is.
        """
        good = [one for one in shown if one not in self.avoided]
        if not good:
            return now if now is not None and now in shown else shown[-1]
        chosen = self.still_valid(shown).chosen
        before = [one for one in good if chosen is not None and one <= chosen]
        fit = [one for one in before or good if one not in unfit or one == now]
        return (fit or before or good)[-1]

    def to_bytes(self) -> bytes:
        """The file."""
        lines = [_HEADER, str(self.chosen or 0), str(self.above)]
        if self.chosen is None:
            lines.append(_NOT_CHOSEN)
        if self.avoided:
            lines.append(_AVOIDED + " ".join(str(one) for one in sorted(self.avoided)[-_AVOIDED_MAX:]))
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> VersionChoice:
        """Raises ValueError: it is no such file."""
        lines = body.decode().split("\n")
        if len(lines) < 3 or lines[0] != _HEADER or not all(line.isascii() and line.isdigit() for line in lines[1:3]):
            raise ValueError("not the file of a choice of versions")
        words = next((line for line in lines[3:] if line.startswith(_AVOIDED)), "").removeprefix(_AVOIDED).split()
        avoided = frozenset(int(word) for word in words if word.isascii() and word.isdigit())
        if _NOT_CHOSEN in lines[3:]:
            return cls(avoided=avoided)
        return cls(int(lines[1]), int(lines[2]), avoided)
