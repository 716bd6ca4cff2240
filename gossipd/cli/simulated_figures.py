"""The figures of ``gossipd simulate`` for people; ``--json`` has them unrounded.

What lives here: lines of text. What does not: the figures (``sim.outcome``).
"""

from __future__ import annotations

from math import isnan

from gossipd.sim.outcome import Outcome
from gossipd.sim.scenario import Scenario
from gossipd.sim.world import World


def lines_of(outcome: Outcome, scenario: Scenario, world: World | None) -> list[str]:
    """All lines; ``world`` is the run, after its end, and None for a closed form."""
    lines = [f"{outcome.hosts} hosts, {outcome.chunks} chunks, {outcome.strategy}"]
    if world is not None:
        lines += _faults(scenario, world)
    why_none = _why_no_last_host(outcome, world)
    if why_none:
        lines.append(f"last host       none: {why_none}")
    else:
        lines.append(f"last host       {outcome.seconds_last:10.1f} s   {100 * outcome.efficiency:5.1f} % of the bound")
    if outcome.limiting_resource != scenario.limiting_resource:
        lines.append(f"limited by      {outcome.limiting_resource}")
    if not why_none:
        lines.append(f"median host     {outcome.seconds_median:10.1f} s")
    lines += [
        f"bound           {outcome.bound_s:10.1f} s   {scenario.limiting_resource}",
        f"external        {outcome.external_x:10.3f} x the model",
        f"entered racks   {outcome.crossrack_x:10.3f} x the model, {outcome.imports_per_rack:.3f} per rack",
    ]
    if not why_none:
        lines.append(f"tail p99.9/p50  {outcome.tail_p999_over_p50:10.3f}")
        lines.append(f"loss            {outcome.loss_chunk_times:10.1f} chunk times")
    if world is not None:
        lines.append(f"control         {outcome.control_bytes_per_node_s / 1000:10.1f} KB/s sent per node")
        lines += _last_slow_host(outcome, world)
    return lines


def _faults(scenario: Scenario, world: World) -> list[str]:
    """How many hosts died and are slow, if faults were requested."""
    lines = []
    if scenario.kills:
        died = sum(not host.alive for host in world.hosts)
        ordered = sum(round(kill.share * scenario.hosts) for kill in scenario.kills)
        # Progress counts the chunks that dead hosts want too: after a death it ends below 100 %.
        missed = f" of {ordered} requested: the run did not reach the rest, because dead hosts take no more chunks"
        lines.append(f"died            {died:10d} {_hosts(died)}{missed if died < ordered else ''}")
    if slow := set(world.slowed):
        dead = sum(not world.hosts[index].alive for index in slow)
        told = "only 'last slow host' counts them" + (f", and {dead} died" if dead else "")
        lines.append(f"slow            {len(slow):10d} {_hosts(len(slow))}; {told}")
    return lines


def _why_no_last_host(outcome: Outcome, world: World | None) -> str | None:
    """Why there is no last host at the full rate: a last one among only some of them would mislead."""
    if world is not None:
        if missing := len(_unfinished(world, slow=False)):
            return (
                f"{missing} of {outcome.hosts_alive} live {_hosts(outcome.hosts_alive)} did not finish; given up after "
                f"{world.clock.now:.1f} s, because 50 times the bound had passed or nothing moved"
            )
        if isnan(outcome.seconds_last):
            return "no host at the full rate is alive"
    return None


def _last_slow_host(outcome: Outcome, world: World) -> list[str]:
    if missing := len(_unfinished(world, slow=True)):
        return [f"last slow host  none: {missing} slow {_hosts(missing)} did not finish in {world.clock.now:.1f} s"]
    if outcome.seconds_last_slow is not None:
        return [f"last slow host  {outcome.seconds_last_slow:10.1f} s"]
    return []


def _unfinished(world: World, *, slow: bool) -> list[int]:
    slowed = set(world.slowed)
    return [h.index for h in world.hosts if h.alive and h.done_s is None and (h.index in slowed) == slow]


def _hosts(count: int) -> str:
    return "host" if count == 1 else "hosts"
