"""Application events: the newest version per kind and key, passed on; statements are kept equal on all nodes.

Statements take part in the digest and so reach late joiners and nodes that missed the rumour. Progress does not,
because it is superseded soon; its table only tells new from known, and when it is full the writer with most entries
loses its oldest. Progress of a writer that is not known here is dropped.

Of two events of one version the one that was heard first stays, whatever its bytes: they say the same, and a mark is
of key and version alone, so digests agree. Rejected: the larger bytes, because anybody can add bytes to another's
statement, or sign its own a thousand times, and each would go through all nodes as news. The host's rules hear that a
writer has said two things (``told_twice``), from a node that meets the other word while it passes on the first.

The host judges every event before it is kept or passed on. A statement that would find no room is not judged: a check
of a signature costs far more than all else, and a writer may say ever more. A statement whose writer is not known here
(yet) is kept back, in a small table: neither told to the host, nor passed on, nor part of the digest, so it takes the
place of nothing. It is judged again when members have come. Each writer has a quota; where all is full, the writer of
most statements makes room, and the same of its statements give way on all nodes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from membership import wire
from membership.errors import PayloadRefusedError, TooManyStatementsError, WireError
from membership.events import PayloadHeard, PayloadKind
from membership.host_rules import Verdict
from membership.member import NodeId
from membership.node import MembershipNode
from membership.progress_versions import ProgressVersions
from membership.rumours import PROGRESS, STATEMENT
from membership.writer_counts import WriterCounts

_NUMBERS = {PayloadKind.STATEMENT: 1, PayloadKind.PROGRESS: 2, PayloadKind.AUDIT: 3}
_KINDS = {number: kind for kind, number in _NUMBERS.items()}
_PLURALS = {PayloadKind.STATEMENT: "statements", PayloadKind.PROGRESS: "progress", PayloadKind.AUDIT: "audit"}
KEY_BYTES_MAX = 64
VERSION_MAX = 2**63 - 1
_KEPT_BACK_MAX = 64
_TOLD_TWICE_MAX = 256
WRITERS_SHARE = 4  # one writer may fill this part of the table


class _Statement(NamedTuple):
    """One row. Newer is what has the higher version."""

    version: int
    item: bytes
    row_id: bytes
    mark: int
    writer: bytes


class EventStore:
    """One per brain."""

    def __init__(self, node: MembershipNode) -> None:
        self._node = node
        self._statements: dict[bytes, _Statement] = {}
        self._written: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)  # marks and keys, by writer
        self._written_counts: WriterCounts[bytes] = WriterCounts()
        self._kept_back: dict[bytes, NodeId] = {}  # item: who brought it; oldest first
        self._by_row: dict[bytes, bytes] = {}
        self._told_twice: OrderedDict[tuple[bytes, int], None] = OrderedDict()  # keys and versions, the latest last
        limit = node.settings.progress_count_max
        self._progress = ProgressVersions(limit, limit // WRITERS_SHARE)

    def publish(self, kind: PayloadKind, key: bytes, version: int, payload: bytes, now: float) -> None:
        """Tell all members. A statement of an older version than one already heard is dropped silently; of progress its
        host knows what is the newest. Raises PayloadRefusedError."""
        settings = self._node.settings
        if len(payload) > settings.event_bytes_max or not 0 < len(key) <= KEY_BYTES_MAX:
            raise PayloadRefusedError(
                f"key must have 1 to {KEY_BYTES_MAX} bytes, payload at most {settings.event_bytes_max}; "
                f"they have {len(key)} and {len(payload)}"
            )
        if not 0 <= version <= VERSION_MAX:
            raise PayloadRefusedError("version must be from 0 to 2**63 - 1")
        data = wire.event(_NUMBERS[kind], self._node.own.node, version, key, payload)
        if kind is PayloadKind.STATEMENT and not self._is_newer(kind, key, version):
            return
        verdict = self._node.rules.judge(kind, key, version, payload)
        if verdict is None:
            raise PayloadRefusedError("by the host's own rules nobody may say it")
        if verdict.is_over:
            return
        if kind is PayloadKind.PROGRESS:
            self._note_progress(key, version, data, verdict.writer, relay=True)
        elif not verdict.is_known:
            self._keep_back(data, self._node.own.node)
        elif not self._make_room(key, version, verdict.writer):
            raise TooManyStatementsError(f"{len(self._statements)} statements are known already")
        else:
            self._note_statement(key, version, data, verdict.writer, now, relay=True)

    def tell_some(self, key: bytes, version: int, payload: bytes, count: int) -> None:
        """One AUDIT event to that many living members at random."""
        data = wire.event(_NUMBERS[PayloadKind.AUDIT], self._node.own.node, version, key, payload)
        self._node.send_some(count, bytes((wire.GOSSIP,)) + data)

    def on_event(self, data: bytes, now: float, forwarder: NodeId, *, relay: bool = True) -> bool:
        """An EVENT item was heard; False when the host's rules refuse it. A new statement is passed on at once, unless
        many of its writer's are on the way, and twice more often than other rumours, because a node that the first wave
        misses hears it seconds later, from a probe."""
        number, origin, version, key, payload = wire.parse_event(data)
        kind = _KINDS.get(number)
        if kind is None or not key or len(payload) > self._node.settings.event_bytes_max or version > VERSION_MAX:
            raise WireError("an event that cannot be")
        if kind is not PayloadKind.AUDIT and not self._is_newer(kind, key, version):
            return self._is_same(kind, data, key, version, payload)
        if kind is PayloadKind.STATEMENT and self._is_full_for(key, version, payload):
            self._node.counts["statements_refused_full"] += 1  # whether that writer has signed it or not
            return True
        verdict = self._node.rules.judge(kind, key, version, payload)
        if verdict is None:
            self._node.counts[f"{_PLURALS[kind]}_refused_judge"] += 1
            return False
        heard = PayloadHeard(origin, forwarder, kind, key, version, payload)
        if verdict.is_too_much:
            self._node.counts[f"{_PLURALS[kind]}_refused_quota"] += 1
        elif kind is PayloadKind.AUDIT:
            self._node.tell(heard)
        elif not verdict.is_over:
            self._take_in(data, heard, verdict, now, relay=relay)
        return True

    def _take_in(self, data: bytes, heard: PayloadHeard, verdict: Verdict, now: float, *, relay: bool) -> None:
        """A statement or progress that its writer may say."""
        key, version = heard.key, heard.version
        if not verdict.is_known:
            if heard.kind is PayloadKind.PROGRESS:
                self._node.counts["progress_refused_unknown"] += 1
            else:
                self._keep_back(data, heard.forwarder)
            return
        if heard.kind is PayloadKind.PROGRESS:
            self._note_progress(key, version, data, verdict.writer, relay=relay)
        elif not self._make_room(key, version, verdict.writer):
            self._node.counts["statements_refused_full"] += 1
            return
        else:
            self._note_statement(key, version, data, verdict.writer, now, relay=relay)
        self._node.tell(heard)

    def judge_again(self, now: float) -> None:
        """Members have come: what was kept back may be somebody's now. It is passed on like news."""
        kept, self._kept_back = self._kept_back, {}
        for data, forwarder in kept.items():
            self.on_event(data, now, forwarder)

    def forget(self, key: bytes, now: float) -> None:
        """Keep a statement no longer. The host's rules must say that it ``is_over``, or others tell it again."""
        if key in self._statements:
            self._drop(key)
            self._node.changed_s = now

    def drop_progress(self, writer: NodeId) -> None:
        """Of a member that is off the roster: it is passed on no more, and takes no room."""
        for key in self._progress.forget(writer):
            self._node.rumours.classes[PROGRESS].discard(key)

    def rows(self) -> Iterator[tuple[int, bytes, int]]:
        """Bucket, row id and mark of every statement."""
        for row in self._statements.values():
            yield row.row_id[0], row.row_id, row.mark

    def mark_of(self, row_id: bytes) -> int | None:
        """Mark of a statement, None when it is unknown."""
        key = self._by_row.get(row_id)
        return None if key is None else self._statements[key].mark

    @staticmethod
    def row_of(item: bytes) -> tuple[bytes, int] | None:
        """Row id and mark of a statement's item, known here or not; None for any other item, and for what is none."""
        try:
            number, _, version, key, _ = wire.parse_event(item) if item[0] == wire.EVENT else (0, None, 0, b"", b"")
        except WireError:
            return None
        return (_row_id(key), _mark(key, version)) if _KINDS.get(number) is PayloadKind.STATEMENT else None

    def item_of(self, row_id: bytes) -> bytes | None:
        """A statement's item."""
        key = self._by_row.get(row_id)
        return None if key is None else self._statements[key].item

    @property
    def kept_back(self) -> int:
        """Number of statements whose writer is not known here."""
        return len(self._kept_back)

    def __len__(self) -> int:
        return len(self._statements) + len(self._progress)

    def _is_newer(self, kind: PayloadKind, key: bytes, version: int) -> bool:
        if kind is PayloadKind.PROGRESS:
            known = self._progress.newest(key)
            if version == known:
                self._node.rumours.classes[PROGRESS].heard_again(key)
            return version > known
        old = self._statements.get(key)
        return old is None or version > old.version

    def _is_same(self, kind: PayloadKind, data: bytes, key: bytes, version: int, payload: bytes) -> bool:
        """False when an event that is no news is a forgery of what is passed on here. Its payload is compared as long
        as that is so, because then it is at hand, and the host's rules hear of another one, once for each version."""
        first = self._node.rumours.classes[PROGRESS if kind is PayloadKind.PROGRESS else STATEMENT].item_of(key)
        if first is None or first == data or (key, version) in self._told_twice:
            return True
        _, _, known_version, _, known = wire.parse_event(first)
        if version != known_version or payload == known:
            return True
        if not self._node.rules.told_twice(kind, key, version, known, payload):
            self._node.counts[f"{_PLURALS[kind]}_refused_judge"] += 1
            return False
        self._told_twice[key, version] = None
        if len(self._told_twice) > _TOLD_TWICE_MAX:
            self._told_twice.popitem(last=False)
        return True

    def _keep_back(self, data: bytes, forwarder: NodeId) -> None:
        """Where there are too many, the forwarder of most of them loses its oldest."""
        if data in self._kept_back:
            return
        self._kept_back[data] = forwarder
        self._node.counts["statements_kept_back"] += 1
        if len(self._kept_back) > _KEPT_BACK_MAX:
            loudest = Counter(self._kept_back.values()).most_common(1)[0][0]
            del self._kept_back[next(item for item, other in self._kept_back.items() if other == loudest)]

    def _is_full_for(self, key: bytes, version: int, payload: bytes) -> bool:
        """Whether a statement would find no room, had the writer that it names signed it."""
        return self._room(key, version, self._node.rules.named_writer(key, payload)) is None

    def _make_room(self, key: bytes, version: int, writer: bytes) -> bool:
        """Whether a statement of this writer fits; what gives way to it is dropped."""
        room = self._room(key, version, writer)
        if room is None:
            return False
        for other in room:
            self._drop(other)
        return True

    def _room(self, key: bytes, version: int, writer: bytes) -> tuple[bytes, ...] | None:
        """The keys of what gives way to a statement of this writer, None where it does not fit. Of a writer's
        statements those with the lowest marks stay."""
        old = self._statements.get(key)
        if old is not None and old.writer == writer:
            return ()
        limit = self._node.settings.statement_count_max
        counts = self._written_counts
        written = counts.of(writer)
        if written >= limit // WRITERS_SHARE:
            loudest = writer
        elif old is not None or len(self._statements) < limit:
            return ()
        else:
            loudest = counts.loudest
            if counts.of(loudest) <= max(1, written):
                return None
        last = self._written[loudest][-1]
        if loudest == writer and _mark(key, version) >= last[0]:
            return None
        return (last[1],)

    def _drop(self, key: bytes) -> None:
        row = self._statements.pop(key)
        del self._by_row[row.row_id]
        written = self._written[row.writer]
        del written[bisect_left(written, (row.mark, key))]
        if not written:
            del self._written[row.writer]
        self._written_counts.change(row.writer, -1)
        self._node.roster.digest.change(row.row_id[0], -row.mark)
        self._node.rumours.classes[STATEMENT].discard(key)

    def _note_statement(self, key: bytes, version: int, data: bytes, writer: bytes, now: float, *, relay: bool) -> None:
        if key in self._statements:
            self._drop(key)
        row_id = _row_id(key)
        row = self._statements[key] = _Statement(version, data, row_id, _mark(key, version), writer)
        self._by_row[row_id] = key
        insort(self._written[writer], (row.mark, key))
        self._written_counts.change(writer, 1)
        self._node.roster.digest.change(row_id[0], row.mark)
        self._node.changed_s = now
        if relay:
            # hearing it again does not count as sent: all nodes pass it on in the same moment
            is_first = self._node.rumours.classes[STATEMENT].add(key, data, writer, urgent=True)
            self._node.gossip_due = self._node.gossip_due or is_first

    def _note_progress(self, key: bytes, version: int, data: bytes, writer: bytes, *, relay: bool) -> None:
        self._progress.note(key, version, writer)
        if relay:
            self._node.rumours.classes[PROGRESS].add(key, data, writer)


def _row_id(key: bytes) -> bytes:
    return blake2b(key, digest_size=8, person=b"gossip statement").digest()


def _mark(key: bytes, version: int) -> int:
    return int.from_bytes(blake2b(version.to_bytes(8) + key, digest_size=8).digest())
