"""Publishing a repository of the Hugging Face Hub: its commit, its files, and every byte once, hashed on the way.

What lives here: listing with the hub's own client, and reading. What does not: where the hub says that a file is
(``sources.hub``), ranges (``sources.web_stream``).

A revision is resolved to its commit once, and the commit goes into the manifest: a branch moves, a commit does not. The
hub's client is an extra, ``gossipd[hf]``, which only publishers need. It reads ``HF_ENDPOINT`` and the token as it
always does; of its errors only the kind is shown.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.errors import shown
from gossipd.manifest.source_url import SourceUrl, hub_repository, parse_source_url
from gossipd.publish.bucket import FoundObject
from gossipd.publish.errors import (
    NothingSelectedError,
    PublishError,
    StorageAuthError,
    StorageError,
    StorageNotFoundError,
)
from gossipd.publish.extents import FileExtent
from gossipd.publish.hashing import hash_pieces
from gossipd.publish.selection import Selection
from gossipd.sources.addresses import Addresses, proxy_of, resolve
from gossipd.sources.asked_pause import asked_pause_s
from gossipd.sources.authorities import authorities_in
from gossipd.sources.errors import SourceAuthError, SourceError, SourceNotFoundError
from gossipd.sources.hub import USUAL_ENDPOINT, Hub, HubRoutes
from gossipd.sources.location import Location
from gossipd.sources.pieces import Pieces, Wanted
from gossipd.sources.proxies import PROXY_VARIABLES
from gossipd.sources.settings import SourceSettings
from gossipd.sources.tls_failures import tls_failure_in
from gossipd.sources.web_stream import WebConnections, WebStream

THREADS = 16  # as for object stores (``bucket``)
ATTEMPTS = 6
BACKOFF_S = 0.5  # doubled each time, times 0.5 to 1.5, and at least what the server asks for
RETRY_AFTER_S_MAX = 60.0
_BUSY = (429, 500, 502, 503, 504)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class HubListing:
    """A repository at one commit."""

    url: SourceUrl
    """``hf://ORG/MODEL@COMMIT/``, as it stands in the manifest."""
    files: Sequence[FoundObject]
    token: str = field(default="", repr=False)
    """The client's own, from ``HF_TOKEN`` or where ``hf auth login`` left it; or empty."""


def list_repository(
    url: SourceUrl, selection: Selection, left_out: Counter[str] | None = None, *,
    sleep: Callable[[float], None] = time.sleep,
) -> HubListing:  # fmt: skip
    """The selected files of a repository, in order of path, and its commit. ``left_out``: as in ``tree.find_files``.
    Raises StorageError; PublishError ``E_SOURCE_LISTING`` without the hub's client; NothingSelectedError.
    """
    repository = hub_repository(url)
    try:
        import huggingface_hub
    except ImportError:
        raise PublishError(
            "hf:// repositories are listed by the package huggingface_hub: pip install 'gossipd[hf]'",
            code="E_SOURCE_LISTING",
        ) from None
    api = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or USUAL_ENDPOINT)
    expected: tuple[type[Exception], ...] = (OSError, ValueError, *_transport_errors())

    def ask() -> huggingface_hub.ModelInfo:
        try:
            with _one_proxy_rule(url.text), authorities_in(os.environ):
                return api.model_info(repository.name, revision=repository.revision, files_metadata=True)
        except expected as error:
            raise _from_client(error, f"hf://{repository.name}@{repository.revision}") from None

    found = _repeated(ask, sleep)
    files = [
        FoundObject(one.rfilename, one.size or 0, str(one.lfs.sha256 if one.lfs else one.blob_id), None)
        for one in found.siblings or ()
        if selection.admits(one.rfilename, left_out)
    ]
    if not files:
        raise NothingSelectedError(f"no file of {shown(url.text)} is selected, or there is none")
    name = found.id if "/" in found.id else repository.name  # which it is now, if it was renamed
    pinned = parse_source_url(f"hf://{name}@{found.sha}/", "SOURCE")
    return HubListing(pinned, sorted(files, key=lambda one: one.path.encode()), huggingface_hub.get_token() or "")


@contextmanager
def _one_proxy_rule(what: str) -> Iterator[None]:
    """The hub's client reads variables for proxies in a way of its own, so it finds only the outcome of our rule. Used
    by one thread, before and after hashing. Raises StorageError.
    """
    try:
        endpoint = Hub.of(os.environ, what).endpoint
        proxy = proxy_of(endpoint, what)
    except SourceError as error:
        raise StorageError(str(error), code=error.code) from None
    kept = {name: value for name, value in os.environ.items() if name.lower() in PROXY_VARIABLES}
    for name in kept:
        del os.environ[name]
    if proxy is not None:
        os.environ[f"{endpoint.scheme}_proxy"] = proxy.url
    try:
        yield
    finally:
        os.environ.pop(f"{endpoint.scheme}_proxy", None)
        os.environ.update(kept)


class HubFiles:
    """Reads extents of the files of a listing, which are in the manifest's order."""

    def __init__(self, listing: HubListing) -> None:
        self._listing = listing
        self._settings = SourceSettings()
        self._routes = HubRoutes({**os.environ, "HF_TOKEN": listing.token}, _OwnCommand())
        self.threads = THREADS

    def hash_extent(self, run: FileExtent) -> bytes:
        """Raises StorageError."""
        return _repeated(lambda: self._hash_once(run), time.sleep)

    def read_piece(self, index: int, offset: int, length: int) -> bytes:
        """A small part of one file. Raises StorageError."""
        return _repeated(lambda: self._read_once(Segment(index, offset, length)), time.sleep)

    def _read_once(self, segment: Segment) -> bytes:
        connections = WebConnections(self._settings, time.monotonic)
        try:
            return b"".join(bytes(piece) for piece in self._pieces(connections, segment))
        except SourceError as error:
            raise _from_source(error) from None
        finally:
            connections.close()

    def _hash_once(self, run: FileExtent) -> bytes:
        connections = WebConnections(self._settings, time.monotonic)  # one, which ends with the extent
        pieces = (piece for segment in run.segments for piece in self._pieces(connections, segment))
        try:
            return hash_pieces(pieces, run.lengths)
        except SourceError as error:
            raise _from_source(error) from None
        finally:
            connections.close()

    def _pieces(self, connections: WebConnections, segment: Segment) -> Iterator[memoryview]:
        one = self._listing.files[segment.file_index]
        location = Location.of(self._listing.url, one.path)
        wanted = Wanted(segment.offset, segment.length, one.size)
        opened: list[WebStream] = []

        def ask(at: Location, addresses: Addresses) -> None:
            opened.append(WebStream(connections, at, addresses, wanted, pieces=Pieces()))

        self._routes.lead(location, ask)
        with closing(opened[0]) as stream:
            if stream.version.size != one.size:
                raise SourceError(location.shown, "it has another size than in the listing")
            yield from stream


class _OwnCommand:
    """The operator names the repository on the command line: every host to which its hub leads may be asked."""

    def admit_hub(self, location: Location, hub: Hub, at: Location) -> Addresses:
        del hub
        return () if proxy_of(at.source, location.shown) is not None else resolve(at.source, location.shown)


class _BusyError(StorageError):
    """The hub asks for a pause, or failed in passing. Retry: yes, at the time that it names."""

    def __init__(self, message: str, *, code: str, retry_after_s: float | None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


def _repeated(ask: Callable[[], _Result], sleep: Callable[[float], None]) -> _Result:
    """What ``ask`` returns, after some pauses where the hub is busy."""
    for attempt in range(ATTEMPTS):
        try:
            return ask()
        except _BusyError as error:
            if attempt == ATTEMPTS - 1:
                raise
            asked_s = min(error.retry_after_s or 0.0, RETRY_AFTER_S_MAX)
            sleep(max(asked_s, BACKOFF_S * 2**attempt * random.uniform(0.5, 1.5)))
    raise AssertionError("the loop returns or raises")


def _from_source(error: SourceError) -> StorageError:
    text = str(error)
    if isinstance(error, SourceAuthError):
        return StorageAuthError(text)
    if isinstance(error, SourceNotFoundError):
        return StorageNotFoundError(text)
    if error.is_permanent or error.code in ("E_SOURCE_FORBIDDEN", "E_SOURCE_TLS"):
        return StorageError(text, code=error.code)
    return _BusyError(text, code=error.code, retry_after_s=error.retry_after_s)


def _from_client(error: Exception, what: str) -> StorageError | PublishError:
    """Translate an error of the hub's client, whose text is not shown because it quotes answers."""
    from huggingface_hub import errors

    known: tuple[tuple[type[Exception], type[StorageError], str], ...] = (
        (errors.OfflineModeIsEnabled, StorageError, "HF_HUB_OFFLINE forbids asking the hub; unset it to publish"),
        (errors.DisabledRepoError, StorageAuthError, "the hub has disabled it"),
        (errors.GatedRepoError, StorageAuthError, "the hub asks for consent to its terms, and a token of who gave it"),
        (errors.RepositoryNotFoundError, StorageNotFoundError, "the hub has none, or HF_TOKEN may not see it"),
        (errors.RevisionNotFoundError, StorageNotFoundError, "the repository has no such revision"),
    )
    for one, kind, said in known:
        if isinstance(error, one):
            return kind(f"{what}: {said}")
    response = getattr(error, "response", None)
    if response is not None:
        pause_s = asked_pause_s(response.headers.get, datetime.now(UTC))
        return _from_status(int(response.status_code), pause_s, what)
    if (refused := tls_failure_in(error, what, "the hub")) is not None:
        return StorageError(str(refused), code=refused.code)
    if isinstance(error, (OSError, *_transport_errors())):
        return _BusyError(f"{what}: no connection to the hub", code="E_SOURCE_UNREACHABLE", retry_after_s=None)
    return PublishError(f"{what}: the hub's client takes it for no repository", code="E_SOURCE_LISTING")


def _from_status(status: int, retry_after_s: float | None, what: str) -> StorageError:
    if status in (401, 403):
        return StorageAuthError(f"{what}: the hub refuses it: set HF_TOKEN to a token that may read it")
    if status not in _BUSY:
        return StorageError(f"{what}: the hub refused the request (status {status})")
    return _BusyError(
        f"{what}: the hub is busy or failed (status {status})", code="E_SOURCE_BUSY", retry_after_s=retry_after_s
    )


def _transport_errors() -> tuple[type[Exception], ...]:
    """The client's own, whose library has changed with its versions; those of the oldest are OSErrors."""
    modules = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return tuple(module.TransportError for module in modules)
