"""The ways in which a chunk can come wrong over the bulk protocol; pure.

What lives here: from a right reply to the bytes of a wrong one. What does not: sending them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from msgspec.structs import replace

from gossipd.wire.transfer import Reply

_PAGE_BYTES = 4096


class Damage(Enum):
    """What is wrong."""

    FLIP = "flip"  # one bit
    ZEROS = "zeros"  # a page that never reached the disk
    SWAPPED = "swapped"  # the body of another chunk
    TORN = "torn"  # the second half is another chunk's
    EXTRA = "extra"  # bytes put in, so that everything behind is shifted, and too much comes
    SHORT = "short"  # half of the body, then the end of the connection
    LENGTH = "length"  # the head offers one byte less, and so many come
    INDEX = "index"  # the head names the next chunk


# What the receiver says of it. A connection that ends early is a lost one: nobody is blamed, the fetch is repeated.
CODES = {
    Damage.FLIP: "E_DIGEST",
    Damage.ZEROS: "E_DIGEST",
    Damage.SWAPPED: "E_DIGEST",
    Damage.TORN: "E_DIGEST",
    Damage.EXTRA: "E_DIGEST",
    Damage.SHORT: "E_GONE",
    Damage.LENGTH: "E_BULK_PROTOCOL",
    Damage.INDEX: "E_BULK_PROTOCOL",
}


@dataclass(frozen=True, slots=True)
class Wrong:
    """The bytes to send, head included; ``ends``: the connection is closed after them."""

    wire: bytes
    ends: bool = False


def damaged(damage: Damage, rng: Random, reply: Reply, body: bytes, other: bytes) -> Wrong:
    """A wrong form of an OK to a request for a chunk.

    Args:
        other: the body of another chunk, as long and different.
    """
    head, half = reply.to_wire(), len(body) // 2
    match damage:
        case Damage.FLIP:
            at = rng.randrange(len(body))
            return Wrong(head + body[:at] + bytes([body[at] ^ 1 << rng.randrange(8)]) + body[at + 1 :])
        case Damage.ZEROS:
            at = rng.randrange(max(1, len(body) - _PAGE_BYTES))
            page = bytes(min(_PAGE_BYTES, len(body)))
            return Wrong(head + body[:at] + page + body[at + len(page) :])
        case Damage.SWAPPED:
            return Wrong(head + other)
        case Damage.TORN:
            return Wrong(head + body[:half] + other[half:])
        case Damage.EXTRA:
            return Wrong(head + body[:half] + rng.randbytes(rng.randrange(1, 64)) + body[half:])
        case Damage.SHORT:
            return Wrong(head + body[:half], ends=True)
        case Damage.LENGTH:
            return Wrong(replace(reply, length=reply.length - 1).to_wire() + body[:-1])
        case Damage.INDEX:
            return Wrong(replace(reply, chunk=reply.chunk + 1).to_wire() + body)
