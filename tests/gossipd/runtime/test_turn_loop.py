"""The beat: turns in order, together, no more often than a beat, and none forgotten."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import zmq

from gossipd.runtime import zmq_trio
from gossipd.runtime.turn_interval import REST_S_MAX, TURN_S
from gossipd.runtime.turn_loop import Phase, TurnLoop


class Counter:
    """A turn that finds something as often as it is told to."""

    def __init__(self, busy: int = 0) -> None:
        self.busy = busy
        self.times: list[float] = []

    def turn(self, now: float) -> bool:
        self.times.append(now)
        self.busy -= 1
        return self.busy >= 0


@asynccontextmanager
async def beating(turn_loop: TurnLoop, *parts: tuple[Phase, Callable[[float], bool]]) -> AsyncIterator[trio.Nursery]:
    """``turn_loop`` runs with these parts."""
    with contextlib.ExitStack() as joined:
        for phase, turn in parts:
            joined.enter_context(turn_loop.joined(phase, turn))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn_loop.run)
            yield nursery
            nursery.cancel_scope.cancel()


async def test_hearing_deciding_and_saying_are_in_that_order_whichever_joined_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turn_loop, taken = TurnLoop(), list[Phase]()

    def turn_of(phase: Phase) -> Callable[[float], bool]:
        def turn(_now: float) -> bool:
            taken.append(phase)
            return False

        return turn

    late_first = [(phase, turn_of(phase)) for phase in (Phase.SAY, Phase.DECIDE, Phase.HEAR)]
    async with beating(turn_loop, *late_first):
        await trio.testing.wait_all_tasks_blocked()
        assert taken[:3] == [Phase.HEAR, Phase.DECIDE, Phase.SAY]


async def test_however_often_it_is_woken_a_turn_is_taken_once_a_beat(autojump_clock: trio.testing.MockClock) -> None:
    turn_loop, counter = TurnLoop(), Counter(busy=10**6)
    with trio.move_on_after(1.0):
        async with beating(turn_loop, (Phase.DECIDE, counter.turn)):
            while True:
                turn_loop.wake()
                await trio.sleep(0.001)
    assert 95 <= len(counter.times) <= 102
    assert min(b - a for a, b in zip(counter.times, counter.times[1:], strict=False)) >= TURN_S * 0.999


async def test_it_sleeps_when_nothing_happens_and_wakes_at_once(autojump_clock: trio.testing.MockClock) -> None:
    turn_loop, counter = TurnLoop(), Counter(busy=1)
    async with beating(turn_loop, (Phase.DECIDE, counter.turn)):
        await trio.sleep(1)
        before = len(counter.times)
        assert before < 8
        await trio.sleep(60)
        assert len(counter.times) == before
        turn_loop.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert counter.times[before] == trio.current_time()


async def test_it_says_that_turns_are_being_taken_and_when_that_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turn_loop, counter = TurnLoop(), Counter()
    async with beating(turn_loop, (Phase.HEAR, counter.turn)):
        await trio.sleep(1)
        assert turn_loop.awake() is None
        counter.busy = 30
        turn_loop.wake()
        awake, began_s = turn_loop.awake(), trio.current_time()
        assert awake is not None
        await awake.wait()
        assert turn_loop.awake() is None
        assert 30 * TURN_S * 0.9 < trio.current_time() - began_s < 40 * TURN_S


async def test_what_is_due_is_done_in_time_and_what_is_always_due_does_not_spin(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turn_loop, counter = TurnLoop(), Counter()
    due = [math.inf]
    async with beating(turn_loop):
        with turn_loop.joined(Phase.SAY, counter.turn, due_s=lambda: due[0]):
            await trio.sleep(1)
            due[0] = trio.current_time() + 0.25
            turn_loop.wake()
            counter.times.clear()
            await trio.sleep(0.2)
            early = len(counter.times)
            await trio.sleep(0.04)
            assert len(counter.times) == early
            await trio.sleep(0.02)
            assert counter.times[early] - due[0] < TURN_S
            due[0] = -math.inf
            counter.times.clear()
            await trio.sleep(1)
            assert 50 <= len(counter.times) <= 101
        counter.times.clear()
        await trio.sleep(1)
        assert counter.times == []


async def test_who_leaves_something_undone_has_the_next_turn_after_half_a_beat(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turn_loop, times = TurnLoop(), list[float]()

    def turn(now: float) -> bool:
        times.append(now)
        turn_loop.hurry()
        return True

    async with beating(turn_loop, (Phase.HEAR, turn)):
        await trio.sleep(1)
        assert 195 <= len(times) <= 201


async def test_others_have_their_turn_however_long_ours_take(mock_clock: trio.testing.MockClock) -> None:
    turn_loop, others = TurnLoop(), list[float]()

    def turn(_now: float) -> bool:
        mock_clock.jump(0.05)  # five beats long
        return True

    async def other() -> None:
        while True:
            await trio.sleep(0.002)
            others.append(trio.current_time())

    mock_clock.autojump_threshold = 0
    async with beating(turn_loop, (Phase.DECIDE, turn)) as nursery:
        nursery.start_soon(other)
        await trio.sleep(6)
    assert len(others) >= 4 * 100  # in each rest of a beat


async def test_what_is_left_during_the_last_turn_before_it_sleeps_is_found(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turn_loop, left, found = TurnLoop(), deque[int](), list[int]()

    def decide(_now: float) -> bool:
        before = len(found)
        while left:
            found.append(left.popleft())
        return len(found) > before

    def post(_now: float) -> bool:  # as a thread would, when the planner has had its turn; it sees the beat awake
        if len(found) < 1:
            left.append(1)
            turn_loop.wake_from_thread()
        return False

    async with beating(turn_loop, (Phase.DECIDE, decide), (Phase.SAY, post)):
        await trio.sleep(0.1)
        assert found == [1]


async def test_nothing_that_a_thread_leaves_is_forgotten() -> None:
    turn_loop, left, found = TurnLoop(), deque[int](), list[int]()
    count = 3000

    def turn(_now: float) -> bool:
        before = len(found)
        while left:
            found.append(left.popleft())
        return len(found) > before

    def post() -> None:
        wait = threading.Event()
        for number in range(count):
            left.append(number)
            turn_loop.wake_from_thread()
            if number % 100 == 0:
                wait.wait(0.05)  # long enough for the beat to be going to sleep just then, now and again

    with trio.fail_after(60):
        async with beating(turn_loop, (Phase.DECIDE, turn)):
            threads = [threading.Thread(target=post) for _ in range(2)]
            for thread in threads:
                thread.start()
            while len(found) < 2 * count:
                await trio.sleep(0.01)
        for thread in threads:
            await trio.to_thread.run_sync(thread.join)


async def test_a_message_that_a_send_has_taken_note_of_is_read_though_the_beat_was_going_to_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zmq_trio, "SAFETY_POLL_S", 3600.0)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    dealer.connect(f"tcp://127.0.0.1:{port}")
    turn_loop, heard, armed = TurnLoop(), list[bytes](), [False]

    def hear(_now: float) -> bool:
        before = len(heard)
        with contextlib.suppress(zmq.Again):
            while True:
                heard.append(router.recv_multipart(zmq.NOBLOCK)[-1])
        return len(heard) > before

    def say(_now: float) -> bool:
        if armed[0]:  # in the only turn there is: nothing was heard, and this is no news either
            armed[0] = False
            dealer.send(b"late")
            with contextlib.suppress(zmq.ZMQError):
                router.send_multipart((b"nobody", b""), zmq.NOBLOCK)
            deadline = trio.current_time() + 5
            while not zmq_trio.has_unread(router) and trio.current_time() < deadline:
                pass
        return False

    try:
        with trio.fail_after(120):
            async with beating(turn_loop, (Phase.HEAR, hear), (Phase.SAY, say)) as nursery:
                nursery.start_soon(turn_loop.watch, router)
                dealer.send(b"first")
                while heard != [b"first"]:
                    await trio.sleep(0.001)
                await trio.sleep(0.2)
                armed[0] = True
                turn_loop.wake()
                while heard != [b"first", b"late"]:
                    await trio.sleep(0.001)
    finally:
        router.close(0)
        dealer.close(0)
        context.term()


async def test_it_says_how_late_the_loop_woke_it_from_a_rest(mock_clock: trio.testing.MockClock) -> None:
    late, counter = list[float](), Counter(busy=2)
    async with beating(TurnLoop(late=late.append), (Phase.DECIDE, counter.turn)):
        await trio.testing.wait_all_tasks_blocked()
        assert not late, "the first turn waits for nothing"
        mock_clock.jump(TURN_S + 0.5)
        await trio.testing.wait_all_tasks_blocked()
        assert late == [pytest.approx(0.5)]


async def test_a_loop_that_is_woken_late_rests_longer_and_nobody_loses_a_turn(
    mock_clock: trio.testing.MockClock,
) -> None:
    counter = Counter(busy=10**6)
    async with beating(TurnLoop(), (Phase.DECIDE, counter.turn)):
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(100):
            mock_clock.jump(2 * REST_S_MAX)
            await trio.testing.wait_all_tasks_blocked()
        assert len(counter.times) == 101
        mock_clock.jump(0.9 * REST_S_MAX)
        await trio.testing.wait_all_tasks_blocked()
        assert len(counter.times) == 101
        mock_clock.jump(0.2 * REST_S_MAX)
        await trio.testing.wait_all_tasks_blocked()
        assert len(counter.times) == 102
