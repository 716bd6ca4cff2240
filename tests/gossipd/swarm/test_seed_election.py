"""One seed per rack, some where racks are few: sticky, without a round, given up by who should not be it."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.model import PeerView
from gossipd.swarm.capabilities import SEED_TERM_MAX, NodeCapabilities
from gossipd.swarm.peers import Peers
from gossipd.swarm.seed_election import Election
from tests.gossipd.swarm.planning import SETTINGS, node, view


class Rack:
    """``count`` members that hear each other's claims at once, among ``racks`` racks in all."""

    def __init__(self, count: int, *, racks: int = 8) -> None:
        self.views = {node(number): view(number) for number in range(count)}
        self.peers = {own: Peers(SETTINGS, Random(1)) for own in self.views}
        self.elections = {own: Election(one, SETTINGS) for own, one in self.views.items()}
        for own, peers in self.peers.items():
            for one in self.views.values():
                if one.node != own:
                    peers.seen(one)
            for number in range(1, racks):
                peers.seen(view(200 + number, f"rack {number}"))
        self.claims = 0

    def run(self, start: float, seconds: float, *, dead: frozenset[bytes] = frozenset()) -> None:
        for tick in range(round(seconds * 4)):
            for own, election in self.elections.items():
                if own in dead:
                    continue
                term = election.decide(self.peers[own], start + tick / 4)
                if term is not None:
                    self.claims += term > 0
                    self.show(own, term)

    def show(self, own: bytes, term: int) -> None:
        old = self.views[own]  # type: ignore[index]
        new = PeerView(old.node, old.rack, old.zone, old.can_read_sources, term)
        self.views[new.node] = new
        for other, peers in self.peers.items():
            if other != own:
                peers.seen(new)

    def seeds(self) -> list[bytes]:
        return [own for own, election in self.elections.items() if election.term]


def test_a_rack_has_exactly_one_seed_and_keeps_it() -> None:
    rack = Rack(5)
    rack.run(0.0, 5.0)
    assert len(rack.seeds()) == 1
    first = rack.seeds()
    rack.run(5.0, 60.0)
    assert rack.seeds() == first
    assert rack.claims == 1


def test_a_dead_seed_is_replaced_with_a_higher_term() -> None:
    rack = Rack(5)
    rack.run(0.0, 5.0)
    dead = rack.seeds()[0]
    for other, peers in rack.peers.items():
        if other != dead:
            peers.lost(dead)  # type: ignore[arg-type]
    rack.run(5.0, 5.0, dead=frozenset([dead]))
    heirs = [own for own in rack.seeds() if own != dead]
    assert len(heirs) == 1
    assert rack.elections[heirs[0]].term == 2  # type: ignore[index]


def test_where_racks_are_few_each_has_some_seeds_but_never_more_than_half_of_its_hosts() -> None:
    for racks, count, expected in ((1, 20, 7), (2, 20, 3), (3, 20, 2), (4, 20, 1), (1, 7, 3), (1, 2, 1), (1, 1, 1)):
        rack = Rack(count, racks=racks)
        rack.run(0.0, 10.0)
        seeds = rack.seeds()
        assert len(seeds) == expected == rack.claims, (racks, count)
        rack.run(10.0, 60.0)
        assert rack.seeds() == seeds


def test_of_more_claims_than_seats_those_with_the_highest_terms_stay() -> None:
    rack = Rack(8, racks=2)
    for term, own in enumerate(rack.elections, start=1):
        rack.elections[own].term = term
        rack.show(own, term)
    rack.run(0.0, 10.0)
    assert sorted(rack.elections[own].term for own in rack.seeds()) == [6, 7, 8]  # type: ignore[index]


def test_a_claim_that_is_heard_puts_off_the_next_so_that_one_on_its_way_is_heard_too() -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    for number in range(1, 20):
        peers.seen(view(number))
    assert election.decide(peers, 0.0) is None
    first_due = election.next_deadline()
    assert first_due is not None
    peers.seen(view(1, term=1))
    assert election.decide(peers, first_due - 0.01) is None
    assert election.decide(peers, first_due) is None


def test_of_two_claims_the_higher_term_wins() -> None:
    rack = Rack(2)
    one, other = rack.elections
    rack.elections[one].term, rack.elections[other].term = 1, 2
    rack.show(one, 1)
    rack.show(other, 2)
    rack.run(0.0, 2.0)
    assert rack.seeds() == [other]


def test_an_isolated_seed_gives_up_and_reads_nothing() -> None:
    rack = Rack(3)
    rack.run(0.0, 5.0)
    seed = rack.elections[rack.seeds()[0]]  # type: ignore[index]
    seed.isolated = True
    assert seed.reads_allowed_s(5.0) > 5.0
    rack.run(5.0, 0.25)
    assert seed.term == 0


def test_who_cannot_read_sources_does_not_claim() -> None:
    election = Election(view(0, reads=False), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    for tick in range(40):
        assert election.decide(peers, tick / 4) is None


def test_who_gave_up_does_not_claim_again_for_a_while() -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    assert election.decide(peers, 0.0) == 1
    election.give_up(1.0)
    assert election.decide(peers, 1.0) == 0
    assert election.decide(peers, 50.0) is None
    assert election.decide(peers, 61.5) == 2


def test_a_mate_that_claimed_the_last_term_there_is_does_not_push_ours_past_the_record() -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    peers.seen(view(1, term=SEED_TERM_MAX))
    assert election.decide(peers, 0.0) is None
    peers.lost(node(1))
    claims = [term for tick in range(1, 80) if (term := election.decide(peers, tick / 4)) is not None]
    assert claims == [SEED_TERM_MAX]
    assert NodeCapabilities.from_bytes(NodeCapabilities(True, claims[0]).to_bytes()).seed_term == SEED_TERM_MAX


def test_nobody_reads_before_the_seeds_have_been_the_same_for_a_while() -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    election.decide(peers, 10.0)
    assert election.begin_allowed_s(10.0) == 10.0 + SETTINGS.seeds_stable_s


@pytest.mark.parametrize(("others", "share"), [(0, 1.0), (1, 1 / 3), (7, 1 / 3), (63, 0.6), (1_023, 1.0), (5_000, 1.0)])
def test_the_while_grows_with_the_doublings_of_members_as_gossip_does(others: int, share: float) -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    for number in range(1, 1 + others):
        peers.seen(view(number, "b", term=int(number == 1)))
    election.decide(peers, 10.0)
    assert election.begin_allowed_s(10.0) == pytest.approx(10.0 + share * SETTINGS.seeds_stable_s)


def test_claims_that_come_and_go_hold_up_nothing_while_a_known_seed_stays() -> None:
    election = Election(view(0, reads=False), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    peers.seen(view(1, "other", term=1))
    election.decide(peers, 0.0)
    settled_s = election.begin_allowed_s(0.0)
    assert settled_s > 0.0
    election.decide(peers, settled_s)
    for tick in range(8):
        peers.seen(view(2, "made up", term=1 - tick % 2))
        now = 10.0 + tick
        election.decide(peers, now)
        assert election.begin_allowed_s(now) <= now
    peers.lost(node(1))
    peers.seen(view(2, "made up", term=1))
    election.decide(peers, 18.0)
    assert election.begin_allowed_s(18.0) > 18.0, "of the seeds that all know none is left"


def test_half_of_the_racks_gone_at_once_pauses_reads_and_then_lets_them_go_on() -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    for number, rack in enumerate("bcdef", start=1):
        peers.seen(view(number, rack))
    election.decide(peers, 0.0)
    for number in range(1, 5):
        peers.lost(node(number))
    election.decide(peers, 8.0)
    assert election.reads_allowed_s(8.0) == 8.0 + SETTINGS.quorum_hold_s
    election.decide(peers, 8.0 + SETTINGS.quorum_hold_s)
    assert election.reads_allowed_s(70.0) <= 70.0


def test_racks_that_vanish_again_and_again_hold_reads_for_a_tenth_of_the_time() -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    held, ticks = 0, range(0, 4_000)
    for tick in ticks:
        for number, rack in enumerate("bcdef", start=1):
            if tick % 4 == 0:
                peers.seen(view(number, rack))
            elif tick % 4 == 2:
                peers.lost(node(number))
        election.decide(peers, float(tick))
        held += election.reads_allowed_s(float(tick)) > tick
    assert 0 < held <= len(ticks) / 10


def test_candidates_without_number_delay_a_claim_by_some_seconds() -> None:
    election = Election(view(0), SETTINGS)
    peers = Peers(SETTINGS, Random(1))
    for number in range(1, 3_000):
        peers.seen(view(number))
    claimed = next(tick / 4 for tick in range(4_000) if election.decide(peers, tick / 4))
    assert claimed <= 10.0


def test_a_claim_of_a_member_that_never_spoke_takes_no_seat() -> None:
    election, peers = Election(view(1, "r1"), SETTINGS), Peers(SETTINGS, Random(1))
    peers.seen(view(2, "r1", term=7), has_answered=False)
    assert election.decide(peers, 0.0) == 1
    assert election.seeds == {view(1, "r1").node}
    peers.seen(view(2, "r1", term=7))
    assert election.decide(peers, 1.0) == 0, "it has spoken, and its claim is older"
    assert election.seeds == {view(2, "r1").node}


def test_racks_of_members_that_never_spoke_cost_no_rack_its_seeds() -> None:
    election, peers = Election(view(1, "r1"), SETTINGS), Peers(SETTINGS, Random(1))
    for number in range(2, 12):
        peers.seen(view(number, "r1"))
    for number in range(100, 140):
        peers.seen(view(number, f"made up {number}"), has_answered=False)
    election.decide(peers, 0.0)
    assert election._seats() == 5, "half of the candidates of the only rack"
    for number in range(100, 140):
        peers.lost(view(number, f"made up {number}").node)
    election.decide(peers, 1.0)
    assert election.reads_allowed_s(1.0) <= 1.0, "no cut of the network"
