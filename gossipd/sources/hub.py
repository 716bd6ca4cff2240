"""Models on the Hugging Face Hub, ``hf://ORG/MODEL[@REVISION]``: where the hub says that a file is just now.

What lives here: the hub's address and token from this host's environment, redirects, renewal. What does not: reading
(``web_stream``), listing a repository (``publish.hub_listing``).

The hub answers for each file either with its bytes or with a redirect to an address on another host, signed and good
for a while only. That address is remembered for the ranges that follow, and asked for again when its host refuses it or
fails. It is as good as a password: no message shows it, and nothing writes it down. The token goes to the hub's own
host and to no other. An address on this machine or its link is read only where ``sources.allow`` or ``HF_ENDPOINT``
names it.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from gossipd.manifest.errors import ManifestError
from gossipd.manifest.source_url import WEB_SCHEMES, SourceUrl, hub_repository, parse_source_url
from gossipd.sources import errors
from gossipd.sources.addresses import Addresses
from gossipd.sources.location import Location, authority

USUAL_ENDPOINT = "https://huggingface.co"
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""As the hub's own client reads them; the second is older."""
HOPS_MAX = 4  # a renamed repository, the storage behind it, and one renewal
ROUTES_MAX = 4096  # of the files that are read just now
_TARGET = re.compile(r"[!-~]+", re.ASCII)
_NOT_THERE = {
    "RepoNotFound": "the hub knows no such repository, or HF_TOKEN of this host may not see it",
    "RevisionNotFound": "the hub's repository has no such revision",
    "EntryNotFound": "the hub's repository has no such file",
}
_NOT_ALLOWED = {
    "GatedRepo": "the hub asks for consent to its terms: set HF_TOKEN of this host to a token of who gave it",
    "DisabledRepo": "the hub has disabled the repository",
}
_REFUSED = "the hub refuses it: set HF_TOKEN in this host's environment to a token that may read it"


class Hub(Struct, frozen=True):
    """One hub, as this host's environment names it."""

    endpoint: SourceUrl
    authorization: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str], what: str) -> Hub:
        """The hub that ``HF_ENDPOINT`` names, and its token. Raises SourceAuthError, SourceForbiddenError."""
        text = environment.get("HF_ENDPOINT", "").strip().rstrip("/") or USUAL_ENDPOINT
        try:
            endpoint = parse_source_url(text, "HF_ENDPOINT")
        except ManifestError as error:
            raise errors.SourceForbiddenError(what, str(error)) from None
        if endpoint.scheme not in WEB_SCHEMES:
            raise errors.SourceForbiddenError(what, "HF_ENDPOINT must be an http or https address")
        token = next((one for name in TOKEN_VARIABLES if (one := environment.get(name, "").strip())), "")
        if token and not _TARGET.fullmatch(token):
            raise errors.SourceAuthError(what, "HF_TOKEN is no token: it holds blanks or characters beyond ASCII")
        return cls(endpoint, f"Bearer {token}" if token else "")

    def location(self, location: Location) -> Location:
        """The place at the hub that answers for the file at ``location``, or says where it is."""
        repository = hub_repository(location.source)
        path = f"{urlsplit(self.endpoint.text).path.rstrip('/')}/{repository.name}/resolve"
        target = f"{path}/{quote(repository.revision, safe='')}/{quote(location.path)}"
        return replace(location, source=self.endpoint, target=target, authorization=self.authorization)

    def owns(self, at: Location) -> bool:
        """Whether this is the hub's own host."""
        return authority(at.source) == authority(self.endpoint)

    def names(self, address: str) -> bool:
        """Whether ``HF_ENDPOINT`` is this very address, or ``localhost`` and this is one of its addresses."""
        host = self.endpoint.host
        return host == address or (host == "localhost" and ip_address(address.partition("%")[0]).is_loopback)

    def redirected(self, at: Location, target: str) -> Location:
        """Where a redirect leads. Raises SourceRedirectError, which shows the host at most."""
        try:
            parts = urlsplit(urljoin(f"{authority(at.source)}{at.target}", target))
            source = parse_source_url(f"{parts.scheme}://{parts.netloc}/")
        except (ValueError, ManifestError):
            raise errors.SourceRedirectError(at.shown, "the hub redirects to something that is no address") from None
        way = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        if source.scheme not in WEB_SCHEMES or not _TARGET.fullmatch(way):
            raise errors.SourceRedirectError(at.shown, "the hub redirects to something that is no address")
        if at.source.scheme == "https" and source.scheme != "https":
            raise errors.SourceRedirectError(at.shown, f"{at.source.host} redirects to {source.host} without TLS")
        authorization = self.authorization if authority(source) == authority(self.endpoint) else ""
        return replace(at, source=source, target=way, authorization=authorization)


class HubAdmission(Protocol):
    """Who says which hosts may be asked."""

    def admit_hub(self, location: Location, hub: Hub, at: Location) -> Addresses:
        """The addresses for ``at``, to which the hub led for ``location``. Raises SourceError."""


class HubRoutes:
    """Where the files of hubs are just now. Thread-safe. ``environment`` is read at each look-up."""

    def __init__(self, environment: Mapping[str, str], admission: HubAdmission) -> None:
        self._environment = environment
        self._admission = admission
        self._lock = threading.Lock()
        self._routes: OrderedDict[tuple[str, str], Location] = OrderedDict()

    def lead(self, location: Location, attempt: Callable[[Location, Addresses], None]) -> None:
        """Call ``attempt`` with the file's place and its addresses; again after a redirect, or when a signed address
        has expired. ``attempt`` has had no effect when it raises because of a redirect or a refusal. Raises
        SourceError.
        """
        hub = Hub.of(self._environment, location.shown)
        own = hub.location(location)
        with self._lock:
            at = self._routes.get(location.key, own)
        may_renew = at is not own
        for _ in range(HOPS_MAX):
            try:
                attempt(at, self._admission.admit_hub(location, hub, at))
            except errors.SourceRedirectError as error:
                self._drop(location)  # whatever led here leads no further
                at = hub.redirected(at, error.target)
                self._keep(location, at)
            except errors.SourceError as error:
                self._drop(location)  # also where its host is ill: the hub may lead to another
                if not _may_be_expired(error):
                    raise
                if not may_renew:
                    raise _in_words(error, is_own=hub.owns(at)) from None
                at, may_renew = own, False
            else:
                return
        self._drop(location)  # or a page that leads to itself would be asked for ever, and the hub no more
        raise errors.SourceRedirectError(location.shown, f"the hub redirects more than {HOPS_MAX - 1} times")

    def forget(self) -> None:
        """Ask the hub again for every file."""
        with self._lock:
            self._routes.clear()

    def _keep(self, location: Location, at: Location) -> None:
        with self._lock:
            self._routes[location.key] = at
            self._routes.move_to_end(location.key)
            while len(self._routes) > ROUTES_MAX:
                self._routes.popitem(last=False)

    def _drop(self, location: Location) -> None:
        with self._lock:
            self._routes.pop(location.key, None)


def _may_be_expired(error: errors.SourceError) -> bool:
    """Object stores answer 403, 404, 410 or 400 to a signature that has expired."""
    return isinstance(error, errors.SourceAuthError | errors.SourceNotFoundError) or error.code == "E_SOURCE"


def _in_words(error: errors.SourceError, *, is_own: bool) -> errors.SourceError:
    if not is_own:
        if not isinstance(error, errors.SourceAuthError):
            return error
        return errors.SourceAuthError(error.what, "the storage behind the hub refuses an address that is just signed")
    if error.said in _NOT_THERE:
        return errors.SourceNotFoundError(error.what, _NOT_THERE[error.said])
    if error.said in _NOT_ALLOWED:
        return errors.SourceAuthError(error.what, _NOT_ALLOWED[error.said])
    return errors.SourceAuthError(error.what, _REFUSED) if isinstance(error, errors.SourceAuthError) else error
