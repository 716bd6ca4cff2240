"""Which version of each object a deployment reads: the first one seen, and no other.

A strong entity tag is sent back as If-Match, so that the server refuses another version; the tag, size and date of
every reply are compared too. A weak tag never matches If-Match (RFC 9110, 13.1.1), so it is only compared. Missing tags
and dates count as no change, because servers need not send them. The digests would detect a mixture anyway; this names
the cause.

Bound: one entry for each object read, dropped with its deployment; a manifest has at most 100,000 files.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from gossipd.core.ids import DeploymentId
from gossipd.sources.errors import SourceChangedError, SourceLongError, SourceShortError
from gossipd.sources.location import Location

_TAG_CHARS_MAX = 80  # S3's longest is 38; a longer one is cut in messages


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """What distinguishes versions of an object."""

    tag: str | None
    size: int
    modified: datetime | None = None

    @property
    def if_match(self) -> str | None:
        """A tag that the server can compare. None for a tag that no header may carry, at which obstore panics."""
        if not self.tag or self.tag.startswith("W/"):
            return None
        return self.tag if self.tag.isascii() and self.tag.isprintable() else None

    @property
    def shown(self) -> str:
        """For people: the tag, else size and date."""
        if self.tag is not None and self.tag.isprintable():
            return self.tag[:_TAG_CHARS_MAX]
        return f"{self.size} bytes of {self.modified}" if self.modified else f"{self.size} bytes"


def check_size(what: str, *, found: int, expected: int) -> None:
    """Raises SourceShortError or SourceLongError when the size is not the manifest's."""
    if found < expected:
        raise SourceShortError(what, f"the object has {found} bytes, the manifest says {expected}")
    if found > expected:
        raise SourceLongError(what, f"the object has {found} bytes, the manifest says {expected}")


class PinnedVersions:
    """The first version seen of each object, by deployment. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: dict[DeploymentId, dict[tuple[str, str], ObjectVersion]] = {}

    def get(self, deployment: DeploymentId, location: Location) -> ObjectVersion | None:
        """The pinned version; None before the first request."""
        with self._lock:
            return self._pinned.get(deployment, {}).get(location.key)

    def check(self, deployment: DeploymentId, location: Location, seen: ObjectVersion) -> None:
        """Pin ``seen`` if nothing is; else raise SourceChangedError, which names both, when it is another version."""
        with self._lock:
            pinned = self._pinned.setdefault(deployment, {}).setdefault(location.key, seen)
        if pinned.size != seen.size or not _may_be_same(pinned, seen):
            raise SourceChangedError(
                location.shown, f"the object has changed: first seen as {pinned.shown}, now {seen.shown}"
            )

    def forget(self, deployment: DeploymentId) -> None:
        with self._lock:
            self._pinned.pop(deployment, None)


def _may_be_same(one: ObjectVersion, other: ObjectVersion) -> bool:
    if one.tag and other.tag:
        return one.tag == other.tag
    return one.modified is None or other.modified is None or one.modified == other.modified
