"""The picture of a run: completion over time per rack, and when each host got each chunk.

The only module here that touches a file and a graphics library. Matplotlib is an extra and is imported when a
picture is asked for.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from gossipd.core.errors import LocalError, UsageError
from gossipd.sim.world import World


class PlotError(LocalError):
    """No picture can be drawn. Fault: this host lacks an extra. Retry: after installing it."""

    code = "E_EXTRA_MISSING"


def check(path: Path) -> None:
    """Look before an hour's run whether ``draw`` can work; what is there already stays as it is.

    Raises: PlotError without matplotlib; UsageError where no PNG can be written.
    """
    if path.suffix != ".png":
        raise UsageError(f"--plot {path}: the picture is a PNG; give it a name that ends in .png")
    try:
        import matplotlib.figure  # noqa: F401  # the one that would fail after the run
    except ImportError as error:
        raise PlotError("--plot needs matplotlib: pip install 'gossipd[simulate]'") from error
    try:
        if path.exists():
            path.open("ab").close()
        else:
            TemporaryFile(dir=path.parent).close()  # permission bits would not tell of a read-only file system
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"--plot {path}: {reason}; name a file in a directory that exists and is writable") from error


def draw(world: World, path: Path) -> None:
    """Write a PNG. ``check`` has been called."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scenario = world.scenario
    figure = Figure(figsize=(13, 6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for rack in range(scenario.racks):
        members = [host for host in world.hosts if host.rack == rack]
        times = sorted(when for host in members for when in world.timeline[host.index])
        total = scenario.chunks * len(members)
        step = max(1, len(times) // 400)
        left.plot(times[::step], [100 * at / total for at in range(0, len(times), step)], linewidth=0.8)
    left.axvline(scenario.bound_s, color="black", linestyle=":", label=f"bound {scenario.bound_s:.1f} s")
    left.set(xlabel="seconds", ylabel="% of the rack's bytes", title="Completion, one line per rack")
    left.legend()
    arrivals = [[float("nan")] * scenario.chunks for _ in world.hosts]
    for when, host, chunk in world.arrivals or ():
        arrivals[host][chunk] = when
    image = right.imshow(arrivals, aspect="auto", interpolation="nearest", cmap="viridis")
    right.set(xlabel="chunk", ylabel="host, rack by rack", title="When each host got each chunk")
    figure.colorbar(image, ax=right, label="seconds")
    figure.savefig(path, dpi=110)
