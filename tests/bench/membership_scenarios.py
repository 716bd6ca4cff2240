"""The scenarios of the membership benchmark. Each makes its clusters and yields rows; all use one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from gossipd.core.reasons import HostReason
from gossipd.deployment.progress_record import SUBJECT_BYTES, HostState, Progress, refresh_interval_s
from gossipd.deployment.signed_progress import SIGNATURE_BYTES, ProgressKey
from gossipd.deployment.statement import STATEMENT_BYTES
from membership.events import Event, PayloadHeard, PayloadKind
from membership.settings import SwimSettings
from tests.bench.liars import Liars
from tests.bench.membership_meter import Meter, quantile
from tests.membership.simulated_cluster import SimulatedCluster

Row = dict[str, Any]
Scenario = Callable[[int, int, SwimSettings, float | None], Iterator[Row]]
_STATEMENTS = 10


def _known(members: int, seed: int, settings: SwimSettings) -> tuple[SimulatedCluster, Meter]:
    cluster = SimulatedCluster(members, seed=seed, settings=settings)
    cluster.start_all_known()
    cluster.run(2.0)
    return cluster, Meter(cluster)


def quiet(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Nothing happens; then ten crashes one by one, then ten at once."""
    cluster, meter = _known(members, seed, settings)
    cluster.run(cluster.now + (seconds or 20.0))
    yield meter.row("quiet", seed, variant="no crash")
    meter = Meter(cluster)
    order = cluster.rng.sample(range(members), 20)
    for index in order[:10]:
        meter.crash(index)
        cluster.run(cluster.now + 2.0 + cluster.rng.random())
    cluster.run(cluster.now + 20.0)
    yield meter.row("quiet", seed, variant="10 crashes one by one")
    meter = Meter(cluster)
    for index in order[10:]:
        meter.crash(index)
    cluster.run(cluster.now + 25.0)
    yield meter.row("quiet", seed, variant="10 crashes at once", **meter.crash_quantiles())


def statements(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Somebody says something, ten times: how long until a host in the middle, p99 and the last have heard it."""
    cluster, meter = _known(members, seed, settings)
    said_s: list[float] = []
    waits: list[float] = []
    watch = cluster.on_event

    def on_event(index: int, event: Event) -> None:
        watch(index, event)
        if isinstance(event, PayloadHeard):
            waits.append(cluster.now - said_s[-1])

    cluster.on_event = on_event
    for number in range(_STATEMENTS):
        index = cluster.rng.randrange(members)
        said_s.append(cluster.now)
        cluster.swim(index).publish(
            PayloadKind.STATEMENT, b"deployment %d" % number, 1, bytes(STATEMENT_BYTES), cluster.now
        )
        cluster._flush(index)
        cluster.run(cluster.now + (seconds or 5.0))
    heard = {"heard_p50_s": quantile(waits, 0.5), "heard_p99_s": quantile(waits, 0.99), "heard_last_s": max(waits)}
    yield meter.row("statements", seed, unheard=_STATEMENTS * (members - 1) - len(waits), **heard)


def loss5(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Every twentieth datagram is lost."""
    cluster, meter = _known(members, seed, settings)
    cluster.loss = 0.05
    cluster.run(cluster.now + (seconds or 60.0))
    yield meter.row("loss5", seed, struck=cluster.struck["loss"])


def _flapping(members: int, seed: int, settings: SwimSettings, name: str, seconds: float | None) -> Iterator[Row]:
    for share, off_s in ((32, 10.0), (8, 16.4)):
        for together in (False, True) if name != "freeze" else (False,):
            cluster, meter = _known(members, seed, settings)
            sick = cluster.rng.sample(range(members), max(1, members // share))
            meter.sick = set(sick)
            end = cluster.now + (seconds or 120.0)
            while cluster.now < end:
                if name == "freeze":
                    for index in sick:
                        cluster.freeze(index)
                else:
                    cluster.cut(sick, together=together, queue=name == "cut_queue")
                cluster.run(cluster.now + off_s)
                if name == "freeze":
                    for index in sick:
                        cluster.thaw(index)
                else:
                    cluster.heal()
                cluster.run(cluster.now + 4.0)
            healed = cluster.run_until(meter.has_full_views, 120.0)
            variant = f"{len(sick)} of {members}, {off_s} s off, {'one group' if together else 'singly'}"
            yield meter.row(name, seed, full_view_after_heal_s=healed, variant=variant, struck=dict(cluster.struck))


def cut(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Some are cut off again and again; what is sent meanwhile is lost."""
    yield from _flapping(members, seed, settings, "cut", seconds)


def cut_queue(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """The same, but what is sent meanwhile arrives at the end of the cut."""
    yield from _flapping(members, seed, settings, "cut_queue", seconds)


def freeze(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Some are stopped again and again."""
    yield from _flapping(members, seed, settings, "freeze", seconds)


def join_storm(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Three contacts run; all others join within a second."""
    cluster = SimulatedCluster(members, seed=seed, settings=settings)
    contacts = (0, 1, 2)
    for index in contacts:
        cluster.start(index, join=contacts[:index])
    cluster.run(3.0)
    meter = Meter(cluster, count_joins=members <= 2000)
    began = cluster.now
    for index in range(3, members):
        at = began + cluster.rng.random()
        meter.started_at[index] = at
        cluster.at(at, _starter(cluster, index, contacts))
    cluster.run(began + 1.0)
    full = cluster.run_until(meter.has_full_views, seconds or 300.0, 0.05)
    cluster.run(cluster.now + 1.0)
    yield meter.row("join_storm", seed, last_full_view_s=None if full is None else round(full + 1.0, 2))


def _starter(cluster: SimulatedCluster, index: int, contacts: tuple[int, ...]) -> Callable[[], None]:
    return lambda: (cluster.start(index, join=contacts), None)[1]


def partition(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Half, and in a large cluster one in 25, is cut off as one group; measured is when all views are full again, and
    whether they still are ten minutes later."""
    lengths = (seconds,) if seconds else (60.0, 600.0)
    for share in (2, 25) if members >= 1000 else (2,):
        for length in lengths:
            cluster, meter = _known(members, seed, settings)
            away = range(members // share) if share == 2 else cluster.rng.sample(range(members), members // share)
            meter.sick = set(away)
            cluster.cut(away, together=True)
            cluster.run(cluster.now + length)
            before = meter.false_healthy
            cluster.heal()
            healed = cluster.run_until(meter.has_full_views, 120.0)
            cluster.run(cluster.now + 600.0)
            still = meter.has_full_views()
            variant = f"{members // share} of {members} for {length:g} s"
            yield meter.row(
                "partition", seed, full_view_after_heal_s=healed, variant=variant, full_view_10_min_later=still,
                false_deaths_after_heal=meter.false_healthy - before,
            )  # fmt: skip


def mass_death(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """One in 25 dies at once."""
    cluster, meter = _known(members, seed, settings)
    _let_die(cluster, meter, 25, seconds or 40.0)
    yield meter.row("mass_death", seed, all_known_s=round(max(meter.crash_times()), 2), **meter.crash_quantiles())


def fifth_death(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """One in five dies at once."""
    cluster, meter = _known(members, seed, settings)
    _let_die(cluster, meter, 5, seconds or 60.0)
    yield meter.row("fifth_death", seed, all_known_s=round(max(meter.crash_times()), 2), **meter.crash_quantiles())


def _let_die(cluster: SimulatedCluster, meter: Meter, one_in: int, seconds: float) -> None:
    members = len(cluster.hosts)
    for index in cluster.rng.sample(range(members), max(1, members // one_in)):
        meter.crash(index)
    cluster.run(cluster.now + seconds)


# What a host tells of itself while a model moves: signed numbers alone, and with a reason and whom it is about.
# Sketches are in no record: a host is asked for its own.
_PLAIN_BODY = Progress(state=HostState.DOWNLOADING).to_body()
_BODIES = {
    "numbers alone": _PLAIN_BODY[:1] + _PLAIN_BODY[2:],  # a state, and no byte of a reason
    "with reasons": Progress(
        state=HostState.DOWNLOADING, reason=HostReason.WAITS_FOR_READER, subject=bytes(SUBJECT_BYTES)
    ).to_body(),
}
_OBSERVERS = 20


def progress(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """A model moves: everybody tells how far it is, as often as the daemon's publisher does; without reasons and with.
    The age is of every host's last record, at some hosts, each second."""
    interval_s = refresh_interval_s(members)
    for variant, body in _BODIES.items():
        cluster, meter = _known(members, seed, settings)
        ages = _RecordAges(cluster)
        for index in range(members):
            cluster.at(cluster.now + interval_s * cluster.rng.random(), _publisher(cluster, index, interval_s, body))
        cluster.run(cluster.now + interval_s + 5.0)
        meter.forget_traffic()
        ages.watch()
        cluster.run(cluster.now + (seconds or 20.0))
        yield meter.row("progress", seed, variant=variant, body_bytes=len(body), **ages.figures())


class _RecordAges:
    """How old what some hosts have heard last of each host is."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._told_ms: dict[tuple[int, bytes], int] = {}
        self._ages_s: list[float] = []
        self._next = cluster.on_event
        cluster.on_event = self._on_event

    def watch(self) -> None:
        """From now on."""
        self._ages_s += (self._cluster.now - told_ms / 1000 for told_ms in self._told_ms.values())
        self._cluster.at(self._cluster.now + 1.0, self.watch)

    def figures(self) -> Row:
        """Mean and 99th percentile."""
        mean_s = round(sum(self._ages_s) / max(1, len(self._ages_s)), 2)
        return {"record_age_mean_s": mean_s, "record_age_p99_s": quantile(self._ages_s, 0.99)}

    def _on_event(self, index: int, event: Event) -> None:
        self._next(index, event)
        if index < _OBSERVERS and isinstance(event, PayloadHeard):
            self._told_ms[index, event.key] = event.version


def _publisher(cluster: SimulatedCluster, index: int, interval_s: float, body: bytes) -> Callable[[], None]:
    record = body + bytes(SIGNATURE_BYTES)

    def publish() -> None:
        key = ProgressKey(cluster.hosts[index].node, bytes(8), is_signed=True).encode()
        version = int(cluster.now * 1000)
        cluster.swim(index).publish(PayloadKind.PROGRESS, key, version, record, cluster.now)
        cluster._flush(index)
        cluster.at(cluster.now + interval_s, publish)

    return publish


def restart(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """Everybody restarts within five seconds, with the roster that it had."""
    cluster, meter = _known(members, seed, settings)
    meter.sick = set(range(members))
    began = cluster.now
    for index in range(members):
        contacts = tuple(cluster.rng.sample(range(members), 3))
        cluster.at(began + 5.0 * cluster.rng.random(), _restarter(cluster, index, contacts))
    cluster.run(began + 5.0)
    full = cluster.run_until(meter.has_full_views, seconds or 300.0, 0.05)
    yield meter.row("restart", seed, last_full_view_s=None if full is None else round(full, 2))


def _restarter(cluster: SimulatedCluster, index: int, contacts: tuple[int, ...]) -> Callable[[], None]:
    return lambda: cluster.restart(index, join=contacts)


def liars(members: int, seed: int, settings: SwimSettings, seconds: float | None) -> Iterator[Row]:
    """One in 20 lies: accuses the living, forges records and contradictions, replays what it heard."""
    cluster, meter = _known(members, seed, settings)
    wicked = Liars(cluster, cluster.rng.sample(range(members), max(1, members // 20)), Random(seed))
    meter.sick = set(wicked.indexes)
    wicked.begin()
    cluster.run(cluster.now + (seconds or 60.0))
    yield meter.row("liars", seed, forged_accepted=wicked.forged_accepted(), lies=dict(wicked.told))


SCENARIOS: dict[str, Scenario] = {
    "quiet": quiet, "loss5": loss5, "cut": cut, "cut_queue": cut_queue, "freeze": freeze, "join_storm": join_storm,
    "partition": partition, "mass_death": mass_death, "fifth_death": fifth_death, "restart": restart, "liars": liars,
    "statements": statements, "progress": progress,
}  # fmt: skip
