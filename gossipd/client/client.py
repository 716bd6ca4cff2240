"""What a job asks of the daemon on its host.

What lives here: ``Client``, blocking, for any thread. What does not: requests and the search for the socket
(``api.client``, the low-level client that the commands use too), and coroutines (``aio``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, TypeAlias

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient, find_sockets
from gossipd.client.arguments import absolute_path, given, patterns, seconds, text, whole_or_none
from gossipd.client.errors import NotThereError, TimedOutError, typed_refusals
from gossipd.client.events import Event, events_of
from gossipd.client.holding import held
from gossipd.client.lineage import ancestors
from gossipd.client.patience import Patience
from gossipd.client.publishing_thread import PublishingThread
from gossipd.client.shards import AllGather, Patterns, ShardedStep, last_line
from gossipd.core.errors import ExitCode, NotFoundError, UsageError

if TYPE_CHECKING:
    from concurrent.futures import Future

API_VERSION = "1.7"
ROUND_S = 15.0  # of waiting; the daemon answers then even when nothing has changed

Hosts: TypeAlias = "str | int"
"""``"here"``, a share such as ``"90%"``, or a number of hosts."""
Where: TypeAlias = "str | Sequence[str]"
"""``"here"``, ``"anywhere"``, ``"everywhere"``, or the names of the hosts that matter; ``"recoverable"``: complete
nowhere yet, but living hosts have each chunk, as far as this one has heard, or its storage can be read."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a model, as the cluster has it now."""

    name: str
    version: int
    id: str
    """The deployment's, 64 hexadecimal digits: equal on two hosts only for equal content."""
    state: str
    bytes_total: int
    hosts_complete: int
    hosts_total: int
    lineage: str = ""
    """Run and step in a few words, as the publisher says; ``Client.lineage`` has all of it."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A version that this host has made, holds whole, and has told to the cluster."""

    name: str
    version: int
    id: str
    bytes_total: int
    file_count: int
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How many files each of the usual patterns left out, such as ``*.tmp``; of shards it is not told."""


@dataclass(frozen=True, slots=True)
class LocalPart:
    """What lies on this host of a version."""

    path: Path
    want: tuple[str, ...]
    """The terms that it was made for; empty: all of the version."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A version that another one came from, as its publisher says."""

    id: str
    generation: int
    """0: the version that was asked about; 1: its parents."""
    name: str
    """Empty when its manifest is not known here any more."""
    version: int | None
    about: Mapping[str, Any]


class Client:
    """Asks the daemon of this host. Thread-safe; keeps no connection, so it may be kept across ``fork`` and
    restarts, and be pickled.

    Every method raises DaemonUnreachableError where no daemon answers, a class of ``gossipd.client.errors`` where the
    daemon refuses, and UsageError for an argument that means nothing, such as a number that is none.
    """

    def __init__(self, socket: str | Path | None = None, *, config: str | Path | None = None) -> None:
        """``socket``: the daemon's; else that of the daemon's ``config``, else ``$GOSSIPD_SOCKET``, else
        ``./gossipd.sock``. A user who may not open it uses the daemon's other socket, for questions."""
        path, questions = find_sockets(None if socket is None else str(socket), None if config is None else str(config))
        self._daemon = StatusClient(path, questions=questions)
        self._publisher = PublishingThread()

    # ---- publishing ----------------------------------------------------------------------------------

    def publish(
        self, path: str | Path, *, name: str, version: int | None = None, step: int | None = None, how: str = "copy",
        keep_last: int | None = None, keep_every: int | None = None, about: Mapping[str, Any] | None = None,
        exclude: Patterns = (),
    ) -> Publication:  # fmt: skip
        """Make the directory ``path``, or the one file, the next version of ``name``; return when this host holds it.

        The daemon reads and hashes the files, copies them into its store (inside the kernel, and without a second copy
        on file systems that share blocks), signs for this user, and tells the cluster. Then the directory may be
        overwritten or deleted. Other hosts fetch from this one: see ``wait``.

        Args:
            version: of the model; None is one more than the last that this host knows.
            step: of the training run, instead of a version: the version is then ``attempt * 2**32 + step``, and the
                attempt is one more when the step is not above the last one. A run that is resumed from an earlier step
                goes on publishing so.
            how: ``copy``; ``reflink``: refuse where the file system cannot share blocks; ``move``: a copy, after which
                this process deletes the files that are in the version and that nobody has touched meanwhile. Where
                this host keeps only a part of it nothing is deleted, and ``E_PARTIAL`` says so.
            keep_last, keep_every: from now on the newest ``keep_last`` versions of the name live, and those whose step
                ``keep_every`` divides; every host deletes the others when a newer one is complete there, and no host
                that comes later hears of them. None: ``store.keep_versions`` of each host.
            about: where it came from, one JSON object of at most 16 KiB that every host is told: ``run``, ``parents``
                (ids), ``metrics``, ``mlflow``, ``wandb``. Decides nothing; no secrets (``E_SECRET``).
            exclude: files that are no part of the version, beside the usual ones: patterns of paths below ``path``, in
                which ``*`` matches ``/``, too. ``"optimizer/"`` is that directory.
        Raises:
            NotTrustedError: this user may not publish that name (``publish.users``).
            UsageError: ``about`` is too long, or no JSON.
            RefusedByDaemonError: ``E_SOURCE_CHANGED``, a file changed meanwhile, and the sentence names it.
        """
        directory = absolute_path(path, "path")
        fields: dict[str, object] = {"directory": str(directory), "name": text(name, "name"), "how": how}
        if how == "move":
            from gossipd.client.moving import delete_moved, seen_files  # which most clients do not need

            seen, fields["how"] = seen_files(directory), "copy"
        fields |= given(about, version=version, step=step, keep_last=keep_last, keep_every=keep_every)
        fields |= patterns(exclude)
        last = last_line(self._daemon.publish, **fields)
        if how == "move":
            delete_moved(directory, seen, self.path(name, last["version"]))
        return _publication(last)

    def publish_async(
        self, path: str | Path, *, name: str, version: int | None = None, step: int | None = None, how: str = "copy",
        keep_last: int | None = None, keep_every: int | None = None, about: Mapping[str, Any] | None = None,
        exclude: Patterns = (),
    ) -> Future[Publication]:  # fmt: skip
        """``publish`` in a thread of its own; returns at once. In coroutines: ``asyncio.wrap_future(future)``.

        Publications are made one after the other. A newer one of the same name cancels one that has not begun: a job
        that saves faster than it can be carried loses steps between, never the newest. A future is of the process that
        asked for it: a child after ``fork`` asks for its own."""
        call = partial(
            self.publish, path, name=name, version=version, step=step, how=how, keep_last=keep_last,
            keep_every=keep_every, about=about, exclude=exclude,
        )  # fmt: skip
        return self._publisher.submit(name, call)

    def publish_shards(
        self, path: str | Path, *, name: str, rank: int, ranks: int, all_gather: AllGather, version: int | None = None,
        step: int | None = None, keep_last: int | None = None, keep_every: int | None = None,
        chunk_bytes: int | None = None, about: Mapping[str, Any] | None = None, exclude: Patterns = (),
    ) -> Publication:  # fmt: skip
        """Make the files that lie in ``path`` on several hosts one version, and return when each host holds its own.

        Called by one rank for each host, all at the same time. No byte of the model moves before the version exists;
        then hosts fetch what they lack, also from each other. Only what the ranks exchange grows with the step: some
        40 bytes for each chunk.

        Args:
            rank, ranks: which of the hosts this is, from 0, and how many there are.
            all_gather: gives every rank the values of all, in the order of ranks: of torch, ``all_gather_object``
                (``gossipd.torch.all_gather``); of mpi4py, ``comm.allgather``.
            about: as of ``publish``; what rank 0 gives counts.
            exclude: as of ``publish``, for what lies on this host.
            chunk_bytes: of every rank the same; 1 MiB without it. Files of less must all be rank 0's, or another's.
        Raises:
            RankFailedError: another rank has failed, and the sentence says how. Else as ``publish``, and ``E_SHARDS``:
                a rank's files are missing, or two ranks have written one file.
        """
        numbers = {"version": version, "step": step, "keep_last": keep_last, "keep_every": keep_every}
        taken = ShardedStep(self._daemon, path, name, all_gather, exclude)
        return _publication(
            taken.publish(rank=rank, ranks=ranks, chunk_bytes=chunk_bytes, about=about, numbers=numbers)
        )

    # ---- waiting and finding -------------------------------------------------------------------------

    def wait(
        self, name: str, version: int | None = None, *, hosts: Hosts = "here", timeout: float | None = None
    ) -> Version:
        """Return when the version is complete on ``hosts``; without a version, the newest one that is known by then.

        A version that is not known yet is waited for, and so is a daemon that starts or restarts. ``timeout``: seconds,
        None is for ever; but a daemon that has never answered is waited for a minute only.

        Raises:
            TimedOutError: the time is up. EndedError: it was cancelled, has failed or was removed: at once.
            DaemonUnreachableError: no daemon has answered in that time.
        """
        return self.wait_until_over(name, version, hosts, timeout, Flag())

    def wait_until_over(
        self, name: str, version: int | None, hosts: Hosts, timeout: float | None, over: Flag
    ) -> Version:  # fmt: skip
        """As ``wait``; ends with its round, like one whose time is up, when ``over`` is set by another thread."""
        text(name, "name")
        whole_or_none(version, "version")
        limit_s = seconds(timeout)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        sentence, patience = f"no daemon has told of {name}", Patience(deadline)
        while True:
            left = ROUND_S if deadline is None else deadline - time.monotonic()
            try:
                with typed_refusals():
                    answer = self._daemon.wait_round(
                        name, version, str(hosts), max(0.0, min(ROUND_S, left)),
                        left_s=None if deadline is None else left,
                    )  # fmt: skip
                patience.answered()
                sentence = answer["sentence"]
                if answer["ready"]:
                    return _version(answer["deployment"])
            except DaemonUnreachableError as error:
                patience.wait_or_raise(error)
            if over.is_set() or (deadline is not None and time.monotonic() >= deadline):
                raise TimedOutError("E_TIMEOUT", f"after {limit_s or 0:g} s {sentence}", ExitCode.TIMEOUT)

    def latest(self, name: str, where: Where = "everywhere", *, before: int | None = None) -> Version:
        """The newest version of ``name`` (``before``: of those below that one) that is complete where it matters. Every
        host gives the same answer.

        A job that resumes names its hosts: ``latest("run-7", where=["node-1", "node-2"])``. Where the network is
        broken, a side that lacks one of them gets an error instead of an answer that the other side does not share.

        Raises:
            NotThereError: no version is known. EndedError, ``E_NOT_READY``: none is complete there (the sentence says
                what the newest one lacks), or none is below ``before``. UsageError: ``where`` names none or a stranger.
        """
        with typed_refusals():
            return _version(self._daemon.latest(text(name, "name"), _place(where), whole_or_none(before, "before")))

    def last_version(self, name: str) -> int | None:
        """The highest version of ``name`` that this host has heard of, complete or not; None when it knows none."""
        try:
            rows = self._daemon.status(text(name, "name"))["deployments"]
        except RefusedByDaemonError as error:
            if error.code_of_exit == ExitCode.NOT_FOUND:
                return None
            raise
        return max(int(row["version"]) for row in rows)

    def events(self, name: str | None = None, *, since: str | None = None, follow: bool = True) -> Iterator[Event]:
        """What has happened, oldest first, as far as the daemon keeps it; then what happens, for ever.

        With ``follow`` a daemon that starts or restarts is waited for, as by ``wait``; the first event of one that was
        started again is a gap. Leaving the loop ends it.

        Args:
            name: only events about deployments of this name, and gaps.
            since: ``position`` of the last event that is known.
            follow: False ends with what has happened so far.
        """
        return self.events_until_over(name, since, follow, Flag())

    def events_until_over(self, name: str | None, since: str | None, follow: bool, over: Flag) -> Iterator[Event]:
        """As ``events``; ends with its round when ``over`` is set by another thread."""
        return events_of(self._daemon, name, since, follow=follow, over=over)

    def lineage(self, name: str, version: int | None = None) -> list[Ancestor]:
        """The version, the newest that is known here without one, then what it came from, parent by parent, depth
        first. Raises NotThereError."""
        with typed_refusals():
            child = self._daemon.manifest(text(name, "name"), whole_or_none(version, "version"))
            rows = list(ancestors(child, self._daemon))
        return [
            Ancestor(row["id"], row["generation"], row.get("name", ""), row.get("version"), row.get("about", {}))
            for row in rows
        ]

    def path(self, name: str, version: int | None = None, *, part: bool = False) -> Path:
        """The directory of a complete version on this host; without a version, of the one that is current. ``part``:
        also of a part, where this host wants no more.

        The directory is that of the version itself, so it does not change when a newer version arrives. Raises
        NotThereError."""
        return self._here(name, version, part=part).path

    def part(self, name: str, version: int | None = None) -> LocalPart:
        """What lies here of a version, whole or a part, and which. Raises NotThereError."""
        return self._here(name, version, part=True)

    def _here(self, name: str, version: int | None, *, part: bool) -> LocalPart:
        try:
            row = self._daemon.complete_model(text(name, "name"), whole_or_none(version, "version"), part=part)
        except NotFoundError as error:
            raise NotThereError(error.code, str(error), ExitCode.NOT_FOUND) from None
        return LocalPart(Path(row["path"]), tuple(row.get("want", "").splitlines()))

    def want(
        self, name: str, *parts: str, clear: bool = False, free: bool = False, holder: str = ""
    ) -> tuple[str, ...]:  # fmt: skip
        """Have this host take only ``parts`` of a model, of every version, from now on and after restarts.

        Parts are terms such as ``ep:3/16``, or ``all``. They add up with earlier ones and with ``parts.wants``, so that
        every rank of a host may say its own. The user must be one who may give orders, as for ``gossipd want``.

        Args:
            clear: forget what was ordered before.
            free: delete what is here of the model and wanted no longer.
            holder: whose order it is, such as one rank's: 1 to 32 of 0-9, a-z and -. With it ``clear`` forgets only
                what this holder ordered; without it, all. An order with a holder ends with this process, where the
                kernel tells of that: since Linux 6.5 from any container, before from one that the daemon sees into.
        Returns: what is in force; empty: everything.
        Raises:
            RefusedByDaemonError: ``E_WANT``, ``E_NO_INDEX``: it means nothing in the newest version that is known here;
                ``E_READ_SOCKET``: this user may only ask.
        """
        with typed_refusals():
            terms: str = self._daemon.want(text(name, "name"), parts, clear=clear, free=free, holder=holder)["want"]
        return tuple(terms.splitlines())

    def hold(self, name: str, version: int | None = None, *, part: bool = False) -> AbstractContextManager[Path]:
        """A context manager that keeps a version on this host while it is used, and gives its directory.

        Eviction by a newer version leaves it alone; ``gossipd rm`` does not. It ends with the block, and with the
        process, however that ends. ``part``: as of ``path``. Raises NotThereError on entering."""
        return _held(self, name, version, part=part)


@contextmanager
def _held(client: Client, name: str, version: int | None, *, part: bool) -> Iterator[Path]:
    directory = client.path(name, version, part=part)
    try:
        lock = held(directory)
        entered = lock.__enter__()
    except NotFoundError as error:
        raise NotThereError(error.code, str(error), ExitCode.NOT_FOUND) from None
    try:
        yield entered
    finally:
        lock.__exit__(None, None, None)


def _place(where: Where) -> str:
    try:
        hosts = where if isinstance(where, str) else ",".join(where)
    except TypeError:
        hosts = ""
    if not hosts:
        raise UsageError("where names no host; every host that matters is where='everywhere'")
    return text(hosts, "where")


def _publication(last: Mapping[str, Any]) -> Publication:
    return Publication(
        last["name"], last["version"], last["id"], last["bytes_total"], last["file_count"], last.get("left_out", {})
    )


def _version(row: Mapping[str, Any]) -> Version:
    return Version(
        row["name"], row["version"], row["id"], row["state"], row["bytes_total"], row["hosts_complete"],
        row["hosts_total"], row.get("lineage", ""),
    )  # fmt: skip
