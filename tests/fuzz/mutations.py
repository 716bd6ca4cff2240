"""Changing good input into bad: bytes that know nothing, and values that know their types.

What lives here: mutations, each drawn from a seeded generator. What does not: corpora and what is done with a
changed input (``surfaces``).

``mutate_bytes`` flips, cuts, repeats, splices and writes numbers where lengths may be. ``mutate_value`` changes one
place of a decoded message (maps, lists, texts, bytes, numbers), so that the result still packs and gets past the
decoder to the rules behind it. Both are cheap: some 5 us, so that the surface and not the fuzzer is what a run spends
its time on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

# Borders of the widths that our formats and CPython use, and one beyond each.
INTEGERS = (
    0, 1, -1, 2, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 513, 1023, 1024, 4095, 4096,
    65_535, 65_536, 65_537, 100_000, 1_000_000, 1_000_001, 2**20, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 2,
    2**32 - 1, 2**32, 2**40, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -128, -(2**31), -(2**53),
    -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, -1.0, 1e308, 5e-324, 2.0**53, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", "a", ".", "..", "/", "../../etc/passwd", "/etc/passwd", "a/../b", "a//b", "a\\b", "C:", "con", "nul.txt", "x ",
    "x.", "\0", "a\0b", "\n", "\x1b[2J", "\u202e", "\ufeff", "\u0301", "e\u0301", "\u00e9", "ﬁ", "ß", "ss", "²", "٣",
    "½",
    "𝔘", "\U0010ffff", "\ud7ff", "true", "null", "nan", "1e999", "-1", "0", "00", "9" * 20, "9" * 400, "0x10", "1_000",
    "name@1", "@", "a@", "@1", "org/name", "org/name@18446744073709551616", "~", "~root", "~nobody-at-all/x",
    "file:///etc/passwd", "http://169.254.169.254/", "http://[::ffff:127.0.0.1]/", "https://user:secret@host/x",
    "https://host:99999/", "https://[", "s3://", "s3://b/../k", "127.0.0.1:0", "[::1]:7946", "%s%n%d", "%2e%2e",
    "[a-", "[!]", "*" * 40, "?" * 200, "[" * 100, "a" * 63, "a" * 64, "a" * 65, "a" * 128, "a" * 129, "a" * 255,
    "a" * 256, "a" * 1024, "a" * 4097, "x/" * 33 + "y", "é" * 128,
)  # fmt: skip
BLOBS = (b"", b"\0", b"\xff", b"\0" * 16, b"\0" * 31, b"\0" * 32, b"\xff" * 32, b"\0" * 33, b"\xff" * 64, b"x" * 1024)
_DEPTHS = (2, 7, 8, 9, 16, 40, 200)
_LONG = (20, 33, 100, 256, 257, 257, 1025)


def pick(rng: Random, items: Sequence[Any]) -> Any:
    """One of ``items``; a third of the price of ``rng.choice``."""
    return items[int(rng.random() * len(items))]


def mutate_bytes(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """``data`` with one to five changes; ``others`` are there to be spliced in."""
    body = bytearray(data)
    while True:
        pick(rng, _BYTE_MUTATIONS)(body, rng, others)
        if rng.random() < 0.5:
            return bytes(body)


def mutate_value(value: Any, rng: Random) -> Any:
    """A copy of ``value`` that differs in one place, or now and then in several."""
    changed = _change(value, rng)
    while rng.random() < 0.25:
        changed = _change(changed, rng)
    return changed


def any_value(rng: Random, depth: int = 0) -> Any:
    """Something that MessagePack and JSON writers take; it may be too big, too deep or of the wrong type."""
    draw = rng.random()
    if draw < 0.3:
        return pick(rng, INTEGERS)
    if draw < 0.5:
        return pick(rng, TEXTS)
    if draw < 0.65:
        return pick(rng, BLOBS)
    if draw < 0.8:
        return pick(rng, (None, True, False, *FLOATS))
    if draw < 0.86:
        return nested(pick(rng, _DEPTHS), rng)
    if depth > 2:
        return []
    if draw < 0.9:  # long lists of long lists of long lists took 24 GB to pack
        return [any_value(rng, depth + 1)] * pick(rng, _LONG) if not depth else []
    if draw < 0.95:
        return [any_value(rng, depth + 1) for _ in range(int(rng.random() * 5))]
    return {pick(rng, TEXTS): any_value(rng, depth + 1) for _ in range(int(rng.random() * 5))}


def nested(depth: int, rng: Random) -> Any:
    """Lists in lists, or maps in maps."""
    value: Any = pick(rng, INTEGERS)
    as_map = rng.random() < 0.3
    for _ in range(depth):
        value = {"a": value} if as_map else [value]
    return value


def mutate_integer(value: int, rng: Random) -> int:
    """Near to it, or a border of some width."""
    draw = rng.random()
    if draw < 0.4:
        return int(pick(rng, INTEGERS))
    if draw < 0.6:
        return value + int(pick(rng, (-2, -1, 1, 2)))
    if draw < 0.8:
        return value ^ 1 << int(rng.random() * 64)
    return -value if draw < 0.9 else value * 256


def _change(value: Any, rng: Random) -> Any:
    if rng.random() < 0.1:
        return any_value(rng)
    if isinstance(value, dict):
        return _change_map(value, rng)
    if isinstance(value, list | tuple):
        return _change_list(list(value), rng)
    if isinstance(value, bool) or value is None:
        return any_value(rng)
    if isinstance(value, int):
        return mutate_integer(value, rng)
    if isinstance(value, float):
        return pick(rng, FLOATS)
    if isinstance(value, str):
        return _change_text(value, rng)
    return mutate_bytes(bytes(value), rng)


def _change_map(value: dict[Any, Any], rng: Random) -> dict[Any, Any]:
    changed = dict(value)
    draw = rng.random()
    key = pick(rng, tuple(changed)) if changed else ""
    if draw < 0.08:
        changed.pop(key, None)
    elif draw < 0.14 or not changed:
        changed[pick(rng, TEXTS)] = any_value(rng)
    elif draw < 0.18:
        changed[pick(rng, TEXTS)] = changed.pop(key)
    else:
        changed[key] = _change(changed[key], rng)
    return changed


def _change_list(changed: list[Any], rng: Random) -> list[Any]:
    draw = rng.random()
    at = int(rng.random() * len(changed))
    if not changed or draw < 0.06:
        changed.insert(at, any_value(rng))
    elif draw < 0.12:
        del changed[at]
    elif draw < 0.2:
        changed.insert(at, changed[int(rng.random() * len(changed))])
    elif draw < 0.24:
        changed[at:] = changed[at:] * int(pick(rng, (2, 2, 10, 50)))
    elif draw < 0.28:
        changed.reverse()
    else:
        changed[at] = _change(changed[at], rng)
    return changed


def _change_text(value: str, rng: Random) -> str:
    draw = rng.random()
    if draw < 0.4:
        return str(pick(rng, TEXTS))
    at = int(rng.random() * (len(value) + 1))
    if draw < 0.6:
        return value[:at] + str(pick(rng, TEXTS)) + value[at:]
    if draw < 0.75:
        return value[:at] + value[at + 1 :]
    if draw < 0.85:
        return value * int(pick(rng, (2, 3, 50)))
    return value.swapcase() if draw < 0.9 else value[:at]


# ---- bytes ------------------------------------------------------------------------------------------

_ByteMutation = Callable[[bytearray, Random, Sequence[bytes]], None]


def _flip(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    if body:
        body[int(rng.random() * len(body))] ^= 1 << int(rng.random() * 8)


def _set(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    if body:
        value = pick(rng, (0, 1, 0x7F, 0x80, 0x90, 0xC0, 0xC1, 0xDD, 0xDF, 0xFF, int(rng.random() * 256)))
        body[int(rng.random() * len(body))] = value


def _cut(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    del body[int(rng.random() * (len(body) + 1)) :]


def _remove(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    at = int(rng.random() * (len(body) + 1))
    del body[at : at + 1 + int(rng.random() * 16)]


def _repeat(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    at = int(rng.random() * (len(body) + 1))
    piece = body[at : at + 1 + int(rng.random() * 64)]
    body[at:at] = piece * int(pick(rng, (1, 1, 2, 3, 20)))


def _insert(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    at = int(rng.random() * (len(body) + 1))
    body[at:at] = rng.randbytes(1 + int(rng.random() * 16))


def _number(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    width = int(pick(rng, (1, 2, 3, 4, 4, 8)))
    if len(body) >= width:
        at = int(rng.random() * (len(body) - width + 1))
        value = int(pick(rng, INTEGERS)) & (1 << 8 * width) - 1
        body[at : at + width] = value.to_bytes(width, "big" if rng.random() < 0.5 else "little")


def _nudge(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    """One more or less where a length or a count may be: near the front."""
    if body:
        at = int(rng.random() * min(len(body), 64))
        body[at] = body[at] + int(pick(rng, (-1, 1))) & 0xFF


def _splice(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    if others:
        other = pick(rng, others)
        begin = int(rng.random() * (len(other) + 1))
        at = int(rng.random() * (len(body) + 1))
        end = at if rng.random() < 0.5 else len(body)
        body[at:end] = other[begin : begin + 1 + int(rng.random() * len(other))]


def _overwrite(body: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    at = int(rng.random() * (len(body) + 1))
    piece = pick(rng, BLOBS)
    body[at : at + len(piece)] = piece


_BYTE_MUTATIONS: tuple[_ByteMutation, ...] = (
    _flip, _flip, _flip, _set, _set, _cut, _remove, _repeat, _insert, _number, _number, _nudge, _splice, _overwrite,
)  # fmt: skip
