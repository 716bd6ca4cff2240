"""``torch.distributed.checkpoint`` through the daemon of this host.

What lives here: where checkpoints of torch meet the client. What does not: their format, which is torch's own
(``FileSystemWriter``), so that a version is loaded without gossipd, too, and with another number of ranks.

Ranks that share a directory save with ``GossipdWriter``: the coordinator's daemon publishes when torch has written
``.metadata``. Ranks that save on the disks of several hosts call ``save_shards``: there each host publishes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

from gossipd.client import Client, NotThereError, Publication
from gossipd.client.shards import AllGather


def all_gather(group: Any = None) -> AllGather:
    """``all_gather_object`` of a process group, as ``Client.publish_shards`` wants it."""

    def gather(value: Any) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(values, value, group=group)
        return values

    return gather


class GossipdWriter(FileSystemWriter):
    """A storage writer whose checkpoint becomes a version: ``dcp.save(state, storage_writer=GossipdWriter(...))``.

    ``publication`` is set on the coordinator when ``save`` has returned. A refusal of the daemon's ends ``save`` with
    its error on all ranks; the files are whole then.
    """

    def __init__(
        self, path: str | Path, *, name: str, step: int | None = None, client: Client | None = None,
        keep_last: int | None = None, keep_every: int | None = None, about: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        """``options``: of FileSystemWriter; the others: of ``Client.publish``."""
        super().__init__(path, **options)
        self._directory = Path(path)
        self._publish: Callable[[], Publication] = lambda: (client or Client()).publish(
            self._directory, name=name, step=step, keep_last=keep_last, keep_every=keep_every, about=about
        )
        self.publication: Publication | None = None

    def finish(self, metadata: Any, results: Any) -> None:
        super().finish(metadata, results)
        self.publication = self._publish()


class GossipdReader(FileSystemReader):
    """A storage reader of a version on this host; it is fetched first where it is not complete here."""

    def __init__(
        self, name: str, version: int | None = None, *, client: Client | None = None, timeout: float | None = None
    ) -> None:
        """``timeout``: seconds of waiting, None is for ever. Raises what ``Client.wait`` does."""
        asked = client or Client()
        self.version = asked.wait(name, version, timeout=timeout).version
        super().__init__(asked.path(name, self.version))


def save_shards(
    state: dict[str, Any], directory: str | Path, *, name: str, step: int, client: Client | None = None,
    group: Any = None, keep_last: int | None = None, keep_every: int | None = None,
    about: Mapping[str, Any] | None = None,
) -> Publication:  # fmt: skip
    """``dcp.save`` into a directory on this host's own disk, then one version of the files of all hosts.

    Every rank calls it, and each is the only one on its host. Raises what ``Client.publish_shards`` does.
    """
    dcp.save(state, storage_writer=FileSystemWriter(directory), process_group=group)
    return (client or Client()).publish_shards(
        directory, name=name, step=step, rank=dist.get_rank(group), ranks=dist.get_world_size(group),
        all_gather=all_gather(group), keep_last=keep_last, keep_every=keep_every, about=about,
    )  # fmt: skip


def newest(name: str, *, client: Client | None = None, group: Any = None, timeout: float | None = None) -> int | None:
    """The version from which all ranks go on, complete on the host of each when it returns; None for a new run.

    Each rank names the newest version that is complete on some living host; the highest that any names is fetched by
    all. Raises what ``Client.wait`` does.
    """
    asked = client or Client()
    try:
        mine = asked.latest(name, where="anywhere").version
    except NotThereError:
        mine = -1
    version: int = max(all_gather(group)(mine))
    if version < 0:
        return None
    asked.wait(name, version, timeout=timeout)
    all_gather(group)(version)  # nobody loads before all have it
    return version
