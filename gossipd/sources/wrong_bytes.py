"""Objects that storage gives with wrong bytes, and when each may be read again.

What lives here: pauses, and which versions of an object were wrong. What does not: reading (``reader``), and other
refusals, which cost one small request each and are remembered by ``admission``.

A chunk whose bytes are wrong costs its whole length each time, and where a server has no ranges all that lies before
it. Nothing but a person repairs it. So the pause before it is read again doubles up to a bound. An object of which
several chunks in a row were wrong, or that comes only whole, has such a pause as a whole. Meanwhile its version is
looked at now and then: one that was not seen wrong before ends the pause at once, so a repaired object is taken soon.
Replicas behind one name may have tags of their own, so only so many versions are looked at. A right chunk ends all,
and so does an operator, who knows of a repair that no version shows.

Rejected: one pause for the object from the first wrong chunk on, because two mirrors with one bad chunk each have the
model between them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from math import inf

from msgspec import Struct, field

from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.source_url import SourceUrl
from gossipd.sources.errors import SourceError
from gossipd.sources.location import Location
from gossipd.sources.settings import Clock, SourceSettings

ROW_MAX = 3  # wrong chunks in a row, before the object is left alone as a whole
LOOKS_MAX = 3  # objects that are looked at together
_VERSIONS_MAX = 8  # of one object: more come from replicas, and not from repairs
_OBJECTS_MAX = 1024  # of all deployments; the oldest goes
_CHUNKS_MAX = 4096  # of one object; further ones are left alone with it
_Key = tuple[DeploymentId, str, str]


class _Pause(Struct):
    until_s: float = -inf
    count: int = 0

    def begin(self, now: float, first_s: float, most_s: float) -> None:
        """From ``now`` on, twice as long as the last time. One that runs is left: several reads fail together."""
        if now >= self.until_s:
            self.until_s = now + min(most_s, first_s * 2.0 ** min(self.count, 32))
            self.count += 1


class _Wrong(Struct):
    """One object, for one deployment."""

    location: Location
    error: SourceError
    whole: _Pause = field(default_factory=_Pause)
    chunks: dict[ChunkIndex, _Pause] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    in_row: int = 0
    looked_s: float = -inf

    def is_paused(self, now: float) -> bool:
        return now < self.whole.until_s or any(now < pause.until_s for pause in self.chunks.values())

    def release(self) -> None:
        """It may be read now; what fails again waits longer than before."""
        self.whole.until_s = -inf
        for pause in self.chunks.values():
            pause.until_s = -inf


class WrongBytes:
    """Of all deployments of one host. Thread-safe."""

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        self._source_settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: dict[_Key, _Wrong] = {}

    @property
    def is_any(self) -> bool:
        """Whether anything was wrong that was not right since."""
        return bool(self._wrong)

    def came_wrong(
        self, deployment: DeploymentId, location: Location, chunk: ChunkIndex, error: SourceError,
        *, version: str, is_whole: bool,
    ) -> None:  # fmt: skip
        """A chunk of an object had other bytes than were published. ``version``: the object's, as it is shown.
        ``is_whole``: it comes only whole."""
        now, most_s = self._clock(), self._source_settings.wrong_pause_max_s
        with self._lock:
            one = self._wrong.get(_key(deployment, location))
            if one is None:
                while len(self._wrong) >= _OBJECTS_MAX:
                    del self._wrong[next(iter(self._wrong))]
                one = self._wrong[_key(deployment, location)] = _Wrong(location, error, looked_s=now)
            one.error = error
            if len(one.versions) < _VERSIONS_MAX:
                one.versions.add(version)
            one.in_row += chunk not in one.chunks
            if chunk in one.chunks or len(one.chunks) < _CHUNKS_MAX:
                one.chunks.setdefault(chunk, _Pause()).begin(now, self._source_settings.wrong_pause_first_s, most_s)
            if is_whole or one.in_row >= ROW_MAX:
                one.whole.begin(now, self._source_settings.refusal_remembered_s, most_s)

    def came_right(self, manifest: Manifest, mirror: SourceUrl, chunks: Collection[ChunkIndex]) -> None:
        """Chunks from a mirror had the published bytes."""
        for chunk in chunks if self._wrong else ():
            key = _key(manifest.id, place_of(manifest, mirror, chunk))
            with self._lock:
                if (one := self._wrong.get(key)) is not None:
                    one.in_row, one.whole = 0, _Pause()
                    one.chunks.pop(chunk, None)
                    if not one.chunks:
                        del self._wrong[key]

    def refusal(self, manifest: Manifest, mirror: SourceUrl, chunk: ChunkIndex) -> SourceError | None:
        """The error that a chunk had the last time, while it is not to be read there again."""
        now = self._clock()
        with self._lock:
            one = self._wrong.get(_key(manifest.id, place_of(manifest, mirror, chunk)))
            if one is None:
                return None
            pause = one.chunks.get(chunk)
            is_paused = now < one.whole.until_s or (pause is not None and now < pause.until_s)
            return one.error if is_paused else None

    def was_wrong(self, manifest: Manifest, mirror: SourceUrl, chunk: ChunkIndex) -> bool:
        """Whether that chunk had wrong bytes there before."""
        with self._lock:
            one = self._wrong.get(_key(manifest.id, place_of(manifest, mirror, chunk)))
            return one is not None and chunk in one.chunks

    def take_looks(self, deployment: DeploymentId) -> list[Location]:
        """Paused objects whose version is worth a look now; ``look`` should follow."""
        now = self._clock()
        with self._lock:
            due = [
                one
                for key, one in self._wrong.items()
                if key[0] == deployment and one.is_paused(now) and len(one.versions) < _VERSIONS_MAX
                and now >= one.looked_s + self._source_settings.refusal_remembered_s
            ][:LOOKS_MAX]  # fmt: skip
            for one in due:
                one.looked_s = now
            return [one.location for one in due]

    def look(self, deployment: DeploymentId, location: Location, version: str) -> None:
        """The object has this version now."""
        with self._lock:
            one = self._wrong.get(_key(deployment, location))
            if one is not None and version not in one.versions:
                one.versions.add(version)
                one.release()

    def clear(self) -> None:
        """Somebody says that storage was repaired: all of it may be read now, with pauses as at first."""
        with self._lock:
            self._wrong.clear()

    def forget(self, deployment: DeploymentId) -> None:
        """The deployment is over."""
        with self._lock:
            self._wrong = {key: one for key, one in self._wrong.items() if key[0] != deployment}


def place_of(manifest: Manifest, mirror: SourceUrl, chunk: ChunkIndex) -> Location:
    """Where a mirror has a chunk, or the first of the files that are packed into it."""
    return Location.of(mirror, manifest.files[manifest.segments(chunk)[0].file_index].path)


def _key(deployment: DeploymentId, location: Location) -> _Key:
    return deployment, location.source.text, location.path
