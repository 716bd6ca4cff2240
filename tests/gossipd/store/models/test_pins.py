"""Pins outlast a restart, and a disk that does not give them evicts nothing."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.store.disk.disk import write_new_file
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.models import layout
from gossipd.store.models.pins import PINS_MAX, PinLimitError, Pins
from tests.gossipd.store.memory_disk import MemoryDisk


def test_a_name_pins_its_current_version_and_a_label_one_version() -> None:
    pins = Pins(MemoryDisk())
    assert pins.change("org/m") and pins.change("n@2") and not pins.change("n@2")
    assert pins.is_pinned("org/m", 9, is_current=True) and not pins.is_pinned("org/m", 9, is_current=False)
    assert pins.is_pinned("n", 2, is_current=False) and not pins.is_pinned("n", 3, is_current=True)
    assert pins.change("org/m", is_undone=True) and not pins.change("org/m", is_undone=True)
    assert pins.all() == ("n@2",)


def test_pins_are_there_after_a_power_cut() -> None:
    disk = MemoryDisk()
    Pins(disk).change("m@1")
    assert Pins(disk.cut(lambda: False, Random(1))).all() == ("m@1",)


def test_while_the_file_cannot_be_read_all_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    Pins(disk).change("m@1")

    def refuse(path: str, **_: object) -> int:
        raise OSError(5, "input/output error", path)

    with monkeypatch.context() as failing:
        failing.setattr(disk, "open", refuse)
        pins = Pins(disk)
        assert pins.is_pinned("anything", 1, is_current=False)
        with pytest.raises(StoreUnreadableError, match="cannot be read"):
            pins.change("n@2")
    assert pins.change("n@2"), "the disk gives it again"
    assert (pins.all(), pins.is_pinned("anything", 1, is_current=False)) == (("m@1", "n@2"), False)


@pytest.mark.parametrize("kept", [b"\xff\x00\x17", b"m@1\nn@x\n", b"m@1\n/etc\n", b"m@12"])
def test_a_damaged_file_pins_all_and_is_not_written_over(kept: bytes) -> None:
    disk = MemoryDisk()
    write_new_file(disk, layout.PINS, kept)
    pins = Pins(disk)
    assert pins.is_pinned("anything", 1, is_current=False)
    for call in (pins.look, lambda: pins.change("n@2"), lambda: pins.change("n@2", is_undone=True)):
        with pytest.raises(StoreUnreadableError, match=r"\.pinned in the store's directory is (damaged|cut short)"):
            call()
    disk.remove_file(layout.PINS)
    pins.look()
    assert (pins.all(), pins.is_pinned("anything", 1, is_current=False)) == ((), False)


def test_there_are_at_most_so_many_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    disk.make_directory("x")
    pins = Pins(disk)
    pins._pins = tuple(f"m@{number}" for number in range(PINS_MAX))
    with pytest.raises(PinLimitError):
        pins.change("m@5000")
    assert disk.kind(layout.PINS) is None
