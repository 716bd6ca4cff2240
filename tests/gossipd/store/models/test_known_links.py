"""What is told of ``current`` without a look: at once what the store did, at the next look what others did."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import SOURCE
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.disk import FileKind
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.models.known_links import KnownLinks
from tests.gossipd.daemon.quiet_store import quiet_store
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.small_models import small
from tests.gossipd.store.test_faults import Daemon

VERSIONS = [small(version=version, seed=version) for version in (1, 2, 3)]


def deliver(store: ChunkStore, version: int) -> None:
    model = VERSIONS[version - 1]
    store.open(model.manifest)
    for chunk, body in enumerate(model.chunks):
        store.put(model.manifest.id, chunk, body, SOURCE, 0.0)
    store.finish(model.manifest.id)


def test_what_the_store_does_to_the_link_is_told_at_once(tmp_path: Path) -> None:
    store = quiet_store(tmp_path / "store")
    told = [store.current("m")]
    for version in (1, 2, 3):
        deliver(store, version)
        told.append(store.current("m"))
    assert told == [None, 1, 2, 3]
    assert store.rollback("m") == store.current("m") == 2
    store.avoid_versions("m", frozenset({2}))
    assert store.current("m") == 3
    store.remove("m", 3)
    assert store.current("m") == 2
    store.close()
    again = quiet_store(tmp_path / "store")
    again.open(VERSIONS[1].manifest)
    assert again.current("m") == 2, "a start looks"
    again.remove("m", 2)
    assert again.current("m") is None
    with pytest.raises(NotFoundError):
        again.rollback("m")
    again.close()


def test_a_link_that_an_operator_moves_is_told_at_the_next_look(tmp_path: Path) -> None:
    store = quiet_store(tmp_path / "store")
    for version in (1, 2):
        deliver(store, version)
    link = tmp_path / "store" / "m" / "current"
    moves: list[tuple[str, int | None]] = [("1", 1), ("elsewhere", None), ("2", 2)]
    for target, led_to in moves:
        before = store.current("m")
        link.unlink()
        link.symlink_to(target)
        assert store.current("m") == before
        store.look()
        assert store.current("m") == led_to
    store.close()


def test_a_roll_back_that_the_disk_refuses_is_not_told() -> None:
    disk = MemoryDisk()
    daemon = Daemon(disk)
    for version in (1, 2):
        deliver(daemon.store, version)

    def refuse(name: str, number: int) -> None:
        raise OSError(errno.EROFS, "read-only")

    disk.before = refuse
    with pytest.raises(StoreWriteError):
        daemon.store.rollback("m")
    assert daemon.store.current("m") == 2


def test_a_disk_that_does_not_tell_is_asked_again_and_forgotten_is_what_is_gone() -> None:
    class RefusingDisk(MemoryDisk):
        refuses = False

        def kind(self, path: str) -> FileKind | None:
            if self.refuses and path == "m":
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return super().kind(path)

    disk = RefusingDisk()
    daemon = Daemon(disk)
    deliver(daemon.store, 1)
    disk.refuses = True
    assert daemon.store.current("m") == 1
    daemon.store.look()
    for _ in range(2):
        with pytest.raises(StoreUnreadableError, match="/m cannot be read by the daemon: Permission denied"):
            daemon.store.current("m")
    disk.refuses = False
    daemon.store.look()
    assert daemon.store.current("m") == 1
    links = KnownLinks(disk)
    links.look("m")
    assert links.names() == {"m"}
    daemon.store.remove("m", 1)
    links.look("m")
    assert (links.names(), links.version("m")) == (set(), None), "names come and go without end"
