"""Keys of object stores that no file can have, and that obstore cannot list: ``dir//x``, ``a/../b``, a NUL.

What lives here: naming them, and a listing that gets past those that the operator leaves out. What does not: the usual
listing (``bucket``), and the rules on paths (``manifest.paths``).

obstore refuses a whole page of a listing for one such key. So it is named from obstore's error; where ``--exclude``
leaves it out, the bucket is listed a second time, with AWS' own client (``gossipd[aws]``), which takes keys as they
are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.source_url import WEB_SCHEMES, SourceUrl
from gossipd.publish.errors import StorageError
from gossipd.publish.selection import Selection, pattern_for
from gossipd.sources.aws_credentials import AwsCredentials
from gossipd.sources.credential_places import is_unsigned
from gossipd.sources.location import endpoint, family
from gossipd.sources.proxies import storage_proxy

_QUOTED = re.compile(r'path: "((?:[^"\\]|\\.)*)"')  # of a Rust value as Rust shows it
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))")
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def odd_key(text: str, url: SourceUrl) -> str | None:
    """The key that obstore could not list, below the prefix; None for another error. ``text``: of its error."""
    found = _QUOTED.search(text) if "invalid path" in text else None
    if found is None:
        return None
    return _below(_ESCAPE.sub(_unescaped, found[1]), url)


def no_file_can_have(path: str) -> bool:
    """Whether a key can be neither listed nor stored."""
    parts = path.split("/")
    return not path.isprintable() or any(part in ("", ".", "..") for part in parts)


def refusal(path: str) -> ManifestError:
    """What the operator is told."""
    cure = f"rename it, or leave it out with --exclude {shown(pattern_for(path))}"
    return ManifestError(f"object {shown(path)}: no file can have this name; {cure}", code="E_PATH_COMPONENT")


def listed_past(path: str, url: SourceUrl, selection: Selection) -> Iterator[dict[str, Any]]:
    """All objects below the prefix, as obstore tells of them, but for those keys that no file can have and that are
    left out, as ``path`` is. Raises ManifestError ``E_PATH_COMPONENT`` for one that is not left out; StorageError.
    """
    for one in _listed(url, path):
        if one["path"].endswith("/") and not one["size"]:
            continue  # the mark of a directory
        if not no_file_can_have(one["path"]):
            yield one
        elif selection.admits(one["path"]):
            raise refusal(one["path"])


def _listed(url: SourceUrl, odd: str) -> Iterator[dict[str, Any]]:
    needed = f"object {shown(odd)} is left out, but can be listed past only with AWS' client"
    if family(url.scheme) != "s3":
        cure = f"rename it, or publish a copy on disk with --source {shown(url.text)}"
        raise ManifestError(f"{needed}, in s3:// buckets; {cure}", code="E_PATH_COMPONENT")
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise ManifestError(f"{needed}: pip install 'gossipd[aws]'", code="E_PATH_COMPONENT") from None
    prefix = url.path.strip("/")
    asked = {"Bucket": url.host, "Prefix": f"{prefix}/" if prefix else ""}
    if os.environ.get("AWS_REQUEST_PAYER"):
        asked["RequestPayer"] = "requester"
    try:
        with closing(_aws_client(url)) as client:
            for page in client.get_paginator("list_objects_v2").paginate(**asked):
                for meta in page.get("Contents", ()):
                    if path := _below(str(meta["Key"]), url):
                        yield {"path": path, "size": int(meta["Size"]), "e_tag": meta["ETag"], "last_modified": None}
    except (BotoCoreError, ClientError):
        raise StorageError(f"{url.shown}: AWS' client could not list it, to get past {shown(odd)}") from None


def _aws_client(url: SourceUrl) -> Any:
    """With what obstore takes from the environment, and proxies by the rule for all reads: it has others of its own."""
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.session import get_session

    proxy = storage_proxy(url.scheme, url.host, os.environ, AwsCredentials().options(url.scheme, url.shown))
    config = Config(
        proxies={} if proxy is None else dict.fromkeys(WEB_SCHEMES, proxy.url),
        signature_version=UNSIGNED if is_unsigned(url.scheme, os.environ) else None,
    )
    region = os.environ.get("AWS_REGION")
    return get_session().create_client("s3", region, endpoint_url=endpoint(url.scheme) or None, config=config)


def _below(key: str, url: SourceUrl) -> str:
    prefix = url.path.strip("/")
    return key.removeprefix(f"{prefix}/") if prefix else key


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _NAMED.get(found[2], found[2])
