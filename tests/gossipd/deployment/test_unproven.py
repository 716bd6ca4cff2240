"""Statements about nothing, by values: what they cost, whom they hold up, and that nothing of them stays."""

from __future__ import annotations

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.deployment import commands, events
from gossipd.deployment import unproven as module
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.statement import Verb
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.deployment.unproven import PullShare, PullShares, Standing, UnprovenStatements
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from membership.member import node_id
from tests.gossipd.deployment.scripted_host import ONE, PEER, PEER_KEY, WALL_S, ScriptedHost, said
from tests.gossipd.manifest.making import PUBLISHER, manifest

LIAR = SecretKey(b"l" * 32)
LIAR_NODE = node_id(LIAR.public.ed25519)


def nothing(number: int) -> DeploymentId:
    return DeploymentId(number.to_bytes(32, "big"))


def lied_to(count: int = 100) -> ScriptedHost:
    """A host whose peers are one honest host and one that speaks of what does not exist; its pulls hang."""
    host = ScriptedHost()
    host.roster.peers[LIAR_NODE] = "rack-2"
    host.roster.signers.add(LIAR.public.ed25519)
    host.held_back.add(commands.PullManifest)
    for number in range(count):
        host.hear(said(nothing(number), secret=LIAR), LIAR_NODE)
    return host


def equally(signer: bytes) -> Standing:
    return Standing.HEARD


def table(**bounds: int) -> UnprovenStatements:
    return UnprovenStatements(**({"per_signer_max": 2, "in_all_max": 3, "life_s": 600} | bounds))


def test_a_hundred_fakes_of_one_member_stop_no_deployment_of_others() -> None:
    host = lied_to()
    pulls = host.all_of(commands.PullManifest)
    assert len(pulls) == 4, "half of the pulls are left to all others"
    host.hear(said())
    [genuine] = [one for one in host.waiting if isinstance(one, commands.PullManifest) and one.deployment == ONE.id]
    host.waiting.remove(genuine)
    host.tell(events.EnvelopeFound(genuine.work, ONE.envelope))
    assert host.record().state is HostState.DOWNLOADING
    assert host.drop(manifest(version=2)).error is None, "they take no room"
    assert [one.id for one in host.brain.lifecycle] == [ONE.id, manifest(version=2).id], "they are no deployments"


def test_nothing_of_a_fake_is_kept_told_or_signed_again() -> None:
    host = lied_to()
    host.tell(events.DaemonStarted())
    assert host.statements.statements() == ()
    assert register_from_bytes(register_to_bytes(host.statements)).statements() == ()
    host.roster.signers.discard(LIAR.public.ed25519)
    del host.roster.peers[LIAR_NODE]
    host.wait(1_000.0)
    assert host.all_of(commands.TellStatement) == []


def test_a_fake_is_dropped_after_ten_minutes_also_where_its_pull_still_hangs() -> None:
    host = lied_to(3)
    host.wait(599.0)
    assert host.brain.lifecycle.get(nothing(1)) is not None
    host.wait(2.0)
    assert [host.brain.lifecycle.get(nothing(number)) for number in range(3)] == [None] * 3
    assert host.all_of(commands.AbandonWork) == [], "its share is free when its thread is"
    host.release(commands.PullManifest)
    assert host.brain.lifecycle.get(nothing(1)) is None


def test_what_waits_behind_a_signers_first_statements_has_its_turn() -> None:
    many = [manifest(version=version) for version in range(1, 30)]
    host = ScriptedHost()
    host.peers_have = {one.id: one.envelope for one in many}
    host.held_back.add(commands.PullManifest)
    for one in many:
        host.hear(said(one.id))
    host.release(commands.PullManifest)
    host.wait(30.0)
    found = [host.brain.lifecycle.get(one.id) for one in many]
    assert all(one is not None and one.is_proven for one in found)


def test_a_signer_that_names_a_wrong_size_does_not_hide_the_manifest() -> None:
    host = lied_to(0)
    host.hear(said(secret=LIAR, epoch=9), LIAR_NODE)
    host.hear(said())
    assert len({one.manifest_bytes for one in host.brain._context.unproven.of(ONE.id)}) == 1
    assert {one.signer for one in host.brain._context.unproven.of(ONE.id)} == {
        LIAR.public.ed25519, PEER_KEY.public.ed25519,
    }  # fmt: skip


def test_a_cancel_that_comes_before_the_manifest_is_the_last_word() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.PullManifest)
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.release(commands.PullManifest)
    assert host.record().state is HostState.CANCELLED
    assert not host.all_of(commands.OpenSwarm)


def test_a_manifest_that_proves_a_cancel_is_kept_for_those_who_ask() -> None:
    host = ScriptedHost()
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.CANCELLED
    assert host.files == {ONE.id: ONE.envelope}
    assert not host.all_of(commands.AbandonWork)
    assert host.statements.accepted(ONE.id) is None, "a joiner may need a lower version"
    host.hear(said(epoch=3))
    assert host.record().state is HostState.DOWNLOADING


def test_a_cancel_by_one_that_may_not_ends_nothing_though_it_comes_first() -> None:
    host = ScriptedHost()
    host.roster.roles = DEFAULT_ROLES
    host.roster.signers.add(LIAR.public.ed25519)
    host.hear(said(epoch=2, verb=Verb.CANCEL, secret=LIAR), LIAR_NODE)
    assert host.all_of(commands.PullManifest) == [], "alone it counts for nothing"
    host.hear(said())
    assert "statement refused" in host.audited()
    assert host.record().state is HostState.DOWNLOADING
    assert not host.all_of(commands.DeleteModel)


def test_the_deployers_own_cancel_ends_the_search_for_the_manifest() -> None:
    host = ScriptedHost()
    host.roster.roles = DEFAULT_ROLES
    host.held_back.add(commands.PullManifest)
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.brain.lifecycle.get(ONE.id) is None
    host.release(commands.PullManifest)
    assert not host.all_of(commands.OpenSwarm)


def test_a_manifest_of_which_nobody_who_may_has_said_anything_is_forgotten() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.PullManifest)
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.roster.roles = DEFAULT_ROLES  # a reload
    host.release(commands.PullManifest)
    assert "statement refused" in host.audited()
    assert host.brain.lifecycle.get(ONE.id) is None
    host.hear(said())
    assert host.record().state is HostState.DOWNLOADING


def test_the_publishers_cancel_counts_as_soon_as_the_manifest_is_verified() -> None:
    host = ScriptedHost()
    host.roster.roles = DEFAULT_ROLES
    host.roster.signers.add(PUBLISHER.public.ed25519)
    host.held_back.add(commands.PullManifest)
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL, secret=PUBLISHER))
    host.release(commands.PullManifest)
    assert host.record().state is HostState.CANCELLED


def test_a_manifest_that_is_kept_for_a_cancel_may_be_deployed_meanwhile() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.KeepManifest)
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.hear(said(epoch=3))
    assert host.record().state is HostState.INIT
    host.release(commands.KeepManifest)
    assert host.record().state is HostState.DOWNLOADING
    assert host.statements.accepted(ONE.id) is not None


def test_a_restart_keeps_exactly_what_was_proven() -> None:
    two, three = manifest(version=2), manifest(version=3, name="org/other")
    host = lied_to(20)
    host.held_back.clear()
    host.peers_have |= {two.id: two.envelope, three.id: three.envelope}
    host.hear(said())
    host.hear(said(two.id, epoch=4, verb=Verb.CANCEL))
    host.drop(three)
    restarted = ScriptedHost(statements=register_from_bytes(register_to_bytes(host.statements)))
    restarted.files = host.files
    restarted.tell(events.DaemonStarted())
    told = {one.statement.deployment: one.statement for one in restarted.all_of(commands.TellStatement)}
    assert told == {one.deployment: one for one in host.statements.statements()}
    assert {one: told[one].verb for one in told} == {
        ONE.id: Verb.DEPLOY, two.id: Verb.CANCEL, three.id: Verb.DEPLOY,
    }  # fmt: skip
    states = {record.id: record.state for record in restarted.brain.lifecycle}
    assert states == {
        ONE.id: HostState.DOWNLOADING, two.id: HostState.CANCELLED, three.id: HostState.DOWNLOADING,
    }  # fmt: skip
    for one in (ONE, two, three):
        assert restarted.statements.authors(one.id) == host.statements.authors(one.id)
        assert restarted.statements.is_proven(one.id)


def test_a_client_that_is_taken_out_of_the_list_says_nothing_more() -> None:
    host = ScriptedHost()
    host.roster.signers.add(LIAR.public.ed25519)
    host.roster.clients.add(LIAR.public.ed25519)
    host.hear(said(secret=LIAR))
    host.roster.signers.discard(LIAR.public.ed25519)
    host.roster.clients.clear()
    host.hear(said(epoch=2, verb=Verb.CANCEL, secret=LIAR))
    host.hear(said(manifest(version=2).id, secret=LIAR))
    assert host.record().state is HostState.DOWNLOADING, "what it said before stands"
    assert host.brain.lifecycle.get(manifest(version=2).id) is None


def test_a_statement_from_the_future_is_refused_and_written_down() -> None:
    host = ScriptedHost()
    host.hear(said(issued_s=WALL_S + 599))
    assert host.record().state is HostState.DOWNLOADING
    host.hear(said(manifest(version=2).id, issued_s=WALL_S + 601))
    assert host.brain.lifecycle.get(manifest(version=2).id) is None
    assert "statement refused" in host.audited()


def test_every_signers_oldest_are_looked_into_first() -> None:
    made = table()
    for number in range(5):
        made.add(said(nothing(number), secret=LIAR), LIAR_NODE, 0.0)
    made.add(said(nothing(9)), PEER, 0.0)
    assert list(made.wanted(equally)) == [nothing(0), nothing(9), nothing(1)]
    assert [(one.deployment, brought_by) for one, brought_by in made.take(nothing(0))] == [(nothing(0), LIAR_NODE)]
    assert list(made.wanted(equally)) == [nothing(1), nothing(9), nothing(2)]


def test_the_signer_with_most_loses_the_oldest_that_waits() -> None:
    made = table()
    made.add(said(nothing(5_000)), PEER, 0.0)
    for number in range(module.WORDS_MAX + 10):
        made.add(said(nothing(number), secret=LIAR), LIAR_NODE, 0.0)
    assert len(made) == module.WORDS_MAX
    assert made.of(nothing(5_000))
    assert [bool(made.of(nothing(number))) for number in (0, 1, 2, 12, 13)] == [True, True, False, False, True]


def test_where_nobodys_word_waits_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORDS_MAX", 1)
    made = table()
    made.add(said(nothing(0)), PEER, 0.0)
    made.add(said(nothing(1), secret=LIAR), LIAR_NODE, 0.0)
    assert list(made.wanted(equally)) == [nothing(1)]
    assert (made.of(nothing(0)), len(made)) == ([], 1)


def test_words_that_wait_change_nothing_that_is_looked_into() -> None:
    made = table()
    for number in range(2):
        made.add(said(nothing(number), secret=LIAR), LIAR_NODE, 0.0)
    wanted, revision = made.wanted(equally), made.revision
    for number in range(2, module.WORDS_MAX + 50):
        made.add(said(nothing(number), secret=LIAR), LIAR_NODE, 1.0)
    assert (made.wanted(equally), made.revision) == (wanted, revision), (
        "or each of them would have all be looked at again"
    )
    made.add(said(nothing(1), epoch=3, secret=LIAR), PEER, 2.0)
    assert made.revision == revision + 1
    assert made.wanted(equally)[nothing(1)].epoch == 3
    made.expire(600.0)
    assert list(made.wanted(equally)) == [nothing(52), nothing(53)]
    assert made.next_deadline() == 601.0


def test_a_cancel_that_becomes_a_deploy_is_looked_into() -> None:
    made = table()
    made.add(said(nothing(0), epoch=2, verb=Verb.CANCEL), PEER, 0.0, is_moot=True)
    assert made.wanted(equally) == {}
    made.add(said(nothing(0), epoch=3), PEER, 0.0)
    made.add(said(nothing(0), epoch=3, secret=LIAR), LIAR_NODE, 0.0)
    assert list(made.wanted(equally)) == [nothing(0)]
    assert made.holders(nothing(0)) == [PEER, LIAR_NODE]
    assert [holder for _, holder in made.take(nothing(0))] == [PEER, LIAR_NODE]
    assert (made.wanted(equally), made.holders(nothing(0)), len(made)) == ({}, [], 0)


def test_nobody_vouches_for_what_became_a_cancel() -> None:
    made = table()
    made.add(said(nothing(0)), PEER, 0.0)
    made.vouch(progress_key(nothing(0)), LIAR_NODE)
    made.add(said(nothing(0), epoch=2, verb=Verb.CANCEL), PEER, 0.0, is_moot=True)
    made.vouch(progress_key(nothing(0)), LIAR_NODE)
    assert (made.wanted(equally), made.vouchers(nothing(0))) == ({}, [])


def test_a_signer_cannot_make_its_word_last() -> None:
    made = table()
    made.add(said(nothing(1)), PEER, 0.0)
    made.add(said(nothing(1), epoch=2), PEER, 500.0)
    assert [one.epoch for one in made.of(nothing(1))] == [2]
    made.expire(made.next_deadline())
    assert (len(made), made.next_deadline()) == (0, float("inf"))


def test_no_signer_holds_more_than_its_share_of_pulls() -> None:
    pulls = PullShares(in_all_max=3, per_signer_max=2, per_peer_max=3)
    a, b, c = (PullShare(signer, PEER, is_unheard=False) for signer in (b"a", b"b", b"c"))
    assert [pulls.begin([b"a"], PEER, equally) for _ in range(3)] == [a, a, None]
    assert pulls.begin([b"a", b"b"], PEER, equally) == b
    assert pulls.begin([b"c"], PEER, equally) is None
    pulls.end(a)
    assert pulls.begin([b"c"], PEER, equally) == c
    assert pulls.busy() == {PEER}
    pulls.end(c)
    assert pulls.busy() == set()


def made_up(number: int) -> SecretKey:
    return SecretKey(number.to_bytes(32))


def test_signers_that_are_made_up_hold_half_of_the_pulls_and_no_more() -> None:
    pulls = PullShares(in_all_max=4, per_signer_max=2, per_peer_max=9)
    begun = [pulls.begin([b"%d" % one], PEER, lambda _: Standing.UNHEARD) for one in range(4)]
    assert [one is not None for one in begun] == [True, True, False, False]
    assert pulls.begin([b"known"], PEER, equally) is not None


def test_made_up_signers_do_not_crowd_out_those_that_spoke_to_this_host() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.PullManifest)
    for number in range(100):  # a liar's, passed on by an honest host
        secret = made_up(number)
        node = node_id(secret.public.ed25519)
        host.roster.peers[node] = "rack-2"
        host.roster.silent.add(node)
        host.roster.signers.add(secret.public.ed25519)
        for more in range(8):
            host.hear(said(nothing(8 * number + more), secret=secret))
    host.hear(said())
    asked = [one.deployment for one in host.all_of(commands.PullManifest)]
    assert ONE.id in asked
    assert len(asked) <= 5


def test_proven_signers_come_first_and_made_up_ones_last() -> None:
    made, liars = table(), [made_up(number) for number in range(3)]
    for number, secret in enumerate(liars):
        made.add(said(nothing(number), secret=secret), PEER, 0.0)
    made.add(said(nothing(8), secret=LIAR), PEER, 0.0)
    made.add(said(nothing(9)), PEER, 0.0)
    standings = {PEER_KEY.public.ed25519: Standing.PROVEN, LIAR.public.ed25519: Standing.HEARD}
    wanted = made.wanted(lambda signer: standings.get(signer, Standing.UNHEARD))
    assert list(wanted) == [nothing(9), nothing(8), nothing(0)]


def test_members_that_bring_words_take_turns_whichever_host_signed() -> None:
    made = table()
    for number in range(5):
        made.add(said(nothing(number), secret=made_up(number)), LIAR_NODE, 0.0)
    for number in (8, 9):
        made.add(said(nothing(number)), PEER, 0.0)
    assert list(made.wanted(equally)) == [nothing(0), nothing(8), nothing(1)]


def test_the_member_that_brought_most_loses_a_word_whichever_host_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORDS_MAX", 10)
    made = table()
    made.add(said(nothing(99)), PEER, 0.0)
    for number in range(50):
        made.add(said(nothing(number), secret=made_up(number)), LIAR_NODE, 0.0)
    assert len(made) == 10
    assert made.of(nothing(99))


def test_a_host_that_has_deployed_before_is_proven_and_a_client_is_known() -> None:
    host = ScriptedHost()
    host.roster.clients.add(LIAR.public.ed25519)
    host.roster.silent.add(PEER)
    before = host.brain._context.standings()
    assert (before(PEER_KEY.public.ed25519), before(LIAR.public.ed25519)) == (Standing.UNHEARD, Standing.HEARD)
    host.hear(said())
    assert host.brain._context.standings()(PEER_KEY.public.ed25519) is Standing.PROVEN


def test_one_member_under_many_names_that_answers_nothing_holds_half_of_the_pulls() -> None:
    host = ScriptedHost()
    host.roster.peers[LIAR_NODE] = "rack-2"
    host.held_back.add(commands.PullManifest)
    for number in range(40):
        name = SecretKey(number.to_bytes(32))
        host.roster.signers.add(name.public.ed25519)
        host.hear(said(nothing(number), secret=name), LIAR_NODE)
    asked = [one.peer for one in host.all_of(commands.PullManifest)]
    assert asked.count(LIAR_NODE) <= 4


def alike(number: int) -> DeploymentId:
    """Its id begins as that of the genuine deployment."""
    return DeploymentId(ONE.id[:8] + number.to_bytes(24))


def hidden(fakes: int = 50, begin_alike: int = 0) -> ScriptedHost:
    """A host that hears of the genuine deployment from a liar only, after many words on nothing."""
    host = ScriptedHost()
    host.roster.peers[LIAR_NODE] = "rack-2"
    host.roster.signers.add(LIAR.public.ed25519)
    for number in range(fakes):
        host.hear(said(nothing(number), secret=LIAR), LIAR_NODE)
    for number in range(begin_alike):
        host.hear(said(alike(number), secret=LIAR), LIAR_NODE)
    host.hear(said(secret=LIAR), LIAR_NODE)
    return host


def test_what_a_liar_signs_first_is_found_as_soon_as_a_host_tells_of_its_progress() -> None:
    host = hidden()
    host.wait(30.0)
    assert host.brain.lifecycle.get(ONE.id) is None
    host.tell(events.ProgressHeard(PEER, progress_key(ONE.id)))
    host.wait(1.0)
    assert host.record().state is HostState.DOWNLOADING


def test_progress_that_came_before_the_word_counts() -> None:
    host = ScriptedHost()
    host.progress.record(PEER, progress_key(ONE.id), 1, Progress(state=HostState.DOWNLOADING), now=0.0, is_signed=True)
    host.roster.signers.add(LIAR.public.ed25519)
    for number in range(50):
        host.hear(said(nothing(number), secret=LIAR), LIAR_NODE)
    host.hear(said(secret=LIAR), LIAR_NODE)
    host.wait(1.0)
    assert host.record().state is HostState.DOWNLOADING


def test_deployments_whose_ids_begin_alike_give_way_to_each_other() -> None:
    host = hidden(begin_alike=40)
    for _ in range(20):
        host.tell(events.ProgressHeard(PEER, progress_key(ONE.id)))
        host.wait(5.0)
    assert host.record().state is HostState.DOWNLOADING


def test_members_that_nobody_heard_vouch_for_nothing_and_nobody_for_itself() -> None:
    host = hidden()
    host.roster.silent.add(PEER)
    host.tell(events.ProgressHeard(PEER, progress_key(ONE.id)))
    host.tell(events.ProgressHeard(LIAR_NODE, progress_key(ONE.id)))
    host.wait(30.0)
    assert host.brain.lifecycle.get(ONE.id) is None


def test_members_that_vouch_take_turns_with_those_that_bring_words() -> None:
    made = table()
    for number in range(9):
        made.add(said(nothing(number), secret=made_up(number)), LIAR_NODE, 0.0)
        made.vouch(progress_key(nothing(number)), LIAR_NODE)
    made.add(said(nothing(8 << 192)), PEER, 0.0)
    assert list(made.wanted(equally))[:2] == [nothing(0), nothing(8 << 192)]


LAST = nothing(8 << 192)  # its progress key is its own


def crowded(brought_by: int = 5) -> UnprovenStatements:
    """More words on nothing than are looked into at once, each brought by another host; a genuine one comes last, from
    one of those hosts."""
    made = table()
    for number in range(brought_by):
        made.add(said(nothing(number), secret=made_up(number)), node_id(bytes([number]) * 32), 0.0)
    made.add(said(LAST), node_id(bytes(32)), 0.0)
    return made


def test_what_is_asked_for_in_vain_gives_way_to_what_was_not() -> None:
    made = crowded()
    assert LAST not in made.wanted(equally)
    looked_into: set[DeploymentId] = set()
    for _ in range(2):
        wanted = made.wanted(equally)
        looked_into |= wanted.keys()
        for deployment in wanted:
            for _ in range(6):
                made.not_had(deployment, PEER)
    assert LAST in looked_into


def test_a_word_gives_way_after_twice_as_many_pulls_each_time() -> None:
    made = crowded(brought_by=1)
    revisions = []
    for pulls in range(1, 50):
        before = made.revision
        made.not_had(LAST, PEER)
        revisions += [pulls] * (made.revision - before)
    assert revisions == [6, 12, 24, 48]


def test_signers_that_may_be_made_up_come_after_what_was_asked_for_in_vain() -> None:
    made = table()
    for number in range(9):
        made.add(said(nothing(number), secret=made_up(number)), PEER, 0.0)
    made.add(said(LAST), LIAR_NODE, 0.0)
    for _ in range(100):
        made.not_had(LAST, LIAR_NODE)
    standings = {PEER_KEY.public.ed25519: Standing.HEARD}
    assert LAST in made.wanted(lambda signer: standings.get(signer, Standing.UNHEARD))


def test_what_members_vouch_for_comes_first_among_those_in_turn() -> None:
    made = crowded()
    made.vouch(progress_key(LAST), node_id(b"v" * 32))
    assert next(iter(made.wanted(equally))) == LAST
