"""What a daemon keeps on disk besides chunks: boot number, statements, roster, progress, manifests.

What lives here: names, sizes and formats of these files. What does not: renames and syncs (``store.disk.posix_disk``).

::

    DIR/state/boot               decimal: the number of this node's last start, seconds since 1970 or more; or a word
    DIR/state/register           statements, trusted versions, removed marks (``deployment.statement_file``)
    DIR/state/roster             signed member records, each behind its length in two bytes; then tombstones likewise
    DIR/state/progress           the table of every host's progress (``deployment.progress_table``)
    DIR/state/histories          the course of the latest deployments (``deployment.history``)
    DIR/state/witness            heads of other hosts' audit chains (``audit.witness``)
    DIR/state/budgets            budgets that were ordered with deployments (``deployment.ordered_budgets``)
    DIR/state/wants              what ``gossipd want`` has ordered (``parts.want_orders``)
    DIR/state/inbox              files of the inbox that are accepted and stay (``inbox.stuck_files``)
    DIR/state/manifests/<id>     signed envelopes, byte for byte
    DIR/state/publishing/<id>    empty: the store makes a copy that no statement tells of yet

Every write leaves the old file or the new one, whole. The register is written before what it says is acted
on: a node that has said "I trust version 9" must not come back believing 8. The roster and the progress
table may be some seconds old after a crash; gossip brings the rest.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from threading import Condition, Lock
from typing import cast

from gossipd.audit.witness import Witness
from gossipd.core.errors import ExitCode, LocalError
from gossipd.core.ids import DeploymentId
from gossipd.deployment.history import Histories, HistoryFormatError
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_table import ClusterProgress, ProgressTableError
from gossipd.deployment.statement_file import register_from_bytes
from gossipd.deployment.statement_store import StatementStore
from gossipd.parts.want import Want
from gossipd.parts.want_orders import orders_from_bytes
from gossipd.runtime.file_access import refusal_words
from gossipd.store.disk.condition import fault_of_path, room_words
from gossipd.store.disk.disk import Disk, FileKind, read_file, write_new_file
from gossipd.store.disk.posix_disk import PosixDisk, make_root
from gossipd.store.disk.root_place import RootPlace
from gossipd.store.disk.waiting_calls import WaitingCalls
from gossipd.store.errors import StoreModeError, StorePathError
from membership.errors import WireError
from membership.member import Record
from membership.record import BOOT_MAX, encode_signed, parse_record
from membership.tombstones import Tombstone

BOOT, REGISTER, ROSTER, PROGRESS, MANIFESTS = "boot", "register", "roster", "progress", "manifests"
WITNESS, PUBLISHING, WANTS, HISTORIES = "witness", "publishing", "wants", "histories"
BUDGETS, INBOX = "budgets", "inbox"
SCRATCH = "publish-"  # what directories of publications under way begin with
_FILES = (BOOT, REGISTER, ROSTER, PROGRESS, WITNESS, WANTS, HISTORIES, BUDGETS, INBOX)
_ID = re.compile(r"[0-9a-f]{64}")
# A bad sector, a file system's own checksum, a length that no file of ours has.
_DAMAGED = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EFBIG})
FILE_BYTES_MAX = 64 * 1024 * 1024  # ten times a progress table of 4,096 hosts and 64 deployments; a manifest's limit
_LENGTH_BYTES = 2
_TOMBSTONE = Struct(">8sQ?")  # shorter than any record; an older gossipd reads no further
_BOOT_DIGITS_MAX = len(str(BOOT_MAX))
_FROM_CLOCK = b"from the clock"


class StateWriteError(LocalError):
    """The disk refused a file of ``DIR/state``. Fault: this host. State: the old file stands. Retry: by itself."""

    code = "E_STATE_WRITE"
    exit_code = ExitCode.DISK


class StatePathError(StateWriteError):
    """Something that is no file, or a link, stands where one of them belongs, or another user's directory. Fault: the
    user who put it there. State: the old file stands. Retry: after moving it away, or chown."""

    exit_code = ExitCode.USAGE


class StateDirectory:
    """The files of ``DIR/state``. Blocking; small enough to be called from the loop at start, from a thread later."""

    def __init__(self, directory: Path) -> None:
        """Raises StoreModeError when others may write to the directory, StorePathError for what is no file or directory
        where one belongs, StoreWriteError when it cannot be made, OSError."""
        self.path = directory
        make_root(directory, mode=0o700)
        self._posix = PosixDisk(directory)
        self._calls = WaitingCalls(self._posix)
        self._disk = cast(Disk, self._calls)
        self.place = RootPlace.of(directory)
        for name in _FILES:
            if self._disk.kind(name) is FileKind.DIRECTORY:
                raise StorePathError(f"{directory / name} is a directory, where a file belongs; move it away")
        for name in (MANIFESTS, PUBLISHING):
            if self._disk.kind(name) not in (None, FileKind.DIRECTORY):
                raise StorePathError(f"{directory / name} is not a directory; move it away")
            self._disk.make_directory(name)
        self._disk.sync_directory("")  # whatever was found: an earlier life may have been killed before it did
        self._writing = Lock()
        self._keeping_register = Lock()
        self._envelope_kept = Condition()
        self._envelopes_kept = 0
        self._register_revision = -1

    def close(self) -> None:
        """Give the directory back."""
        self._posix.shut()

    def look_at_calls(self) -> str:
        """For a daemon to call every second. Returns a kind of the disk's calls that do not end; empty: none."""
        self._calls.look()
        return self._calls.late()

    def delete_scratch(self) -> None:
        """Delete what publications of an earlier life have left. Raises OSError."""
        for name in self._disk.names(""):
            if name.startswith(SCRATCH):
                shutil.rmtree(self.path / name)

    def next_boot(self, wall_s: float) -> int:
        """A number higher than that of any earlier start, also when this file was lost: never below the clock.

        Others accept no number that is more than an hour ahead of their clocks, but the next one of a host that had
        such a one when their clocks were ahead, too. So the number goes on where a start with a wrong clock has left
        it, until this host finds itself alone with it (``keep_boot``). The clock may be the one that is wrong, as
        before NTP; then others tell this host its former number, and it goes on from that."""
        kept = self._read(BOOT)
        # Digits that no boot can have are as good as lost: the file has rotted, or somebody has edited it.
        last = int(kept) if kept is not None and kept.isdigit() and len(kept) <= _BOOT_DIGITS_MAX else 0
        boot = max(last + 1 if last < BOOT_MAX else 0, int(wall_s))
        self._write(BOOT, str(boot).encode())
        return boot

    def keep_boot(self, boot: int | None) -> None:
        """The next start's number is above this one; None: it is the clock's. Raises StateWriteError."""
        self._write(BOOT, _FROM_CLOCK if boot is None else str(boot).encode())

    def register(self) -> StatementStore:
        """Raises RegisterFormatError: a damaged register is an operator's matter."""
        kept = self._read(REGISTER)
        return StatementStore() if kept is None else register_from_bytes(kept)

    def keep_register(self, kept: bytes, revision: int) -> None:
        """Make a ``snapshot`` durable, unless a thread with a later one came first."""
        with self._keeping_register:
            if revision > self._register_revision:
                self._write(REGISTER, kept)
                self._register_revision = revision

    def roster(self) -> list[Record]:
        """Records as they were signed; one that cannot be read is dropped, gossip brings it again."""
        records = []
        for item in _items(self._read(ROSTER) or b""):
            with suppress(WireError):
                records.append(parse_record(item))
        return records

    def tombstones(self) -> list[Tombstone]:
        """Lives of members that are over."""
        items = _items(self._read(ROSTER) or b"")
        return [Tombstone(*_TOMBSTONE.unpack(item)) for item in items if len(item) == _TOMBSTONE.size]

    def keep_roster(self, records: Iterable[Record], tombstones: Iterable[Tombstone] = ()) -> None:
        """The members' records and the lives that are over, for the next start."""
        encoded = [encode_signed(record) for record in records] + [_TOMBSTONE.pack(*one) for one in tombstones]
        self._write(ROSTER, b"".join(len(one).to_bytes(_LENGTH_BYTES, "big") + one for one in encoded))

    def progress(self, *, now: float, wall_s: float) -> ClusterProgress:
        """The table, or an empty one when there is none that can be read."""
        kept = self._read(PROGRESS)
        try:
            return ClusterProgress() if kept is None else ClusterProgress.from_bytes(kept, now=now, wall_s=wall_s)
        except ProgressTableError:
            return ClusterProgress()

    def keep_progress(self, table: bytes) -> None:
        """``ClusterProgress.to_bytes``."""
        self._write(PROGRESS, table)

    def histories(self) -> Histories:
        """The course of the latest deployments; none when the file cannot be read."""
        kept = self._read(HISTORIES)
        try:
            return Histories() if kept is None else Histories.from_bytes(kept)
        except HistoryFormatError:
            return Histories()

    def keep_histories(self, kept: bytes) -> None:
        """``Histories.to_bytes``."""
        self._write(HISTORIES, kept)

    def budgets(self) -> OrderedBudgets:
        """Raises OrderedBudgetsError: taken for none, a damaged file would have this host read without a limit."""
        kept = self._read(BUDGETS)
        return OrderedBudgets() if kept is None else OrderedBudgets.from_bytes(kept)

    def keep_budgets(self, kept: bytes) -> None:
        """``OrderedBudgets.to_bytes``. Durable on return."""
        self._write(BUDGETS, kept)

    def witness(self) -> Witness:
        """The heads that other hosts told; none when the file cannot be read."""
        kept = self._read(WITNESS)
        try:
            return Witness() if kept is None else Witness.from_bytes(kept)
        except ValueError:
            return Witness()

    def keep_witness(self, kept: bytes) -> None:
        """``Witness.to_bytes``."""
        self._write(WITNESS, kept)

    def wants(self) -> dict[str, Want]:
        """What was ordered. Raises WantOrdersError: taken for none, a damaged file would have this host fetch all."""
        kept = self._read(WANTS)
        return {} if kept is None else orders_from_bytes(kept)

    def keep_wants(self, kept: bytes) -> None:
        """``orders_to_bytes``. Durable on return."""
        self._write(WANTS, kept)

    def inbox(self) -> bytes:
        """What ``keep_inbox`` kept last; empty when nothing was."""
        return self._read(INBOX) or b""

    def keep_inbox(self, kept: bytes) -> None:
        """Durable on return."""
        self._write(INBOX, kept)

    def envelope(self, deployment: DeploymentId) -> bytes | None:
        """A signed manifest that was kept. One that the disk does not give is pulled from another host again."""
        try:
            return self._read(f"{MANIFESTS}/{deployment.hex()}") or None
        except (OSError, StoreModeError):
            return None

    def envelope_soon(
        self, deployment: DeploymentId, *, is_coming: Callable[[DeploymentId], bool], timeout_s: float
    ) -> bytes | None:
        """As ``envelope``, but waits for one that ``is_coming``; asks that again after each manifest that was kept."""
        deadline = time.monotonic() + timeout_s
        while True:
            kept_before = self._envelopes_kept
            envelope = self.envelope(deployment)
            left_s = deadline - time.monotonic()
            if envelope is not None or left_s <= 0 or not is_coming(deployment):
                return envelope
            with self._envelope_kept:
                if self._envelopes_kept == kept_before:
                    self._envelope_kept.wait(left_s)

    def keep_envelope(self, deployment: DeploymentId, envelope: bytes) -> None:
        """Durable on return."""
        self._write(f"{MANIFESTS}/{deployment.hex()}", envelope)
        with self._envelope_kept:
            self._envelopes_kept += 1
            self._envelope_kept.notify_all()

    def envelopes(self) -> list[DeploymentId]:
        """Deployments whose manifests are kept; once the rest is deleted, no more than the register has statements."""
        return self._ids(MANIFESTS)

    def forget_envelope(self, deployment: DeploymentId) -> None:
        """Delete a manifest that no host will ask for again."""
        self._disk.remove_file(f"{MANIFESTS}/{deployment.hex()}")

    def forget_envelopes(self, deployments: Iterable[DeploymentId]) -> None:
        """Delete the kept manifests of several deployments; some may be gone. Raises StateWriteError."""
        try:
            for deployment in deployments:
                with suppress(FileNotFoundError):
                    self.forget_envelope(deployment)
        except OSError as error:
            raise StateWriteError(f"state/{MANIFESTS} cannot be written: {error.strerror}") from error

    def note_publication(self, deployment: DeploymentId) -> None:
        """The store begins a copy that it may delete unless a statement tells of it. Durable on return."""
        self._write(f"{PUBLISHING}/{deployment.hex()}", b"")

    def publications(self) -> list[DeploymentId]:
        """What was noted and not forgotten."""
        return self._ids(PUBLISHING)

    def forget_publication(self, deployment: DeploymentId) -> None:
        """A statement tells of it, or the copy is deleted. Raises OSError."""
        self._disk.remove_file(f"{PUBLISHING}/{deployment.hex()}")

    def _ids(self, directory: str) -> list[DeploymentId]:
        return [DeploymentId(bytes.fromhex(name)) for name in self._disk.names(directory) if _ID.fullmatch(name)]

    def _read(self, name: str) -> bytes | None:
        """None when it is not there; what is no file, as a link, or cannot be read for its damage, is as one without
        content. Raises StoreModeError when another user's file is in its place, OSError."""
        try:
            match self._disk.kind(name):
                case None:
                    return None
                case FileKind.FILE:
                    return read_file(self._disk, name, bytes_max=FILE_BYTES_MAX)
        except PermissionError as error:
            raise StoreModeError(refusal_words(error, self.path / name, os.R_OK, root=self.path)) from error
        except OSError as error:
            if error.errno not in _DAMAGED:
                raise
        return b""

    def _write(self, name: str, body: bytes) -> None:
        try:
            with self._writing:  # two writers of one file would rename each other's unfinished one
                write_new_file(self._disk, name, body, mode=0o600)
        except OSError as error:
            if (fault := fault_of_path(error)) is not None:
                raise StatePathError(f"state/{name} cannot be written: {self.path}/{fault[1]}") from error
            if isinstance(error, PermissionError):
                words = refusal_words(error, (self.path / name).parent, os.W_OK | os.X_OK, root=self.path)
                raise StatePathError(f"state/{name} cannot be written: {words}") from error
            raise StateWriteError(f"state/{name} cannot be written: {error.strerror}{self._cure(error)}") from error

    def _cure(self, error: OSError) -> str:
        """The end of the sentence."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            with suppress(OSError):
                return room_words(error, self._disk.space(), 0)
        return "; make the file system writable" if error.errno == errno.EROFS else ""


def _items(kept: bytes) -> Iterator[bytes]:
    """What stands behind its length in two bytes each; the last one may be cut short."""
    at = 0
    while at + _LENGTH_BYTES <= len(kept):
        end = at + _LENGTH_BYTES + int.from_bytes(kept[at : at + _LENGTH_BYTES], "big")
        yield kept[at + _LENGTH_BYTES : end]
        at = end
