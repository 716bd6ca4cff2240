"""Events for readers (``gossipd events``): the closed table of their types, and the ring that keeps the latest.

What lives here: the fields of each type, numbers, and gaps. What does not: what makes an event (``daemon.event_feed``),
sending (``routes``). There is none for a chunk.

Ids count up by one within a boot of the daemon. A reader names the last one that it has, as ``BOOT:ID``; when what
follows is not all here any more, the first event that it gets is a ``gap``. Nothing is kept over a restart, which a
reader is told by a gap, too: after one it asks for the status.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeAlias

import msgspec

from gossipd.api.schema import Row

RING_MAX = 10_000


class MemberEvent(Row, frozen=True, kw_only=True, tag="member"):
    """``state``: up, suspect, down, left or forgotten."""

    name: str
    state: str
    rack: str = ""
    reason: str = ""


class DeploymentEvent(Row, frozen=True, kw_only=True, tag="deployment"):
    """Something was decided about a deployment on this host: ``what`` is the word of the audit log."""

    what: str
    deployment: str
    code: str = ""
    reason: str = ""


class HostStateEvent(Row, frozen=True, kw_only=True, tag="host-state"):
    """A host has told another state, or another reason that somebody must cure; ``reason`` is empty without one."""

    host: str
    deployment: str
    state: str
    reason: str = ""


class SeedEvent(Row, frozen=True, kw_only=True, tag="seed"):
    """This host reads storage for its rack from now on, or no more."""

    what: str
    term: int


class SourceEvent(Row, frozen=True, kw_only=True, tag="source"):
    """Storage gave this host trouble."""

    deployment: str
    code: str
    reason: str


class StoreStateEvent(Row, frozen=True, kw_only=True, tag="store"):
    """The store's condition, or what it evicted, lost or repaired."""

    what: str
    reason: str = ""


class ConfigEvent(Row, frozen=True, kw_only=True, tag="config"):
    """What a reload or an order has changed about this host."""

    what: str
    reason: str = ""


class SecurityEvent(Row, frozen=True, kw_only=True, tag="security"):
    """Somebody was refused or distrusted; ``subject`` is who."""

    what: str
    subject: str = ""
    reason: str = ""


class AlarmEvent(Row, frozen=True, kw_only=True, tag="alarm"):
    """``state``: begun or ended."""

    code: str
    state: str
    reason: str = ""


class GapEvent(Row, frozen=True, kw_only=True, tag="gap"):
    """What happened between the reader's last id and the next event is not known here."""

    after: str


Body: TypeAlias = (
    MemberEvent | DeploymentEvent | HostStateEvent | SeedEvent | SourceEvent | StoreStateEvent | ConfigEvent
    | SecurityEvent | AlarmEvent | GapEvent
)  # fmt: skip


class EventRow(Row, frozen=True, kw_only=True):
    """One event. ``id`` of a gap is that of the last event that is missing."""

    boot: int
    id: int
    at: str
    body: Body


class EventRing:
    """The latest ``RING_MAX`` events of this boot. Any thread may append and read."""

    def __init__(self, boot: int, *, rows_max: int = RING_MAX) -> None:
        self.boot = boot
        self._rows: deque[EventRow] = deque(maxlen=rows_max)
        self._last = 0
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The id of the latest; 0 before the first."""
        return self._last

    def append(self, body: Body, at: str) -> None:
        with self._lock:
            self._last += 1
            self._rows.append(EventRow(boot=self.boot, id=self._last, at=at, body=body))

    def since(self, boot: int | None, number: int, rows_max: int) -> list[EventRow]:
        """At most ``rows_max`` that come after that one, oldest first; ``boot`` None is everything that is kept."""
        with self._lock:
            is_ours = boot == self.boot and number <= self._last
            wanted = number if is_ours else 0
            kept = [row for row in self._rows if row.id > wanted][:rows_max]
            first = kept[0].id if kept else self._last + 1
            if boot is None or (is_ours and first == wanted + 1):
                return kept
            gap = GapEvent(after=f"{boot}:{number}")
            at = kept[0].at if kept else ""
            return [EventRow(boot=self.boot, id=first - 1, at=at, body=gap), *kept]


def parse_position(text: str) -> tuple[int, int]:
    """``BOOT:ID``. Raises ValueError."""
    boot, colon, number = text.partition(":")
    if not (colon and boot.isascii() and boot.isdecimal() and number.isascii() and number.isdecimal()):
        raise ValueError("must be BOOT:ID, two numbers")
    if len(boot) > 20 or len(number) > 20:
        raise ValueError("must be BOOT:ID, of at most twenty digits each")
    return int(boot), int(number)


def schema() -> dict[str, object]:
    """JSON Schema of an event, with every type."""
    described: dict[str, object] = msgspec.json.schema(EventRow)
    return described
