"""The disk's marks: what is asked of the store and when, the alarm, and what is deploying."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.daemon import watermarks
from gossipd.daemon.store_calls import StoreCalls
from gossipd.daemon.watermarks import Watermarks
from gossipd.deployment.progress_record import HostState
from gossipd.store.disk.disk import Space
from gossipd.store.errors import StoreSilentError
from gossipd.store.models.eviction import ModelUse


def use(version: int, *, kept: str = "") -> ModelUse:
    return ModelUse(DeploymentId(bytes([version]) * 32), "m", version, 10, float(version), version == 9, kept)


class Store:
    """A disk of 100 bytes. ``busy``: versions that somebody opens after the look."""

    def __init__(self, *uses: ModelUse, used_bytes: int) -> None:
        self.there = list(uses)
        self.used_bytes = used_bytes
        self.busy: set[int] = set()
        self.evicted: list[tuple[int, str]] = []
        self.pinned: tuple[str, ...] = ()

    def check_answers(self) -> None:
        """It does."""

    def space(self) -> Space:
        return Space(100 - self.used_bytes, 100)

    def uses(self) -> list[ModelUse]:
        return list(self.there)

    def make_room(self, deployment: DeploymentId, cause: str) -> str:
        found = next(one for one in self.there if one.deployment == deployment)
        if found.version in self.busy:
            return "open"
        self.there.remove(found)
        self.used_bytes -= found.byte_count
        self.evicted.append((found.version, cause))
        return ""

    def pins(self) -> tuple[str, ...]:
        return self.pinned

    def pin(self, pin: str, *, is_undone: bool) -> bool:
        is_news = (pin in self.pinned) is is_undone
        self.pinned = () if is_undone else (pin,)
        return is_news


class Lifecycle:
    def __init__(self) -> None:
        self.under_way: set[int] = set()
        self.state = HostState.COMPLETE

    def get(self, deployment: DeploymentId) -> Any:
        return next(one for one in self if one.manifest.version == deployment[0])

    def __iter__(self) -> Iterator[SimpleNamespace]:
        for version in range(16):
            label = self.label("m", version)
            yield SimpleNamespace(manifest=SimpleNamespace(name="m", version=version, label=label))

    def is_under_way(self, record: SimpleNamespace) -> bool:
        return record.manifest.version in self.under_way

    def label(self, name: str, version: int | None) -> str:
        """Versions are steps."""
        return name if version is None else f"{name}@{version}.2"

    def find(self, name: str, version: int | None) -> list[SimpleNamespace]:
        found = SimpleNamespace(state=self.state, reason=HostReason.REMOVED)
        return [found] if name == "m" and version in (None, 1) else []


class Alarms:
    def __init__(self) -> None:
        self.told = ""

    def ring_as(self, code: str, sentence: str) -> None:
        assert code == "E_WATERMARK"
        self.told = sentence

    def cured(self, code: str) -> None:
        self.told = ""


class Watched:
    def __init__(self, *uses: ModelUse, used_bytes: int, high: int = 90, low: int = 70) -> None:
        self.store, self.lifecycle, self.alarms = Store(*uses, used_bytes=used_bytes), Lifecycle(), Alarms()
        self.records: list[tuple[str, str]] = []
        self.keeps: set[int] = set()
        self.unshown: set[int] = set()
        self.settings = SimpleNamespace(high_watermark_percent=high, low_watermark_percent=low)
        live = SimpleNamespace(config=SimpleNamespace(store=self.settings))
        audit = SimpleNamespace(record=lambda event, subject, label: self.records.append((event, subject)))
        self.watch = Watermarks(
            cast(Any, live), cast(Any, self.store), cast(Any, self.lifecycle), cast(Any, self.alarms), cast(Any, audit),
            copies=cast(Any, SimpleNamespace(keeps=self._keeps, is_spare=self._is_spare)),
            calls=StoreCalls(cast(Any, self.store), cast(Any, None), cast(Any, self.alarms)),
        )  # fmt: skip

    def _keeps(self, deployment: DeploymentId) -> bool:
        return deployment[0] in self.keeps

    async def _is_spare(self, deployment: DeploymentId) -> bool:
        """What is not shown is seen when it is asked for."""
        if deployment[0] in self.unshown:
            self.keeps.add(deployment[0])
        return not self._keeps(deployment)


async def test_below_the_high_mark_nothing_is_evicted() -> None:
    watched = Watched(use(1), use(9), used_bytes=89)
    await watched.watch.look()
    assert watched.store.evicted == []
    watched.settings.high_watermark_percent = 0
    watched.store.used_bytes = 100
    await watched.watch.look()
    assert (watched.store.evicted, watched.alarms.told) == ([], ""), "off"


async def test_at_the_high_mark_it_evicts_down_to_the_low_one() -> None:
    watched = Watched(use(9), use(2), use(1), use(3, kept="pinned"), used_bytes=90)
    await watched.watch.look()
    assert watched.store.evicted == [(1, "watermark"), (2, "watermark")]
    row = watched.watch.row()
    assert (row.used_percent, row.evicted, row.high_percent, row.low_percent) == (70.0, 2, 90, 70)
    assert watched.alarms.told == ""


async def test_what_is_deploying_or_becomes_busy_stays_and_is_named() -> None:
    watched = Watched(use(1), use(2), use(3, kept="held"), used_bytes=95)
    watched.lifecycle.under_way, watched.store.busy = {2}, {1}
    await watched.watch.look()
    assert watched.store.evicted == []
    assert "m@2.2 (deploying), m@3.2 (held)" in watched.alarms.told
    watched.store.busy = set()
    watched.lifecycle.under_way = set()
    await watched.watch.look()
    assert watched.store.evicted == [(1, "watermark"), (2, "watermark")]
    watched.store.used_bytes = 50
    await watched.watch.look()
    assert watched.alarms.told == ""


async def test_pins_and_evictions_name_steps_for_people_and_numbers_for_programs() -> None:
    watched = Watched(use(1), use(9, kept="open"), used_bytes=50)
    assert (await watched.watch.pin("m", 1, undo=False)).sentence == "m@1.2 is pinned on this host"
    assert watched.records == [("pinned", "m@1")]
    row = watched.watch.row()
    assert (row.pinned, row.pinned_labels) == (["m@1"], ["m@1.2"])
    pruned = await watched.watch.prune(dry_run=True)
    assert [(one.model, one.label) for one in pruned.kept] == [("m@9", "m@9.2")]


async def test_what_this_host_keeps_for_its_rack_stays_until_another_does() -> None:
    watched = Watched(use(1), use(2), use(3, kept="pinned"), used_bytes=95)
    watched.keeps = {1, 2, 3}
    await watched.watch.look()
    assert "m@1.2 (replica), m@2.2 (replica), m@3.2 (pinned)" in watched.alarms.told
    pruned = await watched.watch.prune(dry_run=False)
    assert ([one.kept for one in pruned.kept], pruned.evicted) == (["replica", "replica", "pinned"], [])
    watched.keeps = {2}
    await watched.watch.look()
    assert watched.store.evicted == [(1, "watermark")]


async def _look_that_hangs(turn: trio.Lock, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    async with turn:
        task_status.started()
        await trio.sleep_forever()


async def test_prune_that_waits_too_long_for_its_turn_evicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "TURN_S", 0.01)
    watched = Watched(use(1), use(9), used_bytes=50, high=0)
    async with trio.open_nursery() as nursery:
        await nursery.start(_look_that_hangs, watched.watch._one_at_a_time)
        with pytest.raises(StoreSilentError, match="nothing is evicted"):
            await watched.watch.prune(dry_run=False)
        nursery.cancel_scope.cancel()
    assert watched.store.evicted == []
    assert (await watched.watch.prune(dry_run=False)).changed, "the turn was given back"


async def test_prune_needs_no_marks_and_a_dry_run_changes_nothing() -> None:
    watched = Watched(use(1), use(9), use(2, kept="open"), used_bytes=50, high=0)
    dry = await watched.watch.prune(dry_run=True)
    assert ([one.model for one in dry.evicted], dry.changed, watched.store.evicted) == (["m@1"], False, [])
    assert dry.sentence == "would evict 1 version, 10 B"
    done = await watched.watch.prune(dry_run=False)
    assert ([one.model for one in done.evicted], done.changed) == (["m@1"], True)
    assert [(one.model, one.kept) for one in done.kept] == [("m@2", "open")]
    assert (await watched.watch.prune(dry_run=False)).sentence == "nothing to evict"


async def test_pins_are_told_once_and_only_of_models_that_are_known() -> None:
    watched = Watched(use(1), used_bytes=50)
    assert (await watched.watch.pin("m", None, undo=False)).changed
    assert watched.watch.row().pinned == ["m"]
    assert not (await watched.watch.pin("m", None, undo=False)).changed
    assert (await watched.watch.pin("m", None, undo=True)).sentence == "m is unpinned on this host"
    assert watched.records == [("pinned", "m"), ("unpinned", "m")]
    with pytest.raises(NotFoundError, match=r"no deployment m@2\.2 is known here"):
        await watched.watch.pin("m", 2, undo=False)
    assert not (await watched.watch.pin("gone", 2, undo=True)).changed
    watched.lifecycle.state = HostState.REMOVED
    with pytest.raises(
        NotFoundError, match=r"m@1\.2 is not on this host: an operator removed it .*; drop the manifest"
    ):
        await watched.watch.pin("m", 1, undo=False)
    assert (await watched.watch.pin("m", None, undo=False)).changed, "a name is pinned for what comes"


async def test_a_copy_that_others_only_say_they_have_stays_and_another_version_goes() -> None:
    watched = Watched(use(1), use(2), use(9), used_bytes=90, low=80)
    watched.unshown = {1}
    await watched.watch.look()
    assert watched.store.evicted == []
    assert "m@1.2 (replica)" in watched.alarms.told
    await watched.watch.look()
    assert watched.store.evicted == [(2, "watermark")]
    assert watched.alarms.told == ""
