"""Whose budget a host follows, and when it judges that: as records and rights come, in any order."""

from __future__ import annotations

from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.deployment.events import ProgressHeard, TrustReloaded
from gossipd.deployment.progress_record import Budget, HostState, Progress, progress_key
from gossipd.deployment.signed_budget import sign_budget
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from tests.gossipd.deployment.scripted_host import OWN, PEER, PEER_KEY, ScriptedHost, said

KEY = progress_key(said().deployment)
CLIENT = SecretKey(b"c" * 32)


class Host(ScriptedHost):
    """A host of whose cluster the peer tells budgets."""

    def __init__(self) -> None:
        super().__init__()
        self.roster.roles = DEFAULT_ROLES

    def let_in(self, client: SecretKey) -> None:
        self.roster.clients.add(client.public.ed25519)
        self.roster.signers.add(client.public.ed25519)

    def hear_budget(self, budget: Budget, *, state: HostState = HostState.DOWNLOADING) -> None:
        version = self.progress.version(PEER, KEY) + 1_000
        self.progress.record(PEER, KEY, version, Progress(state=state, budget=budget), now=0.0, is_signed=True)
        has_manifest = state is not HostState.FAILED
        self.tell(ProgressHeard(PEER, KEY, has_manifest=has_manifest, tells_budget=True))

    @property
    def limit_bytes(self) -> int:
        return self.budgets.limit_bytes(KEY)


def test_the_budget_of_the_host_that_deployed_it_is_followed() -> None:
    host = Host()
    host.hear(said())
    host.hear_budget(Budget(1_000, 100))
    assert host.limit_bytes == 100
    host.hear_budget(Budget(1_001, 50), state=HostState.FAILED)
    assert host.limit_bytes == 50


def test_what_another_has_ordered_is_followed_only_with_its_signature() -> None:
    deployment = said().deployment
    by_client = sign_budget(CLIENT, deployment, Budget(1_000, 100))
    for budget in (
        sign_budget(CLIENT, DeploymentId(b"x" * 32), Budget(1_000, 100)),
        replace(by_client, bytes_max=1),
        replace(by_client, signer=PEER_KEY.public.ed25519),
        replace(by_client, signer=bytes(32)),
        sign_budget(SecretKey(b"s" * 32), deployment, Budget(1_000, 100)),
        sign_budget(PEER_KEY, deployment, Budget(1_000, 100)),
    ):
        host = Host()
        host.let_in(CLIENT)
        host.drop()
        host.hear(said(epoch=3))
        host.hear_budget(budget)
        assert host.limit_bytes == 0
        host.hear_budget(by_client)
        assert host.limit_bytes == 100
    host = Host()
    host.hear_budget(by_client)
    host.hear(said())
    assert host.limit_bytes == 0, "nobody knows that client"
    host.let_in(CLIENT)
    host.tell(TrustReloaded())
    assert host.limit_bytes == 100


def test_a_budget_that_is_heard_before_its_deployment_is_followed_with_it() -> None:
    host = Host()
    host.hear_budget(Budget(1_000, 100))
    assert host.limit_bytes == 0
    host.hear(said())
    assert host.limit_bytes == 100


def test_no_other_host_may_hold_or_free_the_reads_of_all() -> None:
    host = Host()
    host.drop()
    host.hear_budget(Budget(1_000, 1))
    host.hear(said(epoch=3))
    assert host.limit_bytes == 0
    host.progress.record(
        OWN, KEY, 9_000, Progress(state=HostState.DOWNLOADING, budget=Budget(1_000, 2)), now=0.0, is_signed=True
    )
    host.tell(ProgressHeard(OWN, KEY, tells_budget=True))
    assert host.limit_bytes == 0


def test_a_right_that_a_reload_gives_counts_for_what_was_told_before() -> None:
    host = Host()
    host.drop()
    host.hear_budget(Budget(1_000, 100))
    assert host.limit_bytes == 0
    host.roster.roles = (*DEFAULT_ROLES, "member")
    host.tell(TrustReloaded())
    assert host.limit_bytes == 100


def test_a_budget_stays_when_nobody_tells_it_and_its_host_is_gone() -> None:
    host = Host()
    host.hear(said(secret=PEER_KEY))
    host.hear_budget(Budget(1_000, 100))
    host.progress.drop(KEY)
    del host.roster.peers[PEER]
    host.hear_budget(Budget(2_000, 0))
    assert host.limit_bytes == 100
