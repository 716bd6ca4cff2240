"""Heads of other hosts' audit chains, as they told them: what shows that the end of a log was cut off.

What lives here: the signed head, the table of heads per host, and when two heads cannot be of one chain. What does not:
telling heads (``daemon.audit_gossip``), and the chain (``chain_file``).

A chain only grows. So a later head with fewer records than an earlier one, or with as many and another hash, means
that records were taken away. Records that were replaced by more than there were show when the file is compared with the
heads that witnesses kept (``gossipd audit verify --witness``): for that, one head an hour is kept.

The last head before a cut is kept beside the ones after it, of these one an hour, too: a host that cut its log and goes
on telling short ones does not push out what it told before.

A head counts only when it is newer than the last of its host, also after a restart, so that an old one that is sent
again accuses nobody.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from msgspec import Struct, field

from gossipd.identity.keys import SecretKey, verify

HOSTS_MAX = 4096
HEADS_MAX = 16
HEAD_KEEP_MS = 3_600_000
TELL_MS_MIN = 3_000  # a host tells one a minute, and one after each start; more often it is not listened to
CUT_KEEP_MS = 30 * 86_400_000
NAME_CHARS_MAX = 64
_LABEL = b"gossipd audit head 1\x00"
_FIELDS = struct.Struct(">QQ32s")
HEAD_BYTES = _FIELDS.size + 64


class AuditHead(Struct, frozen=True):
    """The end of a chain at a moment. ``issued_ms``: milliseconds since 1970, by its host's clock."""

    issued_ms: int
    records: int
    hash: bytes

    def signed(self, secret: SecretKey) -> bytes:
        """112 bytes."""
        body = _FIELDS.pack(self.issued_ms, self.records, self.hash)
        return body + secret.sign(_LABEL + body)

    @classmethod
    def opened(cls, payload: bytes, public_key: bytes) -> AuditHead | None:
        """None when it is not this host's."""
        body, signature = payload[: _FIELDS.size], payload[_FIELDS.size :]
        if len(payload) != HEAD_BYTES or not verify(public_key, signature, _LABEL + body):
            return None
        return cls(*_FIELDS.unpack(body))


class _Host(Struct):
    name: str
    issued_ms: int = 0
    heads: list[tuple[int, int, str]] = field(default_factory=list)
    """issued_ms, records and hash of each, oldest first."""
    cut: tuple[int, int, int] | None = None
    """How many records there were, how many there are, and when that was told."""


class Witness:
    """One per daemon; ``revision`` grows with each change. Not thread-safe."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self.revision = 0

    def is_due(self, node: bytes, issued_ms: int) -> bool:
        """Whether a head of that moment would be listened to."""
        known = self._hosts.get(node.hex())
        return known is None or issued_ms >= known.issued_ms + TELL_MS_MIN

    def heard(self, node: bytes, name: str, head: AuditHead) -> bool:
        """Take in a verified head. False when it is not newer than the last one."""
        if not self.is_due(node, head.issued_ms):
            return False
        host = self._hosts.pop(node.hex(), None) or _Host(name)
        self._hosts[node.hex()] = host  # the one that was silent longest makes room
        if len(self._hosts) > HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]
        host.name, host.issued_ms = name[:NAME_CHARS_MAX], head.issued_ms
        most = max((records for _, records, _ in host.heads), default=0)
        is_other = any(records == head.records and kept != head.hash.hex() for _, records, kept in host.heads)
        is_cut = head.records < most or is_other
        is_first = is_cut and (host.cut is None or head.issued_ms - host.cut[2] >= HEAD_KEEP_MS)
        if len(host.heads) > 1 and host.heads[-1][0] - host.heads[-2][0] < HEAD_KEEP_MS and not is_first:
            host.heads.pop()
        if is_cut:
            host.cut = (most, head.records, head.issued_ms)
        host.heads.append((head.issued_ms, head.records, head.hash.hex()))
        del host.heads[:-HEADS_MAX]
        self.revision += 1
        return True

    def forget(self, node: bytes) -> None:
        """The host is off the roster, by an operator's word."""
        self.revision += self._hosts.pop(node.hex(), None) is not None

    def cuts(self, now_ms: int) -> list[str]:
        """A sentence for each log that was cut in the last 30 days."""
        return [
            f"the audit log of {host.name} had {host.cut[0]} records and then {host.cut[1]}: its end was cut off or "
            "rewritten; compare with gossipd audit verify --witness"
            for host in self._hosts.values()
            if host.cut is not None and now_ms - host.cut[2] < CUT_KEEP_MS
        ]

    def heads_of(self, name: str) -> list[tuple[int, str]]:
        """Records and hash of each head that a host of that name told."""
        hosts = [host for host in self._hosts.values() if host.name == name]
        return [(records, kept) for host in hosts for _, records, kept in host.heads]

    def names(self) -> list[str]:
        """The hosts that have told the head of their chain."""
        return sorted({host.name for host in self._hosts.values()})

    def to_bytes(self) -> bytes:
        """All heads for the disk; they hold nothing secret."""
        rows = [[node, host.name, host.issued_ms, host.heads, host.cut] for node, host in self._hosts.items()]
        return json.dumps({"version": 1, "hosts": rows}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, kept: bytes) -> Witness:
        """Raises ValueError when it was not written by ``to_bytes``."""
        witness = cls()
        try:
            rows: Any = json.loads(kept)["hosts"]
            for node, name, issued_ms, heads, cut in rows:
                told = [(int(at), int(records), str(one)) for at, records, one in heads]
                ended = None if cut is None else (int(cut[0]), int(cut[1]), int(cut[2]))
                witness._hosts[str(node)] = _Host(str(name), int(issued_ms), told, ended)
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            raise ValueError(f"not a file of witnessed heads: {error}") from None
        return witness
