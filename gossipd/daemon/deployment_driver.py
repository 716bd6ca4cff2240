"""The deployment brain's turn: events in, commands out to one place, and the answers of orders.

What lives here: which work is under way, who waits for an answer, and the one timer. What does not: any decision, and
what a command does (``deployment_executor``). Everything is on the trio loop.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from gossipd.deployment import commands, events
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.statement import Statement


class DeploymentPort(Protocol):
    """What carries out the brain's commands. Called on the trio loop."""

    def perform(self, command: commands.DeploymentCommand) -> None:
        """Do what takes no time."""

    async def carry_out(self, work: commands.Work) -> events.WorkEnded:
        """Do what takes time; how it ended."""


class DeploymentDriver:
    """Feeds one brain. Events that come before ``run`` wait for it."""

    def __init__(self, brain: DeploymentBrain) -> None:
        self._brain = brain
        self.lifecycle = brain.lifecycle
        self._token = trio.lowlevel.current_trio_token()
        self._performing: tuple[DeploymentPort, trio.Nursery] | None = None
        self._events: deque[events.DeploymentEvent] = deque()
        self._is_turning = False
        self._scopes: dict[commands.WorkNumber, trio.CancelScope] = {}
        self._requests = 0
        self._answered: dict[commands.RequestNumber, trio.Event] = {}
        self._answers: dict[commands.RequestNumber, commands.Answer] = {}
        self._due_s = -math.inf
        self._due_changed = trio.Event()

    def post(self, event: events.DeploymentEvent) -> None:
        """Give an event to the brain, and carry out what follows."""
        self._events.append(event)
        if self._is_turning or self._performing is None:
            return
        self._take_turn()

    def post_from_thread(self, event: events.DeploymentEvent) -> None:
        """``post`` from any thread."""
        self._token.run_sync_soon(self.post, event)

    def _take_turn(self) -> None:
        self._is_turning = True
        try:
            while self._events:
                self._brain.handle(self._events.popleft(), trio.current_time(), time.time())
                self._carry_out()
        finally:
            self._is_turning = False

    async def run(self, executor: DeploymentPort, nursery: trio.Nursery) -> None:
        """Never returns: tell the brain when its time has come. Work is done in ``nursery``, the daemon's outermost, as
        publishing goes on while the daemon stops."""
        self._performing = executor, nursery
        self._take_turn()
        while True:
            self._due_changed = trio.Event()
            with trio.move_on_at(self._due_s):
                await self._due_changed.wait()
            if trio.current_time() >= self._due_s:
                self._brain.tick(trio.current_time(), time.time())
                self._carry_out()

    def _carry_out(self) -> None:
        assert self._performing is not None
        executor, nursery = self._performing
        for command in self._brain.drain():
            match command:
                case commands.Answer(request):
                    if request in self._answered:  # else the one who asked has gone
                        self._answers[request] = command
                        self._answered[request].set()
                case commands.AbandonWork(work):
                    self._scopes[work].cancel()
                case _ if isinstance(command, commands.Work):
                    scope = self._scopes[command.work] = trio.CancelScope()
                    nursery.start_soon(self._work, executor, command, scope)
                case _:
                    executor.perform(command)
        due_s = self._brain.next_deadline()
        if due_s != self._due_s:
            self._due_s = due_s
            self._due_changed.set()

    async def _work(self, executor: DeploymentPort, work: commands.Work, scope: trio.CancelScope) -> None:
        ended: events.WorkEnded = events.WorkAbandoned(work.work)
        try:
            with scope:
                ended = await executor.carry_out(work)
        finally:
            del self._scopes[work.work]
        self.post(ended)

    # ---- orders --------------------------------------------------------------------------------------

    async def ask(self, order_of: Callable[[commands.RequestNumber], events.Order]) -> commands.Answer:
        """The answer to an order, which is given the number of its request. Raises the error of a refusal."""
        self._requests += 1
        request = self._requests
        answered = self._answered[request] = trio.Event()
        try:
            self.post(order_of(request))
            await answered.wait()
        finally:
            del self._answered[request]
            answer = self._answers.pop(request, None)
        assert answer is not None
        if answer.error is not None:
            raise answer.error
        return answer

    async def offer(self, envelope: bytes, file_name: str) -> str:
        """A file from the inbox: what was done with it. Raises ManifestError, and QueueFullError to be asked later."""
        return (await self.ask(lambda request: events.ManifestDropped(request, envelope, file_name))).sentence

    async def trigger(self, statement: Statement, envelope: bytes | None) -> commands.Answer:
        """A member's or client's signed statement. Raises GossipdError."""
        return await self.ask(lambda request: events.OrderTriggered(request, statement, envelope))
