"""What the daemon keeps on disk besides chunks, and what it makes of files that are lost or damaged."""

from __future__ import annotations

import errno
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from gossipd.config.places import STATE_NEEDS
from gossipd.core.errors import ExitCode, GossipdError
from gossipd.core.ids import DeploymentId
from gossipd.daemon import state_dir
from gossipd.daemon.state_dir import FILE_BYTES_MAX, StateDirectory, StateWriteError
from gossipd.deployment.history import Histories
from gossipd.deployment.progress_record import HostState, Progress
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Verb, sign_statement
from gossipd.deployment.statement_file import RegisterFormatError, snapshot
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.keys import SecretKey, verify
from gossipd.parts.want import parse_want
from gossipd.parts.want_orders import WantOrdersError, orders_to_bytes
from gossipd.store.errors import StoreModeError, StorePathError
from membership.member import Handle, NodeId, Record
from membership.record import BOOT_MAX, sign_record
from membership.tombstones import Tombstone

NAMED = DeploymentId(b"d" * 32)
PATIENCE_S = 120.0


def record(number: int) -> Record:
    secret = SecretKey(bytes([number]) * 32)
    bare = Record(
        public_key=secret.public.ed25519, boot=1, version=1, name=f"node-{number}", rack="r", zone="",
        host="127.0.0.1", port=7946, bulk_port=7947, transport_key=secret.public.curve25519, capacity=0, software="0",
        payload=b"",
    )  # fmt: skip
    return sign_record(bare, b"c" * 16, secret.sign)[0]


def test_ordered_wants_come_back_and_damaged_ones_are_not_taken_for_none(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    assert state.wants() == {}
    state.keep_wants(orders_to_bytes({"m": parse_want(["ep:3/16"])}))
    assert state.wants() == {"m": parse_want(["ep:3/16"])}
    (tmp_path / "state" / "wants").write_bytes(b'{"m": "ep:3')
    with pytest.raises(WantOrdersError):
        state.wants()
    state.close()


def test_every_start_has_a_higher_boot_number_even_when_the_clock_or_the_file_is_lost(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    assert state.next_boot(1000.9) == 1000
    assert state.next_boot(5.0) == 1001, "a clock that was set back"
    (tmp_path / "state" / "boot").unlink()
    assert state.next_boot(2000.0) == 2000
    state.close()


def test_a_number_that_a_wrong_clock_has_left_is_dropped_by_a_host_that_is_alone(tmp_path: Path) -> None:
    now, days = 1_800_000_000.0, 3 * 86_400.0
    state = StateDirectory(tmp_path / "state")
    assert state.next_boot(now + days) == now + days
    assert state.next_boot(now) == now + days + 1, "the clock may be wrong now, as before NTP"
    state.keep_boot(None)
    assert state.next_boot(now + 5) == now + 5, "this host was alone with it"
    assert state.next_boot(now + 5) == now + 6
    state.keep_boot(None)
    state.keep_boot(int(now + days))
    assert state.next_boot(now) == now + days + 1, "it was heard after all"
    state.close()


@pytest.mark.parametrize("kept", [b"9" * 5000, b"9" * 16, str(BOOT_MAX).encode(), b"-7", b"", b"\xff\xfe"])
def test_a_boot_number_that_cannot_be_is_as_good_as_lost(tmp_path: Path, kept: bytes) -> None:
    state = StateDirectory(tmp_path / "state")
    (tmp_path / "state" / "boot").write_bytes(kept)
    assert state.next_boot(1000.0) == 1000
    assert state.next_boot(1000.0) == 1001
    state.close()


def test_what_is_believed_survives_a_restart_and_damage_is_an_operators_matter(tmp_path: Path) -> None:
    secret = SecretKey(b"k" * 32)
    register = StatementStore()
    register.hear(
        sign_statement(secret, NAMED, epoch=3, verb=Verb.CANCEL, manifest_bytes=9, now_s=7), [secret.public.ed25519]
    )
    state = StateDirectory(tmp_path / "state")
    state.keep_register(*snapshot(register))
    assert state.register().statements() == register.statements()
    path = tmp_path / "state" / "register"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RegisterFormatError, match="remove state/register"):
        state.register()
    assert path.exists(), "it is never deleted by itself"
    state.close()


def _damage(path: Path, kind: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad_sector(*_: object, **__: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    match kind:
        case "link":
            path.symlink_to("elsewhere")
        case "pipe":
            os.mkfifo(path)
        case "long":
            path.touch()
            os.truncate(path, FILE_BYTES_MAX + 1)
        case "bad sector":
            path.touch()
            monkeypatch.setattr(state_dir, "read_file", bad_sector)
        case bytes():
            path.write_bytes(kind)


@pytest.mark.parametrize("kept", ["link", "pipe", "long", "bad sector", b"", b"\0" * 40, b"\x09later"], ids=str)
@pytest.mark.parametrize("name", ["register", "budgets", "wants"])
def test_what_must_not_be_forgotten_is_refused_with_the_cure_and_no_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kept: str | bytes
) -> None:
    state = StateDirectory(tmp_path / "state")
    path = tmp_path / "state" / name
    _damage(path, kept, monkeypatch)
    with pytest.raises(GossipdError, match=r"remove state/register|move it away, then") as caught:
        getattr(state, name)()
    assert caught.value.exit_code is ExitCode.VERIFICATION
    state.close()


@pytest.mark.parametrize("kept", ["link", "long", "bad sector", b"", b"\0" * 40, b"\xff" * 300], ids=str)
@pytest.mark.parametrize("name", ["roster", "histories", "witness", "boot", "progress"])
def test_what_gossip_brings_again_is_not_missed_when_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kept: str | bytes
) -> None:
    state = StateDirectory(tmp_path / "state")
    _damage(tmp_path / "state" / name, kept, monkeypatch)
    assert not state.roster() and not state.tombstones() and state.next_boot(7.0) == 7
    state.histories(), state.witness(), state.progress(now=0.0, wall_s=0.0)
    monkeypatch.undo()
    state.keep_roster([record(1)])
    assert len(state.roster()) == 1
    state.close()


def test_the_check_of_places_knows_every_file_of_state(tmp_path: Path) -> None:
    StateDirectory(tmp_path / "state").close()
    directories = {path.name for path in (tmp_path / "state").iterdir()}
    assert set(STATE_NEEDS) == {*state_dir._FILES, *directories}


def _closed(*args: object, **kwargs: object) -> bytes:
    raise PermissionError(errno.EACCES, "Permission denied", "register")


@pytest.mark.parametrize("name", ["register", "roster", "budgets", "wants", "inbox", "witness", "histories"])
def test_a_file_of_another_user_is_told_with_path_and_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    state = StateDirectory(tmp_path / "state")
    (tmp_path / "state" / name).touch()
    monkeypatch.setattr(state_dir, "read_file", _closed)
    with pytest.raises(StoreModeError) as caught:
        getattr(state, name)()
    assert (caught.value.code, caught.value.exit_code) == ("E_STORE_MODE", ExitCode.USAGE)
    assert f"{tmp_path}/state/{name} is closed to user " in str(caught.value)
    assert "chown -R " in str(caught.value)
    state.close()


def test_a_manifest_of_another_user_is_pulled_again_and_none_is_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDirectory(tmp_path / "state")
    state.keep_envelope(NAMED, b"signed")
    monkeypatch.setattr(state_dir, "read_file", _closed)
    assert state.envelope(NAMED) is None
    monkeypatch.setattr(state_dir, "write_new_file", _closed)
    with pytest.raises(StateWriteError, match=r"state/manifests/.* cannot be written: .*/state/manifests is") as caught:
        state.keep_envelope(NAMED, b"signed")
    assert caught.value.exit_code is ExitCode.USAGE
    state.close()


@pytest.mark.parametrize("name", ["boot", "register", "progress", "manifests", "publishing", "."])
def test_what_is_in_the_way_of_state_is_named_with_the_cure(tmp_path: Path, name: str) -> None:
    path = (tmp_path / "state" / name).resolve()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if name in ("boot", "register", "progress"):
        path.mkdir()
    else:
        path.write_text("x")
    with pytest.raises(StorePathError, match=rf"{path}.* move it away") as caught:
        StateDirectory(tmp_path / "state")
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
def test_what_stands_where_state_is_written_is_moved_aside(tmp_path: Path, kind: str) -> None:
    state = StateDirectory(tmp_path / "state")
    path = tmp_path / "state" / "boot.part"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("elsewhere")
    else:
        path.mkdir()
    assert state.next_boot(7.0) == 7
    state.close()
    assert sorted(one.name for one in path.parent.glob("boot*")) == ["boot", "boot.part.aside-1"]


def test_what_comes_in_the_way_of_a_file_is_named_and_is_no_full_disk(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    path = tmp_path / "state" / "boot"
    path.mkdir()
    with pytest.raises(StateWriteError, match=rf"^state/boot cannot be written: {path} is a directory .*; move") as one:
        state.next_boot(1.0)
    assert (one.value.code, one.value.exit_code) == ("E_STATE_WRITE", ExitCode.USAGE)
    state.close()


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "make the file system writable"), (errno.EDQUOT, "raise the quota")]
)
def test_a_refused_write_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    state = StateDirectory(tmp_path / "state")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(state_dir, "write_new_file", refuse)
    with pytest.raises(StateWriteError, match=rf"^state/boot cannot be written: refused.*{words}"):
        state.next_boot(1.0)
    state.close()


def test_a_snapshot_that_comes_late_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    register = StatementStore()
    state = StateDirectory(tmp_path / "state")
    late = snapshot(register)
    register.mark_removed(NAMED)
    state.keep_register(*snapshot(register))
    state.keep_register(*late)
    assert state.register().is_removed(NAMED)
    state.close()


def test_a_roster_is_kept_with_its_signatures_and_a_torn_one_as_far_as_it_goes(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.keep_roster([record(1), record(2)])
    assert [one.name for one in state.roster()] == ["node-1", "node-2"]
    assert state.roster()[0].signature == record(1).signature
    path = tmp_path / "state" / "roster"
    path.write_bytes(path.read_bytes()[:-5])
    assert [one.name for one in state.roster()] == ["node-1"]
    state.close()


def test_a_record_that_cannot_be_shown_leaves_the_others_of_the_roster(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.keep_roster([record(1), record(2)])
    path = tmp_path / "state" / "roster"
    path.write_bytes(path.read_bytes().replace(b"node-1", b"node\x1b1"))
    assert [one.name for one in state.roster()] == ["node-2"]
    state.close()


def test_lives_that_are_over_are_kept_behind_the_roster(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    over = [Tombstone(Handle(bytes((number,)) * 8), BOOT_MAX - number, number == 1) for number in (0, 1)]
    state.keep_roster([record(1), record(2)], over)
    assert [one.name for one in state.roster()] == ["node-1", "node-2"]
    assert state.tombstones() == over
    path = tmp_path / "state" / "roster"
    path.write_bytes(path.read_bytes()[:-5])
    assert state.tombstones() == over[:1]
    state.close()


def test_a_damaged_progress_table_is_begun_again(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.keep_progress(ClusterProgress().to_bytes())
    (tmp_path / "state" / "progress").write_bytes(b"\x63garbage")
    assert state.progress(now=0.0, wall_s=0.0).to_bytes() == ClusterProgress().to_bytes()
    state.close()


def test_histories_are_kept_and_damaged_ones_are_begun_again(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    assert not state.histories().live
    told = Progress(state=HostState.DOWNLOADING, chunks_verified=1)
    histories = Histories()
    histories.heard(b"k" * 8, NodeId(b"n" * 16), None, told, chunk_count=2, wall_s=1000.0)
    state.keep_histories(histories.to_bytes())
    assert state.histories().live == histories.live
    (tmp_path / "state" / "histories").write_bytes(b"\x63garbage")
    assert not state.histories().live
    state.close()


def test_manifests_are_kept_byte_for_byte(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    assert state.envelope(NAMED) is None
    state.keep_envelope(NAMED, b"signed")
    assert state.envelope(NAMED) == b"signed"
    state.close()


def test_a_manifest_without_content_is_none_and_other_names_are_no_manifests(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.keep_envelope(NAMED, b"")
    (tmp_path / "state/manifests" / ("z" * 64)).touch()
    assert (state.envelope(NAMED), state.envelopes()) == (None, [NAMED])
    state.close()


def test_a_manifest_that_is_coming_is_waited_for_and_no_other(tmp_path: Path) -> None:
    state, coming = StateDirectory(tmp_path / "state"), {NAMED}
    other = DeploymentId(b"o" * 32)
    with ThreadPoolExecutor() as pool:

        def ask(deployment: DeploymentId, timeout_s: float = PATIENCE_S) -> Future[bytes | None]:
            return pool.submit(state.envelope_soon, deployment, is_coming=coming.__contains__, timeout_s=timeout_s)

        assert ask(other).result() is None
        assert ask(NAMED, 0.01).result() is None
        waiting = [ask(NAMED) for _ in range(3)]
        state.keep_envelope(other, b"another")
        state.keep_envelope(NAMED, b"signed")
        assert [one.result() for one in waiting] == [b"signed"] * 3
        coming.discard(NAMED)
        assert ask(NAMED).result() == b"signed"
    state.close()


def test_one_who_waits_for_a_manifest_gives_up_when_it_does_not_come(tmp_path: Path) -> None:
    state, asked = StateDirectory(tmp_path / "state"), Event()
    coming = [True, False]

    def is_coming(_: DeploymentId) -> bool:
        asked.set()
        return coming.pop(0)

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(state.envelope_soon, NAMED, is_coming=is_coming, timeout_s=PATIENCE_S)
        assert asked.wait(PATIENCE_S)
        state.keep_envelope(DeploymentId(b"o" * 32), b"another")  # whatever is kept, it asks again
        assert waiting.result() is None
    assert coming == []
    state.close()


def test_a_disk_that_refuses_is_named_and_the_old_file_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(tmp_path / "state")
    state.keep_envelope(NAMED, b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gossipd.daemon.state_dir.write_new_file", refuse)
    with pytest.raises(StateWriteError, match="No space left") as caught:
        state.keep_envelope(NAMED, b"new")
    assert caught.value.code == "E_STATE_WRITE"
    assert state.envelope(NAMED) == b"old"
    state.close()


def test_signatures_of_test_records_are_real() -> None:
    assert not verify(record(1).public_key, record(1).signature, b"anything")
