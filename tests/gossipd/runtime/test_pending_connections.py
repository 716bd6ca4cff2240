"""Places of connections before their authentication: strangers compete by address, and members get in."""

from __future__ import annotations

from gossipd.runtime.pending_connections import PLACE_LEAST_S, Admission, PendingConnections, PendingLimits

LIMITS = PendingLimits(total=8, per_address=4)
LATER = PLACE_LEAST_S


class Port:
    """Connections are numbered in the order of their coming."""

    def __init__(self) -> None:
        self.pending = PendingConnections[int]()
        self.count = 0

    def knock(self, address: str, *, is_member: bool = False, now: float = 0.0) -> Admission[int]:
        self.count += 1
        return self.pending.admit(self.count, address, is_member=is_member, limits=LIMITS, now=now)


def test_strangers_take_half_of_the_places_and_the_greediest_gives_one_up() -> None:
    port = Port()
    for address in ("a", "a", "a", "b"):
        assert port.knock(address) == Admission(True)
    assert port.knock("c") == Admission(True, evicted=1)
    assert port.pending.turned_away == 1


def test_members_addresses_are_admitted_to_places_that_strangers_cannot_take() -> None:
    port = Port()
    for address in ("a", "a", "b", "b"):
        port.knock(address)
    assert [port.knock("m", is_member=True) for _ in range(4)] == [Admission(True)] * 4
    assert port.knock("n", is_member=True) == Admission(True, evicted=1), "a stranger makes room for a member"
    assert len(port.pending) == LIMITS.total


def test_an_address_over_its_own_bound_displaces_only_itself() -> None:
    port = Port()
    for _ in range(4):
        port.knock("m", is_member=True)
    assert port.knock("m", is_member=True) == Admission(False), "the oldest has had no time to say who it is"
    assert port.knock("m", is_member=True, now=LATER) == Admission(True, evicted=1)


def test_a_flood_without_pause_is_refused_and_does_not_churn() -> None:
    port = Port()
    verdicts = [port.knock("a") for _ in range(1000)]
    assert sum(verdict.is_admitted for verdict in verdicts) == LIMITS.total // 2
    assert port.pending.turned_away == 1000 - LIMITS.total // 2


def test_members_compete_by_address_when_no_stranger_is_left() -> None:
    port = Port()
    for address in ("m", "m", "m", "n", "n", "o", "p", "q"):
        port.knock(address, is_member=True)
    assert port.knock("r", is_member=True) == Admission(True, evicted=1)


def test_places_are_free_again_once_connections_end() -> None:
    port = Port()
    for address in ("a", "a", "b", "b"):
        port.knock(address)
    assert port.pending.is_crowded(LIMITS)
    port.pending.remove(1)
    port.pending.remove(1)  # evicted ones end a second time
    port.pending.forget_older_than(1.0)
    assert len(port.pending) == 0
    assert not port.pending.is_crowded(LIMITS)


def test_an_address_that_becomes_a_members_keeps_its_places() -> None:
    port = Port()
    for _ in range(3):
        port.knock("a")
    assert port.knock("a", is_member=True) == Admission(True)
    assert not port.pending.is_crowded(LIMITS), "all of its connections count as a member's"
