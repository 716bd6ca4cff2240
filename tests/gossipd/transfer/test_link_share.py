"""What a daemon takes of a link that others use, by values: looks at counters of a link that is simulated."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gossipd.transfer.link_share import (
    RATE_MIN,
    SHARE,
    START,
    STAYS_S,
    TRIAL_EVERY_S,
    LinkCounters,
    LinkShare,
)

MB = 1e6
LOOK_S = 0.05
RATE = 100 * MB  # the link's, in this file
WALL_S = 1_800_000_000.0  # on the wall when a test begins


class Link:
    """A link of ``RATE`` on which a daemon receives what it may, and others what they want. ``begins``: with others
    there, and nothing to receive for some seconds."""

    def __init__(self, *, others: float = 0.0, wants: float = 10 * RATE, begins: bool = False) -> None:
        self.share = LinkShare()
        self.now = 0.0
        self.link_bytes = self.own_bytes = 0.0
        self.others, self.wants = others, wants
        self.is_blind = False
        if begins:
            self.wants = 0.0
            self.look(3, look_s=1.0)
            self.wants = wants

    def look(self, seconds: float, look_s: float = LOOK_S) -> float | None:
        """The rate after so many seconds."""
        for _ in range(round(seconds / look_s)):
            limit = self.share.receiving.rate
            own = min(self.wants, RATE - self.others, self.wants if limit is None else limit)
            self.now += look_s
            self.own_bytes += own * look_s
            self.link_bytes += (own + self.others) * look_s
            received = LinkCounters(int(self.link_bytes), int(self.own_bytes), int(self.own_bytes))
            self.share.heard(LinkCounters(0, 0, 0), received, self.now, WALL_S + self.now, is_blind=self.is_blind)
        return self.share.receiving.rate


class Ends:
    """Two hosts on a link of ``RATE``: both yield to others, and the first receives from the second. ``apart_s``: their
    clocks, by which they look."""

    def __init__(self, *, apart_s: float = 0.0, known: tuple[float, float] = (START, START)) -> None:
        self.shares = LinkShare(), LinkShare()
        self.shares[0].receiving._capacity, self.shares[1].sending._capacity = known
        self.apart_ms = (0, round(1000 * apart_s))
        self.now_ms = 0
        self.own_bytes = self.link_bytes = 0.0
        self.wants = 0.0
        self.go(3)
        self.wants = 10 * RATE

    def go(self, seconds: float) -> float:
        """Bytes per second that have moved."""
        before = self.own_bytes
        for _ in range(round(seconds * 200)):
            limits = [one for one in (self.shares[0].receiving.rate, self.shares[1].sending.rate) if one is not None]
            own = min(self.wants, RATE - 5 * MB, *limits)
            self.now_ms += 5
            self.own_bytes += own / 200
            self.link_bytes += (own + 5 * MB) / 200
            moved = LinkCounters(int(self.link_bytes), int(self.own_bytes), int(self.own_bytes))
            none = LinkCounters(0, 0, 0)
            for share, apart_ms, looked in zip(self.shares, self.apart_ms, ((none, moved), (moved, none)), strict=True):
                if (self.now_ms + apart_ms) % 50 == 0:
                    share.heard(*looked, self.now_ms / 1000, WALL_S + (self.now_ms + apart_ms) / 1000)
        return (self.own_bytes - before) / seconds


def test_a_link_that_nobody_else_uses_is_used_without_a_limit() -> None:
    link = Link()
    assert {link.look(LOOK_S) for _ in range(1000)} == {None}
    assert not link.share.is_shared


def test_others_leave_the_daemon_a_share_of_what_they_do_not_use() -> None:
    link = Link()
    link.look(5)
    link.others = 20 * MB
    link.look(10)
    assert link.look(LOOK_S) == pytest.approx(SHARE * (RATE - 20 * MB), rel=0.05)


def test_others_who_take_all_leave_the_least_rate() -> None:
    link = Link()
    link.look(5)
    link.others = RATE
    link.look(10)
    assert link.look(LOOK_S) == RATE_MIN


def test_both_directions_are_held_when_others_use_one() -> None:
    link = Link(others=20 * MB)
    link.look(5)
    assert link.share.sending.rate is not None


def test_the_limit_ends_some_seconds_after_the_others() -> None:
    link = Link(others=20 * MB)
    link.look(10)
    link.others = 0.0
    assert link.look(STAYS_S / 2) is not None
    assert link.look(STAYS_S) is None


def test_others_at_rest_are_known_before_anything_moves() -> None:
    link = Link(others=1 * MB, wants=0.0)
    assert link.look(3, look_s=1.0) == pytest.approx(SHARE * (START - 1 * MB))


def test_the_words_of_a_cluster_at_rest_are_nobody_else() -> None:
    link = Link(others=30_000.0, wants=0.0)
    assert link.look(20, look_s=1.0) is None


def test_own_packets_that_came_twice_are_nobody_else() -> None:
    link = Link(others=0.03 * RATE)  # they are in the interface's counters, not in the connections'
    assert {link.look(LOOK_S) for _ in range(200)} == {None}


def test_own_bytes_that_wait_in_a_queue_are_nobody_else() -> None:
    share, handed_over = LinkShare(), 6_000_000  # at once; they leave the host, and arrive, bit by bit
    for look in range(60):
        left = min(handed_over, look * 100_000)
        share.heard(LinkCounters(left, handed_over, left), LinkCounters(0, 0, 0), look * LOOK_S, WALL_S)
        assert not share.is_shared


def test_trials_find_a_link_that_carries_more_than_was_known() -> None:
    link = Link(others=2 * MB, begins=True)
    link.look(30)
    known = link.look(LOOK_S)
    assert known is not None and known > 0.9 * SHARE * (RATE - 2 * MB)


def test_trials_are_short_and_seldom_once_the_link_is_known() -> None:
    link = Link(others=2 * MB, begins=True)
    link.look(60)
    over = [link.look(LOOK_S) or 0 for _ in range(round(10 * TRIAL_EVERY_S / LOOK_S))]
    assert 0 < sum(rate > RATE / 2 for rate in over) / len(over) < 0.01


def test_a_trial_on_a_full_link_shows_what_it_carries_and_none_follows_soon() -> None:
    link = Link(others=2 * MB, begins=True)
    link.share.receiving._capacity = 1.3 * RATE
    rates = [link.look(LOOK_S) or 0 for _ in range(round(0.9 * TRIAL_EVERY_S / LOOK_S))]
    assert sum(after > before + RATE / 2 for before, after in pairwise(rates)) == 2, "one, and one that bears it out"
    assert rates[-1] == pytest.approx(SHARE * (RATE - 2 * MB), rel=0.05)


def test_a_trial_with_little_to_send_says_little_of_the_link() -> None:
    link = Link(others=2 * MB, begins=True)
    link.share.receiving._capacity = 2 * RATE
    link.wants = SHARE * 2 * RATE
    assert link.look(TRIAL_EVERY_S) == pytest.approx(SHARE * (0.9 * 2 * RATE - 2 * MB), rel=0.05)


def test_a_daemon_that_does_not_use_its_share_tries_nothing() -> None:
    link = Link(others=2 * MB, wants=0.5 * MB, begins=True)
    assert max(link.look(LOOK_S) or 0 for _ in range(2000)) <= START


def test_a_link_that_has_become_slower_is_noticed_after_a_while() -> None:
    link = Link(others=20 * MB, begins=True)
    link.share.receiving._capacity = 10 * RATE
    link.look(1300)
    rate = link.look(LOOK_S)
    assert rate is not None and rate < 1.5 * SHARE * RATE


def test_uncounted_bytes_of_this_daemon_are_nobody_else() -> None:
    link = Link(others=50 * MB)
    link.is_blind = True
    assert {link.look(LOOK_S) for _ in range(100)} == {None}
    link.is_blind, link.others = False, 0.0
    assert {link.look(LOOK_S) for _ in range(100)} == {None}


def test_nobody_is_held_back_while_own_bytes_are_uncounted() -> None:
    link = Link(others=20 * MB, begins=True)
    assert link.look(5) is not None
    link.is_blind = True
    assert {link.look(LOOK_S) for _ in range(200)} == {None}
    link.is_blind = False
    link.wants = 10 * MB
    assert link.look(5) is not None


def test_a_small_service_that_was_known_stays_known() -> None:
    link = Link(others=1 * MB, begins=True)
    assert None not in {link.look(LOOK_S) for _ in range(20_000)}


def test_a_look_at_no_later_time_changes_nothing() -> None:
    share = LinkShare()
    for _ in range(50):
        share.heard(LinkCounters(10**9, 0, 0), LinkCounters(10**9, 0, 0), 1.0, WALL_S)
    assert not share.is_shared


@pytest.mark.parametrize("known", [(START, START), (START, 2 * START), (3 * START, START), (START, 0.8 * RATE)])
@pytest.mark.parametrize("apart_s", [0.0, 0.03, -0.02])
def test_two_ends_that_both_yield_find_the_link(apart_s: float, known: tuple[float, float]) -> None:
    ends = Ends(apart_s=apart_s, known=known)
    ends.go(15)
    rates = [ends.go(10) for _ in range(30)]
    assert min(rates) > 0.75 * SHARE * RATE and max(rates) < 1.2 * SHARE * RATE
