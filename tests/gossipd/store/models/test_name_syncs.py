"""What is claimed has a name that a power cut leaves, whatever went wrong when the name was made.

Each test drives a store as the daemon does (``test_faults``) and then cuts the power, so that only what was synced is
left: every chunk that the journal had claimed must be held by the next life, without a look at the source.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from gossipd.core.ids import SOURCE
from tests.gossipd.store.memory_disk import Crash, MemoryDisk
from tests.gossipd.store.small_models import small
from tests.gossipd.store.test_faults import Daemon, refuse_times

MODEL = small(version=1, seed=1)
IDENTITY = MODEL.manifest.id


def fill(daemon: Daemon) -> None:
    """Up to the last commit before the model is published."""
    daemon.attempt(lambda: daemon.store.open(MODEL.manifest))
    for chunk in range(len(MODEL.chunks)):
        daemon.attempt(lambda chunk=chunk: daemon.store.put(IDENTITY, chunk, MODEL.chunks[chunk], SOURCE, 0.0))  # type: ignore[misc]
    daemon.store.commit()


def claimed(daemon: Daemon) -> set[int]:
    return set(daemon.store._models.get(IDENTITY).durable.snapshot())


def after_a_power_cut(disk: MemoryDisk) -> Daemon:
    """The next life on what the device had."""
    daemon = Daemon(disk.cut(lambda: False, Random(0)), boot="b")
    daemon.store.open(MODEL.manifest)
    return daemon


def calls_of_filling() -> list[str]:
    disk = MemoryDisk()
    fill(Daemon(disk))
    return disk.calls


def test_what_is_claimed_after_a_refusal_at_any_call_survives_a_power_cut() -> None:
    for at, call in enumerate(calls_of_filling()):
        disk = MemoryDisk()
        daemon = Daemon(disk)
        disk.calls.clear()
        disk.before = refuse_times(errno.EIO, [1], at)
        fill(daemon)
        promised = claimed(daemon)
        assert promised <= set(after_a_power_cut(disk).store.held(IDENTITY)), f"{at} {call}"


def test_what_is_claimed_by_a_life_after_a_kill_at_any_call_survives_a_power_cut() -> None:
    for at, call in enumerate(calls_of_filling()):
        disk = MemoryDisk()

        def die(_name: str, number: int, at: int = at) -> None:
            if number == at:
                raise Crash

        disk.before = die
        try:
            fill(Daemon(disk))
        except Crash:
            disk = disk.killed()
        daemon = Daemon(disk)
        fill(daemon)
        promised = claimed(daemon)
        assert len(promised) == len(MODEL.chunks), f"{at} {call}"
        assert promised <= set(after_a_power_cut(disk).store.held(IDENTITY)), f"{at} {call}"


def test_a_model_that_was_published_after_a_refusal_at_any_call_is_there_after_a_power_cut() -> None:
    whole = MemoryDisk()
    Daemon(whole).deliver(MODEL)
    for at, call in enumerate(whole.calls):
        disk = MemoryDisk()
        daemon = Daemon(disk)
        disk.before = refuse_times(errno.EIO, [1], at)
        daemon.deliver(MODEL)
        after = after_a_power_cut(disk)
        assert after.store.statistics().models[IDENTITY].is_published, f"{at} {call}"
        after.check(MODEL)


def removed_under_us(disk: MemoryDisk) -> None:
    """Somebody deletes a file of the unfinished model."""
    paths = (f".incoming/{IDENTITY.hex()}/{path}" for path in MODEL.files)
    disk.remove_file(next(path for path in paths if disk.kind(path) is not None))


def test_files_that_were_made_again_have_their_names_before_anything_in_them_is_claimed() -> None:
    for at in range(40):
        disk = MemoryDisk()
        daemon = Daemon(disk)
        fill(daemon)
        removed_under_us(disk)
        disk.calls.clear()
        disk.before = refuse_times(errno.EIO, [1], at)
        daemon.deliver(MODEL)
        after = after_a_power_cut(disk)
        assert after.store.statistics().models[IDENTITY].is_published, at
        after.check(MODEL)


def killed_at(disk: MemoryDisk, at: int) -> None:
    """The process dies at its ``at``-th call from now on."""
    disk.calls.clear()

    def die(_name: str, number: int) -> None:
        if number == at:
            raise Crash

    disk.before = die


@pytest.mark.parametrize("has_power", [True, False], ids=["kill", "power cut"])
def test_no_life_believes_a_file_that_the_last_one_had_begun_to_make_again(has_power: bool) -> None:
    for at in range(40):
        disk = MemoryDisk()
        daemon = Daemon(disk)
        fill(daemon)
        removed_under_us(disk)
        killed_at(disk, at)
        with suppress(Crash):
            daemon.deliver(MODEL)
        believes_only_what_is_right(disk, at, has_power=has_power)


@pytest.mark.parametrize("has_power", [True, False], ids=["kill", "power cut"])
def test_no_life_believes_a_file_that_a_start_had_begun_to_make_again(has_power: bool) -> None:
    for at in range(40):
        disk = MemoryDisk()
        daemon = Daemon(disk)
        fill(daemon)
        daemon.store.close()
        removed_under_us(disk)
        killed_at(disk, at)
        with suppress(Crash):
            Daemon(disk).store.open(MODEL.manifest)
        believes_only_what_is_right(disk, at, has_power=has_power)


def believes_only_what_is_right(disk: MemoryDisk, at: int, *, has_power: bool) -> None:
    random = Random(at)
    left = disk.killed() if has_power else disk.cut(lambda: random.random() < 0.5, random)
    daemon = Daemon(left, boot="a" if has_power else "b")
    daemon.store.open(MODEL.manifest)
    daemon.check(MODEL)
    daemon.deliver(MODEL)
