"""A register that was lost, or is older than the store: what others say of versions that only the store knows."""

from __future__ import annotations

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.deployment import commands, events
from gossipd.deployment.deployer import CONTESTED_HEAD, HEAD_BYTES
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.deployment.statement_rules import is_moot
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import Manifest
from membership.member import node_id
from tests.gossipd.deployment.scripted_host import OWN, PEER, PEER_KEY, WALL_S, ScriptedHost, said
from tests.gossipd.manifest.making import TRUSTED, manifest

ONE, TWO, THREE = (manifest(version=version) for version in (1, 2, 3))
ALL = (ONE, TWO, THREE)
LIAR = SecretKey(b"l" * 32)


def a_host(*, starts: bool = True, published: tuple[Manifest, ...] = ALL) -> ScriptedHost:
    """Its store has three versions whole, and its register is empty."""
    host = ScriptedHost(published=published)
    host.roster.roles = DEFAULT_ROLES
    host.roster.peers[node_id(LIAR.public.ed25519)] = "rack-1"
    host.roster.signers.add(LIAR.public.ed25519)
    host.files = {one.id: one.envelope for one in ALL}
    host.peers_have = {}
    if starts:
        host.tell(events.DaemonStarted())
    return host


def tell_deployer(host: ScriptedHost, of: Manifest = TWO, secret: SecretKey = PEER_KEY) -> None:
    """A peer tells with its progress who deployed it."""
    key, head = progress_key(of.id), secret.public.ed25519[:HEAD_BYTES]
    host.progress.record(PEER, key, 1_000, Progress(state=HostState.COMPLETE, deployer=head), now=0.0, is_signed=True)
    host.tell(events.ProgressHeard(PEER, key, tells_deployer=True))


def bring(host: ScriptedHost, statement: Statement) -> None:
    """As gossip does: what is moot is kept back."""
    if not is_moot(statement, host.statements, host.roster):
        host.hear(statement)


def of_two(verb: Verb, secret: SecretKey = PEER_KEY, deployment: DeploymentId = TWO.id) -> Statement:
    epoch = {Verb.CANCEL: 2, Verb.ROLL_BACK: 4, Verb.REMOVE: 6}[verb]
    return said(deployment, epoch=epoch, verb=verb, secret=secret)


@pytest.mark.parametrize("comes_first", ["word", "deployer"])
def test_a_version_rolled_back_meanwhile_is_no_longer_current(comes_first: str) -> None:
    host = a_host()
    for one in (ONE, THREE):
        host.hear(said(one.id))
    if comes_first == "deployer":
        tell_deployer(host)
    bring(host, of_two(Verb.ROLL_BACK))
    if comes_first == "word":
        assert host.brain.lifecycle.get(TWO.id) is None, "anybody may have said it"
        assert "statement refused" not in host.audited(), "it is perhaps right"
        tell_deployer(host)
        assert host.done[-1] == commands.JudgeStatements()
        bring(host, of_two(Verb.ROLL_BACK))
    assert host.record(TWO.id).state is HostState.COMPLETE
    assert host.all_of(commands.PointCurrent)[-1].avoided == {2}


def test_a_version_removed_everywhere_meanwhile_goes() -> None:
    host = a_host()
    tell_deployer(host)
    bring(host, of_two(Verb.REMOVE))
    assert host.record(TWO.id).state is HostState.REMOVED
    assert host.published == {ONE.id, THREE.id}


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.REMOVE, Verb.ROLL_BACK])
def test_nobody_but_its_deployer_stops_what_the_register_lost(verb: Verb) -> None:
    host = a_host()
    bring(host, of_two(verb, LIAR))
    tell_deployer(host)
    bring(host, of_two(verb, LIAR))
    assert host.brain.lifecycle.get(TWO.id) is None
    assert TWO.id in host.published


def test_who_deployed_it_may_be_told_before_the_manifest_is_read() -> None:
    host = a_host(starts=False)
    tell_deployer(host)
    host.tell(events.DaemonStarted())
    bring(host, of_two(Verb.REMOVE))
    assert host.record(TWO.id).state is HostState.REMOVED


@pytest.mark.parametrize("order", [ALL, tuple(reversed(ALL))])
def test_versions_of_the_store_are_trusted_again_in_any_order(order: tuple[Manifest, ...]) -> None:
    host = a_host(starts=False)
    host.held_back.add(commands.ReadManifest)
    host.tell(events.DaemonStarted())
    for one in order:
        host.hear(said(one.id))
        host.release(commands.ReadManifest)
        host.held_back.add(commands.ReadManifest)
    host.release(commands.ReadManifest)
    assert [host.record(one.id).state for one in ALL] == [HostState.COMPLETE] * 3
    assert set(host.statements.state.versions[ONE.name]) == {1, 2, 3}


def test_what_an_older_version_may_not_do_it_may_not_do_by_lying_in_the_store() -> None:
    host = a_host(published=(THREE,))
    host.peers_have = {TWO.id: TWO.envelope}
    host.hear(said(TWO.id))
    assert host.record(TWO.id).state is HostState.EXPIRED, "the store does not have it"


def test_an_override_waits_for_a_manifest_that_is_new_here() -> None:
    host = a_host(starts=False)
    host.statements.accept(THREE, host.wall_s)
    host.statements.override(ONE.name)
    host.tell(events.DaemonStarted())
    assert set(host.statements.state.versions[ONE.name]) == {1, 2, 3}
    assert ONE.name in host.statements.state.overridden


def test_an_operator_removes_what_only_the_store_knows() -> None:
    host = a_host()
    would = host.request(events.RemoveOrdered, ONE.name, 1, True)
    assert (would.sentence, would.error) == (f"would remove {ONE.label}, all of it, from this host", None)
    done = host.request(events.RemoveOrdered, ONE.name, 1)
    assert (done.sentence, done.error) == (f"{ONE.label} is removed from this host and stays removed", None)
    assert ONE.id not in host.published and host.statements.is_removed(ONE.id)
    unknown = host.request(events.RemoveOrdered, ONE.name, 9)
    assert unknown.error is not None and unknown.error.code == "E_NOT_FOUND"


def test_neither_strangers_nor_damage_nor_cut_short_publications_are_trusted() -> None:
    host = a_host(starts=False)
    host.files = {ONE.id: THREE.envelope, TWO.id: TWO.envelope[:-1], THREE.id: THREE.envelope}
    host.context.cut_short = frozenset({THREE.id})
    host.tell(events.DaemonStarted())
    assert host.statements.state.versions == {} and len(host.all_of(commands.ReadManifest)) == 2
    host = a_host(starts=False)
    host.trusted = set()
    host.tell(events.DaemonStarted())
    assert host.statements.state.versions == {}


def test_what_the_register_knows_or_an_operator_removed_is_not_read() -> None:
    host = a_host(starts=False)
    host.statements.accept(ONE, host.wall_s)
    host.statements.mark_removed(TWO.id)
    host.statements.supersede(THREE.id)
    host.tell(events.DaemonStarted())
    assert not host.all_of(commands.ReadManifest)


def test_own_records_of_progress_are_no_evidence() -> None:
    host = a_host(starts=False)
    key, head = progress_key(TWO.id), PEER_KEY.public.ed25519[:HEAD_BYTES]
    told = Progress(state=HostState.COMPLETE, deployer=head)
    host.progress.record(OWN, key, 1_000, told, now=0.0, is_signed=True)
    host.tell(events.DaemonStarted())
    assert host.statements.deployer(TWO.id) is None


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.REMOVE, Verb.ROLL_BACK])
def test_what_was_stopped_long_ago_stays_so_when_a_second_deployer_is_told(verb: Verb) -> None:
    host = a_host()
    tell_deployer(host)
    epoch = {Verb.CANCEL: 2, Verb.ROLL_BACK: 4, Verb.REMOVE: 6}[verb]
    bring(host, said(TWO.id, epoch=epoch, verb=verb, issued_s=WALL_S - 200 * 86_400))
    before = len(host.all_of(commands.TellStatement))
    key, liar = progress_key(TWO.id), node_id(LIAR.public.ed25519)
    told = Progress(state=HostState.COMPLETE, deployer=CONTESTED_HEAD)
    host.progress.record(liar, key, 1_000, told, now=0.0, is_signed=True)
    host.tell(events.ProgressHeard(liar, key, tells_deployer=True))
    assert len(host.all_of(commands.TellStatement)) == before
    last = host.statements.statement(TWO.id)
    assert last is not None and last.verb is verb


def restarted(old: ScriptedHost) -> ScriptedHost:
    host = ScriptedHost(statements=register_from_bytes(register_to_bytes(old.statements)), published=ALL)
    host.roster.roles, host.files, host.peers_have = DEFAULT_ROLES, dict(old.files), {}
    host.tell(events.DaemonStarted())
    return host


def test_who_deployed_it_counts_after_one_more_restart() -> None:
    host = restarted(a_host())
    tell_deployer(host)
    bring(host, of_two(Verb.ROLL_BACK))
    assert host.record(TWO.id).statement.verb is Verb.ROLL_BACK


@pytest.mark.parametrize("again", [events.ClockJudged(), events.TrustReloaded()])
def test_what_was_refused_at_the_start_is_read_again_when_keys_or_the_clock_are_judged(
    again: events.DeploymentEvent,
) -> None:
    host = a_host(starts=False)
    host.trusted = set()
    host.tell(events.DaemonStarted())
    assert host.statements.state.versions == {}
    host.trusted = TRUSTED
    host.tell(again)
    assert set(host.statements.state.versions[ONE.name]) == {1, 2, 3}


def test_a_stop_counts_after_a_client_s_when_its_deployer_is_told() -> None:
    host, client = a_host(), SecretKey(b"c" * 32)
    host.roster.clients.add(client.public.ed25519)
    host.roster.signers.add(client.public.ed25519)
    bring(host, of_two(Verb.CANCEL, client))
    bring(host, of_two(Verb.REMOVE))
    assert host.record(TWO.id).state is HostState.COMPLETE
    tell_deployer(host)
    assert host.done[-1] == commands.JudgeStatements()
    bring(host, of_two(Verb.REMOVE))
    assert host.record(TWO.id).state is HostState.REMOVED


def test_what_was_accepted_once_and_is_not_in_the_store_is_not_removed_from_it() -> None:
    host = a_host(published=())
    host.statements.accept(THREE, host.wall_s)
    error = host.request(events.RemoveOrdered, ONE.name, 3).error
    assert error is not None and error.code == "E_NOT_FOUND"
    assert not host.statements.is_removed(THREE.id)
