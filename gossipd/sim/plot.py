"""The picture of a run: completion over time per rack, and when each host got each chunk.

The only module here that touches a file and a graphics library. Matplotlib is an extra and is imported when needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeAlias

from gossipd.core.errors import LocalError, UsageError
from gossipd.sim.world import World

_POINTS = 400  # of a curve that is some 600 pixels wide
_RACK_LINES_MAX = 50  # of some 550 pixels; more would cover the rows
_UNITS = ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB"), (0, "bytes"))
Curve: TypeAlias = tuple[list[float], list[float]]
"""Times in seconds, and per cent."""


class PlotError(LocalError):
    """No picture can be drawn. Fault: this host lacks an extra. Retry: after installing it."""

    code = "E_EXTRA_MISSING"


def check_can_draw(path: Path) -> None:
    """Whether ``draw`` can work, before a long run; an existing file stays as it is. Raises PlotError without
    matplotlib, UsageError where no PNG can be written."""
    if path.suffix != ".png":
        raise UsageError(f"--plot {path}: the picture is a PNG; give it a name that ends in .png")
    try:
        import matplotlib.figure  # noqa: F401  # the import that would fail after the run
    except ImportError as error:
        raise PlotError("--plot needs matplotlib: pip install 'gossipd[simulate]'") from error
    try:
        if path.exists():
            path.open("ab").close()
        else:
            TemporaryFile(dir=path.parent).close()  # permission bits do not tell of a read-only file system
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"--plot {path}: {reason}; name a file in a directory that exists and is writable") from error


def draw(world: World, path: Path) -> None:
    """Write a PNG. ``check_can_draw`` has been called."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.suptitle(title_of(world))
    _draw_completion(world, left)
    _draw_arrivals(world, figure, right)
    figure.savefig(path, dpi=110)


def title_of(world: World) -> str:
    """The cluster, the model and the strategy, in one line."""
    scenario = world.scenario
    uplinks = f", uplinks {scenario.oversubscription:g}:1" if scenario.oversubscription != 1 else ""
    size = next(f"{scenario.size / 10**power:.4g} {unit}" for power, unit in _UNITS if scenario.size >= 10**power)
    return (
        f"{_count(scenario.hosts, 'host')} in {_count(scenario.racks, 'rack')}, {size} in "
        f"{_count(scenario.chunks, 'chunk')}; links {scenario.link * 8e-9:g} Gbit/s, storage "
        f"{scenario.external * 8e-9:g} Gbit/s{uplinks}; strategy: swarm"
    )


def end_s(world: World) -> float:
    """When the last living host at the full rate was done; when the run ended, if one of them was not."""
    slow = set(world.slowed)
    times = [host.done_s for host in world.hosts if host.alive and host.index not in slow]
    done = [when for when in times if when is not None]
    return max(done) if done and len(done) == len(times) else world.clock.now


def curve_of(world: World, hosts: Iterable[int]) -> Curve:
    """The per cent of their chunks that these hosts had over time: few enough points to draw, with the last."""
    members = list(hosts)
    times = sorted(when for host in members for when in world.timeline[host])
    total = world.scenario.chunks * len(members)
    picked = sorted({*range(0, len(times), max(1, len(times) // _POINTS)), len(times) - 1} if times else ())
    return [0.0, *(times[at] for at in picked)], [0.0, *(100 * (at + 1) / total for at in picked)]


def rack_curves(world: World) -> list[tuple[int, Curve]]:
    """Each rack with its curve, the first to have everything first. Only living hosts at the full rate count: the dead
    would hold a curve below 100 % for ever, the slow stretch the scale."""
    slow = set(world.slowed)
    members: dict[int, list[int]] = {}
    for host in world.hosts:
        if host.alive and host.index not in slow:
            members.setdefault(host.rack, []).append(host.index)
    curves = [(rack, curve_of(world, hosts)) for rack, hosts in members.items()]
    return sorted(curves, key=lambda one: (-one[1][1][-1], one[1][0][-1], one[0]))


def deaths(world: World) -> list[tuple[float, int]]:
    """The times of deaths, each with the number of hosts."""
    return sorted(Counter(host.died_s for host in world.hosts if host.died_s is not None).items())


def _draw_completion(world: World, axes: Any) -> None:
    curves = rack_curves(world)
    for _, curve in curves:
        axes.plot(*curve, color="0.8", linewidth=0.8, drawstyle="steps-post")
    picked = {0: ("first", "tab:green"), len(curves) // 2: ("median", "tab:blue"), len(curves) - 1: ("last", "tab:red")}
    for place, (word, colour) in picked.items() if len(curves) > 2 else ():
        rack, curve = curves[place]
        done = f"{curve[0][-1]:,.1f} s" if curve[1][-1] == 100 else "not all"
        label = f"{word} rack done: rack {rack}, {done}"
        axes.plot(*curve, color=colour, linewidth=1.3, drawstyle="steps-post", label=label)
    slow = [host for host in sorted(set(world.slowed)) if world.hosts[host].alive]
    if slow:
        curve = curve_of(world, slow)
        label = f"{_count(len(slow), 'slow host')}, to {curve[0][-1]:,.1f} s"
        axes.plot(*curve, color="tab:orange", linewidth=1.3, linestyle="--", drawstyle="steps-post", label=label)
    bound_s = world.scenario.bound_s
    axes.axvline(bound_s, color="black", linestyle=":", label=f"bound, {bound_s:,.1f} s")
    for when, count in deaths(world):
        label = f"{_count(count, 'host')} died, {when:,.1f} s"
        axes.axvline(when, color="tab:purple", linestyle="-.", linewidth=1, label=label)
    axes.set(xlim=(0, 1.05 * max(end_s(world), bound_s)), ylim=(0, 102))
    axes.set(xlabel="time (s)", ylabel="received of the model (%)")
    axes.set_title("Completion of each rack (grey): its living hosts at the full rate", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize="small", framealpha=0.95)


def _draw_arrivals(world: World, figure: Any, axes: Any) -> None:
    """Colours end at the last host at the full rate: on a slow host's scale all others would be one colour."""
    from matplotlib import colormaps

    arrivals = [[math.nan] * world.scenario.chunks for _ in world.hosts]
    for when, host, chunk in world.arrivals or ():
        arrivals[host][chunk] = when
    colours = colormaps["viridis"].with_extremes(bad="white", over="tab:orange")
    image = axes.imshow(arrivals, aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=end_s(world))
    for before, after in pairwise(world.hosts):
        if before.rack != after.rack and world.scenario.racks <= _RACK_LINES_MAX:
            axes.axhline(after.index - 0.5, color="white", linewidth=0.6)
    slow = set(world.slowed)
    edge = {"linestyle": "none", "clip_on": False, "markersize": 5, "transform": axes.get_yaxis_transform()}
    for hosts, marker, colour, word in (
        ([host.index for host in world.hosts if not host.alive], "x", "tab:purple", "died; white: never got it"),
        ([host.index for host in world.hosts if host.alive and host.index in slow], "<", "tab:orange", "slow"),
    ):
        if hosts:
            axes.plot([1.012] * len(hosts), hosts, marker=marker, color=colour, label=word, **edge)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", bbox_to_anchor=(1, -0.07), ncols=2, fontsize="small", frameon=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="chunk (index)", ylabel="host (index, rack by rack)")
    axes.set_title("When each host got each chunk", fontsize="medium")
    is_later = bool(slow) and any(when > end_s(world) for number in slow for when in world.timeline[number])
    label = "time (s)" + ("; orange: after the last host at the full rate" if is_later else "")
    figure.colorbar(image, ax=axes, label=label, extend="max" if is_later else "neither")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
