"""Contacts are asked as soon as their addresses are known, and a resolver that does not answer holds up nobody."""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from gossipd.daemon.contacts import Contacts
from membership.member import Address

WAIT_S = 10.0


class Asked:
    """What membership is told to ask, and the contacts that ask it."""

    def __init__(self, *join: str) -> None:
        self.known: list[list[Address]] = []
        swim = SimpleNamespace(join=lambda addresses, now: self.known.append(list(addresses)))
        self.net = SimpleNamespace(join=list(join))
        host, live = (
            SimpleNamespace(swim=swim, wake=lambda: None),
            SimpleNamespace(config=SimpleNamespace(net=self.net)),
        )
        self.contacts = Contacts(cast(Any, host), cast(Any, live))

    async def look(self) -> None:
        await self.contacts.look(self.net.join)


def resolver(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], list[str]]) -> None:
    def ask(host: str, port: int, **_: object) -> list[Any]:
        return [(None, None, None, "", (address, port)) for address in answer(host)]

    monkeypatch.setattr("gossipd.daemon.contacts.socket.getaddrinfo", ask)


async def test_each_address_of_each_name_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver(monkeypatch, lambda host: [f"{host}1", f"{host}2"])
    asked = Asked("10.0.0.9:7", "a:7")
    await asked.look()
    assert asked.known == [[("10.0.0.9", 7)], [("10.0.0.9", 7), ("a1", 7), ("a2", 7)]]
    await asked.look()
    assert len(asked.known) == 2, "nothing is new"
    asked.net.join = ["a:7"]
    await asked.look()
    assert asked.known[-1] == [("a1", 7), ("a2", 7)]


@pytest.mark.parametrize("error", [socket.gaierror(-2, "unknown"), UnicodeError("label too long")])
async def test_a_name_that_cannot_be_looked_up_is_told_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(host: str) -> list[str]:
        raise error

    resolver(monkeypatch, refuse)
    asked = Asked("a:7", "10.0.0.9:7")
    await asked.look()
    assert (asked.known, asked.contacts.without_address()) == ([[("10.0.0.9", 7)]], ["a:7"])


async def test_a_resolver_that_is_silent_holds_up_no_address_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Event()
    resolver(monkeypatch, lambda host: [host] if host != "slow" or answers.wait(WAIT_S) else [])
    asked = Asked("slow:7", "10.0.0.9:7", "quick:7")
    try:
        with trio.fail_after(WAIT_S / 2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked.look)
                while not asked.known or len(asked.known[-1]) < 2:
                    await trio.sleep(0.001)
                assert asked.contacts.without_address() == ["slow:7"]
                began_s = trio.current_time()
                nursery.cancel_scope.cancel()
        assert trio.current_time() - began_s < WAIT_S / 2, "SIGTERM waits for no lookup"
    finally:
        answers.set()
