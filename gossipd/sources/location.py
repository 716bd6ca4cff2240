"""One object of external storage: its client's address, its path below that, and its address for people.

obstore percent-encodes paths (tested with every printable character). The shown address has no query, fragment or
userinfo, because a checked source URL has none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from gossipd.manifest.source_url import HUB_SCHEME, WEB_SCHEMES, SourceUrl

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


@dataclass(frozen=True, slots=True)
class Location:
    """One object. ``shown`` is its address for people; a client is opened for ``base`` and asked for ``path``."""

    source: SourceUrl
    base: str
    path: str
    target: str = field(repr=False)
    """Request target of an HTTP object, percent-encoded."""
    authorization: str = field(default="", repr=False)
    """Value of the header of that name, or empty."""

    @classmethod
    def of(cls, source: SourceUrl, file_path: str) -> Location:
        """The object that holds the manifest's file ``file_path``."""
        base = f"{source.text.rstrip('/')}/"
        return cls(source, base, file_path, urlsplit(base).path + quote(file_path))

    @property
    def shown(self) -> str:
        """For messages: as in the manifest, with the file's path not encoded."""
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


def authority(source: SourceUrl) -> str:
    """The scheme, host and port that share a pace and an admission."""
    return f"{source.scheme}://{source.host}:{source.port}"


def allows_clear_text(source: SourceUrl) -> bool:
    """Whether this address, or the S3 endpoint in this host's environment, is plain HTTP."""
    if source.scheme == "http":
        return True
    endpoints = (os.environ.get(name, "") for name in _ENDPOINT_VARIABLES)
    return source.scheme.startswith("s3") and any(one.startswith("http://") for one in endpoints)
