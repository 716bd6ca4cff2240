"""Where ``current`` of each name led at the last look.

What lives here: the look, and what it found. What does not: the link (``current_link``), and when it is looked at:
after each change by the store itself (``models``), and now and then, because an operator may move it
(``daemon.store_watch``).

The event loop asks for each record that it publishes and for each status. A disk that hangs, as one of a server that is
away, must not hold it up, so it is told what is remembered. Rejected: asking the disk in a thread for each, because the
disk that hangs would take a thread each time.
"""

from __future__ import annotations

from gossipd.store.disk.disk import Disk
from gossipd.store.models.current_link import CurrentLink


class KnownLinks:
    """One per store. Callers of ``look`` take turns; any thread may ask, and waits for nothing."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._found: dict[str, int | OSError] = {}
        """By name; of one whose link leads to no version nothing."""

    def look(self, name: str) -> None:
        """Remember where the link leads now, or that the disk does not tell."""
        try:
            found: int | OSError | None = CurrentLink(self._disk, name).version()
        except OSError as error:
            found = _plain(error)
        if found is None:
            self._found.pop(name, None)
        else:
            self._found[name] = found

    def names(self) -> set[str]:
        """Those of which something is remembered."""
        return set(self._found)

    def version(self, name: str) -> int | None:
        """Where the link led; None when that was no version. Raises OSError: the disk did not tell."""
        found = self._found.get(name)
        if isinstance(found, OSError):
            raise _plain(found)
        return found


def _plain(error: OSError) -> OSError:
    """The same, without the calls that led to it, which a kept error would keep."""
    return OSError(error.errno, error.strerror or str(error), error.filename)
