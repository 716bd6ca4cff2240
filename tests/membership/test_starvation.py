"""One member may write, invent members and keep silent as much as it likes: the others hear each other as before."""

from __future__ import annotations

from membership import wire
from membership.digest import Digest
from membership.events import PayloadHeard, PayloadKind
from membership.host_rules import LenientRules, Verdict
from membership.member import NODE_ID_BYTES
from membership.seal import BODY_BYTES_MAX
from membership.simulation import VirtualClock
from membership.sync_rows import ROW, pack_rows
from membership.sync_server import LISTS_MAX
from membership.verified_cache import Claim
from tests.membership.simulated_cluster import FORWARDER, SimulatedCluster

HONEST = 9
LIAR = 9
MADE_UP = 12


class Cluster(SimulatedCluster):
    """Nine honest hosts in two racks, a liar, and members that exist only in its words."""

    def __init__(self, *, made_up: int = 0) -> None:
        super().__init__(HONEST + 1, racks=2, seed=5)
        self.start_all_known()
        self._told = 0
        self.heard: set[tuple[int, bytes]] = set()
        self.on_event = lambda index, event: (
            self.heard.add((index, event.key)) if isinstance(event, PayloadHeard) else None
        )
        self._made_up = [self.add_host(f"made-up-{number}", f"rack-{number % 2}") for number in range(made_up)]
        for index in self._made_up:
            self.start(index)
            self.crash(index)
        self.run(2.0)

    def every(self, pause_s: float, action: object) -> None:
        """For a minute."""
        assert callable(action)
        for number in range(int(60 / pause_s)):
            self.at(self.now + number * pause_s, action)

    def publish(self, index: int, number: int) -> bytes:
        key = self.hosts[index].node[:NODE_ID_BYTES] + number.to_bytes(8)
        self.swim(index).publish(PayloadKind.STATEMENT, key, 1, b"s" * 200, self.now)
        self._flush(index)
        return key

    def has_heard(self, key: bytes, but: int = 0) -> bool:
        return all((index, key) in self.heard for index in range(HONEST) if index != but)

    def flood(self) -> None:
        """A statement of the liar's that is news to everybody."""
        self._told += 1
        liar = self.hosts[LIAR].node
        data = wire.event(1, liar, self._told, liar[:NODE_ID_BYTES] + (self._told % 500).to_bytes(8), b"l" * 200)
        for target in range(HONEST):
            self._say(target, data)

    def invent(self) -> None:
        """The liar tells everybody that its members live, and contradicts each doubt of them."""
        for target in range(HONEST):
            items = b""
            for index in self._made_up:
                node = self.swim(index)._node
                node.raise_incarnation(node.own.incarnation + 1, self.now)
                self.swim(index).drain()
                items += node.own.item + node.own.proof
                if len(items) > 700:
                    self._say(target, items)
                    items = b""
            self._say(target, items)

    def _say(self, target: int, items: bytes) -> None:
        seal = self.hosts[LIAR].seal
        assert seal is not None
        datagram = seal.seal(bytes((wire.GOSSIP,)) + items, self.hosts[target].node)
        self.inject(LIAR, self.hosts[target].address, datagram)

    def drip_items(self) -> None:
        """One of the answers that were asked for, and no news."""
        liar = self.hosts[LIAR]
        assert liar.seal is not None
        item = self.swim(LIAR)._node.own.item
        for target in range(HONEST):
            datagram = liar.seal.seal(bytes((wire.ITEMS,)) + item, self.hosts[target].node)
            self.inject(LIAR, self.hosts[target].address, datagram)

    def ping_all(self) -> None:
        liar = self.swim(LIAR)
        for target in range(HONEST):
            claim = liar._node.roster.claims[self.hosts[target].node[:8]]
            liar._prober._pings.send(claim, self.now)
        self._flush(LIAR)

    def know(self, index: int, name: bytes = b"missed") -> bytes:
        """A host has a statement of host 0 that no rumour carries any more."""
        key = self.hosts[0].node[:NODE_ID_BYTES] + name
        data = wire.event(1, self.hosts[0].node, 1, key, b"s" * 200)
        self.swim(index)._event_store.on_event(data, self.now, FORWARDER, relay=False)
        return key


def figure(cluster: Cluster, name: str) -> list[int]:
    return [cluster.swim(index).statistics().get(name, 0) for index in range(HONEST)]


def test_a_flood_of_statements_delays_no_other_writer() -> None:
    cluster = Cluster()
    cluster.every(0.01, cluster.flood)
    cluster.run(cluster.now + 2.0)
    for number in range(5):
        key = cluster.publish(0, number)
        took_s = cluster.run_until(lambda key=key: cluster.has_heard(key), 20.0)  # type: ignore[misc]
        assert took_s is not None and took_s <= 3.0


def test_members_that_are_made_up_cost_no_health() -> None:
    cluster = Cluster(made_up=MADE_UP)
    cluster.every(0.5, cluster.invent)
    cluster.run(cluster.now + 20.0)
    assert min(figure(cluster, "members_live")) > HONEST + 1
    assert figure(cluster, "probes_failed") == [0] * HONEST
    assert max(figure(cluster, "health_score")) == 0
    assert figure(cluster, "isolated") == [0] * HONEST


def test_members_that_are_made_up_take_half_of_the_probes_at_most() -> None:
    cluster = Cluster(made_up=MADE_UP)
    cluster.every(0.5, cluster.invent)
    before = figure(cluster, "probes_answered")
    cluster.run(cluster.now + 4.0)  # in which a quiet host probes eight members
    answered = [now - then for now, then in zip(figure(cluster, "probes_answered"), before, strict=True)]
    assert min(answered) >= 4


def word_s(cluster: Cluster, words: int = 30) -> float:
    """Seconds until all hosts have heard a word of the first one, on average."""
    took_s = 0.0
    for number in range(words):
        key = cluster.publish(0, number)
        took_s += cluster.run_until(lambda key=key: cluster.has_heard(key), 10.0) or 10.0  # type: ignore[misc]
        cluster.run(cluster.now + 0.5)
    return took_s / words


def test_members_that_are_made_up_take_nobodys_place_in_gossip() -> None:
    cluster = Cluster(made_up=MADE_UP)
    cluster.every(0.5, cluster.invent)
    cluster.run(cluster.now + 20.0)
    assert word_s(cluster) <= 0.15


def test_members_that_were_made_up_just_now_take_nobodys_place_in_gossip() -> None:
    cluster = Cluster(made_up=4 * HONEST)  # a few datagrams go to each of them
    cluster.run(cluster.now + 10.0)
    cluster.every(0.1, cluster.invent)
    cluster.run(cluster.now + 1.0)
    assert word_s(cluster) <= 0.2


def test_a_peer_that_answers_no_question_is_left_aside() -> None:
    cluster = Cluster()
    liar = cluster.swim(LIAR)
    liar._handlers = {**liar._handlers, wire.SYNC_ASK: lambda body, sender, now: None}
    liar._node.roster.digest.change(0, 12345)
    cluster.every(0.05, cluster.ping_all)
    cluster.run(cluster.now + 20.0)
    key = cluster.know(0)
    assert cluster.run_until(lambda: cluster.has_heard(key), 6.0) is not None


def list_of(sequence: int, first: int, count: int) -> bytes:
    """One datagram of rows about nobody."""
    rows: dict[int, list[bytes]] = {}
    for number in range(first, first + count):
        row_id = bytes((number % 256,)) + number.to_bytes(7)
        rows.setdefault(row_id[0], []).append(ROW.pack(row_id, 1))
    (part,) = pack_rows(rows, BODY_BYTES_MAX - wire.SEQUENCE_HEAD.size)
    return wire.SEQUENCE_HEAD.pack(wire.SYNC_LIST, sequence) + part


def test_a_peer_whose_answers_never_end_is_left_aside() -> None:
    cluster = Cluster()
    liar = cluster.swim(LIAR)

    def list_nobody(body: bytes, sender: Claim, now: float) -> None:
        _, sequence = wire.SEQUENCE_HEAD.unpack_from(body)
        liar._node.send_bare(sender, list_of(sequence, 1, 49))  # more than is asked for at once

    liar._handlers = {**liar._handlers, wire.SYNC_ASK: list_nobody, wire.SYNC_WANT: lambda body, sender, now: None}
    liar._node.roster.digest.change(0, 12345)
    cluster.every(0.05, cluster.ping_all)
    cluster.every(0.1, cluster.drip_items)
    cluster.run(cluster.now + 20.0)
    key = cluster.know(0)
    assert cluster.run_until(lambda: cluster.has_heard(key), 8.0) is not None


def test_a_peer_that_lists_for_ever_is_compared_with_for_a_while() -> None:
    cluster = Cluster()
    swim, liar = cluster.swim(1), cluster.swim(1)._node.roster.claims[cluster.hosts[LIAR].node[:8]]
    swim._synchroniser.start(liar, cluster.now)
    session = swim._synchroniser._session
    assert session is not None
    for number in range(100):
        swim._synchroniser.on_list(list_of(session.sequence, 50 * number, 50), liar, cluster.now)
    assert len(session.wanted) + session.asked == 50 * LISTS_MAX


def test_a_liar_that_repeats_our_digest_hides_nothing() -> None:
    cluster = Cluster()
    victim, liar = cluster.swim(1), cluster.swim(LIAR)

    class Repeated(Digest):
        total = property(lambda _: victim.view_digest, lambda _, value: None)

    liar._node.roster.digest = Repeated()
    cluster.every(0.05, cluster.ping_all)

    def move() -> None:
        victim._node.changed_s = cluster.now  # views are never still

    cluster.every(0.1, move)
    cluster.run(cluster.now + 5.0)
    key = cluster.know(0)
    assert cluster.run_until(lambda: (1, key) in cluster.heard, 40.0) is not None


class TooMuch(LenientRules):
    """Of the liar's words none more is looked at, or ten in a second."""

    def __init__(self, liar: bytes, clock: VirtualClock | None = None) -> None:
        self._liar = liar
        self._clock = clock
        self._due_s = 0.0
        self.asked = 0

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        if not key.startswith(self._liar):
            return Verdict(key[:NODE_ID_BYTES])
        self.asked += 1
        is_due = self._clock is not None and self._clock.now >= self._due_s
        self._due_s += 0.1 * is_due
        return Verdict(key[:NODE_ID_BYTES], is_too_much=not is_due)


def test_what_was_refused_is_sent_again_a_little_at_a_time() -> None:
    cluster = Cluster()
    rules = cluster.swim(1)._node.rules = TooMuch(cluster.hosts[LIAR].node, cluster._clock)
    rules._due_s = cluster.now + 10.0
    for _ in range(500):
        cluster.flood()
        cluster.run(cluster.now + 0.02)
    asked = rules.asked
    cluster.run(cluster.now + 40.0)
    assert rules.asked - asked <= 2_400, "ten in a second are taken in"


def test_what_is_refused_of_one_member_hides_nothing_of_others() -> None:
    cluster = Cluster()
    cluster.swim(1)._node.rules = TooMuch(cluster.hosts[LIAR].node)
    cluster.every(0.05, cluster.flood)  # views differ by 500 statements, for ever
    cluster.run(cluster.now + 40.0)
    took_s = 0.0
    for number in range(4):
        key = b""
        for index in (0, *range(2, HONEST)):
            key = cluster.know(index, b"missed%d" % number)
        took_s += cluster.run_until(lambda key=key: (1, key) in cluster.heard, 60.0) or 60.0  # type: ignore[misc]
    assert took_s <= 10.0


def test_peers_that_were_late_are_asked_again_soon() -> None:
    cluster = Cluster()
    others = [cluster.swim(index) for index in (0, *range(2, HONEST + 1))]
    answering = [swim._handlers for swim in others]
    for swim in others:
        swim._handlers = {**swim._handlers, wire.SYNC_ASK: lambda body, sender, now: None}
        swim._synchroniser.start = lambda peer, now: None  # type: ignore[method-assign]
    cluster.swim(1)._node.roster.digest.change(0, 12345)
    cluster.run(cluster.now + 200.0)  # it asks each of them, in vain
    for swim, handlers in zip(others, answering, strict=True):
        swim._handlers = handlers
    key = cluster.know(2)
    for index in (0, *range(3, HONEST)):
        cluster.know(index)
    assert cluster.run_until(lambda: (1, key) in cluster.heard, 100.0) <= 10.0  # type: ignore[operator]
