"""The demo, from the first file to the last comparison.

Order: toy model, storage server, key, signed manifest, daemons. When the daemons have found each other, the manifest
goes into node-1's inbox. Then the demo watches the status sockets, as an operator would. Requested faults come
half-way. At the end every byte of every host is compared; traffic is the server's count and the daemons' totals.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any, ClassVar, Protocol

from gossipd.core.errors import ExitCode, GossipdError, UsageError
from gossipd.demo.compare import differences
from gossipd.demo.hosts import DemoHost, make_hosts
from gossipd.demo.rot import Rot
from gossipd.demo.storage import StorageServer
from gossipd.demo.toy_model import write_toy_model
from gossipd.identity.key_files import write_key_pair
from gossipd.identity.keys import KEY_BYTES, SecretKey
from gossipd.manifest.chunk_layout import DEFAULT_CHUNK_BYTES_MAX, DEFAULT_CHUNK_BYTES_MIN
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.publish.publisher import PublishOrder, publish

NAME, VERSION = "toy", 1
PATIENCE_S = 120.0  # for what takes some seconds on a machine that does nothing else; without one more chunk anywhere
MOVES_MAX = 4  # of all hosts, to ports that no other process has
POLL_S = 0.1
DAMAGED_SHARE = 1 / 128  # of all chunks: enough for other hosts to meet some
DAMAGED_MIN = 4
HALF_WAY = 0.4  # a host's progress is up to a second old, so by then it is about a half
SPREAD_SECONDS = 5.0  # slows storage, so that half-way can be observed
SIZE_MIN = 4 * 1024 * 1024
CHUNKS = 256  # about; each costs every host CPU time, which all hosts of one machine share, and more show nothing more


class DemoError(GossipdError):
    """The demo did not end as it should. Fault: see the sentence, which includes the end of a log."""

    code = "E_DEMO"
    exit_code: ClassVar[ExitCode] = ExitCode.OTHER


class DemoVerificationError(DemoError):
    """A host's files differ from the original's. Fault: always ours."""

    code = "E_DEMO_DIFFERS"
    exit_code: ClassVar[ExitCode] = ExitCode.VERIFICATION


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOrder:
    """The user's request. ``kill`` and ``corrupt`` name hosts; ``base`` is a directory of our own."""

    hosts: int = 6
    racks: int = 2
    size_bytes: int = 256 * 1024 * 1024
    kill: str | None = None
    corrupt: str | None = None
    encryption: str = "tls"
    keep: bool = False
    base: Path | None = None

    def check(self) -> None:
        if not 1 <= self.racks <= self.hosts <= 64:
            raise UsageError(f"--hosts {self.hosts} --racks {self.racks}: from 1 to 64 hosts, in at most as many racks")
        if self.size_bytes < SIZE_MIN:
            raise UsageError(f"--size must be at least {SIZE_MIN} bytes, so that half-way means something")
        names = [f"node-{number + 1}" for number in range(self.hosts)]
        for option, name in (("--kill", self.kill), ("--corrupt", self.corrupt)):
            if name is not None and name not in names:
                raise UsageError(f"{option} {name}: hosts are named {names[0]} to {names[-1]}")
        if self.kill is not None and self.hosts == 1:
            raise UsageError("--kill needs a second host to watch from")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result. Byte counts of peers are the daemons' totals, ``source_bytes`` is the storage server's count.
    ``cpu_s``: CPU seconds of the demo and its daemons, from its start until all was compared."""

    hosts: int
    racks: int
    hosts_complete: int
    bytes_total: int
    chunks_total: int
    seconds: float
    cpu_s: float
    source_bytes: int
    source_requests: int
    peer_bytes_same_rack: int
    peer_bytes_cross_rack: int
    duplicate_bytes: int
    corrupt_chunks: int
    corrupted_on_disk: int
    killed: str | None
    killed_at_chunks: int | None
    verified: bool
    encryption: str
    directory: str | None


class Audience(Protocol):
    """Receives what happens, for the user."""

    def step(self, words: str) -> None:
        """A sentence about the next step."""

    def progress(self, chunks: dict[str, int], total: int) -> None:
        """How many chunks each host has."""

    def gathered(self, first: DemoHost) -> None:
        """The daemons have found each other; the model is not yet dropped. ``first`` can be asked."""

    def finished(self, result: DemoResult) -> None:
        """All is compared. The daemons run until this returns."""


@dataclass
class _Stage:
    """The parts of one run."""

    order: DemoOrder
    base: Path
    original: Path
    storage: StorageServer
    manifest: Manifest
    hosts: list[DemoHost]
    audience: Audience
    chunks: dict[str, int] = field(default_factory=dict)
    killed_at: int | None = None
    rot: Rot | None = None

    def host(self, name: str) -> DemoHost:
        return next(host for host in self.hosts if host.name == name)


def play(order: DemoOrder, audience: Audience) -> DemoResult:
    """Run the demo. Raises UsageError, DemoError. Leaves no process, and without ``keep`` no file."""
    order.check()
    with _stage(order, audience) as stage:
        wait_together(stage.hosts)
        audience.gathered(stage.hosts[0])
        audience.step(f"dropping the manifest into {stage.hosts[0].name}'s inbox")
        envelope = stage.hosts[0].inbox / ".toy.part"
        envelope.write_bytes(stage.manifest.envelope)
        began = time.monotonic()
        envelope.rename(stage.hosts[0].inbox / f"{NAME}-{VERSION}.manifest")
        _deliver(stage)
        seconds = time.monotonic() - began
        if stage.rot is not None:
            _repair(stage, stage.rot)
        row = _settle(stage)
        audience.step(f"comparing every byte on {len(stage.hosts)} hosts with the original")
        for host in stage.hosts:
            if wrong := differences(stage.original, host.models / NAME / "current"):
                raise DemoVerificationError(f"{host.name}: {'; '.join(wrong[:5])}")
        result = _result(stage, row, seconds)
        audience.finished(result)
        return result


# ---- setting up --------------------------------------------------------------------------------


@contextmanager
def _stage(order: DemoOrder, audience: Audience) -> Iterator[_Stage]:
    base = Path(tempfile.mkdtemp(prefix="gossipd-")) if order.base is None else order.base
    storage: StorageServer | None = None
    stage: _Stage | None = None
    hosts: list[DemoHost] = []
    try:
        _check_space(base, order)
        audience.step("writing a toy model")
        original = base / "original"
        write_toy_model(original, order.size_bytes)
        storage = StorageServer(original, rate=order.size_bytes / SPREAD_SECONDS)
        manifest = _publish(base, original, storage.url, order.size_bytes)
        hosts = make_hosts(
            base, hosts=order.hosts, racks=order.racks, trust=[base / "publisher.key.pub"],
            sources=[storage.url.rstrip("/")], encryption=order.encryption,
        )  # fmt: skip
        audience.step(f"starting {len(hosts)} daemons")
        for host in hosts:
            host.start()
        stage = _Stage(order, base, original, storage, manifest, hosts, audience)
        yield stage
    finally:
        if stage is not None and stage.rot is not None:
            stage.rot.close()
        for host in hosts:
            host.ask_to_stop()
        for host in hosts:
            host.stop()
        if storage is not None:
            storage.close()
        if not order.keep:
            shutil.rmtree(base, ignore_errors=True)


def _check_space(base: Path, order: DemoOrder) -> None:
    needed = order.size_bytes * (order.hosts + 1) + order.size_bytes // 4
    free = shutil.disk_usage(base).free
    if free < needed:
        raise DemoError(f"{base} has {free} bytes free, {needed} are needed; set TMPDIR or use a smaller --size")


def _publish(base: Path, original: Path, url: str, size_bytes: int) -> Manifest:
    secret = SecretKey(os.urandom(KEY_BYTES))
    write_key_pair(base / "publisher.key", secret)
    out = base / f"{NAME}-{VERSION}.manifest"
    order = PublishOrder(
        source=str(original), name=NAME, version=VERSION, secret=secret, out=out, sources=(url,),
        created_s=int(time.time()), chunk_bytes=_chunk_bytes(size_bytes),
    )  # fmt: skip
    publish(order, _Quiet())
    return open_manifest(out.read_bytes(), [secret.public.ed25519])


def _chunk_bytes(size_bytes: int) -> int:
    power = 1 << (size_bytes // CHUNKS - 1).bit_length()
    return min(max(power, DEFAULT_CHUNK_BYTES_MIN), DEFAULT_CHUNK_BYTES_MAX)


class _Quiet:
    def found(self, file_count: int, bytes_total: int) -> None:
        """Not shown."""

    def hashed(self, count: int) -> None:
        """Not shown."""


def wait_together(hosts: Sequence[DemoHost]) -> None:
    """Wait until every daemon sees all of them alive; one whose ports were taken meanwhile starts again at others.
    Raises DemoError."""

    def is_whole(host: DemoHost) -> bool:
        page = host.status()
        return page is not None and [one["state"] for one in page["members"]].count("alive") == len(hosts)

    left, moves_left = list(hosts), MOVES_MAX
    deadline = time.monotonic() + PATIENCE_S
    while left:
        left = [host for host in left if not is_whole(host)]
        for host in left:
            if moves_left and host.start_elsewhere(hosts):
                moves_left -= 1
            elif host.has_ended:
                raise DemoError(f"{host.name} ended while it started; the end of its log:\n{host.log_tail()}")
        if left and time.monotonic() > deadline:
            raise DemoError(f"{left[0].name} has not found the others; the end of its log:\n{left[0].log_tail()}")
        time.sleep(POLL_S if left else 0)


# ---- the delivery ------------------------------------------------------------------------------


def _deliver(stage: _Stage) -> None:
    """Watch until every host is complete; make the requested faults on the way."""
    total = stage.manifest.chunk_count
    moved_s = time.monotonic()
    seen = 0
    complete: set[str] = set()
    while len(complete) < len(stage.hosts):
        for host in stage.hosts:
            _look(stage, host, complete)
        stage.audience.progress(dict(stage.chunks), total)
        _make_trouble(stage, total)
        if (now := sum(stage.chunks.values())) != seen:
            seen, moved_s = now, time.monotonic()
        if time.monotonic() - moved_s > PATIENCE_S:
            behind = min(stage.hosts, key=lambda host: stage.chunks.get(host.name, 0))
            raise DemoError(
                f"nothing moved for {PATIENCE_S:.0f} s; {behind.name} has {stage.chunks.get(behind.name, 0)} of "
                f"{total} chunks; the end of its log:\n{behind.log_tail()}"
            )
        time.sleep(POLL_S)
    stage.audience.progress(dict.fromkeys(stage.chunks, total), total)


def _look(stage: _Stage, host: DemoHost, complete: set[str]) -> None:
    page = host.status()
    if page is None:
        if host.has_ended:
            raise DemoError(f"{host.name} ended by itself; the end of its log:\n{host.log_tail()}")
        return
    row = _own_row(page, host.name)
    if row is None:
        return
    if row["state"] == "failed":
        raise DemoError(f"{host.name} failed: {row['reason']}; the end of its log:\n{host.log_tail()}")
    stage.chunks[host.name] = row["chunks_verified"]
    if row["state"] == "complete":
        complete.add(host.name)


def _own_row(page: dict[str, Any], name: str) -> dict[str, Any] | None:
    rows: Iterator[dict[str, Any]] = (host for one in page["deployments"] for host in one["hosts"])
    return next((row for row in rows if row["name"] == name), None)


def _make_trouble(stage: _Stage, total: int) -> None:
    order = stage.order
    if order.kill is not None and stage.killed_at is None and stage.chunks.get(order.kill, 0) >= total * HALF_WAY:
        host = stage.host(order.kill)
        stage.killed_at = stage.chunks[order.kill]
        stage.audience.step(f"SIGKILL to {host.name} at {stage.killed_at} of {total} chunks, and start it again")
        host.kill()
        host.start()
    if order.corrupt is None:
        return
    if stage.rot is None and stage.chunks.get(order.corrupt, 0) >= total * HALF_WAY:
        stage.audience.step(f"flipping bytes in what {order.corrupt} has stored")
        models, most = stage.host(order.corrupt).models, max(DAMAGED_MIN, int(total * DAMAGED_SHARE))
        stage.rot = Rot(stage.manifest, models, stage.original, chunks_max=most, rng=Random())
        stage.rot.start()


def _repair(stage: _Stage, rot: Rot) -> None:
    """Repair damage that no other host has met, by reading the model again as ``gossipd verify`` does."""
    host = stage.host(str(stage.order.corrupt))
    if not rot.damaged:
        raise DemoError(f"{host.name} was complete before one of its chunks could be damaged; use a larger --size")
    if not all(rot.is_repaired(chunk) for chunk in rot.damaged):
        stage.audience.step(f"gossipd verify on {host.name}, for damage that no other host has met")
        for _ in host.client.verify(NAME, VERSION):
            pass
    _wait(
        lambda: all(rot.is_repaired(chunk) for chunk in rot.damaged),
        lambda: f"{host.name} has not repaired its damaged chunks; the end of its log:\n{host.log_tail()}",
    )


def _settle(stage: _Stage) -> dict[str, Any]:
    """The deployment as the first host knows it, once every host's last record has arrived there."""
    expected = stage.manifest.bytes_total * len(stage.hosts)
    damaged = len(stage.rot.damaged) if stage.rot is not None else 0
    row: dict[str, Any] = {}

    def is_settled() -> bool:
        page = stage.hosts[0].status()
        if page is None or not page["deployments"]:
            return False
        row.update(page["deployments"][0])
        if row["corrupt_chunks"] < damaged:
            return False  # each damaged chunk is counted at least by its own host
        return bool(row["cluster_bytes_verified"] == expected and row["hosts_complete"] == len(stage.hosts))

    first = stage.hosts[0]
    _wait(is_settled, lambda: f"totals have not settled: {row}; the log:\n{first.log_tail()}")
    time.sleep(POLL_S)
    return row


def _wait(is_true: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > deadline:
            raise DemoError(why())
        time.sleep(POLL_S)


# ---- the end -----------------------------------------------------------------------------------


def _result(stage: _Stage, row: dict[str, Any], seconds: float) -> DemoResult:
    return DemoResult(
        hosts=len(stage.hosts),
        racks=stage.order.racks,
        hosts_complete=row["hosts_complete"],
        bytes_total=stage.manifest.bytes_total,
        chunks_total=stage.manifest.chunk_count,
        seconds=round(seconds, 3),
        cpu_s=round(_cpu_s(stage.hosts), 2),
        source_bytes=stage.storage.body_bytes,
        source_requests=stage.storage.requests,
        peer_bytes_same_rack=row["peer_bytes_same_rack"],
        peer_bytes_cross_rack=row["peer_bytes_cross_rack"],
        duplicate_bytes=row["duplicate_bytes"],
        corrupt_chunks=row["corrupt_chunks"],
        corrupted_on_disk=len(stage.rot.damaged) if stage.rot else 0,
        killed=stage.order.kill,
        killed_at_chunks=stage.killed_at,
        verified=True,
        encryption=stage.order.encryption,
        directory=str(stage.base) if stage.order.keep else None,
    )


def _cpu_s(hosts: Sequence[DemoHost]) -> float:
    usages = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(host.cpu_s for host in hosts)
