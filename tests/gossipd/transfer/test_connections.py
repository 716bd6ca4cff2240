"""Links are lent and kept within their bounds; stale, surplus and idle ones are closed."""

from __future__ import annotations

import threading
import time

import pytest

from gossipd.transfer.connections import BulkConnection, BulkPeer, ConnectionPool
from gossipd.transfer.settings import BulkSettings
from membership.member import NodeId

A = BulkPeer(NodeId(b"a" * 16), ("127.0.0.1", 1))
B = BulkPeer(NodeId(b"b" * 16), ("127.0.0.1", 2))
C = BulkPeer(NodeId(b"c" * 16), ("127.0.0.1", 3))
WAIT_S = 120.0
LOST_S = 10.0  # for who would wait for ever if it were not woken


class FakeChannel:
    """As much of a channel as links look at."""

    def __init__(self) -> None:
        self.quiet = True

    def is_quiet(self) -> bool:
        return self.quiet


class Rig:
    """Links over fake channels; ``closed`` lists what was closed."""

    def __init__(self, **settings: int) -> None:
        self.closed: list[object] = []
        self.connections = ConnectionPool(BulkSettings(**settings), self.closed.append)  # type: ignore[arg-type]

    def borrow(self, peer: BulkPeer, *, wait_s: float = 0.0) -> BulkConnection:
        """Borrows, and dials when told to."""
        connection = self.connections.borrow(peer, time.monotonic() + wait_s, lambda: False)
        return connection if connection is not None else BulkConnection(peer, FakeChannel())  # type: ignore[arg-type]


def test_the_link_used_last_is_lent_first() -> None:
    rig = Rig()
    first, second = rig.borrow(A), rig.borrow(A)
    rig.connections.give_back(first)
    rig.connections.give_back(second)
    assert rig.borrow(A) is second
    assert rig.borrow(A) is first
    assert rig.connections.open_count == 2


def test_a_peer_has_so_many_links_and_borrowers_wait_for_one() -> None:
    rig = Rig(connections_per_peer=1)
    connection = rig.borrow(A)
    with pytest.raises(TimeoutError):
        rig.borrow(A)
    rig.borrow(B)
    got: list[BulkConnection] = []
    waiting = threading.Thread(target=lambda: got.append(rig.borrow(A, wait_s=WAIT_S)))
    assert not rig.connections.is_awaited(A)
    waiting.start()
    while not rig.connections.is_awaited(A):
        assert waiting.is_alive()
    rig.connections.give_back(connection)
    waiting.join(WAIT_S)
    assert got == [connection]
    assert not rig.connections.is_awaited(A)


def test_a_waiting_borrower_that_gave_up_leaves_when_woken() -> None:
    rig = Rig(connections_per_peer=1)
    rig.borrow(A)
    gave_up = threading.Event()
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(TimeoutError):
            rig.connections.borrow(A, time.monotonic() + WAIT_S, gave_up.is_set)
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    gave_up.set()
    while not ended.wait(0.001):
        rig.connections.wake()
    waiting.join(WAIT_S)


def test_a_link_that_comes_back_wakes_one_borrower() -> None:
    rig = Rig(connections_per_peer=1)
    connection = rig.borrow(A)
    looks: list[int] = []
    got: list[BulkConnection | None] = []

    def wait(number: int) -> None:
        def gave_up() -> bool:
            looks.append(number)
            return False

        got.append(rig.connections.borrow(A, time.monotonic() + WAIT_S, gave_up))

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for thread in waiting:
        thread.start()
    while len(looks) < 3 or not rig.connections.is_awaited(A):
        assert all(thread.is_alive() for thread in waiting)
    for turn in range(1, 4):
        rig.connections.give_back(connection)
        while len(got) < turn:
            time.sleep(0)
        assert got == [connection] * turn
    for thread in waiting:
        thread.join(WAIT_S)
    assert sorted(looks) == [0, 1, 2], "nobody looked for nothing"


def test_a_borrower_that_gives_up_passes_its_turn_on() -> None:
    rig = Rig(connections_per_peer=1, connections_out_max=2)
    connection = rig.borrow(A)
    rig.borrow(B)
    got: list[BulkConnection] = []
    gave_up = threading.Event()

    def leave() -> None:
        with pytest.raises(TimeoutError):
            rig.connections.borrow(A, time.monotonic() + WAIT_S, gave_up.is_set)

    leaving = threading.Thread(target=leave)
    leaving.start()
    while not rig.connections.is_awaited(A):
        assert leaving.is_alive()
    staying = threading.Thread(target=lambda: got.append(rig.borrow(A, wait_s=2 * LOST_S)))
    staying.start()
    while rig.connections._idle_pools[A].waiting < 2:
        assert staying.is_alive()
    gave_up.set()
    with rig.connections._lock:
        rig.connections.drop(connection)  # wakes the first in line, whose place another peer takes at once
        other = rig.borrow(C)
    leaving.join(LOST_S)
    rig.connections.give_back(other)
    staying.join(LOST_S)
    assert [one.peer for one in got] == [A]


def test_a_borrower_at_the_bound_in_all_hears_of_any_peers_link() -> None:
    rig = Rig(connections_out_max=1)
    connection = rig.borrow(A)
    got: list[BulkConnection] = []
    waiting = threading.Thread(target=lambda: got.append(rig.borrow(B, wait_s=2 * LOST_S)))
    waiting.start()
    while not rig.connections.is_awaited(B):
        assert waiting.is_alive()
    rig.connections.give_back(connection)
    waiting.join(LOST_S)
    assert [one.peer for one in got] == [B]
    assert rig.closed == [connection.channel]


def test_at_the_bound_in_all_the_link_idle_longest_makes_room() -> None:
    rig = Rig(connections_out_max=2)
    first, second = rig.borrow(A), rig.borrow(A)
    rig.connections.give_back(first)
    rig.connections.give_back(second)
    rig.borrow(B)
    assert rig.closed == [first.channel]
    assert rig.connections.open_count == 2
    rig.borrow(A)
    with pytest.raises(TimeoutError):
        rig.borrow(B)


def test_a_link_that_is_no_longer_quiet_is_closed_and_not_lent() -> None:
    rig = Rig()
    stale = rig.borrow(A)
    rig.connections.give_back(stale)
    stale.channel.quiet = False  # type: ignore[attr-defined]
    assert rig.borrow(A) is not stale
    assert rig.closed == [stale.channel]
    assert rig.connections.open_count == 1


def test_idle_links_are_closed_by_age_and_by_peer() -> None:
    rig = Rig()
    old, young, other = rig.borrow(A), rig.borrow(A), rig.borrow(B)
    for connection in (old, young, other):
        rig.connections.give_back(connection)
    old.idle_since -= 100
    rig.connections.drop_idle(idle_before=time.monotonic() - 50)
    assert rig.closed == [old.channel]
    rig.connections.drop_idle(A)
    assert rig.closed == [old.channel, young.channel]
    assert rig.connections.open_count == 1


def test_after_closing_what_comes_back_is_closed() -> None:
    rig = Rig()
    lent, idle = rig.borrow(A), rig.borrow(B)
    rig.connections.give_back(idle)
    rig.connections.close()
    assert rig.closed == [idle.channel]
    rig.connections.give_back(lent)
    assert rig.closed == [idle.channel, lent.channel]
    assert rig.connections.open_count == 0


def test_a_dial_that_fails_leaves_room_for_the_next() -> None:
    rig = Rig(connections_per_peer=1)
    rig.borrow(A)
    rig.connections.forget(A)
    rig.borrow(A)
    assert rig.connections.open_count == 1
