"""A look before an answer: one at a time, awaited for a moment, and on a disk that hangs no more than once."""

from __future__ import annotations

from threading import Event

import trio

from gossipd.daemon.fresh_look import FreshLook


class Looks:
    """Each look waits until the test lets it end."""

    def __init__(self, *, may_end: bool = True) -> None:
        self.count = 0
        self.may_end = Event()
        if may_end:
            self.may_end.set()

    def __call__(self) -> None:
        self.count += 1
        assert self.may_end.wait(120.0)


async def test_each_question_after_another_has_its_look() -> None:
    looks = Looks()
    fresh = FreshLook(looks)
    await fresh.take()
    await fresh.take()
    assert looks.count == 2


async def test_a_look_that_hangs_is_awaited_for_a_moment_and_none_begins_beside_it() -> None:
    looks = Looks(may_end=False)
    fresh = FreshLook(looks)
    began_s = trio.current_time()
    try:
        await fresh.take()
        await fresh.take()
        assert trio.current_time() - began_s < 60
        assert looks.count == 1
    finally:
        looks.may_end.set()
    while looks.count == 1:
        await fresh.take()  # the first has ended, or ends now
    assert looks.count == 2


async def test_a_question_without_a_free_thread_leaves_room_for_the_next() -> None:
    looks, limiter = Looks(), trio.to_thread.current_default_thread_limiter()
    fresh, tokens = FreshLook(looks), limiter.total_tokens
    limiter.total_tokens = 1
    await limiter.acquire_on_behalf_of(looks)
    try:
        await fresh.take()
        assert looks.count == 0
    finally:
        limiter.release_on_behalf_of(looks)
        limiter.total_tokens = tokens
    await fresh.take()
    assert looks.count == 1
