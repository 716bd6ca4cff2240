"""``gossipd simulate``: a cluster of any size on a virtual clock, with the daemon's own planner.

What lives here: a scenario made of the options, and its run. What does not: simulating (``sim``), text
(``simulated_figures``).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import NewFile, echo_json, examples, time_words
from gossipd.cli.simulate_options import FiniteRange, RateParam, Share, SizeParam
from gossipd.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gossipd.sim.scenario import Scenario
    from gossipd.sim.world import World

_DELIVERIES_PER_MINUTE = 40_000  # of CPU time (tests/bench/RESULTS.md, row sim-1000, which runs compiled)
_DELIVERIES_MAX = 50 * _DELIVERIES_PER_MINUTE
_CHUNKS_MAX = 2_000  # a publisher makes 1,024 to 2,048 chunks of 256 MiB to 32 GiB
_CHUNKS_MIN = 200  # coarser ones distort the tail of the distribution
_CHUNKS_HELP = (
    "The model's number of chunks. Default: as many as a publisher makes, at most 2,000, for many hosts down to 200. "
    "Coarser chunks each take longer, so losses in chunk times weigh more and fixed delays vanish. The classical "
    "figures of tree and chain are for 500 GB with --chunks 500."
)


@click.command(
    epilog=examples(
        "gossipd simulate --hosts 1000 --racks 25 --size 500GB --link 10Gbit --external 10Gbit",
        "gossipd simulate --hosts 100 --racks 5 --size 70GB --link 25Gbit --external 10Gbit --oversubscription 4",
        "gossipd simulate --hosts 200 --racks 5 --size 500GB --chunks 500 --kill 5%@30% --slow 3%@0.25 --plot run.png",
        "gossipd simulate --hosts 100 --size 500GB --chunks 500 --strategy chain --json",
    )
)
@click.option("--hosts", type=click.IntRange(1, 100_000), default=100, show_default=True)
@click.option("--racks", type=click.IntRange(1, 10_000), help="Default: one per 40 hosts.")
@click.option("--size", type=SizeParam(), default="500GB", show_default=True, help="Of the model.")
@click.option("--link", type=RateParam(), default="10Gbit", show_default=True, help="Of each host, both ways at once.")
@click.option("--external", type=RateParam(), help="Of storage to all racks together. Default: as one host's link.")
@click.option("--chunks", type=click.IntRange(1, 1_000_000), help=_CHUNKS_HELP)
@click.option(
    "--oversubscription", type=FiniteRange(0.1, 1000), default=1.0, show_default=True,
    help="A rack's host links together over its uplink.",
)  # fmt: skip
@click.option("--slow", type=Share(), multiple=True, metavar="SHARE%@FACTOR", help="Hosts at a part of the rate.")
@click.option("--kill", type=Share(), multiple=True, metavar="SHARE%@PROGRESS%", help="Hosts that die, and when.")
@click.option(
    "--strategy", type=click.Choice(["swarm", "sequential", "parallel", "tree", "chain"]), default="swarm",
    show_default=True, help="swarm is simulated with the daemon's planner; the others are closed forms.",
)  # fmt: skip
@click.option(
    "--preset", type=click.Choice(["datacentre", "lab"]), default="datacentre", show_default=True,
    help="Delays and queues: a data centre's switches, or the shaped links of tests.bench.lab.",
)  # fmt: skip
@click.option("--queue-ms", type=FiniteRange(0, 10_000), help="One way through each saturated port.")
@click.option("--rng", type=int, default=1, show_default=True, help="The same number gives the same run.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.png",
    help="Completion per rack, and chunk by host. Needs matplotlib.",
)  # fmt: skip
@click.option(
    "--report", type=NewFile(path_type=Path, dir_okay=False), metavar="FILE",
    help="What gossipd report says of a deployment: NAME.html with a replay, else JSON.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def simulate(*, plot: Path | None, report: Path | None, as_json: bool, strategy: str, **options: Any) -> int:
    """Say how long a model takes to every host, what limits it, and what it costs.

    Deterministic: the same options and --rng give the same figures on any machine.
    """  # fmt: skip
    from gossipd.cli.simulated_figures import lines_of
    from gossipd.sim import world as simulator
    from gossipd.sim.closed_form import limit_words
    from gossipd.sim.outcome import closed_form, simulated

    scenario = _scenario(strategy=strategy, **options)
    world = None
    if strategy != "swarm":
        if plot is not None or report is not None:
            option = "--plot" if plot is not None else "--report"
            raise UsageError(f"{option} needs --strategy swarm: the others are closed forms, with nothing to draw")
        outcome = replace(closed_form(scenario, strategy), limiting_resource=limit_words(scenario, strategy))
    else:
        if plot is not None:
            from gossipd.sim.plot import check_can_draw

            check_can_draw(plot)
        _say_how_long(scenario.hosts * scenario.chunks, is_compiled=not simulator.__file__.endswith(".py"))
        with _Bar(show=sys.stderr.isatty()) as bar, _uncollected():
            world = simulator.World(
                scenario, keep_arrivals=plot is not None, keep_course=report is not None, on_progress=bar.advance
            )  # fmt: skip
            world.run()
        outcome = simulated(world)
    if as_json:
        echo_json({"schema_version": 1, **outcome.to_json()})
    else:
        show_lines(lines_of(outcome, scenario, world))
    if world is not None and not (plot is None or _is_drawn(world, plot)):
        return int(ExitCode.OTHER)
    if world is not None and report is not None:
        from gossipd.cli.report import as_object, write
        from gossipd.cli.simulated_report import simulated_report
        from gossipd.diagnosis.report import summarise

        told = simulated_report(world)
        write(report, as_object(told, summarise(told, link=scenario.link, external=scenario.external)))
    return int(ExitCode.DONE if outcome.hosts_complete == outcome.hosts_alive else ExitCode.PARTIAL)


def _is_drawn(world: World, plot: Path) -> bool:
    """Draw after printing the figures, so that no failure loses an hour's run. They stay the only object on stdout."""
    from gossipd.sim.plot import draw

    try:
        draw(world, plot)
    except OSError as error:
        told = f"E_OS: --plot {plot}: {error.strerror or error}; the figures are complete without it"
        show_lines([told], err=True)
        return False
    return True


@contextmanager
def _uncollected() -> Iterator[None]:
    """Turn garbage collection off: a running world makes no cycles, and searching for some takes much time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Bar:
    """The delivered share of all chunks at all hosts, on a terminal; nothing elsewhere."""

    def __init__(self, *, show: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

        columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress("delivered", *columns, console=Console(stderr=True), disable=not show, transient=True)
        self._task = self._bar.add_task("", total=100)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, percent: int) -> None:
        self._bar.update(self._task, completed=percent)


def _scenario(
    *, hosts: int, racks: int | None, size: int, link: float, external: float | None, chunks: int | None,
    oversubscription: float, slow: tuple[tuple[float, float], ...], kill: tuple[tuple[float, float], ...],
    preset: str, queue_ms: float | None, rng: int, strategy: str,
) -> Scenario:  # fmt: skip
    from gossipd.sim.scenario import Kill, Scenario, Slowdown, chunk_count_of, lab_delays

    racks = racks or max(1, round(hosts / 40))
    if racks > hosts:
        raise UsageError(f"--racks {racks} is more than --hosts {hosts}")
    _refuse_faults_of_nobody_or_all(hosts, kill=kill, slow=slow)
    if strategy != "swarm" and (kill or slow or preset != "datacentre" or queue_ms is not None):
        raise UsageError(
            "--kill, --slow, --preset and --queue-ms need --strategy swarm: the others are closed forms without faults "
            "and delays"
        )
    if chunks is None:
        chunks = min(chunk_count_of(size), _CHUNKS_MAX, max(_CHUNKS_MIN, _DELIVERIES_MAX // hosts))
    scenario = Scenario(
        hosts=hosts, racks=racks, size=size, chunks=min(chunks, size), link=link, external=external or link,
        oversubscription=oversubscription, rng=rng,
        slowdowns=tuple(Slowdown(factor=factor, share=share) for share, factor in slow),
        kills=tuple(Kill(progress=progress, share=share) for share, progress in kill),
    )  # fmt: skip
    if preset == "lab":
        scenario = lab_delays(scenario)
    if queue_ms is not None:
        scenario = replace(scenario, queue_s=queue_ms / 1000)
    return scenario


def _refuse_faults_of_nobody_or_all(
    hosts: int, *, kill: tuple[tuple[float, float], ...], slow: tuple[tuple[float, float], ...]
) -> None:
    for option, shares in (("--kill", kill), ("--slow", slow)):
        for share, _ in shares:
            if round(share * hosts) == 0:
                raise UsageError(f"{option} {100 * share:g}% of {hosts} hosts is none; one host is {100 / hosts:.3g}%")
    if sum(round(share * hosts) for share, _ in kill) >= hosts:
        raise UsageError("--kill: no host would be left to finish; let one live")
    if sum(round(share * hosts) for share, _ in slow) >= hosts:
        raise UsageError("--slow: no host would have the full rate; lower --link instead")


def _say_how_long(deliveries: int, *, is_compiled: bool) -> None:
    """Announce a run of a minute or more, on stderr."""
    minutes = deliveries / _DELIVERIES_PER_MINUTE / (2 if is_compiled else 1)
    if minutes < 1:
        return
    half = "" if is_compiled else "; python -m tests.bench.compiled simulate, in a checkout, takes half"
    cure = f"fewer --chunks take less{half}"
    show_lines(
        [f"about {time_words(60 * minutes)} of one core, for {deliveries:,} chunks to deliver; {cure}"], err=True
    )
