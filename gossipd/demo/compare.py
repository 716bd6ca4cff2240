"""Compares every byte of a host's published tree with the original."""

from __future__ import annotations

from pathlib import Path

_PIECE_BYTES = 1024 * 1024


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
    at = 0
    with one.open("rb") as left, other.open("rb") as right:
        while True:
            wanted, found = left.read(_PIECE_BYTES), right.read(_PIECE_BYTES)
            if wanted != found:
                same = next((i for i, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b), None)
                return at + (min(len(wanted), len(found)) if same is None else same)
            if not wanted:
                return None
            at += len(wanted)
