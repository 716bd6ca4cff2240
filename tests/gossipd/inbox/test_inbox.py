"""The inbox: every kind of thing that can be dropped, half-written, swapped, or in the way."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from gossipd.core.errors import ExitCode, LocalError, QueueFullError, RemoteError
from gossipd.inbox.drop_folder import DropError, DropFolder, UnfinishedError
from gossipd.inbox.inbox import Inbox, InboxSettings

GOOD = b"manifest: good"


class Judge:
    """Takes what begins with GOOD, keeps every offer; ``codes`` answers other contents."""

    def __init__(self) -> None:
        self.offers: list[tuple[str, bytes]] = []
        self.full = False

    async def __call__(self, content: bytes, name: str) -> str:
        if self.full:
            raise QueueFullError("64 deployments are live, which is the limit")
        self.offers.append((name, content))
        if content == GOOD:
            return "toy@1 accepted"
        if content == GOOD[: len(content)]:
            raise RemoteError("the signature by key=ab12 does not match the content", code="E_SIG_INVALID")
        raise RemoteError("offered 7, trusted 9", code="E_ROLLBACK")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "inbox"
    path.mkdir(mode=0o750)
    return path


class World:
    """An inbox whose clock the test moves: trio's for waiting, the wall's for ages of files."""

    def __init__(self, folder: Path, clock: MockClock, **settings: object) -> None:
        self.folder = folder
        self.clock = clock
        self.judge = Judge()
        # Files made by a test are new to the inbox: the wall clock stands at their modification time.
        self.inbox = Inbox(folder, self.judge, settings=InboxSettings(**settings), wall=lambda: 0.0)  # type: ignore[arg-type]

    def restart(self, memory: Memory) -> None:
        """The inbox of another life of the daemon."""
        self.inbox = Inbox(self.folder, self.judge, wall=lambda: 0.0, memory=memory)

    async def pass_time(self, seconds: float) -> None:
        """Look as often as the inbox asks to."""
        end = trio.current_time() + seconds
        while True:
            delay = await self.inbox.look()
            left = end - trio.current_time()
            if left <= 1e-6:
                return
            self.clock.jump(min(delay, left) + 1e-9)

    def names(self, within: str = "") -> list[str]:
        return sorted(path.name for path in (self.folder / within).iterdir())

    def reason(self, name: str) -> str:
        return (self.folder / "rejected" / f"{name}.reason").read_text()


@pytest.fixture
def world(folder: Path, mock_clock: MockClock) -> World:
    return World(folder, mock_clock)


async def test_a_good_file_is_offered_once_and_moves_to_accepted(mock_clock: MockClock, world: World) -> None:
    (world.folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(0.01)
    assert world.judge.offers == []
    await world.pass_time(20)
    assert world.judge.offers == [("toy.manifest", GOOD)]
    assert world.names("accepted") == ["toy.manifest"]
    assert world.names() == ["accepted"]
    assert world.inbox.statistics.accepted == 1


async def test_a_refused_file_moves_to_rejected_with_the_code_and_the_sentence(
    mock_clock: MockClock, world: World
) -> None:
    (world.folder / "old.manifest").write_bytes(b"something else")
    await world.pass_time(2)
    assert world.names("rejected") == ["old.manifest", "old.manifest.reason"]
    assert world.reason("old.manifest") == "E_ROLLBACK: offered 7, trusted 9\n"
    assert world.inbox.statistics.refused == 1


async def test_a_file_that_was_at_rest_before_we_came_is_taken_at_once(folder: Path, mock_clock: MockClock) -> None:
    (folder / "toy.manifest").write_bytes(GOOD)
    os.utime(folder / "toy.manifest", (1000.0, 1000.0))
    judge = Judge()
    await Inbox(folder, judge, wall=lambda: 1002.0).look()
    assert len(judge.offers) == 1


async def test_a_half_written_file_is_left_until_it_is_whole(mock_clock: MockClock, world: World) -> None:
    path = world.folder / "toy.manifest"
    path.write_bytes(GOOD[:5])
    await world.pass_time(3)
    assert world.names() == ["toy.manifest"]
    with path.open("ab") as rest:
        rest.write(GOOD[5:])
    await world.pass_time(3)
    assert world.names("accepted") == ["toy.manifest"]
    assert not (world.folder / "rejected").exists()


async def test_a_half_that_stays_a_half_is_refused_in_the_end(mock_clock: MockClock, world: World) -> None:
    (world.folder / "toy.manifest").write_bytes(GOOD[:5])
    await world.pass_time(6)
    assert world.reason("toy.manifest").startswith("E_SIG_INVALID: ")
    assert len(world.judge.offers) == 1


async def test_a_file_that_grows_slowly_is_not_touched_while_it_grows(mock_clock: MockClock, world: World) -> None:
    path = world.folder / "toy.manifest"
    for size in range(1, len(GOOD) + 1):
        path.write_bytes(GOOD[:size])
        await world.pass_time(0.01)
    assert world.judge.offers == []
    await world.pass_time(1.1)
    assert [content for _, content in world.judge.offers] == [GOOD]


async def test_a_file_that_somebody_has_open_for_writing_is_left_alone(mock_clock: MockClock, world: World) -> None:
    with (world.folder / "toy.manifest").open("wb") as writer:
        writer.write(GOOD)
        writer.flush()
        await world.pass_time(30)
        assert world.judge.offers == []
    await world.pass_time(2)
    assert world.names("accepted") == ["toy.manifest"]


async def test_a_file_renamed_into_place_is_one_action(mock_clock: MockClock, world: World) -> None:
    (world.folder / ".toy.manifest.aB3x").write_bytes(GOOD)
    (world.folder / "toy.manifest.part").write_bytes(GOOD)
    await world.pass_time(20)
    assert world.judge.offers == []
    (world.folder / ".toy.manifest.aB3x").rename(world.folder / "toy.manifest")
    await world.pass_time(20)
    assert len(world.judge.offers) == 1
    assert world.names() == ["accepted", "toy.manifest.part"]


@pytest.mark.parametrize("name", [".x", "x~", "x.part", "x.partial", "x.tmp", "x.swp", "x.reason", "x.filepart"])
async def test_names_of_unfinished_copies_are_not_ours_yet(mock_clock: MockClock, world: World, name: str) -> None:
    (world.folder / name).write_bytes(GOOD)
    await world.pass_time(20)
    assert world.names() == [name]


async def test_the_same_file_dropped_twice_is_two_actions_and_two_names(mock_clock: MockClock, world: World) -> None:
    for _ in range(3):
        (world.folder / "toy.manifest").write_bytes(GOOD)
        await world.pass_time(3)
    assert len(world.judge.offers) == 3
    assert world.names("accepted") == ["toy.manifest", "toy.manifest.1", "toy.manifest.2"]


async def test_two_refused_files_of_one_name_keep_their_own_reasons(mock_clock: MockClock, world: World) -> None:
    for content in (b"one", b"another"):
        (world.folder / "x").write_bytes(content)
        await world.pass_time(3)
    assert world.names("rejected") == ["x", "x.1", "x.1.reason", "x.reason"]


# Not UTF-8 at all, or half a character: Python holds such bytes as lone surrogates, which no text file takes.
ODD_NAMES = {b"\xff.gmf": "\\xff.gmf", b"caf\xe9": "caf\\xe9", b"\xed\xa0\x80": "\\xed\\xa0\\x80"}


@pytest.mark.parametrize(("name", "shown"), ODD_NAMES.items(), ids=repr)
@pytest.mark.parametrize("content", [b"", b"something else", GOOD], ids=["empty", "bad", "good"])
async def test_a_name_that_is_no_text_is_told_of_in_text(
    mock_clock: MockClock, world: World, name: bytes, shown: str, content: bytes
) -> None:
    (world.folder / os.fsdecode(name)).write_bytes(content)
    await world.pass_time(20)
    assert [offered for offered, _ in world.judge.offers] == ([shown] if content else [])
    folder = "accepted" if content == GOOD else "rejected"
    assert os.fsdecode(name) in world.names(folder)
    if not content:
        assert world.reason(os.fsdecode(name)) == f"E_WATCH_EMPTY: {shown} is empty\n"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/nowhere")], ids=["FIFO", "link"])
async def test_a_strange_thing_with_a_name_that_is_no_text_gets_its_reason(
    mock_clock: MockClock, world: World, make: Callable[[Path], object]
) -> None:
    make(world.folder / os.fsdecode(b"\xff.gmf"))
    await world.pass_time(20)
    assert "\\xff.gmf" in world.reason(os.fsdecode(b"\xff.gmf"))


async def test_a_sentence_that_is_no_text_is_written_all_the_same(folder: Path) -> None:
    (folder / "rejected").mkdir()
    DropFolder(folder, bytes_max=1000).write_reason("x", "E_NAME: '\ud800' is no name")
    assert (folder / "rejected" / "x.reason").read_bytes() == b"E_NAME: '\\ud800' is no name\n"


LONG_NAMES = {
    "250 bytes": "n" * 250,
    "255 bytes": "n" * 255,
    "255 bytes of two each": "x" + "\xfc" * 127,
    "252 bytes of four each": "\U0001f40d" * 63,
    "255 bytes that are no text": os.fsdecode(b"\xff" * 255),
}


@pytest.mark.parametrize("name", LONG_NAMES.values(), ids=LONG_NAMES)
async def test_a_name_of_any_length_leaves_room_for_its_reason_and_for_others_like_it(
    mock_clock: MockClock, world: World, name: str
) -> None:
    for _ in range(2):
        (world.folder / name).write_bytes(b"something else")
        await world.pass_time(3)
    rejected = [each for each in world.names("rejected") if not each.endswith(".reason")]
    assert len(rejected) == 2
    for each in rejected:
        assert world.reason(each).startswith("E_ROLLBACK: ")
        assert name.startswith(each.removesuffix(".1")), "cut between characters"
        assert len(os.fsencode(each)) > 200
    assert world.inbox.statistics.trouble is None


async def test_two_long_names_that_begin_alike_keep_their_own_reasons(mock_clock: MockClock, world: World) -> None:
    for end in "ab":
        (world.folder / ("n" * 254 + end)).write_bytes(b"something else")
    await world.pass_time(3)
    assert len(world.names("rejected")) == 4


async def test_a_long_name_is_accepted_twice(mock_clock: MockClock, world: World) -> None:
    for _ in range(2):
        (world.folder / ("n" * 255)).write_bytes(GOOD)
        await world.pass_time(3)
    assert len(world.names("accepted")) == 2
    assert world.inbox.statistics.trouble is None


async def test_a_reason_that_cannot_be_written_does_not_hold_up_the_next(mock_clock: MockClock, world: World) -> None:
    (world.folder / "rejected" / "a.reason").mkdir(parents=True)
    for name in "ab":
        (world.folder / name).write_bytes(b"something else")
    await world.pass_time(6)
    assert world.reason("b").startswith("E_ROLLBACK: ")
    assert "rejected/a.reason is a directory; move it away" in (world.inbox.statistics.trouble or "")
    (world.folder / "rejected" / "a.reason").rmdir()
    await world.pass_time(6)
    assert world.reason("a").startswith("E_ROLLBACK: ")
    assert world.inbox.statistics.trouble is None


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "inner").write_bytes(GOOD)


def make_link(path: Path) -> None:
    target = path.parent.parent / "elsewhere"
    target.write_bytes(GOOD)
    path.symlink_to(target)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def make_unreadable(path: Path) -> None:
    path.write_bytes(GOOD)
    path.chmod(0)


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 4097)


STRANGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "an empty file": (lambda path: path.write_bytes(b""), "E_WATCH_EMPTY"),
    "a directory": (make_directory, "E_WATCH_TYPE"),
    "a FIFO": (os.mkfifo, "E_WATCH_TYPE"),
    "a socket": (make_socket, "E_WATCH_TYPE"),
    "a symbolic link": (make_link, "E_WATCH_TYPE"),
    "a dangling link": (lambda path: path.symlink_to("/nowhere"), "E_WATCH_TYPE"),
    "a file nobody may read": (make_unreadable, "E_WATCH_PERMISSION"),
    "a file above the limit": (make_large, "E_WATCH_SIZE"),
}


@pytest.mark.parametrize(("make", "code"), STRANGE.values(), ids=STRANGE)
async def test_what_is_no_manifest_file_is_refused_once_with_a_stable_code(
    mock_clock: MockClock, world: World, make: Callable[[Path], object], code: str
) -> None:
    make(world.folder / "thing")
    await world.pass_time(20)
    assert world.judge.offers == []
    assert world.reason("thing").startswith(f"{code}: ")
    assert world.names() == ["rejected"]
    assert world.inbox.statistics.refused == 1


@pytest.mark.needs("root")
async def test_a_file_of_another_user_is_refused(mock_clock: MockClock, world: World) -> None:
    (world.folder / "thing").write_bytes(GOOD)
    os.chown(world.folder / "thing", 65534, 65534)
    await world.pass_time(3)
    assert world.reason("thing").startswith("E_WATCH_OWNER: ")


async def test_thousands_of_files_are_single_jobs_and_memory_stays_bounded(folder: Path, mock_clock: MockClock) -> None:
    count = 1000
    for number in range(count):
        (folder / f"m{number:04}").write_bytes(GOOD)
        os.utime(folder / f"m{number:04}", (0.0, 0.0))
    judge = Judge()
    inbox = Inbox(folder, judge, settings=InboxSettings(drops_max=64), wall=lambda: 1000.0)
    seen_max = 0
    for _ in range(count // 64 + 2):
        await inbox.look()
        seen_max = max(seen_max, len(inbox._seen))
    assert sorted(name for name, _ in judge.offers) == [f"m{number:04}" for number in range(count)]
    assert seen_max <= 64
    assert len(list((folder / "accepted").iterdir())) == count


async def test_a_full_daemon_is_asked_again_later(mock_clock: MockClock, world: World) -> None:
    world.judge.full = True
    (world.folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(20)
    assert world.names() == ["toy.manifest"]
    world.judge.full = False
    await world.pass_time(6)
    assert world.names("accepted") == ["toy.manifest"]


async def test_a_file_renamed_over_while_it_is_judged_is_judged_itself(folder: Path, mock_clock: MockClock) -> None:
    world = World(folder, mock_clock)
    original = world.judge.__call__

    async def swap(content: bytes, name: str) -> str:
        if not world.judge.offers:
            (folder / ".new").write_bytes(b"something else")
            (folder / ".new").rename(folder / name)
        return await original(content, name)

    world.inbox = Inbox(folder, swap, wall=lambda: 0.0)
    (folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(8)
    assert [content for _, content in world.judge.offers] == [GOOD, b"something else"]
    assert world.reason("toy.manifest").startswith("E_ROLLBACK")
    assert not (folder / "accepted").exists() or world.names("accepted") == []


async def test_a_file_deleted_while_it_waits_or_is_judged_is_nothing(mock_clock: MockClock, world: World) -> None:
    (world.folder / "a").write_bytes(GOOD)
    await world.pass_time(0.01)
    (world.folder / "a").unlink()
    await world.pass_time(5)
    assert world.judge.offers == []

    async def vanish(content: bytes, name: str) -> str:
        (world.folder / name).unlink()
        return "accepted"

    world.inbox = Inbox(world.folder, vanish, wall=lambda: 0.0)
    (world.folder / "b").write_bytes(GOOD)
    await world.pass_time(5)
    assert world.inbox.statistics.accepted == 0


class Disk:
    """``os`` as the inbox uses it, of a disk that refuses some calls; ``mend`` ends that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def refuse(self, number: int, *calls: str) -> None:
        def refuse(*args: object, **kwargs: object) -> None:
            raise OSError(number, os.strerror(number))

        for call in calls:
            self._monkeypatch.setattr(os, call, refuse)

    def mend(self) -> None:
        self._monkeypatch.undo()


class Memory:
    """What a restart finds again."""

    def __init__(self) -> None:
        self.kept = b""
        self.writes = 0
        self.refused: Exception | None = None

    def inbox(self) -> bytes:
        return self.kept

    def keep_inbox(self, kept: bytes) -> None:
        if self.refused is not None:
            raise self.refused
        self.kept, self.writes = kept, self.writes + 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


CURES = {
    errno.EROFS: "make the file system writable",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "raise the quota, or delete files",
    errno.EPERM: "move the file out of the inbox",
    errno.EMFILE: "it is tried again",
    errno.EIO: "it is tried again",
}


@pytest.mark.parametrize(("number", "cure"), CURES.items())
async def test_a_disk_that_will_not_move_a_file_delays_the_move_and_nothing_else(
    mock_clock: MockClock, world: World, disk: Disk, number: int, cure: str
) -> None:
    disk.refuse(number, "rename", "unlink")
    (world.folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(12)
    assert len(world.judge.offers) == 1
    trouble = world.inbox.statistics.trouble or ""
    assert trouble.startswith("E_WATCH_DISK: toy.manifest is judged and cannot be moved to ")
    assert f"{world.folder / 'accepted'}: {os.strerror(number)}" in trouble
    assert trouble.endswith(f"; {cure}")
    disk.mend()
    await world.pass_time(6)
    assert len(world.judge.offers) == 1
    assert world.names("accepted") == ["toy.manifest"]
    assert world.inbox.statistics.trouble is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EXDEV])
async def test_an_accepted_file_that_cannot_be_moved_is_deleted(
    mock_clock: MockClock, world: World, disk: Disk, number: int
) -> None:
    disk.refuse(number, "rename")
    (world.folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(2)
    assert (len(world.judge.offers), world.names(), world.names("accepted")) == (1, ["accepted"], [])
    assert (world.inbox.statistics.accepted, world.inbox.statistics.trouble) == (1, None)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO])
async def test_a_passing_trouble_of_the_host_deletes_nothing(
    mock_clock: MockClock, world: World, disk: Disk, number: int
) -> None:
    disk.refuse(number, "rename")
    (world.folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(6)
    assert "toy.manifest" in world.names()


async def test_a_refused_file_that_cannot_be_moved_is_not_deleted(
    mock_clock: MockClock, world: World, disk: Disk
) -> None:
    disk.refuse(errno.ENOSPC, "rename")
    (world.folder / "old").write_bytes(b"something else")
    await world.pass_time(6)
    assert "old" in world.names()
    disk.mend()
    await world.pass_time(6)
    assert world.reason("old").startswith("E_ROLLBACK")


async def test_a_new_file_in_the_place_of_one_to_delete_stays(folder: Path) -> None:
    drops = DropFolder(folder, bytes_max=1000)
    (folder / "x").write_bytes(GOOD)
    [drop] = drops.scan(1)[0]
    (folder / "x").write_bytes(b"a newer content")
    drops.delete(drop)
    assert (folder / "x").exists()
    [drop] = drops.scan(1)[0]
    drops.delete(drop)
    drops.delete(drop)
    assert not (folder / "x").exists()


async def test_a_restart_does_not_take_a_file_that_stayed_for_a_new_one(
    folder: Path, mock_clock: MockClock, disk: Disk
) -> None:
    memory, world = Memory(), World(folder, mock_clock)
    world.restart(memory)
    disk.refuse(errno.EROFS, "rename", "unlink")
    (folder / "new").write_bytes(GOOD)
    (folder / "old").write_bytes(b"something else")
    await world.pass_time(20)
    assert (len(world.judge.offers), memory.writes) == (2, 1)
    world.restart(memory)
    await world.pass_time(20)
    assert (len(world.judge.offers), memory.writes) == (3, 1), "what was refused may be right now"
    disk.mend()
    await world.pass_time(6)
    assert (len(world.judge.offers), world.names("accepted"), memory.kept) == (3, ["new"], b"")
    assert world.reason("old").startswith("E_ROLLBACK")


async def test_a_file_that_changed_since_it_was_remembered_is_a_new_one(
    folder: Path, mock_clock: MockClock, disk: Disk
) -> None:
    memory, world = Memory(), World(folder, mock_clock)
    world.restart(memory)
    disk.refuse(errno.EROFS, "rename", "unlink")
    (folder / "x").write_bytes(GOOD)
    await world.pass_time(6)
    disk.mend()
    os.utime(folder / "x", (1000.0, 1000.0))
    world.restart(memory)
    await world.pass_time(6)
    assert (len(world.judge.offers), world.names("accepted")) == (2, ["x"])


async def test_a_memory_that_cannot_be_written_is_told_and_tried_again(
    folder: Path, mock_clock: MockClock, disk: Disk
) -> None:
    memory, world = Memory(), World(folder, mock_clock)
    memory.refused = LocalError("state/inbox cannot be written: No space left on device", code="E_STATE_WRITE")
    world.restart(memory)
    disk.refuse(errno.ENOSPC, "rename", "unlink")
    (folder / "x").write_bytes(GOOD)
    await world.pass_time(6)
    assert (world.inbox.statistics.trouble or "").startswith("E_WATCH_DISK: x is judged and cannot be moved")
    memory.refused = None
    await world.pass_time(6)
    assert memory.kept and len(world.judge.offers) == 1


async def test_more_files_of_one_name_than_stay_do_not_hold_up_the_next(mock_clock: MockClock, world: World) -> None:
    (world.folder / "accepted").mkdir(mode=0o750)
    for number in range(1_200):
        (world.folder / "accepted" / (f"m.{number}" if number else "m")).touch()
    (world.folder / "m").write_bytes(GOOD)
    await world.pass_time(2)
    assert (world.names(), world.inbox.statistics.trouble) == (["accepted"], None)
    assert len(world.names("accepted")) == 901
    assert [path for path in (world.folder / "accepted").iterdir() if path.read_bytes() == GOOD]


async def test_a_disk_that_will_not_take_the_reason_gets_it_later(
    mock_clock: MockClock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdopen

    def refuse(descriptor: int, *args: object, **kwargs: object) -> object:
        os.close(descriptor)  # and the file is there, empty
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", refuse)
    (world.folder / "old").write_bytes(b"something else")
    await world.pass_time(6)
    assert world.names("rejected") == ["old", "old.reason.tmp"], "nobody takes it for the reason"
    monkeypatch.setattr(os, "fdopen", real)
    await world.pass_time(6)
    assert world.reason("old").startswith("E_ROLLBACK")
    assert len(world.judge.offers) == 1


async def test_out_of_handles_is_not_a_verdict(
    mock_clock: MockClock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: object, *args: object, **kwargs: object) -> int:
        if str(path).endswith("toy.manifest"):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    (world.folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(12)
    assert world.names() == ["toy.manifest"]
    monkeypatch.setattr(os, "open", real)
    await world.pass_time(6)
    assert world.names("accepted") == ["toy.manifest"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
async def test_a_folder_open_to_strangers_is_refused_before_anything_is_read(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with trio.fail_after(120), pytest.raises(DropError) as refusal:
        await Inbox(folder, Judge()).run()
    assert (refusal.value.code, refusal.value.exit_code) == ("E_WATCH_DIRECTORY", ExitCode.USAGE)
    assert f"mode {mode:o}" in str(refusal.value)


@pytest.mark.needs("root")
async def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 65534, 65534)
    with pytest.raises(DropError, match="belongs to user 65534"):
        DropFolder(folder, bytes_max=1000).check()


async def test_a_folder_that_others_may_exchange_is_refused(folder: Path) -> None:
    folder.parent.chmod(0o777)
    with pytest.raises(DropError, match="can be exchanged by other users"):
        DropFolder(folder, bytes_max=1000).check()
    folder.parent.chmod(0o1777)  # as /tmp: only its owner may rename it
    DropFolder(folder, bytes_max=1000).check()


async def test_a_folder_exchanged_for_a_link_is_no_longer_read(mock_clock: MockClock, world: World) -> None:
    elsewhere = world.folder.with_name("elsewhere")
    world.folder.rename(elsewhere)
    world.folder.symlink_to(elsewhere)
    (elsewhere / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(10)
    assert world.judge.offers == []
    assert (world.inbox.statistics.trouble or "").startswith("E_WATCH_DIRECTORY")


def make_foreign_link(path: Path) -> None:
    target = path.parent.parent / "precious"
    target.mkdir()
    path.symlink_to(target)


def make_shared(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


@pytest.mark.parametrize("make", [make_foreign_link, make_shared, Path.touch], ids=["link", "group", "file"])
@pytest.mark.parametrize(("name", "content"), [("rejected", b"something else"), ("accepted", GOOD)])
async def test_a_folder_that_others_have_put_there_is_not_written_to(
    mock_clock: MockClock, world: World, make: Callable[[Path], None], name: str, content: bytes
) -> None:
    make(world.folder / name)
    (world.folder / "x").write_bytes(content)
    await world.pass_time(20)
    assert len(world.judge.offers) == 1
    assert world.names() == sorted([name, "x"])
    trouble = world.inbox.statistics.trouble or ""
    assert trouble.startswith(f"E_WATCH_DIRECTORY: the inbox {world.folder / name}: ")
    assert ("move it away" in trouble) == (make is not make_shared)
    assert not list((world.folder.parent / "precious").glob("*"))
    (world.folder / name).rename(world.folder / ".away")
    await world.pass_time(6)
    assert "x" in world.names(name)
    assert len(world.judge.offers) == 1


async def test_a_reason_is_never_written_through_a_link(mock_clock: MockClock, world: World) -> None:
    precious = world.folder.with_name("register")
    precious.write_bytes(b"all statements")
    (world.folder / "rejected").mkdir(mode=0o750)
    for name in ("zz.reason", "zz.reason.tmp"):
        (world.folder / "rejected" / name).symlink_to(precious)
    (world.folder / "zz").write_bytes(b"something else")
    await world.pass_time(6)
    assert precious.read_bytes() == b"all statements"
    assert world.reason("zz").startswith("E_ROLLBACK")
    assert not (world.folder / "rejected" / "zz.reason").is_symlink()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nssh-ed25519 AAAA", "a\\nssh-ed25519 AAAA"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("n" * 250, "n" * 200 + "..."),
    ],
)
async def test_a_name_is_told_of_on_one_short_line(mock_clock: MockClock, world: World, name: str, shown: str) -> None:
    (world.folder / name).write_bytes(b"something else")
    (world.folder / f"x{name}"[:250]).write_bytes(b"")
    await world.pass_time(20)
    assert [offered for offered, _ in world.judge.offers] == [shown]
    assert world.reason(f"x{name}"[:250][:233]) == f"E_WATCH_EMPTY: {f'x{shown}'.replace('n...', '...')} is empty\n"


async def test_a_reason_is_one_line_of_bounded_length(folder: Path) -> None:
    DropFolder(folder, bytes_max=1000).write_reason("x", "E_NAME: a\nb" + "c" * 10_000)
    written = (folder / "rejected" / "x.reason").read_text()
    assert written.startswith("E_NAME: a\\nbccc")
    assert written.count("\n") == 1
    assert len(written) < 4_100


async def test_a_folder_opened_to_strangers_later_is_no_longer_read(mock_clock: MockClock, world: World) -> None:
    world.folder.chmod(0o777)
    (world.folder / "toy.manifest").write_bytes(GOOD)
    await world.pass_time(10)
    assert world.judge.offers == []
    assert (world.inbox.statistics.trouble or "").startswith("E_WATCH_DIRECTORY")


async def test_the_swap_race_never_yields_bytes_that_were_not_judged(folder: Path) -> None:
    """A reader and a swapper: what is read is one of the two contents, whole, or nothing."""
    drops = DropFolder(folder, bytes_max=1000)
    contents = {b"A" * 500, b"B" * 500}

    def swap() -> None:
        for number in range(3000):
            path = folder / f".{number % 2}"
            path.write_bytes((b"A" if number % 2 else b"B") * 500)
            path.rename(folder / "x")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, swap)
        read = 0
        for _ in range(2000):
            for drop in drops.scan(1)[0]:
                try:
                    assert drops.read(drop) in contents
                    read += 1
                except LocalError as error:
                    raise AssertionError from error
                except Exception as error:  # noqa: BLE001
                    assert type(error).__name__ == "UnfinishedError"
            await trio.lowlevel.checkpoint()
    assert read > 0


async def wait_for(condition: Callable[[], bool]) -> None:
    with trio.fail_after(120):
        while not condition():
            await trio.sleep(0.01)


async def test_the_kernel_wakes_the_inbox_and_a_folder_made_again_is_still_watched(folder: Path) -> None:
    """Real clock, real inotify; the new folder is found by a rescan, and then watched."""
    settings = InboxSettings(quiet_s=0.05, rescan_s=0.4, unfinished_s=0.1)
    judge = Judge()
    inbox = Inbox(folder, judge, settings=settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(inbox.run)
        (folder / "one").write_bytes(GOOD)
        await wait_for((folder / "accepted" / "one").exists)
        folder.rename(folder.with_name("gone"))
        folder.mkdir(mode=0o750)
        (folder / "two").write_bytes(GOOD)
        await wait_for((folder / "accepted" / "two").exists)
        nursery.cancel_scope.cancel()
    assert [name for name, _ in judge.offers] == ["one", "two"]


async def test_an_empty_inbox_is_looked_at_as_seldom_as_its_watch_allows(folder: Path) -> None:
    """Real clock, real inotify."""
    judge = Judge()
    judge.full = True
    inbox = Inbox(folder, judge, settings=InboxSettings(whole_s=0.0, rescan_s=5.0, watched_rescan_s=3600.0))
    assert await inbox.look() == 5.0
    async with trio.open_nursery() as nursery:
        await nursery.start(inbox.run)
        with trio.fail_after(120):
            while await inbox.look() != 3600.0:
                await trio.sleep(0.01)
        (folder / "one").write_bytes(GOOD)
        assert await inbox.look() == 5.0, "the daemon could not take it yet"
        nursery.cancel_scope.cancel()


async def test_events_alone_bring_a_file_in_and_stopping_is_quick(folder: Path) -> None:
    judge = Judge()
    inbox = Inbox(folder, judge, settings=InboxSettings(quiet_s=0.05, rescan_s=3600.0))
    async with trio.open_nursery() as nursery:
        await nursery.start(inbox.run)
        (folder / "one").write_bytes(GOOD)
        await wait_for(lambda: bool(judge.offers))
        nursery.cancel_scope.cancel()


async def test_a_name_that_is_no_utf_8_ends_neither_the_inbox_nor_its_watching(folder: Path) -> None:
    """Real clock, real inotify, and no rescan that could bring the second file in."""
    judge = Judge()
    async with trio.open_nursery() as nursery:
        await nursery.start(Inbox(folder, judge, settings=InboxSettings(quiet_s=0.05, rescan_s=3600.0)).run)
        (folder / os.fsdecode(b"odd\xff")).write_bytes(GOOD)
        await wait_for(lambda: len(judge.offers) == 1)
        (folder / "plain").write_bytes(GOOD)
        await wait_for((folder / "accepted" / "plain").exists)
        nursery.cancel_scope.cancel()
    assert [name for name, _ in judge.offers][1] == "plain"


async def test_a_link_and_a_rename_into_the_folder_are_seen_without_a_rescan(folder: Path) -> None:
    judge = Judge()
    for name in ("linked", "renamed"):
        (folder.parent / name).write_bytes(GOOD)
    async with trio.open_nursery() as nursery:
        await nursery.start(Inbox(folder, judge, settings=InboxSettings(quiet_s=0.05, rescan_s=3600.0)).run)
        (folder / "linked").hardlink_to(folder.parent / "linked")
        await wait_for((folder / "accepted" / "linked").exists)
        (folder.parent / "renamed").rename(folder / "renamed")
        await wait_for((folder / "accepted" / "renamed").exists)
        nursery.cancel_scope.cancel()
    assert [name for name, _ in judge.offers] == ["linked", "renamed"]


async def test_a_link_put_in_place_of_a_listed_file_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drops = DropFolder(folder, bytes_max=1000)
    (folder / "x").write_bytes(GOOD)
    [drop] = drops.scan(1)[0]
    real = os.open

    def swap(path: object, *args: object, **kwargs: object) -> int:
        if path != "x":
            return real(path, *args, **kwargs)  # type: ignore[arg-type]
        monkeypatch.setattr(os, "open", real)
        (folder / "x").rename(folder.parent / "elsewhere")
        (folder / "x").symlink_to(folder.parent / "elsewhere")  # even the same inode: a link is a link
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(UnfinishedError):
        drops.read(drop)


@pytest.mark.parametrize("change", [b"", b"short", b"X" * len(GOOD), b"longer" * 100])
async def test_a_file_changed_in_place_while_it_is_read_is_read_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    drops = DropFolder(folder, bytes_max=1000)
    (folder / "x").write_bytes(GOOD)
    os.utime(folder / "x", (1000.0, 1000.0))
    [drop] = drops.scan(1)[0]
    real = os.read

    def change_first(descriptor: int, size: int) -> bytes:
        monkeypatch.setattr(os, "read", real)
        (folder / "x").write_bytes(change)
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", change_first)
    with pytest.raises(UnfinishedError):
        drops.read(drop)


async def test_a_file_whose_event_was_lost_is_found_by_the_next_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overflown queue, a network file system, a daemon that was stopped: the kernel says nothing."""

    async def silent(self: Inbox, changed: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Inbox, "_watch", silent)
    judge = Judge()
    inbox = Inbox(folder, judge, settings=InboxSettings(rescan_s=0.05, whole_s=0.0), wall=lambda: 0.0)
    async with trio.open_nursery() as nursery:
        await nursery.start(inbox.run)
        (folder / "one").write_bytes(GOOD)
        while not judge.offers:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


async def test_a_kernel_that_will_not_watch_leaves_the_rescan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> object:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    monkeypatch.setattr("gossipd.inbox.inbox.INotify", refuse)
    judge = Judge()
    async with trio.open_nursery() as nursery:
        settings = InboxSettings(rescan_s=0.05, whole_s=0.0)
        await nursery.start(Inbox(folder, judge, settings=settings, wall=lambda: 0.0).run)
        (folder / "one").write_bytes(GOOD)
        while not judge.offers:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
