"""A step whose files lie on the hosts that saved them becomes one version, without moving a byte before it exists.

What lives here: the steps that all ranks take together. What does not: the ranks' own way to exchange values, which the
job has (``torch.distributed``, MPI), and what the daemon does in each step.

1. Each rank's daemon hashes what lies on its host, and signs the hashes. The ranks exchange them.
2. The daemon of rank 0 joins them and signs the manifest; the ranks hear it.
3. Each rank's daemon copies its own files into its store. When all have, rank 0's tells the cluster.

Whatever fails on one rank is exchanged like a value, so every rank ends with an error instead of waiting for ever, and
no version exists. Rejected: daemons that collect the hashes of each other, because only the job knows its ranks.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient
from gossipd.client.arguments import absolute_path, given, patterns, text, whole
from gossipd.client.errors import typed_refusals
from gossipd.core.errors import ExitCode, GossipdError

AllGather: TypeAlias = Callable[[Any], Sequence[Any]]
"""Gives every rank the values of all, in the order of ranks."""
Patterns: TypeAlias = "str | Sequence[str]"
"""One pattern of paths, or several."""
_T = TypeVar("_T")
_CHUNK_BYTES = 1 << 20  # of a step of a few GB some thousand chunks; smaller ones share more where weights are frozen


class _Call(Protocol):
    def __call__(self, **fields: object) -> Iterator[dict[str, Any]]: ...


class RankFailedError(RefusedByDaemonError):
    """Another rank could not do its share; the sentence names it. State: no version was made. Retry: after its cure."""


class ShardedStep:
    """One publication, as one rank takes part in it."""

    def __init__(
        self, daemon: StatusClient, directory: str | Path, name: str, all_gather: AllGather, exclude: Patterns = ()
    ) -> None:
        """``exclude``: files of this rank's that are no part of the version."""
        self._daemon = daemon
        self._given = directory, name, exclude  # judged with all else that a rank gives, so that none waits for another
        self._directory = self._name = ""
        self._all_gather = all_gather

    def publish(
        self, *, rank: int, ranks: int, chunk_bytes: int | None, about: Mapping[str, Any] | None,
        numbers: Mapping[str, int | None],
    ) -> dict[str, Any]:  # fmt: skip
        """See ``Client.publish_shards``. ``numbers``: version or step, and which versions live. Returns the last line
        of rank 0's daemon."""

        def first() -> bytes:
            """What one rank has given wrong ends all of them."""
            given(about, **numbers)
            self._directory, self._name = str(absolute_path(self._given[0], "path")), text(self._given[1], "name")
            return self._shards(whole(rank, "rank"), whole(ranks, "ranks"), chunk_bytes)

        shards = together(self._all_gather, first)
        whole_of = given(about, **numbers)
        signed = together(self._all_gather, lambda: self._assembled(shards, whole_of) if rank == 0 else b"")[0]
        together(self._all_gather, lambda: self._adopt(signed, is_told=False))
        last: dict[str, Any] = together(
            self._all_gather, lambda: self._adopt(signed, is_told=True) if rank == 0 else {}
        )[0]
        return last

    def _shards(self, rank: int, ranks: int, chunk_bytes: int | None) -> bytes:
        size = _CHUNK_BYTES if chunk_bytes is None else whole(chunk_bytes, "chunk_bytes")
        fields: dict[str, object] = {"directory": self._directory, "name": self._name, "chunk_bytes": size}
        fields |= patterns(self._given[2])
        return b64decode(last_line(self._daemon.shards, **fields, rank=rank, ranks=ranks)["envelope"])

    def _assembled(self, shards: Sequence[bytes], given: Mapping[str, object]) -> bytes:
        with _shown_directory(Path(self._directory).parent) as private:
            for rank, own in enumerate(shards):
                (private / f"{rank:04d}").write_bytes(own)
            return b64decode(
                last_line(self._daemon.assemble, shards=str(private), name=self._name, **given)["envelope"]
            )

    def _adopt(self, manifest: bytes, *, is_told: bool) -> dict[str, Any]:
        with _shown_directory(Path(self._directory).parent) as private:
            path = private / "manifest"
            path.write_bytes(manifest)
            return last_line(self._daemon.adopt_shards, directory=self._directory, manifest=str(path), told=is_told)


def together(all_gather: AllGather, step: Callable[[], _T]) -> list[_T]:
    """What all ranks' ``step`` returned. Raises this rank's own error, else RankFailedError for another's."""
    own: GossipdError | None = None
    value: _T | None = None
    try:
        value = step()
    except GossipdError as error:
        own = error
    except OSError as error:
        own = DaemonUnreachableError(f"{error.filename or 'a file'}: {error.strerror or error}")
    told = all_gather(("", value) if own is None else (own.sentence, None))
    if own is not None:
        raise own
    for other, (sentence, _) in enumerate(told):
        if sentence:
            code = sentence.partition(":")[0]
            raise RankFailedError(code, f"rank {other}: {sentence}", ExitCode.PARTIAL)
    return [found for _, found in told]


def last_line(call: _Call, **fields: object) -> dict[str, Any]:
    """The answer, after lines of progress. Raises DaemonUnreachableError, or what ``typed_refusals`` does."""
    last: dict[str, Any] = {}
    with typed_refusals():
        for last in call(**fields):  # noqa: B007 - the last line is the answer
            pass
    if not last.get("done"):
        raise DaemonUnreachableError(f"the daemon ended before {fields.get('name', 'its copy')} was published")
    return last


@contextmanager
def _shown_directory(beside: Path) -> Iterator[Path]:
    """A temporary directory that the daemon, another user perhaps, can read: where it reads the checkpoint, as its unit
    may hide this process's /tmp from it."""
    import tempfile  # some milliseconds that most clients do not need

    parent = beside if os.access(beside, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix=".gossipd-shards-", suffix=".tmp", dir=parent) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
