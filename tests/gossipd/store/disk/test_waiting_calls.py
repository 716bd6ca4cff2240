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


def test_calls_of_which_none_ends_through_many_looks_are_told_once(hanging: Hanging) -> None:
    hanging.begin("kind", "a")
    assert (hanging.looks(LOOKS_MAX - 1), hanging.calls.late()) == ([], "")
    assert (hanging.looks(100), hanging.calls.late()) == (["a look-up"], "a look-up")
    hanging.begin("space")
    assert (hanging.looks(100), hanging.calls.late()) == ([], "a look-up")
    hanging.end()
    assert (hanging.looks(100), hanging.calls.late()) == ([], "")


def test_calls_of_another_kind_are_told_for_themselves(hanging: Hanging) -> None:
    hanging.begin("kind", "a")
    assert hanging.looks(LOOKS_MAX) == ["a look-up"]
    hanging.begin("sync_everything")
    assert hanging.looks(1000) == ["a sync"]


def test_a_call_that_waits_behind_others_that_end_is_on_a_slow_disk(hanging: Hanging) -> None:
    hanging.begin("kind", "a")
    for _ in range(10 * LOOKS_MAX):
        hanging.calls._kinds["a look-up"].has_ended = True  # as when one of its kind has
        assert hanging.calls.look() == hanging.calls.late() == ""


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
        assert hanging.calls.look() == hanging.calls.late() == ""


def test_a_copy_that_waits_for_a_jobs_directory_accuses_no_disk(hanging: Hanging) -> None:
    hanging.disk.memory.copy_some = lambda *_: 100  # type: ignore[method-assign]
    hanging.begin("copy_some", 3, 0, 4, 0, 100)
    assert (hanging.looks(1000), hanging.calls.late()) == ([], "")
