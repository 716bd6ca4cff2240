"""A member that signs what another deploys, by values: in any order of words it stops nothing for long on any host."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.deployment import commands, events
from gossipd.deployment.deployer import CONTESTED_HEAD, HEAD_BYTES
from gossipd.deployment.progress_record import Budget, HostState, Progress, progress_key
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.deployment.told_deployers import UNDONE_WITHIN_S
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from membership.member import NodeId, node_id
from tests.gossipd.deployment.scripted_host import KEY, ONE, OWN, PEER, PEER_KEY, ScriptedHost, said
from tests.gossipd.manifest.making import PUBLISHER

LIAR, THIRD_KEY = SecretKey(b"l" * 32), SecretKey(b"3" * 32)
LIAR_NODE, THIRD = node_id(LIAR.public.ed25519), node_id(THIRD_KEY.public.ed25519)
SHORT = progress_key(ONE.id)
STOPS = [(Verb.CANCEL, 2), (Verb.PAUSE, 2), (Verb.ROLL_BACK, 4), (Verb.REMOVE, 6)]
HEAD = PEER_KEY.public.ed25519[:HEAD_BYTES]


def told(
    host: ScriptedHost, head: bytes = HEAD, node: NodeId = PEER, *, is_signed: bool = True, budget: Budget | None = None
) -> None:
    """A host tells its progress, and who deployed it."""
    progress = Progress(state=HostState.DOWNLOADING, deployer=head, budget=budget)
    version = host.progress.version(node, SHORT) + 1_000
    host.progress.record(node, SHORT, version, progress, now=0.0, is_signed=is_signed)
    host.tell(events.ProgressHeard(node, SHORT, tells_budget=budget is not None, tells_deployer=True))


def a_host(host: ScriptedHost | None = None) -> ScriptedHost:
    """In a cluster with one liar; the peer deploys what the liar wants to stop."""
    host = host or ScriptedHost()
    host.roster.roles = DEFAULT_ROLES
    host.roster.peers |= {LIAR_NODE: "rack-1", THIRD: "rack-2"}
    host.roster.signers |= {LIAR.public.ed25519, THIRD_KEY.public.ed25519}
    return host


def is_deployed(host: ScriptedHost) -> bool:
    last = host.statements.statement(ONE.id)
    return last is not None and last.verb is Verb.DEPLOY and host.record().state is HostState.DOWNLOADING


@pytest.mark.parametrize("first_epoch", [1, 2, 3])
@pytest.mark.parametrize(("verb", "epoch"), STOPS)
def test_a_liar_that_deploys_it_too_stops_no_host_whatever_is_heard_first(
    verb: Verb, epoch: int, first_epoch: int
) -> None:
    steps: list[Callable[[ScriptedHost], None]] = [
        lambda host: host.hear(said(epoch=first_epoch, secret=LIAR), LIAR_NODE),
        lambda host: host.hear(said(epoch=epoch + 600, verb=verb, secret=LIAR), LIAR_NODE),
        lambda host: host.hear(said()),
        told,
    ]
    for order in permutations(steps):
        host = a_host()
        for step in order:
            step(host)
        assert is_deployed(host)
        host.hear(said(epoch=epoch + 1_200, verb=verb, secret=LIAR), LIAR_NODE)
        assert is_deployed(host)


def test_a_stop_that_its_signer_may_not_say_is_undone_and_that_is_told() -> None:
    host = a_host()
    host.hear(said(epoch=2, secret=LIAR))
    host.hear(said(epoch=1002, verb=Verb.CANCEL, secret=LIAR))
    assert host.record().state is HostState.CANCELLED, "it knows of nobody else"
    told(host)
    assert is_deployed(host)
    [again] = [one.statement for one in host.all_of(commands.TellStatement)]
    assert (again.verb, again.epoch, again.signer) == (Verb.DEPLOY, 1003, KEY.public.ed25519)
    told(host)
    assert len(host.all_of(commands.TellStatement)) == 1


def test_what_was_told_before_the_manifest_was_here_counts() -> None:
    host = a_host()
    host.held_back.add(commands.PullManifest)
    host.hear(said(secret=LIAR))
    told(host)
    host.release(commands.PullManifest)
    host.hear(said(epoch=2, verb=Verb.CANCEL, secret=LIAR))
    assert is_deployed(host)


def test_a_newcomer_obeys_the_deployer_after_another_has_resumed_it() -> None:
    for verb, epoch in STOPS:
        host = a_host()
        host.hear(said(epoch=3, secret=THIRD_KEY))
        told(host, node=THIRD)
        host.hear(said(epoch=epoch + 6, verb=verb, secret=THIRD_KEY))
        assert is_deployed(host)
        host.hear(said(epoch=epoch + 12, verb=verb))
        assert not is_deployed(host)


def test_a_newcomer_to_which_nobody_tells_it_obeys_the_first_word_that_it_heard() -> None:
    host = a_host()
    host.hear(said(epoch=3))
    host.hear(said(epoch=4, verb=Verb.CANCEL))
    assert host.record().state is HostState.CANCELLED


def test_an_honest_cancel_is_not_undone_by_what_agrees_with_it() -> None:
    host = a_host()
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    told(host)
    assert host.record().state is HostState.CANCELLED


def test_what_is_not_signed_or_told_by_this_host_itself_is_not_believed() -> None:
    host = a_host()
    host.hear(said())
    told(host, CONTESTED_HEAD, is_signed=False)
    told(host, CONTESTED_HEAD, OWN)
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.CANCELLED


def test_hosts_that_differ_make_each_other_refuse_both() -> None:
    one, other = a_host(), a_host()
    one.hear(said())
    other.hear(said(secret=LIAR))
    for _ in range(2):
        for host, speaker in ((one, other), (other, one)):
            deployer = speaker.statements.deployer(ONE.id)
            assert deployer is not None
            told(host, deployer.told, THIRD)
    for host in (one, other):
        for secret in (PEER_KEY, LIAR):
            host.hear(said(epoch=2, verb=Verb.CANCEL, secret=secret))
        assert is_deployed(host)


def test_a_contest_outlasts_a_restart() -> None:
    host = a_host()
    host.hear(said(secret=LIAR))
    told(host)
    again = ScriptedHost(statements=register_from_bytes(register_to_bytes(host.statements)))
    again.files = host.files
    a_host(again).tell(events.DaemonStarted())
    again.hear(said(epoch=2, verb=Verb.CANCEL, secret=LIAR))
    assert is_deployed(again)
    assert [one.kind for one in host.all_of(commands.RecordAudit)].count("deployed by several") == 1


def test_a_stop_is_undone_after_a_restart_too() -> None:
    host = a_host()
    host.hear(said(secret=LIAR))
    host.hear(said(epoch=2, verb=Verb.CANCEL, secret=LIAR))
    again = ScriptedHost(statements=register_from_bytes(register_to_bytes(host.statements)))
    again.files = host.files
    a_host(again).tell(events.DaemonStarted())
    assert not is_deployed(again)
    told(again)
    assert is_deployed(again)


def test_what_was_stopped_long_ago_stays_so() -> None:
    host = a_host()
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.wall_s += UNDONE_WITHIN_S + 1
    told(host, CONTESTED_HEAD)
    assert host.record().state is HostState.CANCELLED


def test_a_stop_of_the_publishers_stays_though_others_deployed_it() -> None:
    host = a_host()
    host.hear(said(secret=LIAR))
    host.hear(said(epoch=2, verb=Verb.CANCEL, secret=PUBLISHER))
    told(host)
    assert host.record().state is HostState.CANCELLED


def test_a_host_tells_whom_it_knows_first_hand_and_at_once() -> None:
    host = a_host()
    host.hear(said())
    assert host.brain.lifecycle.progress_of(host.record(), 0.0, host.wall_s).deployer == HEAD
    host.record().changed = False
    told(host, LIAR.public.ed25519[:HEAD_BYTES], LIAR_NODE)
    assert host.record().changed
    assert host.brain.lifecycle.progress_of(host.record(), 0.0, host.wall_s).deployer == CONTESTED_HEAD
    newcomer = a_host()
    newcomer.hear(said(epoch=3))
    assert newcomer.brain.lifecycle.progress_of(newcomer.record(), 0.0, host.wall_s).deployer == b""


def test_a_budget_of_one_that_did_not_deploy_it_alone_is_followed_no_longer() -> None:
    host = a_host()
    host.hear(said(epoch=2, secret=LIAR))
    host.roster.key_of = lambda node: LIAR.public.ed25519 if node == LIAR_NODE else None  # type: ignore[method-assign]
    told(host, b"", LIAR_NODE, budget=Budget(1_000, 1))
    assert host.budgets.limit_bytes(SHORT) == 1
    told(host)
    assert host.budgets.limit_bytes(SHORT) == 0


def test_what_is_told_of_an_unknown_deployment_is_not_kept() -> None:
    host = a_host()
    host.statements.note_told(DeploymentId(bytes(32)), HEAD)
    assert host.statements.state.deployers == {}


def test_a_stop_of_the_highest_epoch_is_left_as_it_is() -> None:
    host = a_host()
    host.hear(said(secret=LIAR))
    stop: Statement = said(epoch=2_000_001, verb=Verb.CANCEL, secret=LIAR)
    host.statements.state.statements[ONE.id] = stop
    told(host)
    assert host.statements.statement(ONE.id) == stop
    assert [one.sentence for one in host.all_of(commands.RecordLog)].count("a stop cannot be undone") == 1
