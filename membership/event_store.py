"""Application events: the newest version per kind and key, passed on; statements are kept equal on all nodes.

Statements take part in the digest and so reach late joiners and nodes that missed the rumour. Progress does not,
because it is superseded soon; its table only tells new from known, and drops the oldest entry when it is full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b

from membership import wire
from membership.errors import PayloadRefusedError, WireError
from membership.events import PayloadHeard, PayloadKind
from membership.member import NodeId
from membership.node import MembershipNode
from membership.rumours import PROGRESS, STATEMENT

_NUMBERS = {PayloadKind.STATEMENT: 1, PayloadKind.PROGRESS: 2}
_KINDS = {number: kind for kind, number in _NUMBERS.items()}
KEY_BYTES_MAX = 64
VERSION_MAX = 2**63 - 1


class EventStore:
    """One per brain."""

    def __init__(self, node: MembershipNode) -> None:
        self._node = node
        self._statements: dict[bytes, tuple[int, bytes, bytes, int]] = {}  # key: version, item, row id, mark
        self._by_row: dict[bytes, bytes] = {}
        self._progress: OrderedDict[bytes, int] = OrderedDict()

    def publish(self, kind: PayloadKind, key: bytes, version: int, payload: bytes, now: float) -> None:
        """Tell all members. An older version than one already heard is dropped silently. Raises PayloadRefusedError."""
        settings = self._node.settings
        if len(payload) > settings.event_bytes_max or not 0 < len(key) <= KEY_BYTES_MAX:
            raise PayloadRefusedError(
                f"key must have 1 to {KEY_BYTES_MAX} bytes, payload at most {settings.event_bytes_max}; "
                f"they have {len(key)} and {len(payload)}"
            )
        if not 0 <= version <= VERSION_MAX:
            raise PayloadRefusedError("version must be from 0 to 2**63 - 1")
        if kind is PayloadKind.STATEMENT and key not in self._statements and self._is_full():
            raise PayloadRefusedError(f"{settings.statement_count_max} statements are known already")
        data = wire.event(_NUMBERS[kind], self._node.own.node, version, key, payload)
        if self._note(kind, key, version, data, now, relay=True) and kind is PayloadKind.STATEMENT:
            self._node.gossip_due = True

    def on_event(self, data: bytes, now: float, forwarder: NodeId, *, relay: bool = True) -> None:
        """An EVENT item was heard. A new statement is passed on at once, and twice more often
        than other rumours, because a node that the first wave misses would hear it seconds later, from a probe."""
        number, origin, version, key, payload = wire.parse_event(data)
        kind = _KINDS.get(number)
        if kind is None or not key or len(payload) > self._node.settings.event_bytes_max or version > VERSION_MAX:
            raise WireError("an event that cannot be")
        if kind is PayloadKind.STATEMENT and key not in self._statements and self._is_full():
            self._node.counts["statements_refused_full"] += 1
            return
        if not self._note(kind, key, version, data, now, relay=relay):
            return
        self._node.tell(PayloadHeard(origin, forwarder, kind, key, version, payload))
        if kind is PayloadKind.STATEMENT and relay:
            self._node.gossip_due = True

    def rows(self) -> Iterator[tuple[int, bytes, int]]:
        """Bucket, row id and mark of every statement."""
        for _version, _data, row_id, mark in self._statements.values():
            yield row_id[0], row_id, mark

    def mark_of(self, row_id: bytes) -> int | None:
        """Mark of a statement, None when it is unknown."""
        key = self._by_row.get(row_id)
        return None if key is None else self._statements[key][3]

    def item_of(self, row_id: bytes) -> bytes | None:
        """A statement's item."""
        key = self._by_row.get(row_id)
        return None if key is None else self._statements[key][1]

    def __len__(self) -> int:
        return len(self._statements) + len(self._progress)

    def _is_full(self) -> bool:
        return len(self._statements) >= self._node.settings.statement_count_max

    def _note(self, kind: PayloadKind, key: bytes, version: int, data: bytes, now: float, *, relay: bool) -> bool:
        if kind is PayloadKind.PROGRESS:
            return self._note_progress(key, version, data, relay=relay)
        queue = self._node.rumours.classes[STATEMENT]
        old = self._statements.get(key)
        if old is not None and (version, data) <= old[:2]:
            return False
        digest = self._node.roster.digest
        row_id = blake2b(key, digest_size=8, person=b"gossip statement").digest()
        mark = int.from_bytes(blake2b(data, digest_size=8).digest())
        if old is not None:
            digest.change(row_id[0], -old[3])
        digest.change(row_id[0], mark)
        self._statements[key] = (version, data, row_id, mark)
        self._by_row[row_id] = key
        self._node.changed_s = now
        if relay:
            # hearing it again does not count as sent: all nodes pass it on in the same moment
            queue.add(key, data, urgent=True)
        return True

    def _note_progress(self, key: bytes, version: int, data: bytes, *, relay: bool) -> bool:
        queue = self._node.rumours.classes[PROGRESS]
        if version <= self._progress.get(key, -1):
            if version == self._progress[key]:
                queue.heard_again(key)
            return False
        self._progress[key] = version
        self._progress.move_to_end(key)
        if len(self._progress) > self._node.settings.progress_count_max:
            self._progress.popitem(last=False)
        if relay:
            queue.add(key, data)
        return True
