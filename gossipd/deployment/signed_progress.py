"""Progress that is signed by the host it speaks of, and what is believed of progress.

What lives here: form 2 of the record on the wire, and the one judgement of progress, which membership asks for before
it keeps or passes on a record. What does not: the record (``progress_record``), the table (``progress_table``).

A record in form 1 travels under the key *node, deployment*; one in form 2 under *node, deployment, 2*, so that gossip
keeps both and hosts of 0.1.0, which read only the first, pass the second on unread. A host's signed member record says
whether it signs its progress. If it does, its unsigned records are not believed: anybody may have made them. They are
passed on to hosts of 0.1.0 only where they say what the host's signed record of the same moment says. One signature a
record, not one for all of a host's records: hosts mostly have one deployment under way, and each record stays a word
that is complete by itself.

Form 2: the body (``Progress.to_body``), then 64 bytes of Ed25519 over "gossipd-progress-2 ", node, deployment, version
and body.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from gossipd.core.timing import CLOCKS_APART_MAX_S
from gossipd.deployment.progress_record import KEY_BYTES, Progress, ProgressFormatError
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.identity.keys import SecretKey, verify
from membership.bounds import fits
from membership.member import NODE_ID_BYTES, NodeId

SIGNATURE_BYTES = 64
VERSION_MAX = 2**63 - 1
_DOMAIN = b"gossipd-progress-2 "
_FORM_2 = b"\x02"


class Belief(Enum):
    """What a record is to this host."""

    YES = "yes"
    UNKNOWN = "unknown"
    """The host that it speaks of is not known here, or nothing tells the record from a forged one (yet)."""
    NO = "no"


class ProgressWriter(Struct, frozen=True):
    """A host as its own signed record describes it."""

    public_key: bytes
    signs: bool
    began_s: int
    """When its present life began, seconds since 1970."""


class WriterPort(Protocol):
    """Asked at each record."""

    def progress_writer(self, node: NodeId) -> ProgressWriter | None:
        """The host with that id, None when it is not on the roster."""


class ProgressKey(Struct, frozen=True):
    """Under what gossip carries a record."""

    node: NodeId
    deployment: bytes
    is_signed: bool

    def encode(self) -> bytes:
        """The key on the wire."""
        return self.node + self.deployment + (_FORM_2 if self.is_signed else b"")

    @classmethod
    def decode(cls, key: bytes) -> ProgressKey:
        """Raises ProgressFormatError."""
        return _key_of(key)


@lru_cache(maxsize=2_048)  # each is asked for three times
def _key_of(key: bytes) -> ProgressKey:
    node, deployment, rest = key[:NODE_ID_BYTES], key[NODE_ID_BYTES:][:KEY_BYTES], key[NODE_ID_BYTES + KEY_BYTES :]
    if len(deployment) != KEY_BYTES or rest not in (b"", _FORM_2):
        raise ProgressFormatError(f"a progress record's key has {len(key)} bytes, or is of a later form")
    return ProgressKey(NodeId(node), deployment, rest == _FORM_2)


def sign_progress(secret: SecretKey, key: ProgressKey, version: int, progress: Progress) -> bytes:
    """The record in form 2, as gossip carries it."""
    body = progress.to_body()
    return body + secret.sign(_signed_part(key, version, body))


def read_progress(key: ProgressKey, payload: bytes) -> Progress:
    """The record that was judged before. Raises ProgressFormatError."""
    return Progress.from_body(payload[:-SIGNATURE_BYTES]) if key.is_signed else Progress.from_bytes(payload)


class ProgressJudge:
    """One per daemon; it changes nothing."""

    def __init__(self, writers: WriterPort, table: ClusterProgress) -> None:
        self._writers = writers
        self._table = table

    def judge(self, wire_key: bytes, version: int, payload: bytes, wall_s: float) -> Belief:
        """Whether gossip may keep a record and pass it on. ``wall_s``: the latest time that this host finds possible.

        The signature is looked at last: it costs a tenth of a millisecond.
        """
        latest = int((wall_s + CLOCKS_APART_MAX_S) * 1000)
        if not fits(version, known=0, step=0, maximum=VERSION_MAX, clock_bound=latest):
            return Belief.NO
        try:
            key = ProgressKey.decode(wire_key)
            progress = read_progress(key, payload)
        except ProgressFormatError:
            return Belief.NO
        writer = self._writers.progress_writer(key.node)
        if writer is None:
            return Belief.UNKNOWN
        if not key.is_signed:
            return Belief.YES if self._is_believed_unsigned(key, version, progress, writer) else Belief.UNKNOWN
        body, signature = payload[:-SIGNATURE_BYTES], payload[-SIGNATURE_BYTES:]
        is_signed = verify(writer.public_key, signature, _signed_part(key, version, body))
        return Belief.YES if is_signed else Belief.NO

    def told_s(self, wire_key: bytes, version: int, payload: bytes) -> tuple[NodeId, float] | None:
        """The host that signed a record, and the time that its clock had then, however far from this host's clock; None
        for a record that its host has not signed."""
        try:
            key = ProgressKey.decode(wire_key)
            writer = self._writers.progress_writer(key.node)
        except ProgressFormatError:
            return None
        body, signature = payload[:-SIGNATURE_BYTES], payload[-SIGNATURE_BYTES:]
        if writer is None or not key.is_signed or not 0 <= version <= VERSION_MAX:
            return None
        is_signed = verify(writer.public_key, signature, _signed_part(key, version, body))
        return (key.node, version / 1000) if is_signed else None

    def _is_believed_unsigned(
        self, key: ProgressKey, version: int, progress: Progress, writer: ProgressWriter
    ) -> bool:  # fmt: skip
        """An unsigned record of a host that signs its progress is believed where the signed record of the same moment
        says the same. One of another host is believed, unless that host has signed since its life began: then its
        member record, which says that it does not sign, is out of date.
        """
        row = self._table.host(key.node, key.deployment)
        if writer.signs:
            return row is not None and row.version == version and row.record == progress.to_bytes()
        return row is None or not row.is_signed or row.version < writer.began_s * 1000


def _signed_part(key: ProgressKey, version: int, body: bytes) -> bytes:
    return _DOMAIN + key.node + key.deployment + version.to_bytes(8, "big") + body
