"""What a node says on its member record beside names and addresses: may it read storage, does it claim to be a seed,
does it sign its progress, what is it configured with.

What lives here: the application payload of the record: version (1), flags, seed term (u32, big-endian), and prints of
what should be the same on all hosts, if it tells any (``config.prints``), then a byte of free space. What does not: the
record. Of a payload of a newer version these fields are read; one under six bytes says nothing. Hosts of 0.1.0 read the
first six bytes.

The byte of free space: 0 for not told, else one more than the quarters of an octave above 1 MiB.
"""

from __future__ import annotations

import math
from functools import lru_cache

from msgspec import Struct

CAPABILITIES_VERSION = 1
SEED_TERM_MAX = 2**32 - 1
_BYTES = 6
PRINTS_BYTES = 20
_LEAST_FREE, _STEPS_PER_OCTAVE = 1 << 20, 4
_CAN_READ, _IN_CLEAR, _SIGNS_PROGRESS = 1, 2, 4


class NodeCapabilities(Struct, frozen=True):
    """``seed_term`` 0: no claim to be a seed. ``in_clear``: the node's bulk connections are not encrypted.
    ``signs_progress``: it tells its progress signed, and unsigned records of it may be anybody's."""

    can_read_sources: bool = False
    seed_term: int = 0
    in_clear: bool = False
    signs_progress: bool = False
    prints: bytes = b""
    free_step: int = 0
    """Room for models; told with prints only."""

    def to_bytes(self) -> bytes:
        """The record's payload."""
        flags = _CAN_READ * self.can_read_sources | _IN_CLEAR * self.in_clear
        flags |= _SIGNS_PROGRESS * self.signs_progress
        more = self.prints + bytes([self.free_step]) * bool(self.prints and self.free_step)
        return bytes([CAPABILITIES_VERSION, flags]) + self.seed_term.to_bytes(4, "big") + more

    @classmethod
    def from_bytes(cls, payload: bytes) -> NodeCapabilities:
        """Never fails: a payload that cannot be read says nothing."""
        return _read(payload)


@lru_cache(maxsize=2_048)  # asked for at every record of progress, and most hosts say the same
def _read(payload: bytes) -> NodeCapabilities:
    if len(payload) < _BYTES or payload[0] < CAPABILITIES_VERSION:
        return NodeCapabilities()
    flags = payload[1]
    return NodeCapabilities(
        bool(flags & _CAN_READ), int.from_bytes(payload[2:_BYTES], "big"), bool(flags & _IN_CLEAR),
        bool(flags & _SIGNS_PROGRESS), _prints(payload[_BYTES : _BYTES + PRINTS_BYTES]),
        next(iter(payload[_BYTES + PRINTS_BYTES :]), 0),
    )  # fmt: skip


def _prints(told: bytes) -> bytes:
    return told if len(told) == PRINTS_BYTES else b""


def free_step(free_bytes: int) -> int:
    """The step of free space, rounded down."""
    return 1 + min(254, math.floor(_STEPS_PER_OCTAVE * math.log2(max(1.0, free_bytes / _LEAST_FREE))))


def free_bytes(step: int) -> int | None:
    """At least so much; None when it was not told."""
    return None if not step else 0 if step == 1 else int(_LEAST_FREE * 2 ** ((step - 1) / _STEPS_PER_OCTAVE))
