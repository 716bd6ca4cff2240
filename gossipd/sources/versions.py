"""Which versions of each object were seen: hints for messages, never a reason to stop.

Servers behind one name may give different entity tags and dates for the same bytes, and a file may be written again
with the same bytes. So neither is compared or sent back (If-Match): every chunk is checked against the manifest's hash,
which decides. Only when bytes are wrong do the versions tell that the object was replaced meanwhile. Its size must be
the manifest's in every answer.

Bound: two versions for each object read, dropped with its deployment; a manifest has at most 100,000 files.
"""

from __future__ import annotations

import threading
from datetime import datetime

from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.sources.errors import SourceLongError, SourceTruncatedError
from gossipd.sources.location import Location

_TAG_CHARS_MAX = 80  # S3's longest is 38; of a longer one its digest is kept


class ObjectVersion(Struct, frozen=True):
    """What distinguishes versions of an object."""

    tag: str | None
    size: int
    modified: datetime | None = None

    @property
    def shown(self) -> str:
        """The version for people: the tag, else size and date."""
        if self.tag is not None and self.tag.isprintable():
            return self.tag[:_TAG_CHARS_MAX]
        return f"{self.size} bytes of {self.modified}" if self.modified else f"{self.size} bytes"


def check_size(what: str, *, found: int, expected: int) -> None:
    """Raises SourceTruncatedError or SourceLongError when the size is not the manifest's."""
    if found < expected:
        raise SourceTruncatedError(what, f"the object has {found} bytes, the manifest says {expected}")
    if found > expected:
        raise SourceLongError(what, f"the object has {found} bytes, the manifest says {expected}")


class SeenVersions:
    """The first and the last version seen of each object, by deployment. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[DeploymentId, dict[tuple[str, str], tuple[ObjectVersion, ObjectVersion]]] = {}

    def is_known(self, deployment: DeploymentId, location: Location) -> bool:
        """Whether an answer of this object was seen."""
        with self._lock:
            return location.key in self._seen.get(deployment, {})

    def note(self, deployment: DeploymentId, location: Location, seen: ObjectVersion) -> None:
        """An answer has this version."""
        with self._lock:
            objects, seen = self._seen.setdefault(deployment, {}), _short(seen)
            first, _ = objects.get(location.key, (seen, seen))
            objects[location.key] = (first, seen)

    def change(self, deployment: DeploymentId, location: Location) -> str | None:
        """What tells that the object was replaced, in words; None when nothing does."""
        with self._lock:
            found = self._seen.get(deployment, {}).get(location.key)
        if found is None or _may_be_same(*found):
            return None
        return f"first seen as {found[0].shown}, now {found[1].shown}"

    def last(self, deployment: DeploymentId, location: Location) -> str:
        """The last version seen, as it is shown; empty when none was."""
        with self._lock:
            found = self._seen.get(deployment, {}).get(location.key)
        return "" if found is None else found[1].shown

    def forget(self, deployment: DeploymentId) -> None:
        with self._lock:
            self._seen.pop(deployment, None)


def _short(seen: ObjectVersion) -> ObjectVersion:
    """A server may send 64 KiB, with each of a model's files."""
    if seen.tag is None or len(seen.tag) <= _TAG_CHARS_MAX:
        return seen
    return replace(seen, tag=blake3(seen.tag.encode(errors="surrogatepass")).hexdigest())


def _may_be_same(one: ObjectVersion, other: ObjectVersion) -> bool:
    if one.tag and other.tag:
        return one.tag == other.tag
    return one.modified is None or other.modified is None or one.modified == other.modified
