"""The differences between the running configuration and a newly read one, and which of them can be applied.

What lives here: the comparison. What does not: applying (the daemon), and which settings reload (``setting``).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from gossipd.config.sections import SECTIONS, Config


class Change(Struct, frozen=True):
    """One setting with a new value."""

    key: str
    old: object
    new: object


def diff(old: Config, new: Config) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """The changes that can be applied at once, and those that need a restart. Key files may have new content under old
    paths; the daemon reads them again anyway."""
    reloadable: list[Change] = []
    restart: list[Change] = []
    for name in SECTIONS:
        before, after = getattr(old, name), getattr(new, name)
        for item in before.settings:
            change = Change(f"{name}.{item.name}", getattr(before, item.name), getattr(after, item.name))
            if change.old != change.new:
                (reloadable if item.reload else restart).append(change)
    return tuple(reloadable), tuple(restart)


def with_changes(config: Config, changes: Iterable[Change]) -> Config:
    """``config`` with these settings at their new values."""
    for change in changes:
        section, _, key = change.key.partition(".")
        config = replace(config, **{section: replace(getattr(config, section), **{key: change.new})})
    return config
