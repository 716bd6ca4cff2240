"""Publishing objects in storage: list them, stream every byte once, hash on the way.

What lives here: listing and reading through obstore. What does not: the reads of seeds (``sources``), which check
against the manifest's hashes. Here only the object's version can be checked: every request is pinned to the ETag of the
listing (If-Match), so that a manifest never mixes two versions, and the listing is compared at the end (``publisher``).

Credentials and endpoints are those of a seed (``sources``), and so are the sentences for refusals. obstore's retries
cover listing and the start of a request; after a broken body the whole extent is read again here, because a hash cannot
go back.

Some storage systems mark directories by empty objects of their names; such markers are left out.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError, InvalidPathError, PreconditionError
from obstore.store import from_url

from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.paths import DIRECTORIES_MAX
from gossipd.manifest.payload import FILES_MAX
from gossipd.manifest.source_url import SourceUrl
from gossipd.publish.errors import (
    NothingSelectedError,
    PublishError,
    StorageAuthError,
    StorageError,
    StorageNotFoundError,
    TreeChangedError,
)
from gossipd.publish.extents import FileExtent
from gossipd.publish.hashing import hash_pieces
from gossipd.publish.odd_keys import listed_past, odd_key, refusal
from gossipd.publish.selection import Selection, pattern_for
from gossipd.sources.aws_credentials import AwsCredentials
from gossipd.sources.bucket_region import with_region
from gossipd.sources.errors import (
    SourceAuthError,
    SourceError,
    SourceNotFoundError,
    SourceRegionError,
    SourceUnreachableError,
)
from gossipd.sources.google_credentials import GoogleCredentials
from gossipd.sources.location import allows_clear_text
from gossipd.sources.obstore_errors import from_obstore
from gossipd.sources.proxies import ProxyError, client_options
from gossipd.sources.refusal_documents import bucket_address

if TYPE_CHECKING:
    from obstore import GetOptions

THREADS = 16  # one S3 connection gives about 0.4 Gbit/s; sixteen fill most of a 10 Gbit/s link
ATTEMPTS = 4
BACKOFF_S = 0.5  # doubled each time, times 0.5 to 1.5: four attempts last some four seconds
_OBSTORE_ERRORS = (BaseError, OSError, ValueError)
_CLIENT_OPTIONS = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "10min", "user_agent": "gossipd"}
_RETRIES = {"max_retries": 6, "retry_timeout": timedelta(minutes=2)}  # six doublings from 0.1 s, with jitter


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of the listing; equal until somebody replaces it."""

    path: str
    size: int
    version: str
    """Its ETag, else the time of its last modification."""
    if_match: str | None
    mode: int = 0o644
    """Object storage has no modes."""


def open_storage(url: SourceUrl) -> Any:
    """The obstore store for a bucket and prefix. Raises StorageError."""
    try:
        profile = AwsCredentials().options(url.scheme, url.shown) or GoogleCredentials().options(url.scheme, url.shown)
        clear = allows_clear_text(url, profile.get("endpoint", ""))
        client = _CLIENT_OPTIONS | {"allow_http": clear} | client_options(url.scheme, url.host, os.environ, profile)
        options: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES, **profile}
        return from_url(f"{url.text.rstrip('/')}/", **options)
    except SourceError as error:
        raise _from_source(error) from None
    except ProxyError as error:
        raise PublishError(f"{error}, in this environment", code="E_SOURCE_PROXY") from None
    except _OBSTORE_ERRORS as error:
        raise _from_obstore(error, url.shown) from None


def find_objects(
    store: Any, url: SourceUrl, selection: Selection, left_out: Counter[str] | None = None
) -> list[FoundObject]:
    """The selected objects below the prefix, in order of path. ``left_out``: as in ``tree.find_files``. Raises
    StorageError; NothingSelectedError; ManifestError ``E_LIMIT`` beyond 100,000 objects."""
    try:
        try:
            files, counted = _collect(obstore.list(store), selection)
        except InvalidPathError as error:
            odd = odd_key(str(error), url)
            if odd is None:
                raise
            files, counted = _collect_past(odd, store, url, selection)
    except _OBSTORE_ERRORS as error:
        raise _from_obstore(error, url.shown) from None
    if left_out is not None:
        left_out.update(counted)
    if not files:
        raise NothingSelectedError(f"no object below {shown(url.text)} is selected, or there is none")
    return sorted(files, key=lambda one: one.path.encode())


def _collect(pages: Iterable[Iterable[Any]], selection: Selection) -> tuple[list[FoundObject], Counter[str]]:
    found: list[FoundObject] = []
    parents: set[str] = set()
    left_out: Counter[str] = Counter()
    for page in pages:
        for meta in page:
            path = str(meta["path"])
            for at, character in enumerate(path):
                if character == "/":
                    parents.add(path[:at])
            if path and selection.admits(path, left_out):
                found.append(_found(meta))
        if len(found) > FILES_MAX + len(parents):
            raise ManifestError(f"files>{FILES_MAX} max={FILES_MAX}", code="E_LIMIT")
    return [one for one in found if one.size or one.path not in parents], left_out


def _by_directory(store: Any, selection: Selection) -> Iterator[Sequence[Any]]:
    """One request for each directory that is not left out as a whole. obstore ends a listing at a key that is no
    path."""
    waiting: list[str | None] = [None]
    asked = 0
    while waiting:
        asked += 1
        if asked > DIRECTORIES_MAX:
            raise ManifestError(f"directories>{DIRECTORIES_MAX} max={DIRECTORIES_MAX}", code="E_LIMIT")
        result = obstore.list_with_delimiter(store, waiting.pop())
        yield result["objects"]
        waiting += [str(one) for one in result["common_prefixes"] if not selection.leaves_out_below(str(one))]


def _collect_past(odd: str, store: Any, url: SourceUrl, selection: Selection) -> tuple[list[FoundObject], Counter[str]]:
    """The same after a key that no file can have, where it is left out: by directories, as it may lie in one that is
    left out whole, else with a client that takes keys as they are."""
    if selection.admits(odd):
        raise refusal(odd)
    try:
        return _collect(_by_directory(store, selection), selection)
    except InvalidPathError:
        return _collect([listed_past(odd, url, selection)], selection)


def find_object(store: Any, name: str, url: SourceUrl) -> FoundObject | None:
    """The object of that name, or None."""
    try:
        return _found(obstore.head(store, name))
    except FileNotFoundError:
        return None
    except _OBSTORE_ERRORS as error:
        raise _from_obstore(error, url.shown) from None


class StoredObjects:
    """Reads extents of the given objects, which are in the manifest's order."""

    def __init__(
        self, store: Any, url: SourceUrl, objects: Sequence[FoundObject], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._store, self._url = store, url
        self._base = f"{url.text.rstrip('/')}/"
        self._objects = objects
        self._sleep = sleep
        self.threads = THREADS

    def hash_extent(self, run: FileExtent) -> bytes:
        """Raises TreeChangedError, StorageError."""
        return self._again(lambda: self._hash_once(run))

    def read_piece(self, index: int, offset: int, length: int) -> bytes:
        """A small part of one object. Raises TreeChangedError, StorageError."""
        segment = Segment(index, offset, length)
        return self._again(lambda: b"".join(bytes(piece) for piece in self._pieces(segment)))

    def _again(self, ask: Callable[[], bytes]) -> bytes:
        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except (StorageAuthError, StorageNotFoundError):
                raise
            except StorageError as error:
                if attempt == ATTEMPTS - 1 or error.code == "E_SOURCE_TLS":
                    raise
                self._sleep(BACKOFF_S * 2**attempt * random.uniform(0.5, 1.5))
        raise AssertionError("the loop returns or raises")

    def _hash_once(self, run: FileExtent) -> bytes:
        return hash_pieces((piece for segment in run.segments for piece in self._pieces(segment)), run.lengths)

    def _pieces(self, segment: Segment) -> Iterator[memoryview]:
        """The segment's bytes as they arrive, exactly as many as it has."""
        one = self._objects[segment.file_index]
        stop = segment.offset + segment.length
        options: GetOptions = {"range": (segment.offset, stop)}
        if one.if_match is not None:
            options["if_match"] = one.if_match
        left = segment.length
        try:
            result = obstore.get(self._store, one.path, options=options)
            if tuple(result.range) != (segment.offset, stop) or result.meta["size"] != one.size:
                raise TreeChangedError(f"{shown(one.path)} has another size than in the listing")
            for part in result.stream(min_chunk_size=1):
                left -= len(part)
                if left < 0:
                    break
                yield memoryview(part)
        except FileNotFoundError:
            raise _not_there(one.path) from None
        except _OBSTORE_ERRORS as error:
            if isinstance(error, PreconditionError) and find_object(self._store, one.path, self._url) is None:
                raise _not_there(one.path) from None  # Azure's answer where nothing is
            raise _from_obstore(error, self._base + one.path) from None
        if left:
            raise StorageError(f"{shown(one.path)}: the body has another length than promised", code="E_SOURCE_SHORT")


def _not_there(path: str) -> StorageNotFoundError:
    return StorageNotFoundError(
        f"{shown(path)} is listed but not there: it was deleted, or its key begins or ends in '/', as no path does; "
        f"leave it out with --exclude {shown(pattern_for(path))}"
    )


def _found(meta: Any) -> FoundObject:
    tag = meta["e_tag"]
    strong = tag if tag and not tag.startswith("W/") else None
    return FoundObject(str(meta["path"]), int(meta["size"]), str(tag or meta["last_modified"]), strong)


def _from_obstore(error: Exception, what: str) -> PublishError | StorageError:
    """Translate an error. obstore's text is not shown, because it quotes replies, which may hold anything."""
    text = str(error)
    if isinstance(error, PreconditionError):
        return TreeChangedError(f"{shown(what)} was replaced while it was hashed")
    found = from_obstore(error, what)
    if isinstance(found, SourceRegionError):
        found = with_region(found, bucket_address(what).rpartition("/")[2])
    if type(found) is SourceUnreachableError and (isinstance(error, ValueError) or "not recogni" in text):
        return PublishError(f"{shown(what)} is not an address that can be opened", code="E_SOURCE_LISTING")
    return _from_source(found)


def _from_source(error: SourceError) -> StorageError:
    """The error of a source as one of publishing, in the words of a seed and with the exit code of a command."""
    kind: type[StorageError] = StorageError
    if isinstance(error, SourceAuthError):
        kind = StorageAuthError
    elif isinstance(error, SourceNotFoundError):
        kind = StorageNotFoundError
    return kind(str(error), code=error.code)
