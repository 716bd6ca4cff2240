"""What ``gossipd simulate`` says of the very cluster that the lab has just run: the simulator's calibration.

The rate of a link is what one plain download got in the same run, so that headers and the shaper's habits are in it;
delays and queues are those of ``--preset lab``. Not predicted: racks of unequal size, which the simulator does not
have, and what the processes of the lab cost the machine they share.
"""

from __future__ import annotations

from gossipd.sim.outcome import Outcome, simulated
from gossipd.sim.scenario import Kill, Scenario, Slowdown, chunk_count_of, lab_delays
from gossipd.sim.world import World
from tests.bench.lab.systems.base import Bench, KillOrder, share


def predict(
    bench: Bench, single_s: float, *, mbit: float, external_mbit: float | None, uplink_mbit: float | None,
    slow_mbit: dict[str, float],
) -> Outcome | None:  # fmt: skip
    """The simulated run; None where the racks are unequal.

    Args:
        single_s: one plain download of ``bench.size`` bytes over the slower of a host's link and storage's.
        slow_mbit: the hosts that are slower than ``mbit``, by name.
    """
    names = [host.name for host in bench.fabric.hosts]
    racks = bench.fabric.racks
    if any(host.rack != index * racks // len(names) for index, host in enumerate(bench.fabric.hosts)):
        return None
    external = external_mbit or mbit
    bytes_per_mbit = bench.size / single_s / min(mbit, external)
    chunks = -(-bench.size // bench.chunk_bytes) if bench.chunk_bytes else chunk_count_of(bench.size)
    scenario = Scenario(
        hosts=len(names),
        racks=racks,
        size=bench.size,
        chunks=chunks,
        link=mbit * bytes_per_mbit,
        external=external * bytes_per_mbit,
        oversubscription=len(names) / racks * mbit / uplink_mbit if uplink_mbit else 1.0,
        slowdowns=tuple(Slowdown(rate / mbit, host=names.index(name)) for name, rate in slow_mbit.items()),
        kills=tuple(_kill(order, names) for order in bench.kills),
    )
    world = World(lab_delays(scenario))
    world.run()
    return simulated(world)


def _kill(order: KillOrder, names: list[str]) -> Kill:
    if order.who == "seed":
        return Kill(order.at, seed=True)
    if order.who in names:
        return Kill(order.at, host=names.index(order.who))
    return Kill(order.at, share=share(order.who))
