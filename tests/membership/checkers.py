"""Rules that must hold in a simulated cluster, checked after every event. Each raises ``Violation`` with the evidence.

What lives here: one small class per rule. What does not: the cluster (``testing``). A checker counts what it looked at
(``looked``), because a checker that never had anything to look at has proved nothing.
"""

from __future__ import annotations

from membership.digest import Digest
from membership.events import DownReason, Event, MemberChanged, MemberDown, MemberUp, PayloadHeard
from membership.member import HANDLE_BYTES, MemberState, NodeId
from membership.seal import DATAGRAM_BYTES_MAX
from membership.swim import Swim
from membership.wire import parse_accusation
from tests.membership.simulated_cluster import SimulatedCluster


class Violation(AssertionError):
    """A rule was broken. Fault: the brain's code. State: the cluster is left as it was found. Retry: same seed."""


class Rule:
    """Base: does nothing and counts nothing."""

    def __init__(self) -> None:
        self.looked = 0

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        """Host ``index`` was told this."""

    def on_step(self, cluster: SimulatedCluster, index: int) -> None:
        """Host ``index`` has just handled a datagram or a timer."""

    def on_datagram(self, cluster: SimulatedCluster, index: int, datagram: bytes) -> None:
        """Host ``index`` sends this."""


class HealthyStayAlive(Rule):
    """No healthy member is declared dead by a healthy one. ``sick`` are the hosts with a fault at some time."""

    def __init__(self, sick: set[int]) -> None:
        super().__init__()
        self.sick = sick

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        if isinstance(event, MemberDown):
            self.looked += 1
            subject = cluster.by_node[event.member.node]
            if index not in self.sick and subject not in self.sick and cluster.hosts[subject].up:
                raise Violation(f"{index} declared the healthy {subject} dead at {cluster.now}")


class NothingGoesBack(Rule):
    """What one observer believes of one member only grows: boot, then version, and incarnation within a boot. A member
    that was declared dead comes back only with a higher incarnation or boot."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[int, int, NodeId], tuple[int, int, int]] = {}
        self._dead: dict[tuple[int, int, NodeId], tuple[int, int]] = {}

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        if not isinstance(event, MemberUp | MemberChanged | MemberDown):
            return
        self.looked += 1
        record = event.member.record
        life = cluster.swim(index).self_record().boot
        key = (index, life, record.node)
        boot, version, incarnation = self._seen.get(key, (0, 0, 0))
        if record.boot < boot or (record.boot == boot and (record.version < version)):
            raise Violation(
                f"{index} went back from {boot}.{version} to {record.boot}.{record.version} for {record.name}"
            )
        if record.boot == boot and event.member.incarnation < incarnation:
            raise Violation(f"{index} went back to incarnation {event.member.incarnation} of {record.name}")
        self._seen[key] = (record.boot, record.version, event.member.incarnation)
        now = (record.boot, event.member.incarnation)
        if isinstance(event, MemberDown):
            self._dead[key] = now
        elif isinstance(event, MemberUp) and now <= self._dead.get(key, (0, -1)):
            raise Violation(f"{index} brought {record.name} back from the dead at {now}")


class RecordsAreTheirOwners(Rule):
    """Every record that a host believes was signed by its subject, as it stands."""

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        if isinstance(event, MemberUp | MemberChanged):
            self.looked += 1
            record = event.member.record
            host = cluster.hosts[cluster.by_node[record.node]]
            if host.node != record.node:
                return  # a liar's second name, signed by itself
            if (record.name, record.rack) != (host.name, host.rack) or record.public_key != host.public:
                raise Violation(f"{index} believes a record of {host.name} that it never made")


class DeathNeedsTwoRacks(Rule):
    """A corroborated death has two accusers, in two racks other than the subject's where there are two."""

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        if not isinstance(event, MemberDown) or event.reason is not DownReason.CORROBORATED:
            return
        self.looked += 1
        handle = event.member.node[:HANDLE_BYTES]
        by_handle = {member.node[:HANDLE_BYTES]: member for member in cluster.swim(index).members()}
        racks = set()
        accusers = set()
        gone = cluster.swim(index)._node.roster.gone.get(handle)
        for item in gone.evidence if gone else ():
            accuser, subject, _, _ = parse_accusation(item)
            if subject != handle:
                raise Violation(f"{index} used an accusation of somebody else")
            accusers.add(accuser)
            if accuser in by_handle:
                racks.add(by_handle[accuser].record.rack)
        living = {
            row.record.rack for row in by_handle.values() if row.state in (MemberState.ALIVE, MemberState.SUSPECT)
        }
        own_rack = event.member.record.rack
        wanted = min(2, len(living - {own_rack}))
        if len(accusers) < 2 or len(racks - {own_rack}) < wanted:
            raise Violation(f"{index} declared {event.member.record.name} dead on accusers in {sorted(racks)}")


class FrozenPassNoVerdict(Rule):
    """A host that is isolated, or back and not caught up, declares no member dead."""

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        if isinstance(event, MemberDown):
            self.looked += 1
            if cluster.swim(index)._node.isolated or cluster.swim(index)._node.returning:
                raise Violation(f"{index} judged while it was frozen")


def marks(swim: Swim) -> list[tuple[int, int]]:
    """All that the digest adds up, from scratch: bucket and mark of every living member and statement."""
    roster = swim._node.roster
    living = [(claim.bucket, claim.mark) for handle, claim in roster.claims.items() if handle not in roster.gone]
    return living + [(bucket, mark) for bucket, _, mark in swim._event_store.rows()]


class DigestIsTrue(Rule):
    """The digest that follows every change equals one made from scratch (checked every 97th step)."""

    def on_step(self, cluster: SimulatedCluster, index: int) -> None:
        self.looked += 1
        if self.looked % 97:
            return
        swim = cluster.swim(index)
        fresh = Digest()
        for bucket, mark in marks(swim):
            fresh.change(bucket, mark)
        if fresh.total != swim.view_digest:
            raise Violation(f"{index}'s digest does not match its view")


def sizes_of(swim: Swim) -> dict[str, int]:
    """The number of entries of each bounded table."""
    return {
        "members": len(swim._node.roster.claims),
        "tombstones": len(swim._forgets.tombstones),
        "pending": len(swim._pings.pending),
        "timers": len(swim._node._timers),
        "rumours": sum(map(len, swim._node.rumours.classes)),
        "events": len(swim._event_store),
    }


class EverythingIsBounded(Rule):
    """Tables and queues stay within what the settings allow, whatever comes in."""

    def on_step(self, cluster: SimulatedCluster, index: int) -> None:
        self.looked += 1
        if self.looked % 53:
            return
        sizes = sizes_of(cluster.swim(index))
        settings = cluster.settings
        limits = {
            "members": settings.member_count_max + 1,
            "tombstones": settings.tombstone_count_max,
            "pending": 4096,
            "timers": 60_000,
            "rumours": 8192 + 4096 + 8192,
            "events": settings.statement_count_max + settings.progress_count_max,
        }
        for name, limit in limits.items():
            if sizes[name] > limit:
                raise Violation(f"{index} holds {sizes[name]} {name}; at most {limit} are allowed")


class DatagramsFit(Rule):
    """No datagram is larger than the path carries."""

    def on_datagram(self, cluster: SimulatedCluster, index: int, datagram: bytes) -> None:
        self.looked += 1
        if len(datagram) > DATAGRAM_BYTES_MAX:
            raise Violation(f"{index} sends {len(datagram)} bytes")


class TimeMovesOn(Rule):
    """No brain asks for ever to be woken at one instant."""

    _STEPS_AT_ONCE_MAX = 100

    def __init__(self) -> None:
        super().__init__()
        self._last = (-1.0, -1)
        self._steps = 0

    def on_step(self, cluster: SimulatedCluster, index: int) -> None:
        self.looked += 1
        here = (cluster.now, index)
        self._steps = self._steps + 1 if here == self._last else 0
        self._last = here
        if self._steps > self._STEPS_AT_ONCE_MAX:
            raise Violation(f"{index} is woken for ever at {cluster.now}")


class EventsAreNews(Rule):
    """Per observer, kind and key, versions of application events only grow."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[int, int, object, bytes], int] = {}

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        if isinstance(event, PayloadHeard):
            self.looked += 1
            key = (index, cluster.swim(index).self_record().boot, event.kind, event.key)
            if event.version <= self._seen.get(key, -1):
                raise Violation(f"{index} was told version {event.version} of {event.key!r} again")
            self._seen[key] = event.version


def all_rules(sick: set[int]) -> list[Rule]:
    """One of each."""
    return [
        HealthyStayAlive(sick), NothingGoesBack(), RecordsAreTheirOwners(), DeathNeedsTwoRacks(), FrozenPassNoVerdict(),
        DigestIsTrue(), EverythingIsBounded(), DatagramsFit(), TimeMovesOn(), EventsAreNews(),
    ]  # fmt: skip
