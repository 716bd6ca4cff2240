"""The trio body on real loopback sockets: brains in one process, each with its own socket and its own task."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from membership.credentials import Credentials
from membership.events import Event, MemberDown, MemberLeft, PayloadHeard, PayloadKind
from membership.member import Address, Record
from membership.runtime import SwimRuntime, open_udp_socket
from membership.seal import KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim
from membership.unsealed_rate import UNSEALED_PER_S

RING = KeyRing(b"c" * 16, (b"k" * 32,))


class Agent:
    """One brain on one socket."""

    def __init__(self, number: int, ring: KeyRing = RING, host: str = "127.0.0.1") -> None:
        key = Ed25519PrivateKey.from_private_bytes(bytes((number + 1,)) * 32)
        self.socket = open_udp_socket(host, 0)
        self.address: Address = (host, self.socket.getsockname()[1])
        record = Record(
            key.public_key().public_bytes_raw(), 1 + number, 1, f"node-{number}", f"rack-{number % 3}", "",
            *self.address, self.address[1], b"t" * 32,
        )  # fmt: skip
        self.swim = Swim(
            SwimSettings(), record, Credentials(key.sign, ring), rng=Random(number), now=trio.current_time()
        )
        self.events: list[Event] = []
        self.changed = trio.Condition()
        self.scope = trio.CancelScope()
        self.runtime: SwimRuntime | None = None
        self.attended: trio.Event | None = None

    def awake(self) -> trio.Event | None:
        """See ``Attendant``."""
        return self.attended

    async def run(self, *, task_status: trio.TaskStatus[SwimRuntime]) -> None:
        with self.scope, self.socket:
            runtime = SwimRuntime(self.swim, self.socket, on_event=self.events.append, attendant=self)
            await runtime.run(task_status=task_status)

    async def start(self, nursery: trio.Nursery, contact: Address | None = None) -> None:
        self.runtime = await nursery.start(self.run)
        if contact is not None:
            self.call(partial(self.swim.join, [contact], trio.current_time()))

    async def start_attended(self, nursery: trio.Nursery) -> trio.Event:
        """From the next datagram and deadline on it is attended to, until the event is set."""
        await self.start(nursery)
        await trio.testing.wait_all_tasks_blocked()
        self.attended = trio.Event()
        return self.attended

    def call(self, action: Callable[[], object]) -> None:
        action()
        assert self.runtime is not None
        self.runtime.wake()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(120):
        while not condition():
            await trio.sleep(0.01)


async def test_real_agents_find_each_other_tell_news_and_notice_a_death_and_a_goodbye() -> None:
    async with trio.open_nursery() as nursery:
        agents = [Agent(number) for number in range(8)]
        for agent in agents:
            await agent.start(nursery, None if agent is agents[0] else agents[0].address)
        await until(lambda: all(agent.swim.statistics()["members_live"] == 8 for agent in agents))
        agents[3].call(lambda: agents[3].swim.publish(PayloadKind.STATEMENT, b"key", 1, b"word", trio.current_time()))
        others = [agent for agent in agents if agent is not agents[3]]
        await until(lambda: all(any(isinstance(e, PayloadHeard) for e in agent.events) for agent in others))
        agents[7].scope.cancel()
        living = agents[:7]
        await until(lambda: all(any(isinstance(e, MemberDown) for e in agent.events) for agent in living))
        agents[6].call(lambda: agents[6].swim.leave(trio.current_time()))
        await until(lambda: all(any(isinstance(e, MemberLeft) for e in agent.events) for agent in agents[:6]))
        assert all(agent.swim.statistics().get("dropped_malformed", 0) == 0 for agent in living)
        nursery.cancel_scope.cancel()


async def test_another_clusters_agent_gets_no_answer_at_all() -> None:
    async with trio.open_nursery() as nursery:
        ours, theirs = Agent(0), Agent(1, KeyRing(b"d" * 16, (b"k" * 32,)))
        await ours.start(nursery)
        await theirs.start(nursery, ours.address)
        await until(lambda: ours.swim.statistics().get("dropped_unsealed", 0) >= 2)
        assert theirs.swim.statistics().get("datagrams_in", 0) == 0
        assert ours.swim.statistics()["members_live"] == theirs.swim.statistics()["members_live"] == 1
        nursery.cancel_scope.cancel()


async def test_noise_from_a_plain_socket_is_survived_and_not_answered() -> None:
    async with trio.open_nursery() as nursery:
        agent = Agent(0)
        await agent.start(nursery)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            plain.setblocking(False)
            rng = Random(1)
            for size in (0, 1, 54, 55, 1400, 1401, 9000, 65000):
                plain.sendto(rng.randbytes(size), agent.address)
            await until(lambda: agent.swim.statistics().get("dropped_unsealed", 0) >= 8)
            try:
                answer = plain.recv(2000)
            except BlockingIOError:
                answer = b""
        assert answer == b""
        nursery.cancel_scope.cancel()


async def test_an_advertised_name_is_never_looked_up_while_sending() -> None:
    async with trio.open_nursery() as nursery:
        agent = Agent(0)
        await agent.start(nursery)
        agent.call(lambda: agent.swim.join([("no-such-host.invalid", 7946)], trio.current_time()))
        await until(lambda: agent.runtime is not None and agent.runtime.send_errors >= 1)
        nursery.cancel_scope.cancel()


async def test_waiting_answers_are_handled_before_a_late_timer() -> None:
    """As after SIGSTOP: the loop is blocked while a datagram waits; nothing is concluded from the silence."""
    async with trio.open_nursery() as nursery:
        agents = [Agent(0), Agent(1)]
        await agents[0].start(nursery)
        await agents[1].start(nursery, agents[0].address)
        await until(lambda: all(agent.swim.statistics()["members_live"] == 2 for agent in agents))
        order: list[str] = []
        swim = agents[0].swim
        timer, datagram = swim.handle_timer, swim.handle_datagram
        swim.handle_timer = lambda now: (order.append("timer"), timer(now))[1]  # type: ignore[method-assign,func-returns-value]
        swim.handle_datagram = lambda *a: (order.append("datagram"), datagram(*a))[1]  # type: ignore[method-assign,func-returns-value]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            plain.sendto(b"waiting", agents[0].address)
            runtime = agents[0].runtime
            assert runtime is not None
            order.clear()
            runtime.catch_up(trio.current_time())
        assert order[0] == "datagram"
        assert order[-1] == "timer"
        nursery.cancel_scope.cancel()


async def test_a_batch_that_takes_long_ends_early_and_timers_wait_for_the_rest_but_not_for_ever(
    mock_clock: trio.testing.MockClock,
) -> None:
    agent, order = Agent(0), []
    with agent.socket, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        runtime = SwimRuntime(agent.swim, agent.socket, on_event=agent.events.append)

        def handle(*_: object) -> None:
            order.append("datagram")
            mock_clock.jump(0.004)

        agent.swim.handle_datagram = handle  # type: ignore[method-assign,assignment]
        agent.swim.handle_timer = lambda now: order.append("timer")  # type: ignore[method-assign]
        for _ in range(7):
            plain.sendto(b"costly", agent.address)
        for _ in range(2):
            runtime.catch_up(trio.current_time())
            assert "timer" not in order
        runtime.catch_up(trio.current_time())
        assert order == ["datagram"] * 7 + ["timer"]
        for _ in range(200):
            plain.sendto(b"costly", agent.address)
        order.clear()
        begun_s = trio.current_time()
        while "timer" not in order:
            runtime.catch_up(trio.current_time())
        assert 0.2 <= trio.current_time() - begun_s < 0.25
        assert order.count("datagram") < 200


async def test_an_agent_that_is_attended_to_wakes_for_nothing_and_looks_for_itself_when_that_ends() -> None:
    async with trio.open_nursery() as nursery:
        agent = Agent(0)
        attended = await agent.start_attended(nursery)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:

            def noise() -> int:
                return agent.swim.statistics().get("dropped_unsealed", 0)

            plain.sendto(b"noise", agent.address)  # it waits for its socket now, and for its next deadline: once each
            await until(lambda: attended.statistics().tasks_waiting == 2)
            assert noise() == 1
            plain.sendto(b"noise", agent.address)
            await trio.testing.wait_all_tasks_blocked()
            assert noise() == 1
            assert agent.runtime is not None
            agent.runtime.catch_up(trio.current_time())
            assert noise() == 2
            agent.attended = None
            attended.set()
            plain.sendto(b"noise", agent.address)
            await until(lambda: noise() == 3)
            before = agent.swim.next_deadline()
            await until(lambda: agent.swim.next_deadline() > before)  # its timers, too
        nursery.cancel_scope.cancel()


async def test_what_a_turn_leaves_in_the_socket_is_read_between_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("membership.runtime._BATCH", 4)
    async with trio.open_nursery() as nursery:
        agent = Agent(0)
        attended = await agent.start_attended(nursery)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            plain.sendto(b"noise", agent.address)
            await until(lambda: attended.statistics().tasks_waiting == 2)
            for _ in range(42):
                plain.sendto(b"noise", agent.address)
            assert agent.runtime is not None
            agent.runtime.catch_up(trio.current_time())
            assert agent.swim.unsealed == 1 + 4
            await until(lambda: agent.swim.unsealed == 1 + 42)
            await until(lambda: attended.statistics().tasks_waiting == 2)
        nursery.cancel_scope.cancel()


async def test_a_flood_of_noise_is_left_to_the_kernel_and_members_are_still_heard() -> None:
    async with trio.open_nursery() as nursery:
        agents = [Agent(0), Agent(1)]
        for agent in agents:
            await agent.start(nursery)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            for _ in range(3):
                for _ in range(UNSEALED_PER_S):
                    plain.sendto(b"noise", agents[0].address)
                await trio.testing.wait_all_tasks_blocked()
            heard = agents[0].swim.unsealed
            assert heard < 3 * UNSEALED_PER_S
            agents[1].call(lambda: agents[1].swim.join([agents[0].address], trio.current_time()))
            await until(lambda: all(agent.swim.statistics()["members_live"] == 2 for agent in agents))
            assert agents[0].swim.unsealed == heard
        nursery.cancel_scope.cancel()
