"""Hashing the files that one host has of a version whose files lie on several.

What lives here: the directory's files and their hashes, as a signed shard set. What does not: putting those together
(``manifest.shards``).
"""

from __future__ import annotations

import time
from pathlib import Path

from gossipd.identity.keys import SecretKey
from gossipd.manifest.errors import shown
from gossipd.manifest.manifest import ManifestDraft
from gossipd.manifest.payload import FileEntry, check_tree
from gossipd.manifest.shards import seal_shards
from gossipd.publish.adoption import files_of
from gossipd.publish.errors import TreeChangedError, blaming_the_caller
from gossipd.publish.file_reading import LocalFiles
from gossipd.publish.hashing import hash_chunks
from gossipd.publish.publisher import PublishProgress
from gossipd.publish.selection import Selection
from gossipd.publish.tree import find_files


@blaming_the_caller()
def hash_shards(
    directory: Path, name: str, selection: Selection, secret: SecretKey, progress: PublishProgress,
    *, rank: int, ranks: int, chunk_bytes: int, user: int,
) -> bytes:  # fmt: skip
    """The signed shard set. ``user``: whose the files must be, see ``adoption``. Raises PublishError, NotOwnerError,
    TreeChangedError: a file changed or vanished meanwhile."""
    found = files_of(directory, selection, user)
    files = tuple(FileEntry(one.path, one.size, one.mode) for one in found)
    layout = check_tree(files, chunk_bytes)
    progress.found(len(files), layout.bytes_total)
    digests = hash_chunks(layout, LocalFiles(found), progress.hashed)
    if find_files(directory, selection) != found:
        raise TreeChangedError(f"{shown(str(directory))} changed while it was hashed; save it first, then publish")
    draft = ManifestDraft(
        name=name, version=0, created_s=int(time.time()), files=files, chunk_bytes=chunk_bytes, digests=digests,
        sources=(),
    )  # fmt: skip
    return seal_shards(draft, secret, rank=rank, ranks=ranks)
