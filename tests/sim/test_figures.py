"""What people read of a run: who died, who is slow, and words instead of a time that is none."""

from __future__ import annotations

from gossipd.cli.simulated_figures import lines_of
from gossipd.sim.outcome import simulated
from gossipd.sim.scenario import Kill, Scenario, Slowdown
from gossipd.sim.world import World

LINK = 100e6 / 8


def text_of(
    *, kills: tuple[Kill, ...] = (), slowdowns: tuple[Slowdown, ...] = (), limit_s: float | None = None, rng: int = 1
) -> str:
    scenario = Scenario(
        hosts=6, racks=2, size=8 << 20, chunks=32, link=LINK, external=LINK, kills=kills, slowdowns=slowdowns, rng=rng
    )
    world = World(scenario)
    world.run(limit_s=limit_s)
    return "\n".join(lines_of(simulated(world), scenario, world))


def test_a_quiet_run_has_a_last_host_and_nothing_of_faults() -> None:
    text = text_of()
    assert "% of the bound" in text
    assert not [word for word in ("died", "slow", "none", "nan") if word in text]


def test_hosts_that_did_not_finish_are_words_and_no_time() -> None:
    text = text_of(limit_s=0.5, slowdowns=(Slowdown(0.5, host=3),))
    assert "last host       none: 5 of 6 live hosts did not finish; given up after 0." in text
    assert "last slow host  none: 1 slow host did not finish in 0." in text
    assert not [word for word in ("nan", "median", "tail", "loss", "% of the bound") if word in text]


def test_the_dead_and_the_slow_are_counted() -> None:
    text = text_of(kills=(Kill(0.3, share=0.34),), slowdowns=(Slowdown(0.5, share=0.17),), rng=3)
    assert "died                     2 hosts\n" in text
    assert "slow                     1 host; only 'last slow host' counts them\n" in text


def test_a_death_that_was_never_reached_is_told() -> None:
    text = text_of(kills=(Kill(0.1, share=0.34), Kill(0.95, share=0.17)))
    assert "died                     2 hosts of 3 requested: the run did not reach the rest" in text


def test_where_all_hosts_at_the_full_rate_are_dead_there_is_no_last_of_them() -> None:
    kills = tuple(Kill(0.1, host=host) for host in range(1, 6))
    assert "last host       none: no host at the full rate is alive" in text_of(
        kills=kills, slowdowns=(Slowdown(0.5, host=0),)
    )


def test_a_slow_host_that_died_is_told() -> None:
    text = text_of(kills=(Kill(0.1, host=3),), slowdowns=(Slowdown(0.5, host=3),))
    assert "slow                     1 host; only 'last slow host' counts them, and 1 died\n" in text
    assert "last slow host  " not in text
