"""Finds identities that are seen twice, and says what to correct: a key at two addresses; a name, an address or a
transport key of two members. Pure.

What lives here: what is noted of members' records, and when it is worth an alarm. What does not: the alarm, and which
record of a member counts (``membership.record_merger``: the higher boot, on every host).

A machine that was cloned after ``gossipd init`` has its original's key. Each of the two outdoes the other's record, so
the member goes to and fro between two addresses, on every host. A host that moves goes once; one that comes back within
ten minutes is taken for two. The records are signed by the key itself, so no other member can bring this about.

Every node key has its own transport key, so two members that name one are never an accident: one of them lies.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from membership.member import NodeId, Record, contact_of

TWICE_S = 600.0  # ten times the longest pause between two records of a contested key (``record_merger``)
LET_IN_S = 60.0  # a host with a member's name that was let in: by then the living members decide, after ``GRACE_S``
GRACE_S = 20.0  # a host whose key was made again has its old address; the old key is dead by then
MOVES_MAX = 4
WANTED_MAX = 64
FINDINGS_MAX = 8  # of each kind: a member that brings hosts along fills no status page


class IdentityFinding(Struct, frozen=True):
    """An identity that is seen twice. ``subject``: the name of a host that is concerned."""

    code: str
    sentence: str
    subject: str


class _Twice(Struct, frozen=True):
    addresses: tuple[str, ...]
    until_s: float


class _Wanted(Struct, frozen=True):
    name: str
    address: str
    until_s: float
    is_let_in: bool = False


class IdentityWatch:
    """One per daemon. ``now`` is a monotonic clock in seconds."""

    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._moves: dict[NodeId, deque[tuple[str, float]]] = {}
        self._outdone: deque[float] = deque(maxlen=2)
        self._twice: dict[NodeId, _Twice] = {}
        self._since: dict[Hashable, float] = {}
        self._wanted: dict[NodeId, _Wanted] = {}

    def heard(self, record: Record, now: float) -> None:
        """A member's record came into force. Whether a member's name is another's, too, the members tell a while later,
        or never where the member does not speak to this host: what it has asked for counts until then."""
        if (wanted := self._wanted.pop(record.node, None)) is not None and wanted.name == record.name:
            until_s = min(wanted.until_s, now + LET_IN_S)
            self._wanted[record.node] = replace(wanted, until_s=until_s, is_let_in=True)
        address = record.contact
        moves = self._moves.setdefault(record.node, deque(maxlen=MOVES_MAX))
        if moves and moves[-1][0] == address:
            return
        came_back = len(moves) > 1 and moves[-2][0] == address and now - moves[-1][1] <= TWICE_S
        if came_back:
            self._note(record.node, (moves[-1][0], address), now)
        moves.append((address, now))

    def outdone(self, ours: Record, other: tuple[str, int], now: float) -> None:
        """A record with our key came from elsewhere, newer than ours. Once is a host that has lost its state."""
        self._outdone.append(now)
        if len(self._outdone) > 1 and now - self._outdone[0] <= TWICE_S:
            self._note(self._own, (ours.contact, contact_of(*other)), now)

    def conflict(self, name: str, other: NodeId, address: tuple[str, int], now: float) -> None:
        """A host with another key, which may be no member, has or wants a member's name. Of one that is not let in
        only its asking tells that it is still there, and it asks one of many contacts at a time."""
        self._wanted.pop(other, None)
        self._wanted[other] = _Wanted(name, contact_of(*address), now + TWICE_S)
        if len(self._wanted) > WANTED_MAX:
            del self._wanted[next(iter(self._wanted))]

    def _note(self, node: NodeId, addresses: Iterable[str], now: float) -> None:
        self._twice[node] = _Twice(tuple(sorted(addresses)), now + TWICE_S)

    def is_twice(self, node: NodeId) -> bool:
        """Whether two hosts speak with this member's key, so that nothing it says is one host's word."""
        return node in self._twice

    @property
    def is_settled(self) -> bool:
        """Whether ``look`` finds what it found before while no record changes: nothing waits for its time."""
        return not (self._twice or self._since or self._wanted)

    def look(
        self, records: Mapping[NodeId, Record], live: Collection[NodeId], now: float, *, heard: Collection[NodeId]
    ) -> list[IdentityFinding]:
        """What is seen twice now; call it every few seconds. ``records``: of all members; ``live``: those that live,
        with this host; ``heard``: those that have spoken to this host, and itself. Only names of the latter count."""
        self._twice = {node: one for node, one in self._twice.items() if one.until_s > now and node in records}
        self._moves = {node: moves for node, moves in self._moves.items() if node in records}
        findings = [_one_key(records[node], twice) for node, twice in islice(self._twice.items(), FINDINGS_MAX)]
        here = [records[node] for node in live if node in records]
        names, addresses = defaultdict[str, list[Record]](list), defaultdict[str, list[Record]](list)
        transport_keys = defaultdict[bytes, list[Record]](list)
        for record in here:
            if record.node in heard:
                names[record.name].append(record)
            addresses[record.contact].append(record)
            transport_keys[record.transport_key].append(record)
        shared = [("E_IDENTITY_TWICE", pair) for pair in _pairs(transport_keys)]
        shared += [("E_NAME_CONFLICT", pair) for pair in _pairs(names)]
        shared += [("E_ADDRESS_CONFLICT", pair) for pair in _pairs(addresses)]
        self._wanted = {other: one for other, one in self._wanted.items() if one.until_s > now}
        for other, wanted in islice(self._wanted.items(), FINDINGS_MAX):
            is_gone = wanted.is_let_in and other not in live
            bearers = [record for record in names.get(wanted.name, ()) if record.node != other and not is_gone]
            findings += [_one_name(wanted.name, one.contact, wanted.address) for one in bearers[:1]]
        keys: dict[Hashable, float] = {}
        for code, pair in shared:
            key = (code, pair[0].node, pair[1].node)
            keys[key] = self._since.get(key, now)
            if now - keys[key] >= GRACE_S:
                findings.append(_two_keys(code, *pair))
        self._since = keys
        return list(dict.fromkeys(findings))


def _pairs(groups: Mapping[Any, list[Record]]) -> list[tuple[Record, Record]]:
    pairs = [sorted(group, key=lambda record: record.node)[:2] for group in groups.values() if len(group) > 1]
    return [(one, other) for one, other in islice(pairs, FINDINGS_MAX)]


def _one_key(record: Record, twice: _Twice) -> IdentityFinding:
    sentence = (
        f"two hosts use the node key of {record.name}, at {' and '.join(twice.addresses)}: stop one, and make it a key "
        "and a name of its own with gossipd init"
    )
    return IdentityFinding("E_IDENTITY_TWICE", sentence, record.name)


def _two_keys(code: str, one: Record, other: Record) -> IdentityFinding:
    first, second = one.contact, other.contact
    if code == "E_NAME_CONFLICT":
        return _one_name(one.name, first, second)
    if code == "E_IDENTITY_TWICE":
        sentence = (
            f"two members, {one.name} at {first} and {other.name} at {second}, name one transport key, which only one "
            "of them can have: the other wants to be taken for it; stop that one, and rotate the cluster key"
        )
        return IdentityFinding(code, sentence, one.name)
    sentence = f"two living hosts, {one.name} and {other.name}, name the address {first}: correct net.advertise of one"
    return IdentityFinding(code, sentence, one.name)


def _one_name(name: str, first: str, second: str) -> IdentityFinding:
    places = " and ".join(sorted((first, second)))
    return IdentityFinding("E_NAME_CONFLICT", f"two hosts have the name {name}, at {places}: rename one of them", name)
