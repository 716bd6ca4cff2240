"""Compares every byte of a host's published tree with the original."""

from __future__ import annotations

from pathlib import Path

_PIECE_BYTES = 256 * 1024


def tree_files(root: Path) -> list[str]:
    """Paths of all files below ``root``, relative to it, sorted."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def differences(original: Path, copy: Path) -> list[str]:
    """What is wrong with ``copy``, in words; empty when every byte is the same."""
    wanted, found = tree_files(original), tree_files(copy)
    wrong = [f"{path} is missing" for path in wanted if path not in found]
    wrong += [f"{path} does not belong there" for path in found if path not in wanted]
    for path in wanted:
        if path in found and (at := _first_difference(original / path, copy / path)) is not None:
            wrong.append(f"{path} differs from byte {at} on")
    return wrong


def _first_difference(one: Path, other: Path) -> int | None:
    """By two buffers that stay in the processor's cache: a new one for each piece costs twice the time."""
    pieces = bytearray(_PIECE_BYTES), bytearray(_PIECE_BYTES)
    at = 0
    with one.open("rb", buffering=0) as left, other.open("rb", buffering=0) as right:
        while True:
            wanted, found = (file.readinto(piece) or 0 for file, piece in zip((left, right), pieces, strict=True))
            if wanted != found or pieces[0] != pieces[1]:
                length = min(wanted, found)
                pairs = enumerate(zip(pieces[0][:length], pieces[1][:length], strict=True))
                return at + next((place for place, (a, b) in pairs if a != b), length)
            if not wanted:
                return None
            at += wanted
