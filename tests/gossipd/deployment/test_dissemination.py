"""Statements, by values: which are believed, which are told, and that newcomers can believe all of them."""

from __future__ import annotations

from gossipd.deployment import commands, events
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Statement, Verb
from gossipd.identity.keys import SecretKey
from membership.member import NodeId, node_id
from tests.gossipd.deployment.scripted_host import KEY, ONE, OWN, PEER, PEER_KEY, ScriptedHost, said
from tests.gossipd.manifest.making import manifest

STRANGER = SecretKey(b"s" * 32)
STRANGER_KEY = STRANGER.public.ed25519
LAST = NodeId(b"\xff" * 16)


def told(host: ScriptedHost) -> list[Statement]:
    return [one.statement for one in host.all_of(commands.TellStatement)]


def test_a_statement_under_the_key_of_another_deployment_is_refused() -> None:
    host = ScriptedHost()
    host.tell(events.StatementHeard(said().encode(), b"e" * 32, PEER))
    assert host.brain.lifecycle.get(ONE.id) is None
    [refused] = host.all_of(commands.RecordAudit)
    assert (refused.kind, refused.fields["subject"], refused.fields["code"]) == (
        "statement refused", PEER.hex()[:12], "E_DECODE",
    )  # fmt: skip


def test_what_gossip_brought_is_acted_on_and_not_told_again() -> None:
    host = ScriptedHost()
    host.hear(said())
    assert host.record().state is HostState.DOWNLOADING
    assert told(host) == []
    host.hear(said())
    assert len(host.all_of(commands.ReadManifest)) == 1


def test_a_wrong_signature_changes_nothing() -> None:
    host = ScriptedHost()
    wire = bytearray(said().encode())
    wire[-1] ^= 1
    host.tell(events.StatementHeard(bytes(wire), ONE.id, PEER))
    assert host.brain.lifecycle.get(ONE.id) is None
    assert host.audited() == ["statement refused"]


def test_an_older_statement_changes_nothing() -> None:
    host = ScriptedHost()
    host.hear(said(epoch=3, verb=Verb.CANCEL))
    host.hear(said(epoch=2))
    host.hear(said(epoch=3))
    assert host.record().state is HostState.CANCELLED, "of one epoch the cancel is the last word"


# ---- the unproven ----------------------------------------------------------------------------------


def test_a_statement_is_believed_when_its_signer_comes() -> None:
    host = ScriptedHost()
    host.hear(said(secret=STRANGER))
    assert host.brain.lifecycle.get(ONE.id) is None
    assert host.audited() == []
    host.roster.signers.add(STRANGER_KEY)
    host.tell(events.RosterChanged())
    assert host.record().state is HostState.DOWNLOADING


def test_one_host_cannot_push_out_the_unproven_statements_of_others() -> None:
    host = ScriptedHost()
    host.hear(said(secret=STRANGER))
    loud = NodeId(b"l" * 16)
    for epoch in range(1, 500):
        host.hear(said(manifest(version=2).id, epoch, secret=STRANGER), loud)
    host.roster.signers.add(STRANGER_KEY)
    host.tell(events.RosterChanged())
    assert host.record().state is HostState.DOWNLOADING


def test_of_one_hosts_unproven_statements_the_newest_are_kept() -> None:
    host = ScriptedHost()
    for epoch in range(1, 500):
        host.hear(said(epoch=epoch, secret=STRANGER))
    assert len(host.brain._dissemination._unvouched) == host.brain._context.settings.unproven_max
    host.roster.signers.add(STRANGER_KEY)
    host.tell(events.RosterChanged())
    assert host.record().statement.epoch == 499


# ---- at start --------------------------------------------------------------------------------------


def test_what_was_believed_is_told_and_acted_on_at_start() -> None:
    host = ScriptedHost()
    host.statements.hear(said(), host.roster.signers)
    host.tell(events.DaemonStarted())
    assert told(host) == [said()]
    assert host.record().state is HostState.DOWNLOADING


def test_a_statement_before_the_start_begins_one_life() -> None:
    host = ScriptedHost()
    host.hear(said())
    host.tell(events.DaemonStarted())
    assert len(host.all_of(commands.ReadManifest)) == 1


# ---- whom to ask for a manifest --------------------------------------------------------------------


def hosts(*numbers: int) -> list[NodeId]:
    return [node_id(bytes([number]) * 32) for number in numbers]


def test_a_manifest_is_asked_of_its_forwarder_first() -> None:
    host = ScriptedHost()
    host.roster.peers |= dict.fromkeys(hosts(*range(2, 12)), "rack-2")
    host.peers_have.clear()
    first, *others = hosts(7, 3, 2, 4, 8, 11)
    for forwarder in (first, *others, first):
        host.hear(said(), forwarder)
    host.wait(300.0)
    asked = [one.peer for one in host.all_of(commands.PullManifest)]
    assert asked[0] == first
    assert {first, *others} < set(asked), "others that have it, and now and then any other"
    assert asked.count(first) < len(asked) / 2, "a host that could not help is one among others"


def test_without_a_living_forwarder_any_host_is_asked() -> None:
    host = ScriptedHost()
    host.roster.peers |= dict.fromkeys(hosts(*range(2, 6)), "rack-2")
    host.roster.dead.add(PEER)
    host.peers_have.clear()
    host.hear(said())
    host.wait(300.0)
    assert {one.peer for one in host.all_of(commands.PullManifest)} == set(hosts(*range(2, 6)))


def test_a_host_that_tells_of_its_progress_has_the_manifest() -> None:
    host = ScriptedHost()
    [other] = hosts(9)
    host.roster.dead.add(PEER)
    host.hear(said())
    host.roster.peers |= dict.fromkeys(hosts(*range(2, 12)), "rack-2")
    host.peers_have.clear()
    host.tell(events.ProgressHeard(other, ONE.id[:8]))
    host.wait(300.0)
    asked = [one.peer for one in host.all_of(commands.PullManifest)]
    assert asked.count(other) > len(asked) / 2


# ---- orphans ---------------------------------------------------------------------------------------


def believed_by(newcomer: ScriptedHost, host: ScriptedHost) -> list[HostState]:
    """What a newcomer that knows only today's roster makes of the statements of ``host``."""
    newcomer.roster.signers = set(host.roster.signers)
    for statement in host.statements.statements():
        newcomer.hear(statement)
    return [record.state for record in newcomer.brain.lifecycle]


def test_a_newcomer_believes_what_a_forgotten_host_said_last() -> None:
    host = ScriptedHost()
    host.tell(events.DaemonStarted())
    host.hear(said(epoch=5))
    host.hear(said(manifest(version=2).id, verb=Verb.CANCEL))
    host.wait(1_000.0)
    host.roster.signers.discard(PEER_KEY.public.ed25519)  # forgotten, and nothing is heard any more
    del host.roster.peers[PEER]
    host.tell(events.RosterChanged())
    host.wait(30.0)
    [again] = told(host)
    assert (again.verb, again.epoch, again.signer) == (Verb.DEPLOY, 6, KEY.public.ed25519), "a cancel needs none"
    newcomer = ScriptedHost()
    newcomer.wall_s += host.now
    assert believed_by(newcomer, host) == [HostState.DOWNLOADING]


def test_what_is_said_again_names_the_size_that_the_manifest_has() -> None:
    host = ScriptedHost()
    host.tell(events.DaemonStarted())
    assert said().manifest_bytes != len(ONE.envelope)
    host.hear(said())
    host.wait(1_000.0)
    host.roster.signers.discard(PEER_KEY.public.ed25519)
    del host.roster.peers[PEER]
    host.wait(30.0)
    host.request(events.CancelOrdered, ONE.name, ONE.version)
    assert [(one.verb, one.manifest_bytes) for one in told(host)] == [
        (Verb.DEPLOY, len(ONE.envelope)), (Verb.CANCEL, len(ONE.envelope)),
    ]  # fmt: skip


def test_an_orphan_is_adopted_without_any_event_about_the_roster() -> None:
    host = ScriptedHost()
    host.tell(events.DaemonStarted())
    host.hear(said())
    host.roster.signers.discard(PEER_KEY.public.ed25519)
    del host.roster.peers[PEER]
    host.wait(136.0)
    assert len(told(host)) == 1
    host.wait(300.0)
    assert len(told(host)) == 1, "it is none any more"


def test_a_statement_of_a_dead_host_is_adopted() -> None:
    host = ScriptedHost()
    host.roster.peers[LAST] = "rack-1"
    host.tell(events.DaemonStarted())
    host.hear(said())
    host.wait(1_000.0)
    host.roster.absent.add(PEER_KEY.public.ed25519)
    host.roster.dead.add(PEER)
    host.wait(30.0)
    assert [one.signer for one in told(host)] == [KEY.public.ed25519]


def test_a_host_that_is_away_for_a_moment_loses_nothing() -> None:
    host = ScriptedHost()
    host.roster.peers[LAST] = "rack-1"
    host.tell(events.DaemonStarted())
    host.hear(said())
    for _ in range(10):
        host.roster.absent.add(PEER_KEY.public.ed25519)
        host.roster.dead.add(PEER)
        host.wait(14.0)
        host.roster.absent.clear()
        host.roster.dead.clear()
        host.wait(16.0)
    assert told(host) == []


def after_silence(lower_ids: int, seconds: float = 136.0, *, host_count: int | None = None) -> int:
    """How many orphans a host adopts, with so many hosts of a lower id alive."""
    host = ScriptedHost()
    host.tell(events.DaemonStarted())
    host.hear(said())
    host.roster.peers = {NodeId(bytes([0] * 15 + [number])): "rack-2" for number in range(lower_ids)}
    assert all(peer < OWN for peer in host.roster.peers)
    if host_count is not None:
        living = set(host.roster.peers)
        host.roster.peers |= dict.fromkeys(hosts(*range(100, 100 + host_count - len(living) - 1)), "rack-2")
        host.roster.dead = set(host.roster.peers) - living
    host.roster.signers = {KEY.public.ed25519}
    host.wait(seconds)
    return len(told(host))


def test_each_next_host_adopts_one_look_later() -> None:
    assert after_silence(0) == 1
    assert after_silence(1) == 0
    assert after_silence(1, 151.0) == 1
    assert after_silence(3, 166.0) == 0
    assert after_silence(3, 181.0) == 1
    assert after_silence(50, 196.0) == 1, "however many there are, the wait is bounded"


def test_a_minority_adopts_nothing() -> None:
    assert after_silence(1, 300.0, host_count=5) == 0
    assert after_silence(1, 300.0, host_count=3) == 1
