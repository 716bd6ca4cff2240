"""Watched directories follow the configuration, and what is not published is an alarm; the clock jumps."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from gossipd.api.ports import PublishStep
from gossipd.config.job_sections import WatchEntry
from gossipd.core.errors import LocalError
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.step_watches import START_S, StepWatches
from gossipd.publish.step_watch import KnownSteps


class Ignored:
    def record(self, event: str, *, code: str, reason: str) -> None:
        """Nobody asks."""


@dataclass
class Publishing:
    """Publishes at once; ``refusals``: sentences by directory."""

    last: int | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    done: list[tuple[int, str, int | None, int | None]] = field(default_factory=list)

    async def publish(
        self, user: int, directory: str, name: str, *, version: int | None, step: int | None, how: str,
        keep_last: int | None = None, keep_every: int | None = None, exclude: str = "",
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        if Path(directory).name in self.refusals:
            raise LocalError(self.refusals[Path(directory).name], code="E_NOT_OWNER")
        self.done.append((user, Path(directory).name, step, keep_last))
        yield PublishStep(
            stage="deploying", name=name, version=step or 0, bytes_done=1, bytes_total=1, file_count=1, done=True
        )  # fmt: skip

    def known_steps(self, name: str) -> KnownSteps:
        return KnownSteps(self.last)


class NoDescriptor:
    """Nothing can be imported."""

    def find_spec(self, name: str, *_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", name)


@dataclass
class Bench:
    """The service with a configuration that the test changes."""

    entries: tuple[WatchEntry, ...]
    publishing: Publishing = field(default_factory=Publishing)

    def __post_init__(self) -> None:
        self.alarms = Alarms(cast(Any, Ignored()))
        publish = SimpleNamespace(watch=self.entries)
        self.live = SimpleNamespace(config=SimpleNamespace(publish=publish))
        self.service = StepWatches(cast(Any, self.live), self.publishing, self.alarms)

    def sentences(self) -> list[str]:
        return [row.sentence for row in self.alarms.rows.values()]


def saved(run: Path, step: int) -> None:
    directory = run / f"step-{step}"
    directory.mkdir(parents=True)
    (directory / "__0_0.distcp").write_bytes(b"x")
    (directory / ".metadata").write_bytes(b"y")


async def passes(seconds: float) -> None:
    """Half a second at a time, so that threads keep up with the clock that jumps."""
    for _ in range(int(2 * seconds)):
        await trio.sleep(0.5)
        for _ in range(20):
            await trio.to_thread.run_sync(lambda: None)


async def comes(is_so: Callable[[], bool]) -> None:
    """Until it is so, for ten minutes of the clock that jumps."""
    for _ in range(600):
        if is_so():
            return
        await passes(1)
    raise AssertionError("it did not come")


async def test_steps_are_published_in_turn_for_the_tables_user(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    run = tmp_path / "run"  # not there yet
    bench = Bench((WatchEntry(directory=str(run), name="m", user="7", keep_last=3),))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.service.run)
        await passes(START_S + 1)
        saved(run, 10)
        saved(run, 20)
        await comes(lambda: len(bench.publishing.done) == 2)
        assert [one[1:] for one in bench.publishing.done] == [("step-10", 10, 3), ("step-20", 20, 3)]
        assert {one[0] for one in bench.publishing.done} == {7}
        assert bench.sentences() == []
        nursery.cancel_scope.cancel()


async def test_a_reload_ends_and_begins_watching(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    first, second = (WatchEntry(directory=str(tmp_path / name), name=name) for name in ("a", "b"))
    bench = Bench((first,))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.service.run)
        await passes(START_S + 1)
        bench.live.config.publish = SimpleNamespace(watch=(second,))
        await passes(1)
        saved(tmp_path / "a", 1)
        saved(tmp_path / "b", 2)
        await comes(lambda: bool(bench.publishing.done))
        await passes(4)
        assert bench.publishing.done == [(os.geteuid(), "step-2", 2, None)]
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_loaded_is_an_alarm_and_loaded_later(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench((WatchEntry(directory=str(tmp_path), name="m"),))
    saved(tmp_path, 1)
    with monkeypatch.context() as lacking:
        lacking.delitem(sys.modules, "gossipd.publish.step_listing", raising=False)
        lacking.setattr(sys, "meta_path", [NoDescriptor(), *sys.meta_path])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.service.run)
            await comes(lambda: "cannot be loaded" in "".join(bench.sentences()))
            lacking.undo()
            await comes(lambda: bool(bench.publishing.done))
            assert bench.sentences() == []
            nursery.cancel_scope.cancel()


async def test_a_refusal_is_an_alarm_until_the_step_is_published_or_gone(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench((WatchEntry(directory=str(tmp_path), name="m"),))
    bench.publishing.refusals["step-1"] = "weights belong to another"
    saved(tmp_path, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.service.run)
        await comes(lambda: bool(bench.sentences()))
        (sentence,) = bench.sentences()
        assert f"{tmp_path}/step-1" in sentence
        assert "belong to another" in sentence
        bench.publishing.refusals.clear()
        await comes(lambda: not bench.sentences())
        assert [one[1] for one in bench.publishing.done] == ["step-1"]
        nursery.cancel_scope.cancel()


async def test_a_directory_that_others_write_to_needs_its_users_name(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    run = tmp_path / "run"
    saved(run, 1)
    run.chmod(0o777)
    bench = Bench((WatchEntry(directory=str(run), name="m"),))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.service.run)
        await comes(lambda: bool(bench.sentences()))
        (sentence,) = bench.sentences()
        assert "writable by other users" in sentence
        assert "name its user in publish.watch" in sentence
        assert bench.publishing.done == []
        nursery.cancel_scope.cancel()
