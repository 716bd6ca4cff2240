"""Each rule of the campaign's oracle is broken on purpose, by a bug planted in the part that should keep it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gossipd.core.events import ChunkStored, FailReason, StartFetch
from gossipd.deployment.context import HostIdentity
from gossipd.deployment.deployment_steps import DeploymentSteps
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_store import Acceptance, Heard, StatementStore
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import Manifest
from gossipd.store import chunk_store
from gossipd.store.journal import recovery, windows
from gossipd.store.journal.journal import Replay
from gossipd.store.models import publishing, scrub
from gossipd.store.models.replica import ModelReplica
from gossipd.swarm.peers import Peers
from gossipd.swarm.planner import Planner
from gossipd.swarm.settings import PlannerSettings
from gossipd.transfer.slots import UploadSlots
from membership.member import NodeId
from tests.sim.campaign import daemon as daemon_module
from tests.sim.campaign import deployment_runner
from tests.sim.campaign import world as world_module
from tests.sim.campaign.daemon import Daemon
from tests.sim.campaign.oracle import DEAD_S, Violation
from tests.sim.campaign.world import World, play

HOSTS = 12
SECONDS = 40.0


def broken_rule(*kinds: str, seed: int = 5) -> str:
    """The rule that a small run breaks, by name."""
    return play(seed, hosts=HOSTS, seconds=SECONDS, kinds=kinds).violation.partition(":")[0]


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "GRACE_S", 5.0)


class _AnyDigest(bytes):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


class _NoHash:
    def __init__(self, body: object) -> None: ...

    def digest(self) -> bytes:
        return _AnyDigest()


def test_without_a_planted_bug_nothing_is_broken() -> None:
    assert play(5, hosts=HOSTS, seconds=SECONDS, kinds=("corrupting_peer",)).violation == ""


def test_a_store_that_does_not_hash_what_it_takes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_store, "blake3", _NoHash)
    assert broken_rule("source_lying", "corrupting_peer") == "accepted"


def test_a_publication_with_other_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = publishing.publish

    def spoil_and_publish(context: Any, replica: ModelReplica) -> None:
        context.disk.rot(replica.path(0), 3)
        publish(context, replica)

    monkeypatch.setattr(publishing, "publish", spoil_and_publish)
    assert broken_rule() == "published"


def test_a_claim_before_the_bytes_are_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_sync_files", lambda context, replica, window: None)
    assert broken_rule() == "claimed"


def test_a_start_that_forgets_what_was_claimed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "replay", lambda body, deployment: Replay())
    monkeypatch.setattr(recovery, "_hash_suspects", lambda context, replica, suspects: set())
    assert broken_rule("kill_restart", "power_cut") == "remembered"


def test_a_store_that_gives_up_good_chunks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "_read_back", lambda *arguments, **options: scrub.Filled.UNREADABLE)
    assert broken_rule() == "dropped"


def test_a_host_that_asks_for_what_it_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Daemon._store_reported

    def forget_every_third(self: Daemon, event: Any) -> None:
        if not isinstance(event, ChunkStored) or event.chunk % 3:
            said(self, event)

    monkeypatch.setattr(Daemon, "_store_reported", forget_every_third)
    assert broken_rule() == "again"


def test_blame_that_falls_on_somebody_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Peers.failed

    def blame_all(self: Peers, node: NodeId, reason: FailReason, now: float, **evidence: Any) -> None:
        for peer in [view.node for view in self.members()] if reason is FailReason.CORRUPT else [node]:
            failed(self, peer, reason, now, **evidence)

    monkeypatch.setattr(Peers, "failed", blame_all)
    monkeypatch.setattr(Daemon, "said", lambda self, body: bytes(len(body)) if self.index % 2 else body)
    assert broken_rule() == "blamed"


def test_a_planner_that_exceeds_its_fetches_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(*, settings: PlannerSettings, **others: Any) -> Planner:
        return Planner(settings=PlannerSettings(), **others)

    monkeypatch.setattr(world_module, "PlannerSettings", lambda: PlannerSettings(fetches_min=1, fetches_max=1))
    monkeypatch.setattr(daemon_module, "Planner", generous)
    assert broken_rule("slow_link") == "bounds"


def test_a_server_without_slots_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadSlots, "acquire", lambda self, node, length=None: True)
    monkeypatch.setattr(UploadSlots, "release", lambda self, node, started: None)
    monkeypatch.setattr(world_module, "PlannerSettings", lambda: PlannerSettings(slots_min=1, slots_max=1))
    assert broken_rule() == "bounds"


def test_a_host_that_never_publishes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeploymentSteps, "finish", lambda self: None)
    assert broken_rule() == "alive"


def test_a_cancelled_deployment_that_a_restart_brings_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    act = DeploymentTable.act

    def deploys(self: DeploymentTable, statement: Statement, wall_s: float, manifest: Manifest | None = None) -> None:
        act(self, replace(statement, verb=Verb.DEPLOY), wall_s, manifest)

    monkeypatch.setattr(DeploymentTable, "act", deploys)
    restarts = ("kill_restart", "kill_restart", "power_cut", "power_cut", "power_cut")
    # Of this seed one restart is of a host that had heard of the cancel.
    assert broken_rule("cancel", *restarts, seed=1) == "cancelled"


def test_a_removed_model_that_is_fetched_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatementStore, "is_removed", lambda self, deployment: False)
    assert broken_rule("remove") == "removed"


def test_a_host_that_takes_what_is_for_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_host(node: NodeId, name: str, rack: str, secret: SecretKey) -> HostIdentity:
        return HostIdentity(node, "host-0", rack, secret)

    monkeypatch.setattr(deployment_runner, "HostIdentity", first_host)
    assert broken_rule("outside") == "outside"


@pytest.mark.parametrize("kind", ["rollback", "expired"])
def test_a_host_that_trusts_any_version_is_found(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(StatementStore, "accept", lambda self, manifest, wall_s, **how: Acceptance.NEW)
    assert broken_rule(kind) == "trusted"


def test_a_host_that_believes_a_forged_statement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatementStore, "judge", lambda self, statement, signers: Heard.NEWS)
    assert broken_rule("forged") == "alive"


@pytest.mark.parametrize("kind", ["dead_join", "forget_join"])
def test_orphans_that_nobody_adopts_are_found(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(world_module, "GRACE_S", 120.0)
    monkeypatch.setattr(StatementStore, "orphans", lambda self, vouchers: ())
    assert broken_rule(kind) == "newcomer"


def test_asking_a_host_that_is_long_dead_is_found() -> None:
    world = World(5, hosts=HOSTS, seconds=SECONDS, kinds=())
    with pytest.raises(Violation, match="long dead"):
        _ask_the_dead(world)


def _ask_the_dead(world: World) -> None:
    for daemon in world.daemons:
        daemon.boot(join=(), roster=[])
    deployment, model = next(iter(world.models.items()))
    asker, dead = world.daemons[0], world.daemons[1]
    asker.store.open(model.manifest)
    world.die(dead, power=True)
    command = StartFetch(deployment, 0, dead.node, 5.0)
    world.oracle.commanded(asker, command)  # it has only just died
    world.wires.run(DEAD_S + 1.0)
    world.oracle.commanded(asker, command)
