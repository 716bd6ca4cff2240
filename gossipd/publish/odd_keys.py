"""Keys of object stores that no file can have, and that obstore cannot list: ``dir//x``, ``a/../b``, a NUL.

What lives here: naming them, and a listing that gets past those that the operator leaves out. What does not: the usual
listing (``bucket``), and the rules on paths (``manifest.paths``).

obstore refuses a whole page of a listing for one such key. So it is named from obstore's error; where ``--exclude``
leaves it out, the bucket is listed a second time, with AWS' own client (``gossipd[aws]``), which takes keys as they
are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from gossipd.manifest.errors import shown
from gossipd.manifest.source_url import SourceUrl
from gossipd.publish.errors import PublishError, StorageError
from gossipd.publish.selection import Selection
from gossipd.sources.location import endpoint, family

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


def refusal(path: str) -> PublishError:
    """What the operator is told."""
    pattern = re.sub(r"([*?[])", r"[\1]", path) if path.isprintable() else "PATTERN"
    return PublishError(
        f"object {shown(path)}: no file can have this name; rename it, or leave it out with --exclude {shown(pattern)}",
        code="E_PATH_COMPONENT",
    )


def listed_past(path: str, url: SourceUrl, selection: Selection) -> Iterator[dict[str, Any]]:
    """All objects below the prefix, as obstore tells of them, but for those keys that no file can have and that are
    left out, as ``path`` is. Raises PublishError ``E_PATH_COMPONENT`` for one that is not left out; StorageError.
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
        raise PublishError(f"{needed}, in s3:// buckets; rename it", code="E_PATH_COMPONENT")
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import get_session
    except ImportError:
        raise PublishError(f"{needed}: pip install 'gossipd[aws]'", code="E_PATH_COMPONENT") from None
    prefix = url.path.strip("/")
    try:
        with closing(get_session().create_client("s3", endpoint_url=endpoint(url.scheme) or None)) as client:
            pages = client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=url.host, Prefix=f"{prefix}/" if prefix else ""):
                for meta in page.get("Contents", ()):
                    if path := _below(str(meta["Key"]), url):
                        yield {"path": path, "size": int(meta["Size"]), "e_tag": meta["ETag"], "last_modified": None}
    except (BotoCoreError, ClientError):
        raise StorageError(f"{url.shown}: AWS' client could not list it, to get past {shown(odd)}") from None


def _below(key: str, url: SourceUrl) -> str:
    prefix = url.path.strip("/")
    return key.removeprefix(f"{prefix}/") if prefix else key


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _NAMED.get(found[2], found[2])
