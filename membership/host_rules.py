"""What the host knows and the brain does not: the wall clock, and what application events mean.

What lives here: the port, and the rules of a host that has none. What does not: any rule about members.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from membership.events import PayloadKind
from membership.member import NODE_ID_BYTES
from membership.record import BOOT_MAX


class Verdict(Struct, frozen=True):
    """An event that its writer may say. ``writer`` has signed it; its quota counts by that name.

    ``is_known``: the writer belongs here. While it does not, the event is kept back, neither acted on nor passed on.
    """

    writer: bytes
    is_known: bool = True
    is_over: bool = False
    """The host needs it no more: it is not kept, not passed on, and nobody's fault."""
    is_too_much: bool = False
    """The writer has said too much lately: the event was not looked at, and may be heard again later. Nobody who brings
    it is to blame. An event that the host itself publishes counts all the same."""


class HostRules(Protocol):
    """Asked at each use; answers at once, and may change its mind when members come and go."""

    def latest_boot(self) -> int:
        """The highest boot number that the wall clock explains: a life that begins an hour from now."""
        ...

    def named_writer(self, key: bytes, statement: bytes) -> bytes:
        """The writer that a statement names, which need not have signed it; the same name as in its verdict."""
        ...

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        """Who wrote an event; None when it is forged, out of bounds, or its writer may never say it."""
        ...

    def told_twice(self, kind: PayloadKind, key: bytes, version: int, known: bytes, other: bytes) -> bool:
        """Of one version ``other`` has come where ``known`` was believed: False when it is forged. A writer that has
        signed both tells two hosts two things; the host may write that down, and believes the first."""
        ...


class LenientRules:
    """No clock, and every event is its writer's: of progress the host whose id begins the key."""

    def latest_boot(self) -> int:
        return BOOT_MAX

    def named_writer(self, key: bytes, statement: bytes) -> bytes:
        return key[:NODE_ID_BYTES]

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        return Verdict(key[:NODE_ID_BYTES])

    def told_twice(self, kind: PayloadKind, key: bytes, version: int, known: bytes, other: bytes) -> bool:
        return True
