"""States of hosts become events at a bounded pace: which first, and that none is lost."""

from __future__ import annotations

from gossipd.api.events import EventRing, HostStateEvent
from gossipd.api.paced_states import BURST, PER_S, WAITING_MAX, PacedStates
from gossipd.core.reasons import HostReason
from gossipd.daemon.event_feed import EventFeed
from gossipd.deployment.progress_record import HostState, Progress
from membership.member import NodeId

PER_S_MAX = 20
HOSTS = 1_000
STATES = {0: HostState.INIT, 1: HostState.DOWNLOADING, 90: HostState.VERIFYING, 91: HostState.COMPLETE}


def state(host: int, word: str = "downloading", reason: str = "") -> HostStateEvent:
    return HostStateEvent(host=f"gpu-{host}", deployment="toy@1", state=word, reason=reason)


def test_a_hundred_hosts_are_told_at_once() -> None:
    paced = PacedStates()
    for host in range(BURST):
        paced.offer(state(host))
    assert (len(paced.take(5.0)), paced.count) == (BURST, 0)


def test_what_must_be_cured_goes_first_then_what_has_ended() -> None:
    paced = PacedStates()
    for host in range(BURST):
        paced.offer(state(host))
    paced.take(5.0)
    offered = [state(1), state(2, "complete"), state(3, "failed", "no_space"), state(4, "complete")]
    for one in offered:
        paced.offer(one)
    assert paced.take(5.0) == []
    assert paced.take(5.0 + 2 / PER_S) == [offered[2], offered[1]]
    assert paced.take(6.0) == [offered[3], offered[0]]


def test_of_a_host_that_waits_only_the_latest_is_told() -> None:
    paced = PacedStates()
    paced.take(5.0)
    paced.offer(state(1))
    paced.offer(state(1, "failed", "no_space"))
    paced.offer(state(1, "downloading"))
    assert paced.take(5.0) == [state(1, "downloading")]
    assert paced.count == 0


def test_what_waits_is_bounded() -> None:
    paced = PacedStates()
    for host in range(2 * WAITING_MAX):
        paced.offer(state(host))
    assert paced.count == WAITING_MAX
    paced.offer(state(5, "complete"))
    assert paced.count == WAITING_MAX


def test_a_thousand_hosts_are_under_twenty_events_a_second_and_each_ends_as_it_did() -> None:
    """The worst case: all hosts begin in one second, verify in one, and are complete in one."""
    now = 1_000.0
    feed = EventFeed(EventRing(7), clock=lambda: now)
    told: list[tuple[float, int]] = []
    before: dict[int, Progress] = {}

    def heard(host: int, progress: Progress) -> None:
        node = NodeId(host.to_bytes(16, "big"))
        feed.host_progressed(node, f"gpu-{host}", "toy@1", before.get(host), progress)
        before[host] = progress

    for second in range(240):
        now = 1_000.0 + second
        word = STATES.get(second)
        for host in range(HOSTS) if word else ():
            if host:
                heard(host, Progress(state=word or HostState.INIT))
        if second == 92:
            heard(0, Progress(state=HostState.FAILED, reason=HostReason.NO_SPACE))
        feed.tell_states()
        told.append((now, feed.ring.last))
        if second == 93:
            last = [row.body for row in feed.ring.since(None, 0, 10_000)][-2 * int(PER_S) :]
            assert any(isinstance(one, HostStateEvent) and one.reason == "no_space" for one in last), "at once"
    counts = [after[1] - first[1] for first, after in zip([(0.0, 0), *told], told, strict=False)]
    rates = [sum(counts[at : at + 60]) / 60 for at in range(len(counts) - 60)]
    assert max(rates) < PER_S_MAX, max(rates)
    rows = [row.body for row in feed.ring.since(None, 0, 10_000)]
    ends = {one.host: one.state for one in rows if isinstance(one, HostStateEvent)}
    assert ends == {"gpu-0": "failed", **{f"gpu-{host}": "complete" for host in range(1, HOSTS)}}
