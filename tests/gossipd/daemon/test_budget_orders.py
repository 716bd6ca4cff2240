"""Who may give a budget, here or by trigger; it is on the disk before the deployment begins, or it was never given."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.core.errors import GossipdError, UsageError
from gossipd.daemon.budget_check import BudgetCheck
from gossipd.daemon.budget_orders import BudgetOrders
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_record import Budget, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_budget import sign_budget
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from gossipd.manifest.errors import ManifestError
from tests.gossipd.deployment.scripted_host import KEY, ONE, OWN, PEER_KEY, ScriptedHost, said

CLIENT = SecretKey(b"c" * 32)
PROGRESS_KEY = progress_key(ONE.id)


class Host:
    """The orders of one host on which the manifest is known, and which the peer has deployed first."""

    def __init__(self, place: Path, *, name: str = "node-1") -> None:
        self.played = ScriptedHost()
        self.told: list[Budget | None] = []
        self.played.roster.roles = DEFAULT_ROLES
        self.played.roster.clients.add(CLIENT.public.ed25519)
        self.played.hear(said())
        config = SimpleNamespace(
            sources=SimpleNamespace(money_per_gb=0.0), node=SimpleNamespace(name=name, rack="rack-1")
        )
        live = SimpleNamespace(config=config, keys=SimpleNamespace(node=KEY))
        self.ordered, self.state = OrderedBudgets(), StateDirectory(place / "state")
        check = BudgetCheck(
            live=cast(Any, live), table=ClusterProgress(), lifecycle=self.played.brain.lifecycle, own=OWN,
            ordered=self.ordered, seeds=frozenset,
        )  # fmt: skip
        self.orders = BudgetOrders(
            check, cast(Any, self.played.roster), self.played.statements, self.state, ClusterClock(),
            cast(Any, SimpleNamespace(record=lambda kind, **fields: None)), tell=self._tell,
        )  # fmt: skip

    def _tell(self) -> None:
        record = self.played.brain.lifecycle.get(ONE.id)
        assert record is not None and record.changed
        self.told.append(self.ordered.told(PROGRESS_KEY))

    async def order(self, budget: Budget) -> str:
        """Empty, or the code of the refusal."""
        try:
            await self.orders.judged_order(ONE.id, None, budget)
        except ManifestError as error:
            return error.code
        return ""

    def now(self) -> int:
        return self.orders.next_ms(ONE.id)


async def test_a_client_and_the_host_that_deployed_it_first_may_and_no_other(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for secret, code in ((CLIENT, ""), (PEER_KEY, ""), (KEY, "E_MAY_NOT_CANCEL")):
        assert await host.order(sign_budget(secret, ONE.id, Budget(host.now(), 9))) == code
    with pytest.raises(ManifestError, match="this host may not"):
        host.orders.judged(ONE, "600GB")
    with pytest.raises(UsageError, match=r"no sources\.money_per_gb"):
        host.orders.judged(ONE, "50")


async def test_where_two_have_deployed_it_neither_gives_it_a_budget(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.played.drop()
    for secret, code in ((CLIENT, ""), (PEER_KEY, "E_MAY_NOT_CANCEL"), (KEY, "E_MAY_NOT_CANCEL")):
        assert await host.order(sign_budget(secret, ONE.id, Budget(host.now(), 9))) == code


async def test_an_order_is_later_than_the_last_and_not_of_the_future(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.ordered.take(PROGRESS_KEY, Budget(int(time.time() * 1000) + 60_000, 5), is_own=False)
    assert await host.order(sign_budget(CLIENT, ONE.id, Budget(host.now(), 9))) == ""
    assert await host.order(sign_budget(CLIENT, ONE.id, Budget(host.now() - 1, 9))) == "E_TRIGGER_FIELD"
    assert await host.order(sign_budget(CLIENT, ONE.id, Budget(host.now() + 60_000, 9))) == "E_TRIGGER_FIELD"


async def test_an_order_that_fails_is_as_if_it_had_not_been_given(tmp_path: Path) -> None:
    host = Host(tmp_path)
    budget = sign_budget(CLIENT, ONE.id, Budget(host.now(), 9))
    with pytest.raises(GossipdError, match="the disk is full"):
        async with host.orders.with_deployment(ONE, budget):
            assert host.state.budgets().told(PROGRESS_KEY) == budget, "on the disk before anything is read"
            raise GossipdError("the disk is full")
    assert host.ordered.told(PROGRESS_KEY) is None and host.told == []
    async with host.orders.with_deployment(ONE, budget):
        pass
    assert host.ordered.told(PROGRESS_KEY) == budget and host.told == [budget], "not at the publisher's next look"
    async with host.orders.with_deployment(ONE, None):
        pass
