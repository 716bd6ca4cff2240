"""Publications that hang, in threads of their own, beside those that move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event

import pytest
import trio
import trio.testing

from gossipd.api.ports import PublishStep
from gossipd.daemon.publishing_job import PublishingJob
from gossipd.daemon.publishing_turns import AT_ONCE, HANGING_MAX, STILL_S, PublishingTurns
from gossipd.publish.errors import PublishError


def publication(name: str) -> PublishingJob:
    return PublishingJob(PublishStep(stage="hashing", name=name, version=1, bytes_done=0, bytes_total=0, file_count=0))


class Server:
    """What is gone until it answers; its readers wait in threads."""

    def __init__(self, turns: PublishingTurns, nursery: trio.Nursery) -> None:
        self.turns = turns
        self.nursery = nursery
        self.answers = Event()

    async def read(self, job: PublishingJob) -> None:
        """Returns when the thread of this job waits."""
        begun = Event()

        def read() -> None:
            begun.set()
            self.answers.wait(10)

        self.nursery.start_soon(self.turns.run, job, read)
        await trio.to_thread.run_sync(begun.wait, 10)


@asynccontextmanager
async def server_of(turns: PublishingTurns) -> AsyncIterator[Server]:
    """It answers at the end."""
    async with trio.open_nursery() as nursery:
        server = Server(turns, nursery)
        try:
            yield server
        finally:
            server.answers.set()


async def test_publications_that_hang_take_no_turn_from_others(mock_clock: trio.testing.MockClock) -> None:
    turns, other, has_run = PublishingTurns(), publication("m"), Event()
    async with server_of(turns) as server:
        hanging = [publication(f"h{number}") for number in range(AT_ONCE)]
        for job in hanging:
            await server.read(job)
        server.nursery.start_soon(turns.run, other, has_run.set)
        await trio.testing.wait_all_tasks_blocked()
        assert turns.why_still(other) == "4 other publications are under way"
        assert turns.why_still(hanging[0]) == ""
        assert turns.why_still(publication("deploying")) == "", "it needs no turn"
        mock_clock.jump(STILL_S)
        assert turns.why_still(hanging[0]) == "nothing has been read for 30 s; see its file system"
        assert await trio.to_thread.run_sync(has_run.wait, 10)


async def test_a_publication_that_moves_slowly_keeps_its_turn(mock_clock: trio.testing.MockClock) -> None:
    turns, waiting, has_run = PublishingTurns(), publication("m"), Event()
    async with server_of(turns) as server:
        slow = [publication(f"s{number}") for number in range(AT_ONCE)]
        for job in slow:
            await server.read(job)
        server.nursery.start_soon(turns.run, waiting, has_run.set)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(4):
            for job in slow:
                job.moved(1)
            assert turns.why_still(waiting) == "4 other publications are under way"
            mock_clock.jump(STILL_S * 0.9)
        assert not has_run.is_set()


async def test_publications_behind_too_many_that_hang_are_refused(mock_clock: trio.testing.MockClock) -> None:
    turns = PublishingTurns()
    async with server_of(turns) as server:
        for number in range(HANGING_MAX):
            job = publication(f"h{number}")
            await server.read(job)
            turns.why_still(job)
            mock_clock.jump(STILL_S)
            turns.why_still(job)
        with pytest.raises(PublishError, match="m is not published: 12 publications wait for directories"):
            await turns.run(publication("m"), lambda: None)


async def test_a_publication_waits_behind_another_of_its_name(mock_clock: trio.testing.MockClock) -> None:
    turns, second = PublishingTurns(), publication("m")
    async with server_of(turns) as server:
        async with turns.of_name("m"):
            await server.read(publication("m"))
            assert turns.of_name("m").locked()
            assert turns.why_still(second) == "another publication of m is under way"
        assert not turns.of_name("m").locked()
        assert turns.why_still(publication("other")) == ""


async def test_what_must_end_ends_before_its_job_does(mock_clock: trio.testing.MockClock) -> None:
    turns, job, ended = PublishingTurns(), publication("m"), Event()

    def copy() -> None:
        job.leave()
        ended.set()

    with job.scope:
        await turns.run(job, copy, must_end=True)
    assert ended.is_set()
    with pytest.raises(PublishError, match="m: the publication has been ended"):
        job.moved(1)
