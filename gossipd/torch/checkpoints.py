"""``torch.distributed.checkpoint`` through the daemon of this host.

What lives here: where checkpoints of torch meet the client. What does not: their format, which is torch's own
(``FileSystemWriter``), so that a version is loaded without gossipd, too, and with another number of ranks.

Ranks that share a directory save with ``GossipdWriter``: the coordinator's daemon publishes when torch has written
``.metadata``. Ranks that save on the disks of several hosts call ``save_shards``: there each host publishes its own.

A reader of a part orders the bytes that torch's plan names (``ranges:``), and reads only where the part that lies here
was made for them: everything else in a file with holes would read as zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

from gossipd.client import Client, EndedError, NotThereError, NotTrustedError, Publication
from gossipd.client.shards import AllGather, together
from gossipd.core.errors import ExitCode, GossipdError

METADATA = ".metadata"
_NOT_READY = "E_NOT_READY"
HOLES_SUFFIX = ".holes"
ATTEMPTS_MAX = 10  # at holding a part that other ranks make grow
TERMS_MAX, TERMS_BYTES_MAX = 1000, 48 * 1024  # a little under the daemon's limits
GAP_BYTES = 1 << 20  # between two ranges: a chunk, which comes whole anyway


class HoleError(GossipdError):
    """The part on this host was not made for what is to be read. Fault: who changed what this host wants meanwhile.
    Retry: load again."""

    code = "E_HOLE"
    exit_code: ClassVar[ExitCode] = ExitCode.PARTIAL


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
    """A storage reader of a version on this host; it is fetched first where it is not complete here.

    With ``part`` only what this rank reads is fetched first, and the rest after the block::

        with GossipdReader("run-7", version, part=True) as reader:
            dcp.load(state, storage_reader=reader)

    The block's end takes away what it ordered (``Client.want``), and nothing else; without other orders for the name
    this host holds whole versions again.
    """

    def __init__(
        self, name: str, version: int | None = None, *, client: Client | None = None, timeout: float | None = None,
        part: bool = False,
    ) -> None:  # fmt: skip
        """``timeout``: seconds of each wait, None is for ever. ``part``: this user must be one who may give orders.
        Raises what ``Client.wait`` and ``Client.want`` do."""
        self._client, self._name, self._timeout = client or Client(), name, timeout
        self._is_part = part and not self._is_whole(version)
        self._holder = uuid4().hex
        if self._is_part:
            self._client.want(name, f"files:{METADATA}", holder=self._holder)
        self.version = self._client.wait(name, version, timeout=timeout).version
        with self._held() as directory:
            super().__init__(directory)
        self.storage_data: dict[Any, Any] = {}

    def __enter__(self) -> GossipdReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_part:
            self._client.want(self._name, clear=True, holder=self._holder)

    def read_metadata(self, *given: Any, **options: Any) -> Any:
        """See StorageReader."""
        with self._held() as self.path:
            return super().read_metadata(*given, **options)

    def prepare_local_plan(self, plan: Any) -> Any:
        """See StorageReader. All ranks have ordered before any reads: torch gathers the plans in between."""
        if self._is_part:
            self._client.want(self._name, *self._terms(plan), holder=self._holder)
        return super().prepare_local_plan(plan)

    def read_data(self, plan: Any, planner: Any) -> Future[None]:
        """See StorageReader. Raises HoleError, and what ``Client.wait`` does."""
        with self._held() as self.path:
            here = self._client.part(self._name, self.version)
            if here.path != self.path or (here.want and not set(self._terms(plan)) <= set(here.want)):
                raise HoleError(f"what this host wants of {self._name} was changed while it was loaded")
            self.storage_data = {
                index: info if (self.path / info.relative_path).exists() else _with_holes(info)
                for index, info in self.storage_data.items()
            }
            read: Future[None] = super().read_data(plan, planner)
            return read

    @contextmanager
    def _held(self) -> Iterator[Path]:
        """What lies here, complete; other ranks of this host may order more, and the part moves then."""
        for attempt in range(ATTEMPTS_MAX):
            self._client.wait(self._name, self.version, timeout=self._timeout)
            with ExitStack() as stack:
                try:
                    directory = stack.enter_context(self._client.hold(self._name, self.version, part=self._is_part))
                except NotThereError:
                    if attempt + 1 == ATTEMPTS_MAX:
                        raise
                    continue
                yield directory
                return

    def _is_whole(self, version: int | None) -> bool:
        try:
            return version is not None and self._client.path(self._name, version).is_dir()
        except NotThereError:
            return False

    def _terms(self, plan: Any) -> tuple[str, ...]:
        return terms_of(self.storage_data[item.storage_index] for item in plan.items)


def terms_of(read: Iterable[Any]) -> tuple[str, ...]:
    """The want of these places in files (``_StorageInfo``): their bytes, or whole files where that is too long."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for info in sorted(read, key=lambda info: (info.relative_path, info.offset)):
        own, end = spans.setdefault(info.relative_path, []), info.offset + info.length
        if own and info.offset <= own[-1][1] + GAP_BYTES:
            own[-1] = own[-1][0], max(own[-1][1], end)
        else:
            own.append((info.offset, end))
    terms = [f"ranges:{path}:" + ",".join(f"{begin}-{end}" for begin, end in own) for path, own in spans.items()]
    is_long = len(terms) > TERMS_MAX or sum(map(len, terms)) > TERMS_BYTES_MAX
    return tuple(f"files:{path}" for path in spans) if is_long else tuple(terms)


def _with_holes(info: Any) -> Any:
    return replace(info, relative_path=f"{info.relative_path}{HOLES_SUFFIX}")


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


def newest(
    name: str, *, client: Client | None = None, group: Any = None, timeout: float | None = None, fetch: bool = True,
    before: int | None = None,
) -> int | None:  # fmt: skip
    """The version from which all ranks go on, complete on the host of each when it returns; None for a new run.

    Each rank names the newest version that is complete on some living host, or can be had: living hosts have each of
    its chunks, or its storage can be read. The highest that any names is fetched by all.

    Args:
        timeout: seconds of the wait; None is for ever.
        fetch: False waits for nothing, for ``GossipdReader(..., part=True)``.
        before: only versions below this one, as after one that does not load.
    Raises:
        RankFailedError: another rank's host has failed. NotTrustedError, ``E_EQUIVOCATION``: hosts have different
            contents of that version. EndedError, ``E_NOT_READY``: there are versions, and none can be had, or none is
            below ``before``. What ``Client.wait`` does.
    """
    asked, gather = client or Client(), all_gather(group)
    named = together(gather, lambda: _recoverable(asked, name, before))
    version = max(number for number, _ in named)
    if version < 0:
        for _, sentence in named:
            if sentence:
                raise EndedError(_NOT_READY, sentence, ExitCode.PARTIAL)
        return None
    if fetch:  # and nobody loads before all have it
        ids = set(together(gather, lambda: asked.wait(name, version, timeout=timeout).id))
        if len(ids) > 1:
            sentence = f"hosts have different contents of {name}@{version}: {', '.join(sorted(ids))}"
            raise NotTrustedError("E_EQUIVOCATION", sentence, ExitCode.TRUST)
    return version


def _recoverable(client: Client, name: str, before: int | None) -> tuple[int, str]:
    """The version, or -1, and why there is none though some are known."""
    try:
        return client.latest(name, where="recoverable", before=before).version, ""
    except NotThereError as error:
        # Who names a version has seen one: this is no new run, and must not begin as one.
        return -1, "" if before is None else str(error)
    except EndedError as error:
        if error.code != _NOT_READY:
            raise
        return -1, str(error)
