"""What a refusal or a crash left half done is done by the next attempt, and never taken as done.

Each of these was found by a review with fresh eyes; the store is driven as the daemon drives it (``test_faults``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from msgspec.structs import force_setattr

from gossipd.core.errors import GossipdError
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.disk.disk import Space
from tests.gossipd.store.memory_disk import Crash, MemoryDisk
from tests.gossipd.store.small_models import CHUNK, Model, build, small
from tests.gossipd.store.test_faults import Daemon, refuse_times

MODEL = small(version=1, seed=1)
OTHER = small(name="other", seed=5)
IDENTITY = MODEL.manifest.id


def fill(daemon: Daemon, model: Model = MODEL, chunks: tuple[int, ...] | None = None) -> None:
    daemon.attempt(lambda: daemon.store.open(model.manifest))
    for chunk in range(len(model.chunks)) if chunks is None else chunks:
        put(daemon, chunk, model)


def put(daemon: Daemon, chunk: int, model: Model = MODEL) -> None:
    daemon.store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)


def incoming(path: str, identity: DeploymentId = IDENTITY) -> str:
    return f".incoming/{identity.hex()}/{path}"


def once(name: str, number: int, *, after: int = 0) -> Callable[[str, int], None]:
    """Refuse one call of that name: the first, or as many later as ``after`` says."""
    left = [after, 1]

    def refuse(call: str, _: int) -> None:
        if call == name and left[1]:
            if left[0]:
                left[0] -= 1
                return
            left[1] = 0
            raise OSError(number, f"injected at {call}")

    return refuse


def refuse_syncs_once_there(disk: MemoryDisk, path: str) -> Callable[[str, int], None]:
    """Refuse to sync any directory from the moment on that something has been moved to ``path``."""

    def refuse(name: str, _: int) -> None:
        if name == "sync_directory" and disk.kind(path) is not None:
            raise OSError(errno.EIO, "injected")

    return refuse


def finish_halfway(daemon: Daemon, model: Model, place: str) -> None:
    """Deliver ``model`` and move it to ``place``, but no further: the sync of that is refused."""
    fill(daemon, model)
    daemon.store.commit()
    daemon.disk.before = refuse_syncs_once_there(daemon.disk, place)
    with pytest.raises(StoreWriteError):
        daemon.store.finish(model.manifest.id)


def heal(daemon: Daemon) -> None:
    daemon.disk.before = lambda _name, _number: None
    daemon.wait_until_well()


def next_life(daemon: Daemon, *, boot: str = "a") -> Daemon:
    disk = daemon.disk.killed() if boot == "a" else daemon.disk.cut(lambda: False, Random(0))
    return Daemon(disk, boot=boot)


def cut_short(disk: MemoryDisk, path: str) -> None:
    disk.file(path).put(0, None)
    disk.file(path).sync()


# ---- opening -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_removed", [False, True], ids=["files whole", "a file removed"])
def test_what_a_power_cut_left_is_still_looked_for_after_a_kill_while_it_was_looked_for(
    is_removed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon, chunks=(4,))
    daemon.store.commit()
    fill(daemon, chunks=(0, 1, 2))
    daemon.disk.file(incoming("shards/one.bin")).sync()  # the device had begun; the names of the window had not come
    daemon = next_life(daemon, boot="b")
    if is_removed:
        daemon.disk.remove_file(incoming("two.bin"))

    def die(descriptor: int, offset: int) -> bool:
        raise Crash

    with monkeypatch.context() as patch, suppress(Crash):
        patch.setattr(daemon.disk, "has_data", die)
        daemon.store.open(MODEL.manifest)
    again = Daemon(daemon.disk.killed(), boot="b")
    assert {0, 1, 2} <= set(again.store.open(MODEL.manifest))


def test_an_open_that_is_refused_after_its_journal_was_begun_leaves_no_descriptor() -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon)
    daemon.store.close()
    daemon.disk.remove_file(incoming("two.bin"))
    daemon = next_life(daemon)
    before = daemon.disk.open_count
    daemon.disk.before = once("allocate", errno.ENOSPC)
    with pytest.raises(StoreWriteError):
        daemon.store.open(MODEL.manifest)
    assert daemon.disk.open_count == before


def test_copies_that_were_refused_are_made_when_opening_is_repeated() -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    target = small(version=2, seed=1, config=b"changed")
    daemon.disk.before = once("write", errno.ENOSPC, after=6)
    with pytest.raises(StoreWriteError):
        daemon.store.open(target.manifest)
    heal(daemon)
    assert len(daemon.store.open(target.manifest)) == 5, "all but the chunk that has changed"


def test_a_bad_sector_of_the_old_version_costs_the_chunk_in_it_and_no_other() -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    daemon.disk.before = once("copy", errno.EIO)
    assert len(daemon.store.open(small(version=2, seed=1, config=b"changed").manifest)) == 4


def test_users_are_led_to_a_version_when_opening_is_repeated() -> None:
    daemon = Daemon(MemoryDisk())

    def die(name: str, _: int) -> None:
        if name == "make_link":
            raise Crash

    daemon.disk.before = die
    with suppress(Crash):
        daemon.deliver(MODEL)
    daemon = next_life(daemon)
    daemon.disk.before = once("make_link", errno.EIO)
    with pytest.raises(StoreWriteError):
        daemon.store.open(MODEL.manifest)
    heal(daemon)
    daemon.store.open(MODEL.manifest)
    assert daemon.store.current("m") == 1
    assert daemon.store.scrubber.step(1), "and it is scrubbed"


def test_a_read_only_disk_serves_a_version_that_users_cannot_be_led_to() -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    daemon.store.close()
    daemon.disk.remove_file("m/current")
    daemon = next_life(daemon)

    def refuse(_name: str, _number: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    daemon.disk.before = refuse
    with pytest.raises(StoreWriteError):
        daemon.store.open(MODEL.manifest)
    assert daemon.store.open(MODEL.manifest).is_full, "it is said once; serving is worth more"
    daemon.check(MODEL)
    assert daemon.store.condition().health is StoreHealth.READ_ONLY


def test_space_that_an_earlier_life_had_promised_is_still_promised() -> None:
    class Sparse(MemoryDisk):
        """Only what was written takes room, and nothing can be reserved."""

        def allocated(self, descriptor: int) -> int:
            return 4096 * len(self._file(descriptor).written)

        def space(self) -> Space:
            return Space(12 * CHUNK, 12 * CHUNK)

    first, second = (build({name: Random(name).randbytes(8 * CHUNK)}, name=name) for name in ("first", "second"))
    disk = Sparse()
    disk.can_allocate = False
    daemon = Daemon(disk)
    daemon.store.open(first.manifest)
    daemon.store.close()
    daemon = next_life(daemon)
    daemon.store.open(first.manifest)
    with pytest.raises(GossipdError) as caught:
        daemon.store.open(second.manifest)
    assert caught.value.code == "E_NO_SPACE"


# ---- files and books that are gone -------------------------------------------------------------


def test_a_directory_that_could_not_be_made_again_at_once_does_not_stop_the_store_for_good() -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon, chunks=(0, 4))
    daemon.store.commit()
    daemon.store.open(OTHER.manifest)
    daemon.disk.remove_file(incoming("shards/one.bin"))
    daemon.disk.remove_directory(incoming("shards"))
    daemon.store._context.handles.close_idle()
    daemon.disk.before = once("make_directory", errno.EIO)
    with pytest.raises(StoreWriteError):
        put(daemon, 1)
    daemon.disk.before = once("sync_data", errno.EIO)
    daemon.now += 2
    daemon.store.upkeep.step()
    heal(daemon)
    put(daemon, 3, OTHER)
    daemon.deliver(MODEL)


def test_books_that_were_removed_are_made_again_and_stop_no_other_model() -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon, chunks=(0,))
    daemon.store.open(OTHER.manifest)
    daemon.store.commit()
    books = f".manifests/{IDENTITY.hex()}"
    for name in list(daemon.disk.names(books)):
        daemon.disk.remove_file(f"{books}/{name}")
    daemon.disk.remove_directory(books)
    put(daemon, 1)
    daemon.disk.before = once("sync_data", errno.EIO)
    daemon.store.commit()
    heal(daemon)
    put(daemon, 0, OTHER)
    daemon.deliver(MODEL)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO], ids=["EMFILE", "EIO"])
def test_a_directory_that_cannot_be_synced_costs_no_chunk(number: int) -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon, chunks=(0,))
    daemon.store.commit()
    fill(daemon, chunks=(1, 2))
    daemon.disk.remove_file(incoming("two.bin"))
    daemon.store._context.handles.close_idle()

    def refuse(name: str, _: int) -> None:
        if name == "sync_directory":
            raise OSError(number, "injected")

    daemon.disk.before = refuse
    with pytest.raises(StoreWriteError):
        put(daemon, 3)
    daemon.now += 2
    daemon.store.upkeep.step()
    assert not daemon.lost
    heal(daemon)
    daemon.store.commit()
    assert {0, 1, 2} <= set(next_life(daemon, boot="b").store.open(MODEL.manifest))


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_a_file_that_was_cut_short_is_not_made_long_by_writing_behind_the_cut(is_open: bool) -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon, chunks=(0, 1, 3, 4, 5))
    daemon.store.commit()
    if not is_open:
        daemon.store._context.handles.close_idle()
    cut_short(daemon.disk, incoming("shards/one.bin"))
    with pytest.raises(StoreWriteError):
        put(daemon, 2)
    assert {event.chunk for event in daemon.lost} == {0, 1}
    daemon.wait_until_well()
    daemon.deliver(MODEL)


def test_a_chunk_in_a_file_that_was_cut_short_is_not_told_as_lost_before_the_file_is_made_again() -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon)
    daemon.store.commit()
    cut_short(daemon.disk, incoming("shards/one.bin"))
    sizes: list[int] = []
    hear = daemon._hear

    def refetch_at_once(event: object) -> None:
        sizes.append(len(daemon.disk.file(incoming("shards/one.bin")).data))
        hear(event)  # type: ignore[arg-type]

    force_setattr(daemon.store._context, "emit", refetch_at_once)
    assert not daemon.store.recheck(IDENTITY, 2)
    assert set(sizes) == {len(MODEL.files["shards/one.bin"])}
    assert set(daemon.store.held(IDENTITY)) == {3, 4, 5}


# ---- syncing the whole file system -------------------------------------------------------------


class ForgetfulDisk(MemoryDisk):
    """As syncfs: a lost write is told once, to the first that asks."""

    lost: str | None = None

    def sync_everything(self) -> None:
        if self.lost is not None:
            self.file(self.lost).pending.clear()
            self.lost = None
            raise OSError(errno.EIO, "lost a write")
        super().sync_everything()


def test_a_lost_write_that_another_model_was_told_of_is_claimed_by_nobody() -> None:
    files = {f"w{number}": Random(number).randbytes(CHUNK) for number in range(8)}
    first, second = build(files, name="first"), build({**files, "more": b"x" * CHUNK}, name="second")
    daemon = Daemon(ForgetfulDisk(), open_files_max=8)
    for model in (first, second):
        fill(daemon, model)
        assert daemon.store._models.get(model.manifest.id).window.is_wide
    daemon.disk.lost = incoming("w6", second.manifest.id)  # type: ignore[attr-defined]
    daemon.store.commit(first.manifest.id)
    daemon.store.commit(second.manifest.id)
    assert not daemon.store._models.get(second.manifest.id).durable.count
    daemon.wait_until_well()
    for model in (first, second):
        daemon.deliver(model)


# ---- what users see ----------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "after"), [("make_link", 0), ("sync_directory", 0), ("sync_directory", 1)])
def test_a_rollback_that_was_refused_is_not_done_and_a_repeat_goes_back_one(call: str, after: int) -> None:
    daemon = Daemon(MemoryDisk(), keep_versions=5)
    for version in (1, 2, 3):
        daemon.deliver(small(version=version, seed=version))
    daemon.disk.before = once(call, errno.EIO, after=after)
    with pytest.raises(StoreWriteError):
        daemon.store.rollback("m")
    heal(daemon)
    assert daemon.store.current("m") == 3
    assert daemon.store.rollback("m") == 2


@pytest.mark.parametrize(("call", "after"), [("make_link", 0), ("sync_directory", 0), ("sync_directory", 1)])
def test_a_rollback_that_was_refused_leaves_what_the_cluster_avoids(call: str, after: int) -> None:
    daemon = with_versions(1, 2, 3)
    daemon.store.avoid_versions("m", frozenset({3}))
    daemon.disk.before = once(call, errno.EIO, after=after)
    with pytest.raises(StoreWriteError):
        daemon.store.rollback("m")
    heal(daemon)
    daemon.store.open(small(version=3, seed=3).manifest)
    daemon.store.finish(small(version=3, seed=3).manifest.id)
    assert daemon.store.current("m") == 2


def with_versions(*versions: int) -> Daemon:
    daemon = Daemon(MemoryDisk(), keep_versions=5)
    for version in versions:
        daemon.deliver(small(version=version, seed=version))
    return daemon


def test_a_rollback_everywhere_leads_to_the_highest_version_that_is_not_taken_back() -> None:
    daemon = with_versions(1, 2, 3)
    store = daemon.store
    store.avoid_versions("m", frozenset({2}))
    assert store.current("m") == 3, "users are on a newer one"
    store.avoid_versions("m", frozenset({2, 3}))
    assert store.current("m") == 1
    store.avoid_versions("m", frozenset({1, 2, 3}))
    assert store.current("m") == 1, "there is nothing older to lead to"
    store.avoid_versions("m", frozenset({2}))
    assert store.current("m") == 3
    store.avoid_versions("m", frozenset({3}))
    daemon.deliver(small(version=4, seed=4))
    assert store.current("m") == 4, "a newer version is none that was taken back"


def test_what_the_cluster_brings_back_ends_no_rollback_of_this_hosts_operator() -> None:
    store = with_versions(1, 2, 3).store
    store.rollback("m")
    store.avoid_versions("m", frozenset())
    assert store.current("m") == 2
    store.avoid_versions("m", frozenset({2}))
    assert store.current("m") == 1


@pytest.mark.parametrize("restored", [None, 3])
@pytest.mark.parametrize(("call", "after"), [("make_link", 0), ("sync_directory", 0), ("sync_directory", 1)])
def test_a_rollback_everywhere_that_was_refused_is_followed_by_its_repetition(
    call: str, after: int, restored: int | None
) -> None:
    daemon = with_versions(1, 2, 3)
    if restored:
        daemon.store.avoid_versions("m", frozenset({3}))
    avoided = frozenset[int]() if restored else frozenset({3})
    daemon.disk.before = once(call, errno.EIO, after=after)
    with pytest.raises(StoreWriteError):
        daemon.store.avoid_versions("m", avoided)
    heal(daemon)
    daemon.store.avoid_versions("m", avoided)
    current = str(restored or 2)
    assert daemon.disk.cut(lambda: False, Random(0)).read_link("m/current") == current, "after a power cut too"


def test_a_published_model_is_deleted_by_its_id_when_all_of_it_must_go() -> None:
    daemon, one = with_versions(1), small(version=1, seed=1).manifest.id
    daemon.store.abandon(one)
    assert daemon.store.versions("m") == [1]
    for _ in range(2):
        daemon.store.abandon(one, even_published=True)
        assert daemon.store.versions("m") == []


def test_current_is_durable_when_finishing_was_repeated() -> None:
    trial = Daemon(MemoryDisk())
    trial.deliver(MODEL)
    trial.disk.calls.clear()
    newer = small(version=2, seed=2)
    trial.deliver(newer)
    at = max(number for number, call in enumerate(trial.disk.calls) if call.startswith("rename m/current"))
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    daemon.disk.calls.clear()
    daemon.disk.before = refuse_times(errno.EIO, [1], at + 1)
    daemon.deliver(newer)
    assert daemon.refusals
    assert daemon.disk.cut(lambda: False, Random(0)).read_link("m/current") == "2"


# ---- one bad model -----------------------------------------------------------------------------


def test_a_journal_that_cannot_be_read_is_no_trouble_to_other_models() -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    fill(daemon, OTHER)
    daemon.store.close()
    daemon = next_life(daemon)
    bad = daemon.disk.file(f".manifests/{OTHER.manifest.id.hex()}/journal")
    read = daemon.disk.read_some

    def fails(descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        if daemon.disk._file(descriptor) is bad:
            raise OSError(errno.EIO, "bad sector")
        return read(descriptor, into, offset, passing=passing)

    daemon.disk.read_some = fails  # type: ignore[method-assign]
    assert {model.name for model in daemon.store.models()} == {"m", ""}
    for version in (2, 3):
        daemon.deliver(small(version=version, seed=version))
    daemon.store.remove("m", 3)


def test_giving_up_a_model_whose_books_say_nothing_keeps_what_may_be_published() -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    daemon.store.close()
    daemon.disk.remove_file(f".manifests/{IDENTITY.hex()}/journal")
    daemon = next_life(daemon)
    daemon.store.abandon(IDENTITY)
    assert daemon.store.open(MODEL.manifest).is_full
    assert daemon.store.is_published(IDENTITY)


def test_what_the_disk_did_not_let_be_opened_is_deleted_when_it_can_be() -> None:
    daemon = Daemon(MemoryDisk())
    works = daemon.disk.sync_directory

    def fails(path: str) -> None:
        raise OSError(errno.EIO, "sync failed")

    daemon.disk.sync_directory = fails  # type: ignore[method-assign]
    with pytest.raises(StoreWriteError):
        daemon.store.open(MODEL.manifest)
    with pytest.raises(StoreWriteError):
        daemon.store.abandon(IDENTITY)
    assert [model.name for model in daemon.store.models()] == [""], "books without a journal or a tree"
    daemon.disk.sync_directory = works  # type: ignore[method-assign]
    daemon.store.abandon(IDENTITY)
    assert daemon.store.models() == []


def test_what_is_not_published_yet_is_not_called_so() -> None:
    daemon = Daemon(MemoryDisk())
    finish_halfway(daemon, MODEL, "m/1")
    assert not daemon.store.is_published(IDENTITY)
    assert not daemon.store.is_published(OTHER.manifest.id)
    heal(daemon)
    daemon.store.finish(IDENTITY)
    assert daemon.store.is_published(IDENTITY)


# ---- and what the first mends of these had broken ----------------------------------------------


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC], ids=["EROFS", "ENOSPC"])
def test_an_unfinished_model_is_served_from_a_disk_that_takes_no_writes_though_it_shares_chunks(number: int) -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    newer = small(version=2, seed=1, config=b"changed")
    daemon.store.close()
    daemon = next_life(daemon)
    fill(daemon, newer, chunks=(5,))
    daemon.store.commit()
    daemon.store.close()
    daemon = next_life(daemon)

    def refuse(_name: str, _number: int) -> None:
        raise OSError(number, "injected")

    daemon.disk.before = refuse
    assert daemon.store.open(MODEL.manifest).is_full
    for _ in range(2):
        with suppress(StoreWriteError):
            held = daemon.store.open(newer.manifest)
    assert 5 in held
    daemon.check(newer)


@pytest.mark.parametrize("call", ["make_directory", "create"])
def test_giving_up_what_could_not_be_begun_leaves_no_books(call: str) -> None:
    for after in range(4):
        daemon = Daemon(MemoryDisk())
        daemon.disk.before = once(call, errno.ENOSPC, after=after)
        with suppress(StoreWriteError):
            daemon.store.open(MODEL.manifest)
        daemon.disk.before = lambda _name, _number: None
        daemon.store.abandon(IDENTITY)
        assert not daemon.disk.names(".manifests"), after


def test_books_that_were_made_again_have_durable_names_though_their_first_sync_was_refused() -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    books = f".manifests/{IDENTITY.hex()}"
    for name in list(daemon.disk.names(books)):
        daemon.disk.remove_file(f"{books}/{name}")
    daemon.disk.remove_directory(books)
    daemon.disk.sync_directory(".manifests")
    stages = ["sync_data", "sync_directory"]  # of the journal, then of the books that are made again

    def refuse(name: str, _: int) -> None:
        if stages and name == stages[0]:
            stages.pop(0)
            raise OSError(errno.EIO, "injected")

    rotten = daemon.disk.file("m/1/two.bin")
    rotten.data[0] ^= 1
    rotten.device[0] ^= 1
    daemon.disk.before = refuse
    assert not daemon.store.recheck(IDENTITY, 3)
    heal(daemon)
    daemon.attempt(lambda: put(daemon, 3))
    daemon.store.commit()
    assert next_life(daemon, boot="b").store.open(MODEL.manifest).is_full


def test_a_directory_of_one_model_that_may_not_be_read_stops_no_other_model() -> None:
    daemon = Daemon(MemoryDisk())
    daemon.deliver(MODEL)
    daemon.store.close()
    daemon = next_life(daemon)
    sync = daemon.disk.sync_directory

    def refuse(path: str) -> None:
        if path == "m/1/shards":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        sync(path)

    daemon.disk.sync_directory = refuse  # type: ignore[method-assign]
    assert daemon.store.open(MODEL.manifest).is_full
    daemon.wait_until_well()
    daemon.deliver(OTHER)
    daemon.disk.sync_directory = sync  # type: ignore[method-assign]
    daemon.now += 10.0
    daemon.store.upkeep.step()
    assert not daemon.store._models.get(IDENTITY).ledger.broken, "it is tried again by itself"


def test_a_cut_file_that_was_replaced_by_a_whole_one_is_written() -> None:
    daemon = Daemon(MemoryDisk())
    fill(daemon, chunks=(0, 1))
    path = incoming("shards/one.bin")
    whole = bytes(daemon.disk.file(path).data)
    daemon.disk.file(path).put(0, None)
    descriptor = daemon.disk.open(f"{path}.new", write=True, create=True)
    daemon.disk.write_some(descriptor, memoryview(whole), 0)
    daemon.disk.close(descriptor)
    daemon.disk.rename(f"{path}.new", path, replace=True)
    daemon.attempt(lambda: put(daemon, 2))


def test_a_rollback_that_was_refused_is_not_done_after_a_power_cut_either() -> None:
    daemon = Daemon(MemoryDisk(), keep_versions=5)
    versions = [small(version=version, seed=version) for version in (1, 2, 3)]
    for version in versions:
        daemon.deliver(version)
    daemon.disk.before = once("make_link", errno.EIO)
    with pytest.raises(StoreWriteError):
        daemon.store.rollback("m")
    daemon = Daemon(daemon.disk.cut(lambda: False, Random(0)), boot="b", keep_versions=5)
    for version in versions:
        daemon.store.open(version.manifest)
    assert daemon.store.current("m") == 3


def test_a_rollback_that_was_refused_leads_users_to_no_version_that_is_not_published_yet() -> None:
    daemon = Daemon(MemoryDisk(), keep_versions=5)
    for version in (1, 2):
        daemon.deliver(small(version=version, seed=version))
    finish_halfway(daemon, small(version=3, seed=3), "m/3")
    daemon.disk.before = once("make_link", errno.EIO)
    with pytest.raises(StoreWriteError):
        daemon.store.rollback("m")
    assert daemon.store.current("m") == 2


def test_a_model_is_finished_though_the_empty_directory_it_came_from_was_tidied_away() -> None:
    daemon = Daemon(MemoryDisk())
    finish_halfway(daemon, MODEL, "m/1")
    heal(daemon)
    daemon.disk.remove_directory(".incoming")
    daemon.store.finish(IDENTITY)
    assert daemon.store.is_published(IDENTITY)
