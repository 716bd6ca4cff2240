"""Which models the operator keeps on this host: no version that is pinned is evicted.

What lives here: the pins and their file, ``.pinned``, a line for each: ``NAME`` for the version that ``current`` leads
to, wherever it moves, or ``NAME@VERSION``. What does not: eviction (``eviction``), and the note of a rollback.

A name alone does not pin all its versions: nothing would ever be evicted then.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock

from gossipd.core.errors import LocalError
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.names import split_model
from gossipd.store.disk.disk import Disk, read_file, write_new_file
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.models import layout

PINS_MAX = 4096
_FILE_BYTES_MAX = 2 << 20  # a name has at most 257 bytes


class PinLimitError(LocalError):
    """As many pins as there may be. Fault: the operator. State: unchanged. Retry: after ``gossipd unpin``."""

    code = "E_PIN_LIMIT"


class Pins:
    """The pins of one store. Thread-safe."""

    def __init__(self, disk: Disk) -> None:
        """While the disk does not give the file, or it is damaged, all is pinned."""
        self._disk = disk
        self._lock = Lock()
        self._pins: tuple[str, ...] = ()
        self._is_lost = True
        with suppress(StoreUnreadableError):
            self.look()

    def look(self) -> None:
        """Read again what could not be read. Raises StoreUnreadableError: it still cannot."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        if self._is_lost:
            self._pins = _read(self._disk)
            self._is_lost = False

    def all(self) -> tuple[str, ...]:
        """``NAME`` or ``NAME@VERSION``, in the order in which they were pinned."""
        return self._pins

    def is_pinned(self, name: str, version: int, *, is_current: bool) -> bool:
        """Whether this version must stay."""
        return self._is_lost or f"{name}@{version}" in self._pins or (is_current and name in self._pins)

    def change(self, pin: str, *, is_undone: bool = False) -> bool:
        """Add or take away a pin, durably. Returns whether it changed anything. Raises PinLimitError,
        StoreUnreadableError: a file that was not read is not written over; OSError. Then nothing has changed."""
        with self._lock:
            self._look()
            if (pin in self._pins) is not is_undone:
                return False
            if is_undone:
                pins = tuple(one for one in self._pins if one != pin)
            elif len(self._pins) >= PINS_MAX:
                raise PinLimitError(f"{PINS_MAX} pins are the most; take some away with gossipd unpin")
            else:
                pins = (*self._pins, pin)
            write_new_file(self._disk, layout.PINS, "".join(f"{one}\n" for one in pins).encode())
            self._pins = pins
            return True


def _read(disk: Disk) -> tuple[str, ...]:
    """The pins that the disk has. Raises StoreUnreadableError."""
    try:
        text = read_file(disk, layout.PINS, bytes_max=_FILE_BYTES_MAX).decode()
        lines = text.splitlines()
        for line in lines:
            split_model(line)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unreadable(f"cannot be read ({error.strerror or error})") from None
    except (ManifestError, UnicodeDecodeError):
        raise _unreadable("is damaged") from None
    if text and not text.endswith("\n"):
        raise _unreadable("is cut short")
    return tuple(dict.fromkeys(lines))


def _unreadable(words: str) -> StoreUnreadableError:
    cure = "nothing is evicted until it is mended, or deleted, after which nothing is pinned"
    return StoreUnreadableError(f"{layout.PINS} in the store's directory {words}: {cure}")
