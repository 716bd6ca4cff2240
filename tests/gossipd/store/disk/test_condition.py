"""A disk that refuses: named with figures, told once, waited for, healed without a hand; reading goes on."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gossipd.core.ids import SOURCE
from gossipd.core.reasons import HostReason, reason_of_code
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import PROBE_INTERVAL_S_MAX, ConditionTracker, StoreCondition, StoreHealth
from gossipd.store.disk.disk import Space
from gossipd.store.notices import StoreConditionChanged, StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, small

ONE = small()
ID = ONE.manifest.id


class Host:
    """A store on a disk in memory, with a clock that the test turns."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.now = 0.0
        self.events: list[StoreEvent] = []
        self.store = ChunkStore(
            Path("unused"),
            settings=StoreSettings(reserve_bytes=0),
            on_event=self.events.append,
            disk=disk,
            clock=SetClock(now=lambda: self.now),
            background=False,
        )

    def put(self, chunk: int) -> None:
        self.store.put(ID, chunk, ONE.chunks[chunk], SOURCE, 0.0)

    @property
    def changes(self) -> list[StoreHealth]:
        return [event.condition.health for event in self.events if isinstance(event, StoreConditionChanged)]


def _refuse(number: int) -> Callable[[str, int], None]:
    def before(name: str, at: int) -> None:
        raise OSError(number, "injected")

    return before


def _allow(name: str, at: int) -> None:
    """Nothing is refused."""


@pytest.mark.parametrize(
    ("number", "code", "health"),
    [
        (errno.ENOSPC, "E_NO_SPACE", StoreHealth.FULL),
        (errno.EDQUOT, "E_NO_SPACE", StoreHealth.FULL),
        (errno.EROFS, "E_STORE_READ_ONLY", StoreHealth.READ_ONLY),
        (errno.EACCES, "E_STORE_ACCESS", StoreHealth.READ_ONLY),
        (errno.EIO, "E_STORE_IO", StoreHealth.FAILING),
        (errno.EMFILE, "E_STORE_HANDLES", StoreHealth.HANDLES),
        (errno.EFBIG, "E_STORE_FILE_SIZE", StoreHealth.FAILING),
    ],
)
def test_a_refusal_is_named_told_once_and_healed_by_the_probe(number: int, code: str, health: StoreHealth) -> None:
    host = Host(MemoryDisk())
    host.store.open(ONE.manifest)
    host.put(0)
    host.disk.before = _refuse(number)
    for chunk in (1, 2):
        with pytest.raises(StoreWriteError) as caught:
            host.put(chunk)
        assert caught.value.code == code
    assert host.store.condition().health is health
    host.store.open_chunk(ID, 0).close()
    host.now += 1.0
    host.store.upkeep.step()
    assert host.changes == [health]
    host.disk.before = _allow
    host.now += 1.0
    host.store.upkeep.step()
    assert host.changes == [health, StoreHealth.OK]
    host.put(1)


@pytest.mark.parametrize(
    ("number", "space", "need_bytes", "words"),
    [
        (errno.ENOSPC, Space(5, 9), 7, r": need 7 bytes, 5 are free$"),
        (errno.ENOSPC, Space(5, 9), 0, r": 5 are free$"),
        (errno.ENOSPC, Space(1 << 30, 1 << 31, 0), 7, r": no inode is left, .*; delete files"),
        (errno.ENOSPC, Space(1 << 30, 1 << 31, 9), 7, r", though 1073741824 bytes are free: a quota on the directory"),
        (errno.EDQUOT, Space(1 << 30, 1 << 31, 9), 7, r"quota is used up .*; raise the quota, or delete files$"),
    ],
)
def test_a_full_disk_is_told_with_what_it_is_full_of(number: int, space: Space, need_bytes: int, words: str) -> None:
    disk = MemoryDisk()
    disk.space = lambda: space  # type: ignore[method-assign]
    tracker = ConditionTracker(disk, on_change=lambda condition: None)
    tracker.refused(OSError(number, "refused"), 0.0, need_bytes=need_bytes)
    assert re.search(words, tracker.condition.sentence)
    reason = reason_of_code(tracker.condition.code, HostReason.DISK)
    assert reason is (HostReason.NO_INODES if space.free_files == 0 else HostReason.NO_SPACE)


def test_a_model_of_too_large_files_waits_alone_and_is_told_the_cure() -> None:
    host = Host(MemoryDisk())
    host.disk.before = _refuse(errno.EFBIG)
    host.disk.can_allocate = False
    with pytest.raises(StoreWriteError, match=r"LimitFSIZE .* ulimit -f.* \(the largest has \d.*; ") as caught:
        host.store.open(ONE.manifest)
    assert caught.value.code == "E_STORE_FILE_SIZE"
    assert (host.store.condition().health, host.changes) == (StoreHealth.OK, []), "others go on"


def test_a_file_limit_that_was_lowered_is_probed_where_files_end() -> None:
    host = Host(MemoryDisk())
    host.store.open(ONE.manifest)
    host.disk.before = _refuse(errno.EFBIG)
    with pytest.raises(StoreWriteError):
        host.put(0)
    host.disk.before = _allow
    host.disk.file_bytes_max = max(file.size for file in ONE.manifest.files) - 1
    for _ in range(2):
        host.now += 1.0
        host.store.upkeep.step()
    assert host.changes == [StoreHealth.FAILING]
    host.disk.file_bytes_max += 1
    host.now += 1.0
    host.store.upkeep.step()
    assert host.changes == [StoreHealth.FAILING, StoreHealth.OK]


def test_while_the_disk_refuses_a_put_does_not_touch_it() -> None:
    host = Host(MemoryDisk())
    host.store.open(ONE.manifest)
    host.disk.before = _refuse(errno.ENOSPC)
    with pytest.raises(StoreWriteError):
        host.put(0)
    host.disk.before = _allow
    calls = len(host.disk.calls)
    with pytest.raises(StoreWriteError):
        host.put(0)
    assert len(host.disk.calls) == calls


def test_a_full_disk_goes_on_only_when_all_that_is_missing_has_room() -> None:
    disk = MemoryDisk(total_bytes=100 * CHUNK)
    disk.can_allocate = False
    host = Host(disk)
    host.store.open(ONE.manifest)
    disk.total_bytes = 2 * CHUNK
    disk.before = _refuse(errno.ENOSPC)
    with pytest.raises(StoreWriteError, match=r"need \d+ bytes, \d+ are free"):
        host.put(0)
    disk.before = _allow
    host.now += 1.0
    host.store.upkeep.step()
    condition = host.store.condition()
    assert condition.health is StoreHealth.FULL
    assert condition.need_bytes > condition.free_bytes
    disk.total_bytes = 100 * CHUNK
    host.now += 1.0
    host.store.upkeep.step()
    assert host.store.condition() == StoreCondition()


def test_failed_syncs_make_the_probes_rarer_up_to_a_minute_until_one_succeeds() -> None:
    tracker = ConditionTracker(MemoryDisk(), on_change=lambda condition: None)
    waits = []
    for _ in range(8):
        tracker.sync_failed(OSError(errno.EIO, "x"), 100.0, chunk_count=1)
        assert tracker.probe_at is not None
        waits.append(tracker.probe_at - 100.0)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, PROBE_INTERVAL_S_MAX, PROBE_INTERVAL_S_MAX, PROBE_INTERVAL_S_MAX]
    tracker.sync_succeeded()
    tracker.refused(OSError(errno.ENOSPC, "x"), 100.0, need_bytes=1)
    assert tracker.probe_at == 101.0


def test_a_window_is_ended_when_it_is_due_and_not_before() -> None:
    host = Host(MemoryDisk())
    host.store.open(ONE.manifest)
    assert host.store.upkeep.step() is None
    host.put(0)
    began = host.now
    durable: list[int] = []
    while not any(durable):
        wait_s = host.store.upkeep.step()
        durable.append(host.store.statistics().models[ID].durable_count)
        host.now += wait_s or 0.0
        assert host.now - began <= 2.0 + 0.01
    assert host.now - began >= 1.0
    assert durable[-1] == 1
    assert host.store.upkeep.step() is None


def test_a_window_that_the_disk_refuses_to_end_is_tried_again_once_a_second() -> None:
    host = Host(MemoryDisk())
    host.store.open(ONE.manifest)
    host.put(0)
    asked_s: set[float] = set()

    def count(name: str, at: int) -> None:
        asked_s.add(host.now)
        raise OSError(errno.EIO, "injected")

    host.disk.before = count
    began = host.now
    while host.now < began + 12.0:
        wait_s = host.store.upkeep.step()
        assert wait_s is not None
        host.now += wait_s
    assert host.store.statistics().models[ID].durable_count == 0
    assert 8 <= len(asked_s) <= 24, "once a second, and the probes"
    host.disk.before = _allow
    while host.now < began + 80.0 and not host.store.statistics().models[ID].durable_count:
        host.now += host.store.upkeep.step() or 0.25
    assert host.now <= began + 12.0 + 60.0 + 2.0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_store_that_starts_on_a_disk_that_takes_no_writes_serves_what_it_has(number: int) -> None:
    disk = MemoryDisk()
    first = Host(disk)
    first.store.open(ONE.manifest)
    for chunk in range(6):
        first.put(chunk)
    first.store.finish(ID)
    two = small(version=2, seed=2)
    first.store.open(two.manifest)
    first.store.put(two.manifest.id, 0, two.chunks[0], SOURCE, 0.0)
    first.store.commit()
    disk = disk.killed()
    disk.before = _refuse(number)
    host = Host(disk)
    assert host.store.open(ONE.manifest).is_full
    host.store.open_chunk(ID, 3).close()
    assert host.store.condition().health is not StoreHealth.OK
    assert set(host.store.open(two.manifest)) == {0}
    with pytest.raises(StoreWriteError):
        host.store.put(two.manifest.id, 1, two.chunks[1], SOURCE, 0.0)
    disk.before = _allow
    host.now += 1.0
    host.store.upkeep.step()
    assert host.store.condition().health is StoreHealth.OK
    host.store.put(two.manifest.id, 1, two.chunks[1], SOURCE, 0.0)
    assert host.store.recheck(ID, 3)
    host.store.close()
