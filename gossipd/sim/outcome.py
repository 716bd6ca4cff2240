"""The result of a run as figures: times, bytes, efficiency against the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from gossipd.sim.closed_form import completion_times, external_copies, rack_copies
from gossipd.sim.scenario import Scenario
from gossipd.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of one run. Times in seconds; ``_x`` are multiples of the model's size."""

    hosts: int
    chunks: int
    strategy: str
    seconds_last: float
    """Of the living hosts at the full rate; ``seconds_last_slow`` is that of the slowed hosts."""
    seconds_median: float
    seconds_last_slow: float | None = None
    bound_s: float
    efficiency: float
    limiting_resource: str
    external_x: float
    crossrack_x: float
    imports_per_rack: float
    tail_p999_over_p50: float
    control_bytes_per_node_s: float = 0.0
    """Control channel and membership, sent, on the wire; mean of the living, until the last healthy host was done."""
    duplicate_x: float = 0.0
    hosts_complete: int
    hosts_alive: int
    loss_chunk_times: float
    death_known_s_median: float | None = None
    """From a death to a living host's verdict, median of all, and the last; None when no host died."""
    death_known_s_last: float | None = None
    rng: int

    def to_json(self) -> dict[str, object]:
        """The fields, for ``--json``. JSON has no NaN, so times are null when no host is ready."""
        figures = asdict(self).items()
        return {key: None if isinstance(value, float) and isnan(value) else value for key, value in figures}


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the ascending values lie."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def closed_form(scenario: Scenario, strategy: str) -> Outcome:
    """The figures of a rival strategy."""
    return _outcome(
        scenario, completion_times(scenario, strategy), rack_copies(scenario, strategy), strategy=strategy,
        external_x=external_copies(scenario, strategy), hosts_complete=scenario.hosts, hosts_alive=scenario.hosts,
    )  # fmt: skip


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
        times,
        sum(world.entered) / scenario.chunks / scenario.racks,
        strategy="swarm",
        seconds_last_slow=max(late, default=None),
        external_x=world.external_chunks / scenario.chunks,
        control_bytes_per_node_s=(world.control_sent or world.control_until_now()).bytes_per_s,
        duplicate_x=sum(host.duplicates for host in world.hosts) / scenario.chunks,
        hosts_complete=len(times) + len(late),
        hosts_alive=len(alive),
        death_known_s_median=quantile(waits, 0.5) if waits else None,
        death_known_s_last=waits[-1] if waits else None,
    )


def _outcome(scenario: Scenario, times: list[float], copies_per_rack: float, **known: Any) -> Outcome:
    """The figures that follow from the times at which the hosts at the full rate were done, and those ``known``."""
    last = times[-1] if times else float("nan")
    median = quantile(times, 0.5) if times else float("nan")
    return Outcome(
        hosts=scenario.hosts,
        chunks=scenario.chunks,
        seconds_last=last,
        seconds_median=median,
        bound_s=scenario.bound_s,
        efficiency=scenario.bound_s / last,
        limiting_resource=scenario.limiting_resource,
        crossrack_x=copies_per_rack * scenario.racks,
        imports_per_rack=copies_per_rack,
        tail_p999_over_p50=quantile(times, 0.999) / median if times else float("nan"),
        loss_chunk_times=(last - scenario.bound_s) / scenario.chunk_time_s,
        rng=scenario.rng,
        **known,
    )
