"""One real daemon in a large cluster with many deployments and with manifests at their limits.

``python -m tests.bench.growth [--members 1000] [--deployments 100] [--waiting 4] [--chunks 1000000] [--files 100000]
[--json]``. The other members are brains on real sockets of loopback (``growth_members``). All hosts have the
deployments complete, but those ``waiting`` that nobody holds: only some may be under way at once. The members have
no other ports, so whenever the daemon dials one, for a deployment that waits, the link fails.

Prints the daemon's share of a core, wake-ups and memory: alone with the members, first while it asks them whether they
are there, sixteen a second, and then at rest; then with the deployments, while as many records come as a cluster tells
when nothing moves; how long ``status`` takes: the page of all hosts, the one of
few, and the command; how long each large manifest takes from the drop until it is judged and kept, and which state it
has; and the 99th percentile of the event loop's lag, over the daemon's whole life. ``slow_steps``: by task how many
held up the loop, the longest, and the most CPU time of one. ``busy_share`` is the machine's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from blake3 import blake3

from gossipd.api.client import StatusClient
from gossipd.cli.host_selection import HOSTS_SHOWN
from gossipd.daemon.unheard_asks import ASKED_AT_ONCE
from gossipd.daemon.unheard_asks import PATIENCE_S as ASKS_BEGIN_S
from gossipd.identity.key_files import read_secret_key
from gossipd.identity.keys import SecretKey
from gossipd.manifest.chunk_layout import CHUNK_BYTES_MIN
from gossipd.manifest.manifest import ManifestDraft, seal_manifest
from gossipd.manifest.payload import DIGEST_BYTES, FileEntry
from tests.bench.growth_members import PORT, address_of
from tests.bench.lab.process import ROOT, MachineCpu
from tests.bench.start import resident_bytes
from tests.bench.thread_costs import between, look
from tests.e2e.cluster import Daemon, alive_count, cluster, gossipd, until

PATIENCE_S = 300.0
STATUS_CALLS, COMMAND_CALLS = 10, 5
CHUNK = bytes(range(256)) * (CHUNK_BYTES_MIN // 256)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--deployments", type=int, default=100)
    parser.add_argument("--waiting", type=int, default=4, help="more deployments, which nobody holds")
    parser.add_argument("--records-per-s", type=float, default=1000.0, help="until all members have told of all")
    parser.add_argument("--chunks", type=int, default=1_000_000, help="of one large manifest")
    parser.add_argument("--files", type=int, default=100_000, help="of another one")
    parser.add_argument("--seconds", type=float, default=20.0, help="between two looks at a daemon at rest")
    parser.add_argument("--probe-s", type=float, default=5.0, help="how often each of the others probes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-growth-") as root:
        result = measure(Path(root), options)
    print(json.dumps(result) if options.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))
    return 0


def measure(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row."""
    machine = MachineCpu()
    source = root / "model"
    source.mkdir()
    (source / "model.bin").write_bytes(CHUNK)
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{source}"])}
    with cluster(root / "site", environment=environment) as site:
        contact = json.dumps([f"{address_of(0)}:{PORT}"])
        daemon = site.add("node-1", "rack-own", GOSSIPD_NET__JOIN=contact)
        daemon.client = StatusClient(daemon.home / "gossipd.sock", timeout_s=PATIENCE_S)
        secret = read_secret_key(site.key)
        with members(daemon, options.members, options.probe_s) as others:
            daemon.start()
            daemon.wait_ready()
            joined_s = took(lambda: until("all in view", lambda: sees(daemon, options.members), patience_s=PATIENCE_S))
            row = {"members": options.members, "in_view_s": joined_s}
            row |= at_rest(daemon, options.seconds, "members_to_ask")
            time.sleep(ASKS_BEGIN_S + options.members / ASKED_AT_ONCE)
            row |= at_rest(daemon, options.seconds, "members")
            row |= deployed(daemon, secret, source, options)
            begun_s = time.monotonic()
            others.tell(options.records_per_s, [one["id"] for one in complete_here(daemon)])
            row |= {
                "records_s": round(time.monotonic() - begun_s, 1),
                **at_rest(daemon, options.seconds, "deployments"),
            }
            row |= status_times(daemon)
            row |= accepted(daemon, "chunks", many_chunks(secret, options.chunks))
            row |= accepted(daemon, "files", many_files(secret, options.files))
            row |= {f"{name}_at_the_end": value for name, value in status_times(daemon).items()}
            assert daemon.process is not None
            row["rss_bytes_at_the_end"] = resident_bytes(daemon.process.pid)
    return row | {"busy_share": round(machine.busy(), 2), "stolen_share": round(machine.stolen(), 4)}


def deployed(daemon: Daemon, secret: SecretKey, source: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All of them, complete here but for those that wait."""
    begun_s = time.monotonic()
    for number in range(options.deployments):
        drop(daemon, f"small-{number}", small(secret, number, f"file://{source}"))
    for number in range(options.waiting):
        drop(daemon, f"waiting-{number}", waiting(secret, number))
    until("all are complete", lambda: len(complete_here(daemon)) >= options.deployments, patience_s=PATIENCE_S)
    return {
        "deployments": options.deployments, "waiting": options.waiting,
        "deployed_s": round(time.monotonic() - begun_s, 1),
    }  # fmt: skip


def complete_here(daemon: Daemon) -> list[dict[str, Any]]:
    """The rows of models that this host has."""
    ids = {row["name"]: row for row in daemon.client.models()["models"] if row["state"] == "complete"}
    return [row for row in daemon.client.status()["deployments"] if row["name"] in ids] if ids else []


class Members:
    """Their process."""

    def __init__(self, running: subprocess.Popen[bytes]) -> None:
        assert running.stdin is not None
        assert running.stdout is not None
        self._orders, self._answers = running.stdin, running.stdout

    def tell(self, records_per_s: float, deployments: Sequence[str]) -> None:
        """Have all tell that they are complete; returns when all have."""
        self._orders.write(" ".join([str(records_per_s), *deployments]).encode() + b"\n")
        self._orders.flush()
        assert self._answers.readline() == b"told\n"


@contextmanager
def members(daemon: Daemon, count: int, probe_s: float) -> Iterator[Members]:
    """For the length of a ``with``, in a process of their own."""
    words = [str(daemon.home / "cluster.key"), str(count), str(probe_s)]
    command = [sys.executable, "-m", "tests.bench.growth_members", *words]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert running.stdout is not None
    assert running.stdin is not None
    try:
        assert running.stdout.readline() == b"ready\n"
        yield Members(running)
    finally:
        running.kill()
        running.wait()
        running.stdin.close()
        running.stdout.close()


def sees(daemon: Daemon, others: int) -> bool:
    """All of them."""
    return alive_count(daemon) > others


def at_rest(daemon: Daemon, seconds: float, what: str) -> dict[str, Any]:
    """What the daemon takes while nothing is asked of it."""
    assert daemon.process is not None
    pid = daemon.process.pid
    begun_s, before = time.monotonic(), look([pid])
    time.sleep(seconds)
    after, elapsed_s = look([pid]), time.monotonic() - begun_s
    costs = between(before, after).values()
    return {
        f"core_share_with_{what}": round(sum(one.cpu_s for one in costs) / elapsed_s, 4),
        f"wake_ups_per_s_with_{what}": round(sum(one.switches for one in costs) / elapsed_s, 1),
        f"rss_bytes_with_{what}": resident_bytes(pid),
    }


def status_times(daemon: Daemon) -> dict[str, Any]:
    """Least and greatest time of the page with all members and deployments, of the page that ``gossipd status`` asks
    for, and of that command; and the loop's lag until now."""
    times = [took(daemon.client.status) for _ in range(STATUS_CALLS)]
    pages = [took(partial(daemon.client.status, hosts_max=HOSTS_SHOWN)) for _ in range(STATUS_CALLS)]
    commands = [took(partial(gossipd, "status", "--config", str(daemon.config))) for _ in range(COMMAND_CALLS)]
    page = daemon.client.status()
    slow = {one["task"]: [one["steps"], one["longest_s"], one["longest_cpu_s"]] for one in page["slow_steps"]}
    return {
        "status_min_s": min(times), "status_max_s": max(times), "few_hosts_min_s": min(pages),
        "few_hosts_max_s": max(pages), "status_command_min_s": min(commands), "status_command_max_s": max(commands),
        "loop_lag_p99_s": page["loop_lag_p99_s"],
        "slow_steps": slow,
    }  # fmt: skip


def accepted(daemon: Daemon, name: str, envelope: bytes) -> dict[str, Any]:
    """A large manifest: its time to be judged and kept, and its state after that."""
    judged_s = drop(daemon, name, envelope)
    row = until("it has a row", lambda: daemon.deployment(name, 1))
    return {f"{name}_envelope_bytes": len(envelope), f"{name}_accept_s": judged_s, f"{name}_state": row["state"]}


def drop(daemon: Daemon, name: str, envelope: bytes) -> float:
    """Into the inbox at once; the seconds until the file has been judged and moved."""
    inbox = daemon.home / "inbox"
    part, file = inbox / f".{name}.part", inbox / f"{name}.manifest"
    part.write_bytes(envelope)
    done, refused = inbox / "accepted" / file.name, inbox / "rejected" / file.name
    part.rename(file)
    begun_s = time.monotonic()
    while not done.exists():
        assert not refused.exists(), Path(f"{refused}.reason").read_text()
        assert time.monotonic() < begun_s + PATIENCE_S, f"{name} was not judged"
        time.sleep(0.002)
    return round(time.monotonic() - begun_s, 3)


def took(action: Any) -> float:
    """Seconds."""
    begun_s = time.monotonic()
    action()
    return round(time.monotonic() - begun_s, 3)


def small(secret: SecretKey, number: int, source: str) -> bytes:
    """A model of one chunk."""
    files = [FileEntry("model.bin", CHUNK_BYTES_MIN, 0o644)]
    return _sealed(secret, f"small-{number}", files, blake3(CHUNK).digest(), (source,))


def waiting(secret: SecretKey, number: int) -> bytes:
    """A model of one chunk that nobody holds."""
    return _sealed(secret, f"waiting-{number}", [FileEntry("model.bin", CHUNK_BYTES_MIN, 0o644)], _digests(1))


def many_chunks(secret: SecretKey, chunks: int) -> bytes:
    """One file of so many chunks, the smallest that there are."""
    files = [FileEntry("model.bin", chunks * CHUNK_BYTES_MIN, 0o644)]
    return _sealed(secret, "chunks", files, _digests(chunks))


def many_files(secret: SecretKey, files: int) -> bytes:
    """So many files of 16 bytes, in directories as experts have them."""
    names = sorted(f"layers/{i % 97:03}/experts/{i % 31:02}/weight-{i:06}.safetensors" for i in range(files))
    entries = [FileEntry(name, 16, 0o644) for name in names]
    return _sealed(secret, "files", entries, _digests(-(-16 * files // CHUNK_BYTES_MIN)))


def _digests(chunks: int) -> bytes:
    return b"".join(index.to_bytes(DIGEST_BYTES, "big") for index in range(chunks))


def _sealed(
    secret: SecretKey, name: str, files: Sequence[FileEntry], digests: bytes, sources: tuple[str, ...] = ()
) -> bytes:
    draft = ManifestDraft(
        name=name, version=1, created_s=int(time.time()), files=tuple(files), chunk_bytes=CHUNK_BYTES_MIN,
        digests=digests, sources=sources,
    )  # fmt: skip
    return seal_manifest(draft, secret)


if __name__ == "__main__":
    sys.exit(main())
