"""What is said about deployments, and which of it begins one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gossipd.core.ids import DeploymentId
from gossipd.core.keys import SecretKey
from gossipd.core.statement import Verb, sign_statement
from gossipd.daemon.deployments import Deployments, Host


class _Nursery:
    """Counts what is begun and runs nothing."""

    def __init__(self) -> None:
        self.begun = 0

    def start_soon(self, *_: object) -> None:
        self.begun += 1


async def test_a_statement_that_gossip_brings_before_the_start_acts_on_it_begins_one_life() -> None:
    nursery: Any = _Nursery()
    nothing: Any = SimpleNamespace(is_removed=lambda _deployment: False)
    deployments = Deployments(
        host=Host("node-1", "rack-1"), trusted=frozenset, register=nothing, state=nothing, store=nothing,
        post=lambda _event: None, pull=nothing, audit=lambda *_, **__: None, rack_of=lambda _node: None,
        begun=lambda _one: None, opened=lambda _one: None, closed=lambda _one: None, nursery=nursery,
    )  # fmt: skip
    statement = sign_statement(
        SecretKey(b"k" * 32), DeploymentId(b"d" * 32), epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=1_000_000
    )
    first = deployments.act(statement)
    assert deployments.act(statement) is first
    assert nursery.begun == 1, "two lives would share one cancel scope, which trio refuses: the daemon ended"
