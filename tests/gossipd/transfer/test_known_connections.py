"""Authenticated connections when there are too many: the node with the most gives up what it does not use."""

from __future__ import annotations

from gossipd.runtime.pending_connections import Admission
from gossipd.transfer.known_connections import KnownConnections, KnownLimits
from membership.member import NodeId

LIMITS = KnownLimits(total=6, per_node=4)
A, B, C, D = (NodeId(bytes((letter,)) * 16) for letter in b"abcd")


class Port:
    """Connections are numbered in the order of their coming."""

    def __init__(self) -> None:
        self.known = KnownConnections[int]()
        self.count = 0

    def enter(self, node: NodeId, *, is_member: bool = True) -> Admission[int]:
        self.count += 1
        return self.known.admit(self.count, node, is_member=is_member, limits=LIMITS)


def port_of(*nodes: NodeId) -> Port:
    port = Port()
    for node in nodes:
        assert port.enter(node) == Admission(True)
    return port


def test_a_full_port_takes_the_longest_idle_connection_of_the_node_with_most() -> None:
    port = port_of(B, A, A, A, B, C)
    port.known.begin(2)
    port.known.end(2)  # asked for something since the others
    assert port.enter(D) == Admission(True, evicted=3)
    assert len(port.known) == LIMITS.total


def test_a_member_without_a_connection_gets_one_though_others_fill_the_port() -> None:
    port = port_of(A, A, A, B, B, B)
    assert port.enter(C).is_admitted
    assert port.enter(D).is_admitted


def test_the_node_with_most_can_displace_only_itself_when_full() -> None:
    port = port_of(A, A, A, B, B, C)
    assert port.enter(A) == Admission(True, evicted=1)
    assert port.enter(A) == Admission(True, evicted=2)


def test_an_upload_is_not_cut_while_any_greedier_node_has_an_idle_connection() -> None:
    port = port_of(A, A, A, B, B, C)
    for connection in (1, 2, 3):
        port.known.begin(connection)
    assert port.enter(D) == Admission(True, evicted=4), "of B, which has fewer, and idle ones"


def test_without_any_idle_connection_a_newcomer_gets_one_and_others_no_more() -> None:
    port = port_of(A, A, A, B, B, C)
    for connection in range(1, 7):
        port.known.begin(connection)
    assert port.enter(B) == Admission(False)
    assert port.enter(D) == Admission(True, evicted=1)


def test_nodes_that_are_no_members_make_room_before_members_do() -> None:
    port = port_of(A, A, A, B, B)
    assert port.enter(C, is_member=False) == Admission(True)
    assert port.enter(D) == Admission(True, evicted=6)
    assert port.enter(C, is_member=False) == Admission(False), "and none is made for them"


def test_a_node_at_its_own_bound_exchanges_its_longest_idle_connection() -> None:
    port = port_of(A, A, A, A)
    port.known.begin(1)
    assert port.enter(A) == Admission(True, evicted=2)
    for connection in (3, 4, 5):
        port.known.begin(connection)
    assert port.enter(A) == Admission(False)


def test_an_evicted_connection_that_ends_later_changes_nothing() -> None:
    port = port_of(A, A, A, A)
    port.enter(A)
    for change in (port.known.begin, port.known.end, port.known.remove):
        change(1)
    assert len(port.known) == 4
    assert 1 not in port.known
    for connection in (2, 3, 4, 5):
        port.known.remove(connection)
    assert len(port.known) == 0
