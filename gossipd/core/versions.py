"""Versions that are steps of a training run: ``attempt * 2^32 + step``, written ``STEP.ATTEMPT``.

What lives here: putting together, writing and reading. What does not: which versions are steps; the manifest's
``about`` says that (``manifest.annotations``), because a date and time as a version is as large as a second attempt.

A run that goes on from an earlier step would say its later steps again; its next attempt makes each version higher than
all before it, so that the newest stays the newest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STEP_MAX = 2**32 - 1
ATTEMPT_MAX = 2**21 - 1  # so that the version stays within 53 bits
VERSION_MAX = 2**53 - 1


def step_version(step: int, attempt: int = 0) -> int:
    """The version of a step. Raises ValueError beyond the bounds."""
    if not (0 <= step <= STEP_MAX and 0 <= attempt <= ATTEMPT_MAX):
        raise ValueError(f"a step is at most {STEP_MAX}, an attempt at most {ATTEMPT_MAX}")
    return attempt << 32 | step


def split_version(version: int) -> tuple[int, int]:
    """Step and attempt."""
    return version & STEP_MAX, version >> 32


def show_step(version: int) -> str:
    """``300`` of the first attempt, ``300.2`` of a later one."""
    step, attempt = split_version(version)
    return f"{step}.{attempt}" if attempt else str(step)


def label_words(row: Mapping[str, Any]) -> str:
    """``NAME@VERSION`` of a row of an answer, with the step where the version is one; a daemon of 0.1 tells the plain
    version only."""
    return f"{row['name']}@{row.get('version_label') or row['version']}"


def as_written(version: int, other: int, other_label: str) -> str:
    """``version`` as ``other`` of the same name is written: as a step where ``other_label`` shows one. Where that is of
    a first attempt nothing shows it, and the plain number is given."""
    return show_step(version) if other_label not in ("", str(other)) else str(version)


def parse_version(text: str) -> int:
    """``300`` or ``300.2``. Raises ValueError."""
    first, dot, second = text.partition(".")
    parts = (first, second) if dot else (first,)
    if not all(part.isascii() and part.isdecimal() and len(part) <= 16 for part in parts):
        raise ValueError("a version is a non-negative integer, or STEP.ATTEMPT")
    if dot:
        if not int(second):
            raise ValueError("a version of the first attempt is written as the step alone")
        return step_version(int(first), int(second))
    if int(first) > VERSION_MAX:
        raise ValueError(f"a version is at most {VERSION_MAX}")
    return int(first)
