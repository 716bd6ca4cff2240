"""Models as a cache of the Hugging Face Hub has them, so that they load by their repository's name, offline.

What lives here: which links and refs a cache should have, and making it so. What does not: when (``daemon``), and the
models.

::

    CACHE/models--ORG--NAME/refs/main             the revision of the version that is current
    CACHE/models--ORG--NAME/snapshots/REVISION    one symbolic link to NAME/VERSION in the store

A revision is the first 40 digits of the deployment's id, as long as a commit of the Hub. The link comes before the ref
that names it, and the ref goes before its link, so a reader sees a whole model or none. An entry is ours when every
snapshot in it is a link into this store and it has no blobs; any other entry is somebody's download, and is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

REVISION_DIGITS = 40
_NEXT = ".gossipd-next"


class HubEntry(Struct, frozen=True):
    """What one repository should have: directories of complete versions by revision, and the current revision."""

    snapshots: Mapping[str, Path] = field(default_factory=dict)
    main: str | None = None


def settle_cache(cache: Path, store: Path, wanted: Mapping[str, HubEntry], served: frozenset[str]) -> list[str]:
    """Make a cache right for ``wanted``, by repository; those of ``served`` that are not wanted lose our links.

    Returns the entries that were left alone because they are somebody else's. Raises OSError, of the first entry that
    has one, when all others are right.
    """
    foreign, troubles = [], []
    for repository in sorted({*wanted, *served}):
        place = cache / f"models--{repository.replace('/', '--')}"
        try:
            if _is_ours(place, store):
                _settle(place, wanted.get(repository, HubEntry()))
            elif repository in wanted:
                foreign.append(place.name)
        except OSError as error:
            troubles.append(error)
    if troubles:
        raise troubles[0]
    return foreign


def _settle(place: Path, entry: HubEntry) -> None:
    if entry.main is not None:
        _add(place, entry)
    _remove(place, entry)


def _is_ours(place: Path, store: Path) -> bool:
    if any(one.is_symlink() for one in (place, place / "snapshots", place / "refs")):
        return False
    with suppress(FileNotFoundError):
        if os.listdir(place / "blobs"):
            return False
    snapshots: list[Path] = []
    with suppress(FileNotFoundError):
        snapshots = list((place / "snapshots").iterdir())
    if not snapshots:
        return not (place / "refs" / "main").exists()  # ours never has a ref without its link
    return all(link.is_symlink() and Path(os.readlink(link)).is_relative_to(store) for link in snapshots)


def _add(place: Path, entry: HubEntry) -> None:
    for name in ("snapshots", "refs"):
        (place / name).mkdir(parents=True, exist_ok=True, mode=0o755)
    for revision, directory in entry.snapshots.items():
        link = place / "snapshots" / revision
        if not link.is_symlink() or os.readlink(link) != str(directory):
            (place / _NEXT).unlink(missing_ok=True)
            (place / _NEXT).symlink_to(directory)
            (place / _NEXT).rename(link)
    main = place / "refs" / "main"
    assert entry.main is not None
    if not main.exists() or main.read_bytes() != entry.main.encode():
        (place / _NEXT).unlink(missing_ok=True)
        with (place / _NEXT).open("x") as file:  # never through a link that the cache's owner has put there meanwhile
            file.write(entry.main)
            os.fchmod(file.fileno(), 0o644)
        (place / _NEXT).rename(main)


def _remove(place: Path, entry: HubEntry) -> None:
    """Take away what is not wanted any more, and directories that are empty then."""
    with suppress(FileNotFoundError):
        if entry.main is None:
            (place / "refs" / "main").unlink()
    with suppress(FileNotFoundError):
        for link in (place / "snapshots").iterdir():
            if link.name not in entry.snapshots:
                link.unlink()
    if entry.main is None:
        for directory in (place / "snapshots", place / "refs", place / "blobs", place):
            with suppress(OSError):  # not empty: somebody has put something there
                directory.rmdir()
