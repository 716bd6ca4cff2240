"""One run from the first byte of its model to the last comparison; its row.

The clock of ``seconds_to_heal`` starts when the last fault has been undone and stops when the last host has published
and every chunk that rotted is right again; that it stops within ``HEAL_SECONDS_MAX``, and nobody does anything for it,
is the test.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gossipd.demo.rot import Rot
from tests.bench.lab.fabric import LabError
from tests.chaos.cluster.oracle import Oracle
from tests.chaos.cluster.schedule import Kind, Plan, draw
from tests.chaos.cluster.site import NAME, VERSION, Site, site
from tests.chaos.cluster.trouble import Trouble

LOOK_S = 0.05
HEAL_SECONDS_MAX = 90.0
FAULTS_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 20.0  # a daemon promises 5; sixteen at once on two cores have less than theirs
ROTTEN_CHUNKS_MAX = 6


@dataclass(frozen=True)
class Order:
    """What every run of a command shares."""

    hosts: int = 16
    racks: int = 4
    size: int = 32 * 1024 * 1024
    mbit: float = 80.0
    encryption: str | None = None


def one_run(base: Path, order: Order, seed: int) -> dict[str, object]:
    """The row; ``problems`` is empty when everything is as it should be."""
    rng = Random(seed)
    plan = draw(rng, [f"node-{number + 1}" for number in range(order.hosts)], encryption=order.encryption)
    racks = [len(range(rack, order.hosts, order.racks)) for rack in range(order.racks)]
    began_s = time.monotonic()
    with site(base, plan, rng, racks=racks, size=order.size, mbit=order.mbit) as made:
        oracle = Oracle(made.manifest, made.original)
        trouble = Trouble(plan, made.fabric, made.hosts, oracle)
        healed_s = None
        try:
            healed_s = _deliver(made, plan, trouble, oracle, rng)
            _stop(made)
        except LabError as error:
            oracle.verdict.say(str(error)[-4000:])
        finally:
            made.close()
        oracle.compare(made.hosts)
        injected = made.injected()
        total = sum(sent.total() for sent in injected.values())
        oracle.check_audit(made.hosts, {liar.name for liar in plan.liars} | set(oracle.damaged))
        blamed = oracle.judge_blame(made.hosts, injected)
    verdict = oracle.verdict
    rotten = sum(map(len, oracle.damaged.values()))
    return {
        "seed": seed,
        "encryption": plan.encryption,
        "hosts": order.hosts,
        "killed": len(trouble.killed),
        "killed_seeds": trouble.killed_seeds,
        "restarted": trouble.counts[Kind.RESTART],
        "stopped": trouble.counts[Kind.STOP],
        "cuts": trouble.counts[Kind.CUT] + trouble.counts[Kind.CUT_RACK],
        "corrupted_chunks_injected": total + rotten,
        "corrupted_on_disk": rotten,
        "blamed": blamed,
        "completed_before_kills": sum(len(death.completed) for death in oracle.deaths),
        "corrupted_accepted": verdict.corrupted_accepted,
        "wrong_peer_blamed": verdict.wrong_peer_blamed,
        "hosts_not_identical": verdict.hosts_not_identical,
        "completed_writes_requested_again": verdict.requested_again,
        "seconds_to_heal": None if healed_s is None else round(healed_s, 1),
        "seconds": round(time.monotonic() - began_s, 1),
        "problems": verdict.problems,
        "faults": trouble.events,
    }


def _deliver(made: Site, plan: Plan, trouble: Trouble, oracle: Oracle, rng: Random) -> float:
    """Drop the manifest, make trouble, wait until all is well; how long the last step took. Raises LabError."""
    part = made.hosts[0].inbox / ".model.part"
    part.write_bytes(made.manifest.envelope)
    before = made.fabric.counters()
    rot = _rot(made, plan, rng)
    part.rename(made.hosts[0].inbox / f"{NAME}-{VERSION}.manifest")
    began_s = time.monotonic()
    over_s = None
    try:
        while True:
            now = time.monotonic()
            arrived = made.fabric.counters().since(before).hosts
            size = made.manifest.bytes_total
            trouble.look(sum(min(count, size) for count in arrived.values()) / size / len(arrived))
            if rot is not None and len(rot.damaged) < ROTTEN_CHUNKS_MAX:
                rot.step()
                oracle.damaged[str(plan.rotten)] = set(rot.damaged)
            _check_alive(made, trouble)
            if trouble.is_over and over_s is None:
                over_s = now
            if over_s is not None and _are_well(made, oracle) and _is_mended(rot):
                return max(0.0, now - over_s)
            if over_s is None and now - began_s > FAULTS_SECONDS_MAX:
                raise LabError(f"faults are not over after {FAULTS_SECONDS_MAX:.0f} s: {trouble.events}")
            if over_s is not None and now - over_s > HEAL_SECONDS_MAX:
                raise LabError(
                    f"not healed {HEAL_SECONDS_MAX:.0f} s after the last fault: {_behind(made, oracle, rot)}"
                )
            time.sleep(LOOK_S)
    finally:
        if rot is not None:
            rot.close()


def _rot(made: Site, plan: Plan, rng: Random) -> Rot | None:
    if plan.rotten is None:
        return None
    host = next(host for host in made.hosts if host.name == plan.rotten)
    return Rot(made.manifest, host.models, made.original, chunks_max=ROTTEN_CHUNKS_MAX, rng=rng)


def _are_well(made: Site, oracle: Oracle) -> bool:
    """Each host has the model and answers: one that starts does not, and SIGTERM before Python runs simply ends it."""
    return all(oracle.is_published(host) and host.status() is not None for host in made.hosts)


def _is_mended(rot: Rot | None) -> bool:
    return rot is None or all(rot.is_repaired(chunk) for chunk in rot.damaged)


def _check_alive(made: Site, trouble: Trouble) -> None:
    for host in made.hosts:
        if host.has_ended and not trouble.is_down(host):
            raise LabError(f"{host.name} ended by itself:\n{host.log_tail()}")
    for proxy in made.proxies:
        if proxy.poll() is not None:
            raise LabError("a proxy ended by itself")


def _behind(made: Site, oracle: Oracle, rot: Rot | None) -> str:
    late = [host for host in made.hosts if not oracle.is_published(host)]
    rotten = [] if rot is None else [chunk for chunk in rot.damaged if not rot.is_repaired(chunk)]
    words = f"{[host.name for host in late]} have not published, chunks {rotten} are not repaired"
    return words + "".join(f"\n--- {host.name}\n{host.log_tail()[-1500:]}" for host in late[:1])


def _stop(made: Site) -> None:
    """All at once; every one must end with 0. Raises LabError."""
    for host in made.hosts:
        host.ask_to_stop()
    for host in made.hosts:
        assert host.process is not None
        try:
            code = host.process.wait(STOP_SECONDS_MAX)  # not ``stop``: a second SIGTERM means at once
        except subprocess.TimeoutExpired:
            raise LabError(f"{host.name} does not end on SIGTERM:\n{host.log_tail()}") from None
        if code:
            raise LabError(f"{host.name} ended with {code} on SIGTERM:\n{host.log_tail()}")
