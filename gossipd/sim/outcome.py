"""The result of a run as figures: times, bytes, efficiency against the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan

from gossipd.sim.closed_form import completion_times, external_copies, rack_copies
from gossipd.sim.scenario import Scenario
from gossipd.sim.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one run. Times in seconds; ``_x`` are multiples of the model's size."""

    hosts: int
    chunks: int
    strategy: str
    seconds_last: float
    """Of the living hosts at the full rate; ``seconds_last_slow`` is that of the slowed hosts."""
    seconds_median: float
    seconds_last_slow: float | None
    bound_s: float
    efficiency: float
    limiting_resource: str
    external_x: float
    crossrack_x: float
    imports_per_rack: float
    tail_p999_over_p50: float
    control_bytes_per_node_s: float
    """Control channel and membership, sent, on the wire; mean of the living, until the last healthy host was done."""
    duplicate_x: float
    hosts_complete: int
    hosts_alive: int
    loss_chunk_times: float
    death_known_s_median: float | None
    """From a death to a living host's verdict, median of all, and the last; None when no host died."""
    death_known_s_last: float | None
    rng: int

    def to_json(self) -> dict[str, object]:
        """The fields, for ``--json``. JSON has no NaN, so times are null when no host is ready."""
        return {
            key: None if isinstance(value, float) and isnan(value) else value for key, value in asdict(self).items()
        }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the ascending values lie."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def closed_form(scenario: Scenario, strategy: str) -> Outcome:
    """The figures of a rival strategy."""
    times = completion_times(scenario, strategy)
    copies = rack_copies(scenario, strategy)
    return _outcome(scenario, strategy, times, copies, external_copies(scenario, strategy))


def simulated(world: World) -> Outcome:
    """The figures of a finished run."""
    scenario = world.scenario
    alive = [host for host in world.hosts if host.alive]
    slow = set(world.slowed)
    times = sorted(host.done_s for host in alive if host.done_s is not None and host.index not in slow)
    late = [host.done_s for host in alive if host.done_s is not None and host.index in slow]
    waits = sorted(world.verdict_waits_s)
    return _outcome(
        scenario,
        "swarm",
        times,
        sum(world.entered) / scenario.chunks / scenario.racks,
        world.external_chunks / scenario.chunks,
        slow=max(late, default=None),
        alive=len(alive),
        complete=len(times) + len(late),
        control=(world.control_sent or world.control_until_now()).bytes_per_s,
        duplicates=sum(host.duplicates for host in world.hosts) / scenario.chunks,
        death_known=(quantile(waits, 0.5), waits[-1]) if waits else (None, None),
    )


def _outcome(
    scenario: Scenario,
    strategy: str,
    times: list[float],
    rack_copies_mean: float,
    external_x: float,
    *,
    slow: float | None = None,
    alive: int | None = None,
    complete: int | None = None,
    control: float = 0.0,
    duplicates: float = 0.0,
    death_known: tuple[float | None, float | None] = (None, None),
) -> Outcome:
    last = times[-1] if times else float("nan")
    median = quantile(times, 0.5) if times else float("nan")
    bound = scenario.bound_s
    return Outcome(
        hosts=scenario.hosts,
        chunks=scenario.chunks,
        strategy=strategy,
        seconds_last=last,
        seconds_median=median,
        seconds_last_slow=slow,
        bound_s=bound,
        efficiency=bound / last,
        limiting_resource=scenario.limiting_resource,
        external_x=external_x,
        crossrack_x=rack_copies_mean * scenario.racks,
        imports_per_rack=rack_copies_mean,
        tail_p999_over_p50=quantile(times, 0.999) / median if times else float("nan"),
        control_bytes_per_node_s=control,
        duplicate_x=duplicates,
        hosts_complete=len(times) if complete is None else complete,
        hosts_alive=scenario.hosts if alive is None else alive,
        loss_chunk_times=(last - bound) / scenario.chunk_time_s,
        death_known_s_median=death_known[0],
        death_known_s_last=death_known[1],
        rng=scenario.rng,
    )
