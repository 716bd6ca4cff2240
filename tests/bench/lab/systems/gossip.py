"""gossipd: real daemons, one in each namespace, set up by the code of ``gossipd init``.

The clock runs from the drop of the manifest into a converged cluster to the last host's finished rename, which is seen
by looking for the directory it makes visible. Or, where the model is saved by the first host as a checkpoint is, from
the order to publish that directory; then storage is not read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

from gossipd.client import Client
from gossipd.config.directory import make_directory
from gossipd.demo.hosts import DemoHost, settings
from gossipd.identity.key_files import write_key_pair
from gossipd.identity.keys import KEY_BYTES, SecretKey
from gossipd.manifest.chunk_layout import default_chunk_bytes
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.publish.publisher import PublishOrder, publish
from tests.bench.lab.control_traffic import ControlMeter, control_meter
from tests.bench.lab.fabric import Fabric, LabError
from tests.bench.lab.process import MachineCpu, Usage, usage
from tests.bench.lab.systems.base import (
    EARLY_POLL_S,
    POLL_S,
    START_SECONDS_MAX,
    Bench,
    Killer,
    Outcome,
    digest,
    is_right,
    ready_to_write,
)
from tests.bench.loop_costs import LoopCosts, look_at_loops
from tests.bench.thread_costs import ThreadCosts, between, look

PORT = 7946
NAME, VERSION = "model", 1
SETTLE_SECONDS_MAX = 10.0
COOL_S = 2.0  # after convergence: the joiners' gossip dies down


def run_gossipd(bench: Bench) -> Outcome:
    """One deployment out of storage."""
    return _run(bench, "gossipd")


def run_saved(bench: Bench) -> Outcome:
    """One version that the first host's daemon publishes from a directory of that host."""
    keys = {"GOSSIPD_PUBLISH__KEYS": f'["{bench.base}/saved/publisher.key"]'}
    outcome = _run(replace(bench, settings={**bench.settings, **keys}), "saved")
    return replace(outcome, system="saved")


def _run(bench: Bench, system: str) -> Outcome:
    base = bench.base / system
    base.mkdir()
    manifest = _publish(bench, base)
    hosts = make_hosts(bench, system)
    try:
        for host in hosts:
            host.start()
        converge(hosts)
        with (
            ready_to_write(bench, [_pid(host) for host in hosts]),
            control_meter(bench.fabric, PORT, base / "meter.log") as meter,
        ):
            time.sleep(COOL_S)
            rest = _at_rest(hosts, meter, bench.rest_s) if bench.rest_s else {}
            outcome = _deploy(bench, hosts, None if system == "saved" else manifest, meter)
            return replace(outcome, figures=outcome.figures | rest)
    except LabError as error:
        tails = "\n".join(f"--- {host.name}\n{host.log_tail()[-600:]}" for host in hosts)
        raise LabError(f"{error}\n{tails}") from None
    finally:
        for host in hosts:
            host.ask_to_stop()
        for host in hosts:
            host.stop()


class _Quiet:
    def found(self, file_count: int, bytes_total: int) -> None:
        """Nobody watches."""

    def hashed(self, count: int) -> None:
        """Nobody watches."""


def _publish(bench: Bench, base: Path) -> Manifest:
    secret = SecretKey(os.urandom(KEY_BYTES))
    write_key_pair(base / "publisher.key", secret)
    out = base / "model.manifest"
    source = bench.url.rpartition("/")[0] + "/"
    publish(
        PublishOrder(
            source=str(bench.model.parent), name=NAME, version=VERSION, secret=secret, out=out, sources=(source,),
            created_s=int(time.time()), chunk_bytes=bench.chunk_bytes,
        ),
        _Quiet(),
    )  # fmt: skip
    return open_manifest(out.read_bytes(), [secret.public.ed25519])


def make_hosts(bench: Bench, system: str) -> list[DemoHost]:
    """A host for each station, not started; they trust ``publisher.key`` in the system's directory."""
    base, hosts = bench.base / system, list[DemoHost]()
    first = bench.fabric.hosts[0]
    for station in bench.fabric.hosts:
        directory = bench.directory(system, station)
        make_directory(
            directory,
            node={"name": station.name, "rack": f"rack-{station.rack + 1}"},
            net={"bind": station.address, "port": PORT, "join": (f"{first.address}:{PORT}",) if hosts else ()},
            cluster_key=hosts[0].directory / "cluster.key" if hosts else None,
            trust=[base / "publisher.key.pub"],
        )
        environment = settings(["http"], encryption=bench.encryption) | {"PYTHONDONTWRITEBYTECODE": "1"}
        environment |= bench.settings
        hosts.append(
            DemoHost(station.name, f"rack-{station.rack + 1}", directory, PORT, environment, command=station.command)
        )
    return hosts


@contextmanager
def publishing_hosts(network: Fabric, base: Path) -> Iterator[list[DemoHost]]:
    """A host for each station, not started, whose daemons publish what jobs have saved; all are stopped at the end."""
    (base / "hosts").mkdir()
    write_key_pair(base / "hosts/publisher.key", SecretKey(os.urandom(KEY_BYTES)))
    keys = {"GOSSIPD_PUBLISH__KEYS": f'["{base}/hosts/publisher.key"]'}
    hosts = make_hosts(Bench(network, base, base, "", 0, [], "none", 0.0, Random(1), settings=keys), "hosts")
    try:
        yield hosts
    finally:
        for host in hosts:
            host.ask_to_stop()
        for host in hosts:
            host.stop()


def converge(hosts: list[DemoHost]) -> None:
    """Wait until each sees all as alive. Raises LabError."""

    def is_whole(host: DemoHost) -> bool:
        page = host.status()
        return page is not None and sum(one["state"] == "alive" for one in page["members"]) == len(hosts)

    _wait(lambda: all(is_whole(host) for host in hosts), START_SECONDS_MAX, "the cluster has not converged")


def _at_rest(hosts: list[DemoHost], meter: ControlMeter, seconds: float) -> dict[str, object]:
    """What a converged cluster that has nothing to do sends and computes, mean per host."""
    before = sum(meter.sent().values())
    began_s, cpu_before_s = time.monotonic(), sum(usage(_pid(host)).cpu_s for host in hosts)
    time.sleep(seconds)
    took_s, sent = time.monotonic() - began_s, sum(meter.sent().values()) - before
    cpu_s = sum(usage(_pid(host)).cpu_s for host in hosts) - cpu_before_s
    return {
        "rest_bytes_per_node_s": round(sent / len(hosts) / took_s),
        "rest_cpu_share": round(cpu_s / len(hosts) / took_s, 5),
    }


def _begin(bench: Bench, host: DemoHost, manifest: Manifest | None) -> dict[str, object]:
    """Drop the manifest; without one, publish the directory: ``held_s``, until it is signed and on that host's disk."""
    if manifest is not None:
        (host.inbox / ".model.part").rename(host.inbox / "model-1.manifest")
        return {}
    began_s = time.monotonic()
    Client(host.directory / "gossipd.sock").publish(bench.model.parent, name=NAME, version=VERSION)
    return {"held_s": round(time.monotonic() - began_s, 3)}


def _deploy(bench: Bench, hosts: list[DemoHost], manifest: Manifest | None, meter: ControlMeter) -> Outcome:
    by_name = {host.name: host for host in hosts}
    visible = {host.name: host.models / NAME / str(VERSION) for host in hosts}
    before, cpu = bench.fabric.counters(), MachineCpu()
    cpu_before = {host.name: usage(_pid(host)).cpu_s for host in hosts}
    threads_before = look(_pid(host) for host in hosts)
    loops_before = {host.name: look_at_loops(host.client) for host in hosts}
    used: dict[str, Usage] = {}

    def kill(name: str) -> None:
        used[name] = usage(_pid(by_name[name]))  # nobody can ask it afterwards
        by_name[name].kill()

    killer = Killer(bench, kill, lambda: _seed(hosts))
    begun: dict[str, object] = {}
    if manifest is not None:
        (hosts[0].inbox / ".model.part").write_bytes(manifest.envelope)
    else:
        hashed_s = time.monotonic()
        digest(bench.model)
        begun["hash_s"] = round(time.monotonic() - hashed_s, 3)
    control_before = meter.sent()
    least_s = bench.size * 8 / (bench.fabric.mbit * 1e6)
    began_s = time.monotonic()
    begun |= _begin(bench, hosts[0], manifest)
    done_s: dict[str, float] = {}
    while missing := [name for name in visible if name not in done_s and name not in killer.killed]:
        for name in missing:
            if visible[name].exists():
                done_s[name] = time.monotonic()
            elif by_name[name].has_ended:
                raise LabError(f"{name} ended by itself")
        killer.look()
        if time.monotonic() - began_s > bench.timeout_s:
            raise LabError(f"gossipd: not done after {bench.timeout_s:.0f} s: {', '.join(missing)}")
        time.sleep(POLL_S if time.monotonic() - began_s > least_s else EARLY_POLL_S)
    control = {name: count - control_before[name] for name, count in meter.sent().items()}
    control_s = time.monotonic() - began_s
    living = [by_name[name] for name in done_s if name not in killer.killed]
    costs = between(threads_before, look(_pid(host) for host in living))
    loops = [look_at_loops(host.client).since(loops_before[host.name]) for host in living]
    counters, busy, stolen = bench.fabric.counters().since(before), cpu.busy(), cpu.stolen()
    chunks = manifest.chunk_count if manifest is not None else -(-bench.size // default_chunk_bytes(bench.size))
    row = _row(hosts, by_name, killer.killed)
    used |= {name: usage(_pid(by_name[name])) for name in done_s if name not in used}
    return Outcome(
        f"gossipd-{bench.encryption}" if bench.encryption != "none" else "gossipd",
        began_s, done_s, counters,
        {name: Usage(one.cpu_s - cpu_before[name], one.rss_max_bytes) for name, one in used.items()},
        busy,
        stolen=stolen,
        verified_hosts=sum(is_right(visible[name] / bench.model.name, bench.model) for name in done_s),
        duplicate_bytes=int(row.get("duplicate_bytes", 0)),
        killed=killer.killed,
        figures={name: row.get(name) for name in _FIGURES}
        | {
            "control_bytes_per_node_s": round(sum(control[name] for name in done_s) / len(done_s) / control_s),
            "control_over_moved": round(sum(control.values()) / sum(counters.hosts.values()), 5),
        }
        | _per_chunk(costs, loops, chunks * len(living))
        | begun,
    )  # fmt: skip


def _per_chunk(costs: Mapping[str, ThreadCosts], loops: Sequence[LoopCosts], chunks: int) -> dict[str, object]:
    """What threads that live at the end have used for each chunk that came, and what loops have done for it, of those
    hosts that lived."""
    return {
        "frames_per_chunk": round(sum(one.frames for one in loops) / chunks, 2),
        "events_per_chunk": round(sum(one.events for one in loops) / chunks, 2),
        "turns_per_chunk": round(sum(one.turns for one in loops) / chunks, 2),
        "cpu_ms_per_chunk": round(1000 * sum(one.cpu_s for one in costs.values()) / chunks, 3),
        "switches_per_chunk": round(sum(one.switches for one in costs.values()) / chunks, 2),
        "threads": {name: asdict(one) for name, one in costs.items()},
    }


_FIGURES = ("source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack", "corrupt_chunks")


def _row(hosts: list[DemoHost], by_name: dict[str, DemoHost], killed: list[str]) -> dict[str, Any]:
    """The deployment's totals as one surviving host has heard them, once they have settled."""
    host = next(host for host in hosts if host.name not in killed)
    row: dict[str, Any] = {}
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < deadline:
        page = host.status()
        if page is not None and page["deployments"]:
            row = page["deployments"][0]
            if row["hosts_complete"] >= len(by_name) - len(killed):
                time.sleep(1.0)  # the last totals travel with the next records
                page = host.status()
                return page["deployments"][0] if page is not None else row
        time.sleep(0.2)
    return row


def _seed(hosts: list[DemoHost]) -> str:
    for host in hosts:
        page = None if host.has_ended else host.status()
        if page is not None:
            names = [str(one["name"]) for one in page["members"] if one["seed"] and one["state"] == "alive"]
            others = [name for name in names if name != hosts[0].name]  # the inbox host is watched from
            if names:
                return (others or names)[0]
    raise LabError("no seed to kill")


def _pid(host: DemoHost) -> int:
    assert host.process is not None
    return host.process.pid


def _wait(is_true: Callable[[], bool], seconds_max: float, why: str) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_true():
        if time.monotonic() > deadline:
            raise LabError(why)
        time.sleep(0.2)
