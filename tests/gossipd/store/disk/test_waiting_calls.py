"""Calls of a disk are counted while they wait, and told once each when a look after many finds them still waiting."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any, cast

import pytest

from gossipd.store.disk.disk import Disk
from gossipd.store.disk.waiting_calls import LOOKS_MAX, WaitingCalls
from tests.gossipd.store.hanging_disk import WAIT_S, HangingDisk


class Hanging:
    """Calls that wait, each in its thread."""

    def __init__(self) -> None:
        self.disk = HangingDisk()
        self.calls = WaitingCalls(cast(Disk, self.disk))
        self.threads: list[Thread] = []

    def begin(self, name: str, *given: object) -> None:
        self.disk.answers.clear()
        self.disk.was_asked.clear()
        thread = Thread(target=getattr(cast(Any, self.calls), name), args=given, daemon=True)
        thread.start()
        self.threads.append(thread)
        assert self.disk.was_asked.wait(WAIT_S)

    def end(self) -> None:
        self.disk.answers.set()
        for thread in self.threads:
            thread.join(WAIT_S)

    def looks(self, count: int) -> list[str]:
        return [found for found in (self.calls.look() for _ in range(count)) if found]


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.end()


def test_a_call_that_waits_through_many_looks_is_told_once(hanging: Hanging) -> None:
    hanging.begin("kind", "a")
    assert (hanging.looks(LOOKS_MAX - 1), hanging.calls.overdue()) == ([], "")
    assert (hanging.looks(100), hanging.calls.overdue()) == (["a look-up"], "a look-up")
    hanging.end()
    assert (hanging.looks(100), hanging.calls.overdue()) == ([], "")


def test_another_call_that_waits_beside_the_first_is_told_too(hanging: Hanging) -> None:
    hanging.begin("kind", "a")
    assert hanging.looks(LOOKS_MAX) == ["a look-up"]
    hanging.begin("space")
    assert hanging.looks(2 * LOOKS_MAX) == ["a look-up"]


@pytest.mark.parametrize(("name", "given"), [("sync_everything", ()), ("sync_directory", ("",))])
def test_what_may_take_long_is_told_later(hanging: Hanging, name: str, given: tuple[object, ...]) -> None:
    hanging.begin(name, *given)
    assert hanging.looks(3 * LOOKS_MAX) == []
    assert hanging.looks(600) == ["a sync"]


def test_calls_that_end_are_never_told_and_what_they_raise_comes_out(hanging: Hanging) -> None:
    disk = cast(Disk, hanging.calls)
    for _ in range(LOOKS_MAX + 1):
        assert disk.kind("missing") is None
        with pytest.raises(FileNotFoundError):
            disk.open("missing")
        assert hanging.calls.look() == hanging.calls.overdue() == ""
