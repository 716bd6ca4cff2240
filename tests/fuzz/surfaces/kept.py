"""Files read back from our own disk, and key files that an operator gives: whatever rot or a hand made of them.

Kinds: the register, the progress table, the roster, the boot number, a model's journal, the audit log; trusted public
keys, a secret key, a cluster key. A change before sealing is one in the content, with checksums, chains and
hashes made to fit (``kept_files``). Disks are made up where a parser takes bytes; the audit log and state are read from
real files in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from gossipd.audit.chain_file import AuditError, AuditFile, verify_audit
from gossipd.core.errors import GossipdError
from gossipd.daemon.state_dir import BOOT, ROSTER, StateDirectory
from gossipd.deployment.progress_table import ClusterProgress, ProgressTableError
from gossipd.deployment.statement_file import RegisterFormatError, register_from_bytes, register_to_bytes
from gossipd.identity.cluster_key import format_key_ring, parse_key_ring
from gossipd.identity.keys import KeyFormatError, PublicKey, SecretKey
from gossipd.identity.trust import is_degenerate
from gossipd.store.errors import StoreFormatError
from gossipd.store.journal import journal
from membership.member import NodeId, node_id
from membership.record import BOOT_MAX
from tests.fuzz.mutations import mutate_bytes, pick
from tests.fuzz.surface import Case
from tests.fuzz.surfaces.kept_files import CHANGES, MODEL, WALL_S, genuine_files

# How often each kind comes: those that open real files cost a hundred times as much.
_WEIGHTS = {
    "register": 5, "progress": 4, "journal": 6, "public_key": 3, "secret_key": 2, "cluster_key": 3, "roster": 1,
    "boot": 1, "audit": 1,
}  # fmt: skip


class KeptSurface:
    """See the module."""

    name = "kept"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="gossipd-fuzz-", dir=_memory())
        root = Path(self._directory.name)
        root.chmod(0o700)
        self._state = StateDirectory(root / "state")
        self._audit = root / "audit.log"
        self._kinds = [kind for kind, weight in _WEIGHTS.items() for _ in range(weight)]
        self._corpus = genuine_files(self._audit)
        self._read: dict[str, Callable[[bytes], None]] = {
            "register": _read_register, "progress": _read_progress, "journal": _read_journal,
            "public_key": _read_public_key, "secret_key": _read_secret_key, "cluster_key": _read_cluster_key,
            "roster": self._read_roster, "boot": self._read_boot, "audit": self._read_audit,
        }  # fmt: skip

    def case(self, rng: Random) -> Case:
        """See Surface."""
        kind = pick(rng, self._kinds)
        body = pick(rng, self._corpus[kind])
        change = CHANGES.get(kind)
        if rng.random() < 0.7:
            changed = change(body, rng) if change is not None else mutate_bytes(body, rng, self._corpus[kind])
            if changed is not None:
                return Case(kind, changed, True)
        return Case(kind, mutate_bytes(body, rng, self._corpus[kind]), False)

    def seal(self, case: Case) -> tuple[str, bytes]:
        """See Surface."""
        return case.kind, case.body

    async def deliver(self, arrived: tuple[str, bytes]) -> None:
        """See Surface."""
        kind, body = arrived
        self._read[kind](body)

    def rest(self) -> None:
        """See Surface."""

    def close(self) -> None:
        """See Surface."""
        self._state.close()
        self._directory.cleanup()

    def _put(self, name: str, body: bytes) -> None:
        (Path(self._directory.name) / "state" / name).write_bytes(body)

    def _read_roster(self, body: bytes) -> None:
        self._put(ROSTER, body)
        records = self._state.roster()
        self._state.keep_roster(records)
        assert self._state.roster() == records

    def _read_boot(self, body: bytes) -> None:
        self._put(BOOT, body)
        first = self._state.next_boot(WALL_S)
        assert first >= int(WALL_S)
        assert self._state.next_boot(WALL_S) > first or first == BOOT_MAX

    def _read_audit(self, body: bytes) -> None:
        self._audit.write_bytes(body)
        verify_audit(self._audit)
        log = AuditFile(self._audit)
        try:
            log.append([{"event": "next"}], "2026-01-02T03:04:06Z")
        except AuditError:
            return


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# ---- readers ------------------------------------------------------------------------------------------


def _read_register(body: bytes) -> None:
    try:
        register = register_from_bytes(body)
    except RegisterFormatError:
        return
    again = register_from_bytes(register_to_bytes(register))
    assert again.statements() == register.statements()


def _read_progress(body: bytes) -> None:
    try:
        table = ClusterProgress.from_bytes(body, now=0.0, wall_s=WALL_S)
    except ProgressTableError:
        return
    table.totals(b"k" * 8, [NodeId(b"\0" * 16), node_id(b"x" * 32)], chunk_count=9, bytes_total=1 << 40, now=1.0)
    table.to_bytes()


def _read_journal(body: bytes) -> None:
    try:
        said = journal.replay(body, MODEL)
    except StoreFormatError:
        return
    assert said.header is None or said.header.deployment == MODEL
    assert len(said.held) + len(said.suspects) <= 4 * 1_000_000


def _read_public_key(body: bytes) -> None:
    try:
        key = PublicKey.from_text(_ascii(body))
    except KeyFormatError:
        return
    if not is_degenerate(key.ed25519):
        assert PublicKey.from_text(key.to_text()) == key


def _read_secret_key(body: bytes) -> None:
    try:
        secret = SecretKey.from_text(_ascii(body))
    except KeyFormatError:
        return
    assert SecretKey.from_text(secret.to_text()) == secret
    assert len(secret.public.curve25519) == 32


def _read_cluster_key(body: bytes) -> None:
    try:
        ring = parse_key_ring(_ascii(body))
    except GossipdError:
        return
    assert parse_key_ring(format_key_ring(ring)) == ring


def _ascii(body: bytes) -> str:
    """As ``identity.key_files`` decodes them."""
    return body.decode("ascii", errors="replace")
