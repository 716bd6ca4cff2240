"""One object of external storage: its client's address, its path below that, and its address for people.

obstore percent-encodes paths (tested with every printable character). The shown address has no query, fragment or
userinfo, because a checked source URL has none.
"""

from __future__ import annotations

import os
from functools import lru_cache
from urllib.parse import quote, urlsplit

from gossipd.core.hiding_struct import HidingStruct
from gossipd.manifest.source_url import HUB_SCHEME, WEB_SCHEMES, SourceUrl

ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_FAMILIES = {"s3a": "s3", "azure": "az", "adl": "az", "abfs": "az", "abfss": "az"}

_KEPT = 1024  # locations and authorities: each read asks for them several times


class Location(HidingStruct, frozen=True):
    """One object. ``shown`` is its address for people; a client is opened for ``base`` and asked for ``path``."""

    source: SourceUrl
    base: str
    path: str
    target: str
    """Request target of an HTTP object, percent-encoded."""
    authorization: str = ""
    """Value of the header of that name, or empty."""

    hidden = ("target", "authorization")

    @classmethod
    def of(cls, source: SourceUrl, file_path: str) -> Location:
        """The object that holds the manifest's file ``file_path``."""
        return _location(source, file_path)

    @property
    def shown(self) -> str:
        """The address for messages: as in the manifest, with the file's path not encoded."""
        return self.base + self.path

    @property
    def is_on_web(self) -> bool:
        """Whether it is read by gossipd's own reader of web objects."""
        return self.source.scheme in WEB_SCHEMES

    @property
    def is_on_hub(self) -> bool:
        """Whether a hub says where it is."""
        return self.base.startswith(f"{HUB_SCHEME}://")

    @property
    def key(self) -> tuple[str, str]:
        return self.base, self.path


@lru_cache(_KEPT)
def _location(source: SourceUrl, file_path: str) -> Location:
    base = f"{source.text.rstrip('/')}/"
    return Location(source, base, file_path, urlsplit(base).path + quote(file_path))


@lru_cache(_KEPT)
def authority(source: SourceUrl) -> str:
    """The scheme, host and port that share a pace and an admission."""
    return f"{source.scheme}://{source.bracketed}:{source.port}"


def family(scheme: str) -> str:
    """The scheme that stands for all that name the same kind of storage: ``s3``, ``gs``, ``az``, else itself."""
    return _FAMILIES.get(scheme, scheme)


def endpoint(scheme: str) -> str:
    """The endpoint that this host's environment names for this kind of storage, or nothing."""
    named = (os.environ.get(name, "") for name in ENDPOINT_VARIABLES.get(family(scheme), ()))
    return next(filter(None, named), "")


def allows_clear_text(source: SourceUrl, profile_endpoint: str = "") -> bool:
    """Whether this address is plain HTTP, or the storage's endpoint in this host's environment or profile."""
    return source.scheme == "http" or (endpoint(source.scheme) or profile_endpoint).startswith("http://")
