"""The disk refuses, at every call in turn: full, failing, read-only, out of descriptors, writing less than asked.

A store that lives through it is driven as the daemon drives it: what is refused is tried again when the condition is
well. What must hold: only typed errors, no wrong byte held, no chunk lost that was written (but for a failed
sync, which is believed), and the work is done in the end without a restart.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gossipd.core.errors import GossipdError
from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.disk.disk import FileKind
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.notices import StoreConditionChanged, StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import Model, small

T = TypeVar("T")
ONE = small(version=1, seed=1)
TWO = small(version=2, seed=1, config=b"changed")
CODES = {
    errno.ENOSPC: ("E_NO_SPACE", StoreHealth.FULL),
    errno.EIO: ("E_STORE_IO", StoreHealth.FAILING),
    errno.EROFS: ("E_STORE_READ_ONLY", StoreHealth.READ_ONLY),
    errno.EMFILE: ("E_STORE_HANDLES", StoreHealth.HANDLES),
}


class Daemon:
    """Does to a store what the daemon does, and keeps at it."""

    def __init__(
        self, disk: MemoryDisk, *, heal: Callable[[], None] = lambda: None, boot: str = "a", **settings: int
    ) -> None:
        self.disk = disk
        self.heal = heal
        self.now = 0.0
        self.lost: list[ChunkLost] = []
        self.conditions: list[StoreHealth] = []
        self.refusals: list[str] = []
        self.store = ChunkStore(
            Path("unused"),
            settings=StoreSettings(reserve_bytes=0, **settings),  # type: ignore[arg-type]
            on_event=self._hear,
            disk=disk,
            clock=SetClock(now=lambda: self.now, boot=boot),
            background=False,
        )

    def _hear(self, event: StoreEvent) -> None:
        if isinstance(event, ChunkLost):
            self.lost.append(event)
        elif isinstance(event, StoreConditionChanged):
            self.conditions.append(event.condition.health)

    def attempt(self, action: Callable[[], T]) -> T:
        """Until it is done: wait for the condition, try again."""
        for _ in range(20):
            try:
                return action()
            except GossipdError as error:
                self.refusals.append(error.code)
                self.wait_until_well()
        raise AssertionError("it never gets well")

    def wait_until_well(self) -> None:
        for _ in range(5):
            self.heal()
            self.now += 61.0
            self.store.upkeep.step()

    def deliver(self, model: Model) -> None:
        """Everything from opening to publishing."""
        identity = model.manifest.id
        self.attempt(lambda: self.store.open(model.manifest))
        while not self.store.statistics().models[identity].is_published:
            for chunk in set(range(len(model.chunks))) - set(self.store.held(identity)):
                self.attempt(lambda c=chunk: self.store.put(identity, c, model.chunks[c], SOURCE, 0.0))  # type: ignore[misc]
                self.check(model)
            self.store.commit()
            self.attempt(lambda: self._finish_if_whole(model))
        for path, body in model.files.items():
            file = self.disk.file(f"{model.manifest.name}/{model.manifest.version}/{path}")
            assert file.data == body
            assert file.device == body, "a failed sync was believed"

    def _finish_if_whole(self, model: Model) -> None:
        if self.store.held(model.manifest.id).is_full:
            self.store.finish(model.manifest.id)

    def check(self, model: Model) -> None:
        """What is held can be read, and is right."""
        for chunk in self.store.held(model.manifest.id):
            opened = self.store.open_chunk(model.manifest.id, chunk)
            body = bytearray()
            for span in opened.spans:
                part = bytearray(span.length)
                self.disk.read_some(span.descriptor, memoryview(part), span.offset)
                body += part
            opened.close()
            assert body == model.chunks[chunk]


def _deliver_both(daemon: Daemon) -> None:
    daemon.deliver(ONE)
    daemon.deliver(TWO)
    daemon.store.close()


def _count_calls() -> list[str]:
    disk = MemoryDisk()
    daemon = Daemon(disk)
    disk.calls.clear()
    _deliver_both(daemon)
    return disk.calls


CALLS = _count_calls()


def refuse_times(number: int, left: list[int], at: int) -> Callable[[str, int], None]:
    """From call ``at`` on, as often as ``left`` says."""

    def refuse(name: str, count: int) -> None:
        if count >= at and left[0] > 0:
            left[0] -= 1
            raise OSError(number, "injected")

    return refuse


def _shorten_at(disk: MemoryDisk, number: int) -> None:
    whole = disk.write_some

    def short(descriptor: int, data: memoryview, offset: int) -> int:
        if len(disk.calls) == number and len(data) > 1:
            data = data[: len(data) // 3 + 1]
        return whole(descriptor, data, offset)

    disk.write_some = short  # type: ignore[method-assign]


@pytest.mark.parametrize("number", CODES, ids=lambda number: errno.errorcode[number])
def test_one_refusal_at_any_call_is_named_and_survived(number: int) -> None:
    for at, call in enumerate(CALLS):
        disk = MemoryDisk()
        daemon = Daemon(disk)
        disk.calls.clear()
        disk.before = refuse_times(number, [1], at)
        _deliver_both(daemon)
        assert set(daemon.refusals) <= {CODES[number][0], "E_NOT_WHOLE"}, call
        assert disk.open_count == 0, call
        if not call.startswith("sync_data"):
            assert not daemon.lost, f"{call}: a chunk was lost without a failed sync"


@pytest.mark.parametrize("number", CODES, ids=lambda number: errno.errorcode[number])
def test_a_disk_that_refuses_everything_for_a_while_is_waited_for(number: int) -> None:
    for at in range(0, len(CALLS) - 5):
        disk = MemoryDisk()
        left = [30]

        def heal(left: list[int] = left) -> None:
            left[0] -= 10

        daemon = Daemon(disk, heal=heal)
        disk.calls.clear()
        disk.before = refuse_times(number, left, at)
        _deliver_both(daemon)
        assert CODES[number][1] in daemon.conditions or not daemon.refusals
        assert disk.open_count == 0


def test_a_short_write_at_any_call_is_finished() -> None:
    for number in [at for at, call in enumerate(CALLS) if call == "write"]:
        disk = MemoryDisk()
        daemon = Daemon(disk)
        disk.calls.clear()
        _shorten_at(disk, number)
        _deliver_both(daemon)
        assert not daemon.refusals


def test_a_write_that_makes_no_progress_is_an_error_not_a_loop() -> None:
    disk = MemoryDisk()
    daemon = Daemon(disk)
    daemon.store.open(ONE.manifest)
    disk.write_some = lambda descriptor, data, offset: 0  # type: ignore[method-assign]
    with pytest.raises(StoreWriteError, match="no progress"):
        daemon.store.put(ONE.manifest.id, 0, ONE.chunks[0], SOURCE, 0.0)


def test_a_directory_that_cannot_be_looked_into_is_named_and_read_again() -> None:
    closed: list[str] = []

    class ClosedDisk(MemoryDisk):
        def names(self, path: str) -> list[str]:
            self._look(path)
            return super().names(path)

        def kind(self, path: str) -> FileKind | None:
            self._look(path)
            return super().kind(path)

        def _look(self, path: str) -> None:
            if path in closed:
                raise PermissionError(errno.EACCES, "Permission denied", path)

    daemon = Daemon(ClosedDisk())
    daemon.deliver(ONE)
    name = ONE.manifest.name
    looks: list[tuple[str, Callable[[], object]]] = [
        (".manifests", daemon.store.models),
        (name, lambda: [daemon.store.look(), daemon.store.current(name)]),
        (name, lambda: daemon.store.versions(name)),
        (name, daemon.store.uses),
    ]
    for path, look in looks:
        before = look()
        closed.append(path)
        with pytest.raises(StoreUnreadableError, match=f"/{path} cannot be read by the daemon: Permission denied"):
            look()
        closed.clear()
        assert look() == before
