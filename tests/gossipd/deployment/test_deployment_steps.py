"""One deployment's steps, by values: what the end of work leads to, and lives that end in the middle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from gossipd.core.errors import LocalError
from gossipd.core.events import ChunkLost, ChunkStored, FinishModel, ReportStall, StallReason
from gossipd.core.ids import SOURCE
from gossipd.core.reasons import HostReason
from gossipd.core.targets import Targets
from gossipd.deployment import commands, events
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_record import HostState, progress_key
from gossipd.deployment.statement import Verb
from gossipd.deployment.statement_store import AcceptedManifest
from gossipd.manifest.manifest import deployment_id, seal_manifest
from gossipd.parts.part import choose_part
from gossipd.parts.want import WantError, parse_want
from membership.member import NodeId
from tests.gossipd.deployment.scripted_host import ONE, PEER, WALL_S, ScriptedHost, said
from tests.gossipd.manifest.making import STRANGER, draft, manifest, sealed_fields

FULL = set(range(ONE.chunk_count))
LIAR = NodeId(bytes(15) + b"1")
REFUSED = LocalError("Input/output error", code="E_STORE_IO")


def host_that(heard: bool = True, **options: Any) -> ScriptedHost:
    host = ScriptedHost(**options)
    if heard:
        host.hear(said())
    return host


def states(host: ScriptedHost) -> tuple[HostState, HostReason]:
    return host.record().state, host.record().reason


def kinds(host: ScriptedHost) -> list[str]:
    plain = (commands.RecordAudit, commands.RecordLog)
    return [type(one).__name__ for one in host.done if not isinstance(one, plain)]


def test_a_statement_leads_to_a_published_model() -> None:
    host = host_that()
    assert states(host) == (HostState.DOWNLOADING, HostReason.NONE)
    host.tell(FinishModel(ONE.id))
    assert kinds(host) == [
        "ReadManifest", "PullManifest", "OpenManifest", "KeepManifest", "KeepStatements", "ReserveSpace", "OpenSwarm",
        "PublishModel",
    ]  # fmt: skip
    assert states(host) == (HostState.COMPLETE, HostReason.NONE)
    assert host.record().chunks_verified == ONE.chunk_count
    assert host.audited() == ["published"]


def test_a_kept_manifest_is_neither_pulled_nor_written_again() -> None:
    host = ScriptedHost()
    host.files[ONE.id] = ONE.envelope
    host.statements.hear(said(), host.roster.signers)
    again = ScriptedHost(statements=type(host.statements)(host.statements.state))
    again.statements.state.versions.setdefault(ONE.name, {})[ONE.version] = ONE.id
    again.statements.state.accepted[ONE.id] = AcceptedManifest(ONE.signer, 0)
    again.files = host.files
    again.tell(events.DaemonStarted())
    assert kinds(again) == ["TellStatement", "ReadManifest", "OpenManifest", "ReserveSpace", "OpenSwarm"]


def test_a_model_that_is_whole_and_published_is_complete_at_once() -> None:
    host = host_that(published=[ONE])
    assert states(host) == (HostState.COMPLETE, HostReason.NONE)
    assert not host.all_of(commands.PublishModel)
    host.tell(FinishModel(ONE.id))
    assert not host.all_of(commands.PublishModel)


def test_a_host_outside_the_targets_keeps_the_manifest_and_opens_nothing() -> None:
    host = ScriptedHost(name="node-1")
    other = manifest(version=1, targets=Targets(names=("elsewhere",)))
    host.peers_have[other.id] = other.envelope
    host.hear(said(other.id))
    assert host.files[other.id] == other.envelope
    assert not host.record(other.id).is_target
    assert not host.all_of(commands.ReserveSpace)
    host.hear(said(other.id, 2, Verb.CANCEL))
    assert host.record(other.id).state is HostState.CANCELLED


# ---- the manifest ----------------------------------------------------------------------------------


def test_pulls_are_repeated_with_pauses_that_double() -> None:
    host = ScriptedHost()
    host.peers_have.clear()
    host.hear(said())
    host.wait(25.0)
    pulls = zip(host.done, host.done_s, strict=True)
    asked_s = [when for one, when in pulls if isinstance(one, commands.PullManifest)]
    pauses_s = [round(later - earlier, 2) for earlier, later in itertools.pairwise(asked_s)]
    assert pauses_s == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_each_further_peer_may_be_silent_for_twice_as_long() -> None:
    host = ScriptedHost()
    host.peers_have.clear()
    host.hear(said())
    host.wait(25.0)
    assert [one.answer_s for one in host.all_of(commands.PullManifest)[:6]] == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]


def test_a_peer_that_never_gave_a_manifest_may_be_silent_for_less_than_one_that_did() -> None:
    host = ScriptedHost()
    host.hear(said())
    host.roster.peers[LIAR] = "rack-2"
    first, second, third = (manifest(version=version) for version in (2, 3, 4))
    host.hear(said(first.id), LIAR)
    host.peers_have |= {one.id: one.envelope for one in (second, third)}
    host.hear(said(second.id), PEER)
    host.held_back.add(commands.PullManifest)
    host.hear(said(third.id), LIAR)
    asked = [(one.peer, one.answer_s) for one in host.all_of(commands.PullManifest)]
    assert asked == [(PEER, 1.0), (LIAR, 0.25), (PEER, 1.0), (LIAR, 0.25)]
    host.peers_have.pop(third.id)
    host.hear(said(third.id), PEER)
    host.release(commands.PullManifest)
    host.wait(0.06)
    last = host.all_of(commands.PullManifest)[-1]
    assert (last.peer, last.deployment, last.answer_s) == (PEER, third.id, 2.0)


def pausing(*others: NodeId) -> ScriptedHost:
    """A host that has asked for a manifest in vain for so long that it pauses for 5 s; 3.6 s of the pause are over."""
    host = ScriptedHost()
    host.peers_have.clear()
    host.hear(said())
    host.wait(20.0)
    host.roster.peers |= dict.fromkeys(others, "rack-2")
    host.peers_have[ONE.id] = ONE.envelope
    return host


def test_a_pause_ends_when_another_host_tells_that_it_has_the_manifest() -> None:
    host = pausing(LIAR)
    host.tell(events.ProgressHeard(LIAR, progress_key(ONE.id)))
    host.wait(0.1)
    assert states(host) == (HostState.DOWNLOADING, HostReason.NONE)


def test_hosts_that_are_known_or_never_spoke_end_no_pause() -> None:
    host = pausing(LIAR)
    host.roster.silent.add(LIAR)
    for node in (PEER, LIAR):
        host.tell(events.ProgressHeard(node, progress_key(ONE.id)))
    host.wait(1.0)
    assert states(host) == (HostState.INIT, HostReason.NONE)
    host.wait(0.5)
    assert states(host) == (HostState.DOWNLOADING, HostReason.NONE)


def test_many_that_claim_the_manifest_have_a_host_ask_now_and_then() -> None:
    claiming = [NodeId(number.to_bytes(16)) for number in range(200)]
    host = pausing(*claiming)
    host.peers_have.clear()
    before = len(host.all_of(commands.PullManifest))
    for node in claiming:
        host.tell(events.ProgressHeard(node, progress_key(ONE.id)))
        host.wait(0.1)
    assert len(host.all_of(commands.PullManifest)) - before <= 20 / (5 / 8) + 1


def test_nobody_to_ask_is_asked_again_later() -> None:
    host = ScriptedHost()
    host.roster.dead.add(PEER)
    host.hear(said())
    assert not host.all_of(commands.PullManifest)
    host.roster.dead.clear()
    host.wait(0.1)
    assert states(host) == (HostState.DOWNLOADING, HostReason.NONE)


def test_other_content_than_was_announced_is_asked_of_others() -> None:
    host = ScriptedHost()
    host.peers_have[ONE.id] = manifest(version=2).envelope
    host.hear(said())
    host.wait(60.0)
    assert states(host) == (HostState.INIT, HostReason.NONE)
    host.peers_have[ONE.id] = b"garbage"
    host.wait(60.0)
    assert host.record().state is HostState.INIT
    host.peers_have[ONE.id] = ONE.envelope
    host.wait(5.0)
    assert host.record().state is HostState.DOWNLOADING
    assert 2 not in host.statements.state.versions[ONE.name]


def test_a_manifest_that_three_times_no_trusted_key_signed_is_refused() -> None:
    host = ScriptedHost()
    envelope = seal_manifest(draft(version=1), STRANGER)
    host.peers_have[ONE.id] = envelope
    host.hear(said())
    host.wait(1.0)
    assert len(host.all_of(commands.PullManifest)) == 3
    assert states(host) == (HostState.FAILED, HostReason.REFUSED_KEY)
    assert host.record().sentence.startswith("E_KEY_UNKNOWN")
    assert host.audited() == ["refused"]


def test_an_address_that_no_manifest_may_have_is_not_told_as_one_to_be_allowed() -> None:
    host = ScriptedHost()
    envelope = sealed_fields(sources=["https://me:secret@h/"])
    host.peers_have[deployment_id(envelope)] = envelope
    host.hear(said(deployment_id(envelope)))
    host.wait(1.0)
    record = host.record(deployment_id(envelope))
    assert (record.state, record.reason) == (HostState.FAILED, HostReason.REFUSED)
    assert record.sentence.startswith("E_SOURCE_FORBIDDEN: source")


def test_a_kept_manifest_that_has_rotted_is_pulled() -> None:
    host = ScriptedHost()
    rotten = bytearray(ONE.envelope)
    rotten[-1] ^= 1
    host.files[ONE.id] = bytes(rotten)
    host.hear(said())
    assert host.record().state is HostState.DOWNLOADING
    assert host.files[ONE.id] == ONE.envelope


def test_a_kept_manifest_of_an_untrusted_publisher_is_refused() -> None:
    host = ScriptedHost()
    host.files[ONE.id] = seal_manifest(draft(version=1), STRANGER)
    host.hear(said())
    assert states(host) == (HostState.FAILED, HostReason.REFUSED_KEY)
    assert not host.all_of(commands.PullManifest)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"version": 0}, HostReason.REFUSED_ROLLBACK),
        ({"version": 2, "expires_s": int(WALL_S) - 1}, HostReason.REFUSED_EXPIRED),
    ],
)
def test_a_rollback_and_an_expired_manifest_are_not_fetched(fields: dict[str, Any], reason: HostReason) -> None:
    host = host_that()
    offered = manifest(**fields)
    host.peers_have[offered.id] = offered.envelope
    host.hear(said(offered.id))
    record = host.record(offered.id)
    assert (record.state, record.reason) == (HostState.EXPIRED, reason)
    assert offered.id not in host.files
    assert len(host.all_of(commands.ReserveSpace)) == 1


def test_keeping_the_manifest_is_tried_every_five_seconds() -> None:
    host = ScriptedHost()
    host.fail(commands.KeepManifest, Failure.DISK, LocalError("full", code="E_STATE_WRITE"), times=2)
    host.fail(commands.KeepStatements, Failure.DISK, LocalError("full", code="E_STATE_WRITE"))
    host.hear(said())
    assert states(host) == (HostState.INIT, HostReason.DISK)
    assert (host.record().label, host.record().changed) == (ONE.label, True), "it is named, and others are told"
    host.wait(14.9)
    assert host.record().state is HostState.INIT
    host.wait(0.2)
    assert states(host) == (HostState.DOWNLOADING, HostReason.NONE)


def test_what_is_trusted_is_durable_before_space_is_reserved() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.KeepStatements)
    host.hear(said())
    assert not host.all_of(commands.ReserveSpace)
    assert host.brain.lifecycle.is_coming(ONE.id)
    host.release(commands.KeepStatements)
    assert len(host.all_of(commands.ReserveSpace)) == 1
    assert not host.brain.lifecycle.is_coming(ONE.id)


# ---- the store -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "code", "reason"),
    [
        (Failure.NO_SPACE, "E_NO_SPACE", HostReason.NO_SPACE),
        (Failure.DISK, "E_NO_SPACE", HostReason.NO_SPACE),
        (Failure.DISK, "E_STORE_READ_ONLY", HostReason.DISK_READ_ONLY),
        (Failure.DISK, "E_STORE_ACCESS", HostReason.DISK_READ_ONLY),
        (Failure.DISK, "E_STORE_IO", HostReason.DISK_FAILING),
        (Failure.DISK, "E_STORE_HANDLES", HostReason.DISK),
    ],
)
def test_reserving_is_tried_again_and_says_why(failure: Failure, code: str, reason: HostReason) -> None:
    host = ScriptedHost()
    host.fail(commands.ReserveSpace, failure, LocalError("it refuses", code=code), times=3)
    host.hear(said())
    assert states(host) == (HostState.INIT, reason)
    assert host.record().changed
    host.record().changed = False
    host.wait(14.9)
    assert states(host) == (HostState.INIT, reason)
    assert not host.record().changed, "the same is told by the next refresh"
    host.wait(0.2)
    assert states(host) == (HostState.DOWNLOADING, HostReason.NONE)


def test_a_store_that_another_model_stands_in_fails_the_deployment() -> None:
    host = ScriptedHost()
    host.fail(commands.ReserveSpace, Failure.FINAL, LocalError("something else", code="E_VERSION_TAKEN"))
    host.hear(said())
    assert states(host) == (HostState.FAILED, HostReason.VERSION_TAKEN)
    [ended] = [one for one in host.all_of(commands.RecordLog) if one.sentence == "deployment ended"]
    assert ended.fields["why"] == "E_VERSION_TAKEN: something else", "the cure of a reason may lie in the log"
    assert not host.all_of(commands.DeleteModel)
    host.hear(said(epoch=2))
    assert host.record().state is HostState.DOWNLOADING, "deployed again after its failure"


def test_what_stood_in_the_way_in_the_store_is_looked_at_again_after_a_reload() -> None:
    for code in ("E_VERSION_TAKEN", "E_STORE_FORMAT", "E_PATH_SYMLINK"):
        host = ScriptedHost()
        host.fail(commands.ReserveSpace, Failure.FINAL, LocalError("something else", code=code))
        host.hear(said())
        assert host.record().state is HostState.FAILED
        host.tell(events.TrustReloaded())
        assert host.record().state is HostState.DOWNLOADING


def test_publishing_is_tried_again_until_all_is_whole() -> None:
    host = host_that()
    host.fail(commands.PublishModel, Failure.NOT_WHOLE, LocalError("two chunks are missing", code="E_NOT_WHOLE"))
    host.fail(commands.PublishModel, Failure.DISK, REFUSED)
    host.tell(FinishModel(ONE.id))
    assert states(host) == (HostState.DOWNLOADING, HostReason.DISK)
    host.wait(5.0)
    assert states(host) == (HostState.VERIFYING, HostReason.DISK_FAILING)
    host.wait(5.0)
    assert states(host) == (HostState.COMPLETE, HostReason.NONE)


def test_publishing_at_the_end_of_the_daemon_gives_nothing_up() -> None:
    host = host_that()
    host.fail(commands.PublishModel, Failure.GONE, LocalError("not open", code="E_NOT_HELD"))
    host.tell(FinishModel(ONE.id))
    host.wait(60.0)
    assert host.record().state is HostState.VERIFYING
    assert not host.all_of(commands.DeleteModel)
    assert len(host.all_of(commands.PublishModel)) == 1


def test_something_foreign_in_the_place_of_a_version_fails_the_publication() -> None:
    host = host_that()
    host.fail(commands.PublishModel, Failure.FINAL, LocalError("foreign", code="E_VERSION_TAKEN"))
    host.tell(FinishModel(ONE.id))
    assert states(host) == (HostState.FAILED, HostReason.VERSION_TAKEN)
    assert kinds(host)[-2:] == ["CloseSwarm", "DeleteModel"]


# ---- a life that ends in the middle ------------------------------------------------------------------


def in_read(host: ScriptedHost) -> type:
    return commands.ReadManifest


def in_pull(host: ScriptedHost) -> type:
    return commands.PullManifest


def in_open(host: ScriptedHost) -> type:
    return commands.OpenManifest


def in_keep(host: ScriptedHost) -> type:
    return commands.KeepManifest


def in_register(host: ScriptedHost) -> type:
    return commands.KeepStatements


def in_reserve(host: ScriptedHost) -> type:
    return commands.ReserveSpace


def believed(host: ScriptedHost) -> None:
    """A statement of an earlier run: its manifest was verified then."""
    host.statements.hear(said(), host.roster.signers)
    host.tell(events.DaemonStarted())


@pytest.mark.parametrize("place", [in_read, in_pull, in_open, in_keep, in_register, in_reserve])
def test_a_cancel_ends_the_life_in_every_step_before_the_swarm(place: Callable[[ScriptedHost], type]) -> None:
    host = ScriptedHost()
    kind = place(host)
    host.held_back.add(kind)
    believed(host)
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.CANCELLED
    abandoned = [] if kind is commands.KeepManifest else ["AbandonWork"]  # it is kept for those who ask for it
    assert [type(one).__name__ for one in host.all_of(commands.AbandonWork)] == abandoned
    is_cut_short = kind is commands.PullManifest
    assert bool(host.waiting) is not is_cut_short
    host.release(kind)
    is_opened = kind is commands.ReserveSpace
    assert len(host.all_of(commands.DeleteModel)) == is_opened, "what was opened and holds no chunk is deleted"
    host.wait(60.0)
    assert host.record().state is HostState.CANCELLED
    assert not host.all_of(commands.OpenSwarm)
    assert ONE.id not in host.store


def test_a_deploy_that_follows_a_cancel_waits_for_the_store() -> None:
    host = ScriptedHost()
    host.held_back.add(in_reserve(host))
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.hear(said(epoch=3))
    assert len(host.all_of(commands.ReserveSpace)) == 1
    host.release(commands.ReserveSpace)
    assert host.record().state is HostState.DOWNLOADING
    assert len(host.all_of(commands.OpenSwarm)) == 1


def with_a_chunk(host: ScriptedHost) -> ScriptedHost:
    """Its one deployment has a verified chunk."""
    host.store[ONE.id] = {0}
    host.tell(ChunkStored(ONE.id, 0, SOURCE, 100, 0.1))
    return host


def test_a_deploy_after_a_cancel_goes_on_from_the_chunks_that_are_verified() -> None:
    host = with_a_chunk(host_that())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.wait(600.0)
    assert not host.all_of(commands.DeleteModel)
    host.hear(said(epoch=3))
    assert host.record().state is HostState.DOWNLOADING
    assert host.record().chunks_verified == 1
    assert len(host.all_of(commands.OpenSwarm)[-1].held) == 1


def test_a_model_that_does_not_fit_takes_the_space_of_what_was_cancelled() -> None:
    host = with_a_chunk(host_that())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    two = manifest(version=2)
    host.fail(commands.ReserveSpace, Failure.NO_SPACE, LocalError("full", code="E_NO_SPACE"))
    host.drop(two)
    assert [one.deployment for one in host.all_of(commands.DeleteModel)] == [ONE.id]
    assert host.record().chunks_verified == 0, "nothing is told of chunks that are gone"
    host.wait(6.0)
    assert host.record(two.id).state is HostState.DOWNLOADING
    host.fail(commands.ReserveSpace, Failure.NO_SPACE, LocalError("full", code="E_NO_SPACE"))
    host.drop(manifest(version=3))
    assert len(host.all_of(commands.DeleteModel)) == 1, "there is nothing more to delete"


def test_a_full_disk_takes_the_space_of_what_was_cancelled() -> None:
    host = with_a_chunk(host_that())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.tell(events.DiskConditionChanged("E_STORE_IO"))
    assert not host.all_of(commands.DeleteModel)
    host.tell(events.DiskConditionChanged("E_NO_SPACE"))
    assert len(host.all_of(commands.DeleteModel)) == 1


def test_a_slow_disk_explains_the_stalls_of_what_came_before_and_after() -> None:
    host = with_a_chunk(host_that())
    host.tell(events.DiskWritesWait(is_so=True))
    host.tell(ReportStall(ONE.id, StallReason.HOLDER_SILENT, None))
    assert told(host) == (HostState.DOWNLOADING, HostReason.DISK_SLOW)
    two = manifest(name="two")
    host.drop(two)
    assert host.record(two.id).is_disk_slow
    host.tell(events.DiskConditionChanged("E_STORE_SILENT"))
    assert told(host) == (HostState.DOWNLOADING, HostReason.DISK_SILENT)
    host.tell(events.DiskConditionChanged(""))
    assert told(host) == (HostState.DOWNLOADING, HostReason.DISK_SLOW)
    host.tell(events.DiskWritesWait(is_so=False))
    assert told(host) == (HostState.DOWNLOADING, HostReason.HOLDER_SILENT)


def told(host: ScriptedHost) -> tuple[HostState, HostReason]:
    progress = host.record().progress(WALL_S)
    return progress.state, progress.reason


def test_a_pause_holds_up_the_planner_and_a_deploy_lets_it_go_on() -> None:
    host = host_that()
    host.hear(said(epoch=2, verb=Verb.PAUSE))
    assert told(host) == (HostState.PAUSED, HostReason.PAUSED)
    assert host.all_of(commands.PauseSwarm) == [commands.PauseSwarm(ONE.id, True)]
    assert not host.all_of(commands.CloseSwarm), "it goes on serving"
    host.hear(said(epoch=3))
    assert told(host) == (HostState.DOWNLOADING, HostReason.NONE)
    assert host.all_of(commands.PauseSwarm)[1:] == [commands.PauseSwarm(ONE.id, False)]
    assert len(host.all_of(commands.ReserveSpace)) == 1


def test_a_host_that_hears_of_a_paused_deployment_is_paused_after_a_restart_too() -> None:
    host = ScriptedHost()
    host.hear(said(epoch=2, verb=Verb.PAUSE))
    assert told(host) == (HostState.PAUSED, HostReason.PAUSED)
    assert kinds(host)[-2:] == ["OpenSwarm", "PauseSwarm"], "before any fetch is planned"
    again = ScriptedHost(statements=host.statements)
    again.files[ONE.id] = ONE.envelope
    again.tell(events.DaemonStarted())
    assert told(again) == (HostState.PAUSED, HostReason.PAUSED)


def test_what_is_complete_or_being_published_is_not_paused() -> None:
    host = host_that()
    host.held_back.add(commands.PublishModel)
    host.tell(FinishModel(ONE.id))
    host.hear(said(epoch=2, verb=Verb.PAUSE))
    assert told(host)[0] is HostState.VERIFYING
    host.release(commands.PublishModel)
    assert told(host)[0] is HostState.COMPLETE
    host.tell(ChunkLost(ONE.id, 0))
    assert told(host)[1] is HostReason.REFILLING, "what users read is repaired"
    assert not host.all_of(commands.PauseSwarm)


def test_a_paused_deployment_that_is_not_whole_after_all_stays_paused() -> None:
    host = host_that()
    host.held_back.add(commands.PublishModel)
    host.tell(FinishModel(ONE.id))
    host.hear(said(epoch=2, verb=Verb.PAUSE))
    host.fail(commands.PublishModel, Failure.NOT_WHOLE, LocalError("missing", code="E_NOT_WHOLE"))
    host.release(commands.PublishModel)
    assert told(host) == (HostState.PAUSED, HostReason.PAUSED)
    assert host.all_of(commands.PauseSwarm) == [commands.PauseSwarm(ONE.id, True)]


def test_a_removal_everywhere_is_finished_after_a_crash_and_by_a_host_that_was_away() -> None:
    statements = host_that().statements
    statements.hear(said(epoch=6, verb=Verb.REMOVE), {said().signer})
    host = ScriptedHost(statements=statements, published=[ONE])
    host.files[ONE.id] = ONE.envelope
    host.tell(events.DaemonStarted())
    assert states(host) == (HostState.REMOVED, HostReason.REMOVED)
    assert host.all_of(commands.DeleteModel)[-1].even_published
    assert ONE.id not in host.store


def test_a_removal_everywhere_deletes_what_is_being_published_once_that_has_ended() -> None:
    host = host_that()
    host.held_back.add(commands.PublishModel)
    host.tell(FinishModel(ONE.id))
    host.hear(said(epoch=6, verb=Verb.REMOVE))
    assert not host.all_of(commands.DeleteModel)
    host.release(commands.PublishModel)
    assert states(host) == (HostState.REMOVED, HostReason.REMOVED)
    assert ONE.id not in host.store


def test_a_rollback_stops_what_is_not_whole_and_moves_current_of_what_is_published_later() -> None:
    host = with_a_chunk(host_that())
    host.hear(said(epoch=4, verb=Verb.ROLL_BACK))
    assert states(host) == (HostState.CANCELLED, HostReason.NONE)
    assert not host.all_of(commands.PointCurrent)
    other = host_that()
    other.held_back.add(commands.PublishModel)
    other.tell(FinishModel(ONE.id))
    other.hear(said(epoch=4, verb=Verb.ROLL_BACK))
    other.release(commands.PublishModel)
    assert states(other)[0] is HostState.COMPLETE
    assert [one.avoided for one in other.all_of(commands.PointCurrent)] == [frozenset({ONE.version})]


def test_a_rollback_is_followed_again_after_a_restart() -> None:
    statements = host_that().statements
    statements.hear(said(epoch=4, verb=Verb.ROLL_BACK), {said().signer})
    host = ScriptedHost(statements=statements, published=[ONE])
    host.files[ONE.id] = ONE.envelope
    host.tell(events.DaemonStarted())
    assert states(host)[0] is HostState.COMPLETE
    assert [one.avoided for one in host.all_of(commands.PointCurrent)] == [frozenset({ONE.version})]


def opening_again() -> ScriptedHost:
    """What was complete in the last run is being opened."""
    host = ScriptedHost(statements=host_that().statements, published=[ONE])
    host.files[ONE.id] = ONE.envelope
    host.held_back.add(commands.ReserveSpace)
    host.tell(events.DaemonStarted())
    return host


@pytest.mark.parametrize(("epoch", "verb"), [(2, Verb.CANCEL), (4, Verb.ROLL_BACK)])
def test_a_host_that_hears_of_the_end_while_it_opens_what_it_has_keeps_it(epoch: int, verb: Verb) -> None:
    host = opening_again()
    host.hear(said(epoch=epoch, verb=verb))
    host.release(commands.ReserveSpace)
    assert states(host) == (HostState.COMPLETE, HostReason.NONE)
    gone = opening_again()
    gone.hear(said(epoch=epoch, verb=verb))
    gone.published.clear()
    gone.store[ONE.id] = set()
    gone.release(commands.ReserveSpace)
    assert states(gone) == (HostState.CANCELLED, HostReason.NONE), "what is no longer there is not fetched"
    assert gone.all_of(commands.DeleteModel)


def test_what_is_removed_after_a_cancel_is_deleted_at_once() -> None:
    host = with_a_chunk(host_that())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.request(events.RemoveOrdered, ONE.name, ONE.version)
    assert states(host) == (HostState.REMOVED, HostReason.REMOVED)
    assert len(host.all_of(commands.DeleteModel)) == 1
    assert ONE.id not in host.store


def test_a_refusal_of_the_store_after_a_cancel_leaves_it_cancelled() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.ReserveSpace)
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.fail(commands.ReserveSpace, Failure.NO_SPACE, LocalError("full", code="E_NO_SPACE"))
    host.release(commands.ReserveSpace)
    host.wait(30.0)
    assert states(host) == (HostState.CANCELLED, HostReason.NONE)


def test_the_next_life_waits_until_the_disk_has_deleted() -> None:
    host = host_that()
    host.fail(commands.DeleteModel, Failure.DISK, REFUSED, times=3)
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.hear(said(epoch=3))
    host.wait(14.9)
    assert host.record().state is HostState.INIT
    assert len(host.all_of(commands.OpenSwarm)) == 1
    host.wait(0.2)
    assert len(host.all_of(commands.DeleteModel)) == 4
    assert host.record().state is HostState.DOWNLOADING


def test_a_cancel_while_it_is_published_keeps_what_is_complete() -> None:
    host = host_that()
    host.held_back.add(commands.PublishModel)
    host.tell(FinishModel(ONE.id))
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.VERIFYING
    assert not host.all_of(commands.AbandonWork), "publishing cannot be cut short"
    host.release(commands.PublishModel)
    assert host.audited() == ["published"]
    assert host.record().state is HostState.COMPLETE, "users see it, so it is complete"
    assert not host.all_of(commands.CloseSwarm)


def test_a_cancel_between_two_attempts_to_publish_ends_it() -> None:
    host = host_that()
    host.fail(commands.PublishModel, Failure.DISK, REFUSED)
    host.tell(FinishModel(ONE.id))
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.wait(30.0)
    assert host.record().state is HostState.CANCELLED
    assert len(host.all_of(commands.PublishModel)) == 1


def test_lost_chunks_after_a_cancel_do_not_bring_the_deployment_back() -> None:
    host = host_that()
    host.held_back.add(commands.PublishModel)
    host.tell(FinishModel(ONE.id))
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.fail(commands.PublishModel, Failure.NOT_WHOLE, LocalError("missing", code="E_NOT_WHOLE"))
    host.release(commands.PublishModel)
    host.wait(30.0)
    assert host.record().state is HostState.CANCELLED
    assert len(host.all_of(commands.PublishModel)) == 1


def test_a_late_finish_of_an_earlier_life_publishes_nothing() -> None:
    host = host_that()
    host.held_back.add(commands.DeleteModel)
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.hear(said(epoch=3))
    host.tell(FinishModel(ONE.id))
    host.release(commands.DeleteModel)
    assert host.record().state is HostState.DOWNLOADING
    assert not host.all_of(commands.PublishModel)


def test_a_dropped_manifest_ends_the_search_for_it() -> None:
    host = ScriptedHost()
    host.peers_have.clear()
    host.hear(said())
    host.wait(20.0)
    assert host.record().state is HostState.INIT
    host.drop()
    assert host.record().state is HostState.DOWNLOADING
    assert len(host.all_of(commands.OpenManifest)) == 1


SMALL = parse_want(["files:file-001.bin"])
WANTED = choose_part(ONE, SMALL).wanted


def test_a_part_that_is_wanted_is_fetched_told_and_complete() -> None:
    host = ScriptedHost()
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    host.hear(said())
    assert host.all_of(commands.ReserveSpace)[-1].want == SMALL
    assert host.all_of(commands.OpenSwarm)[-1].wanted == WANTED
    host.tell(FinishModel(ONE.id))
    told = host.record().progress(WALL_S)
    assert (told.state, told.chunks_verified, told.chunks_wanted) == (HostState.COMPLETE, len(WANTED), len(WANTED))
    assert told.want == SMALL.text and len(WANTED) < ONE.chunk_count


def test_another_want_opens_again_what_is_complete_and_the_same_one_does_not() -> None:
    host = ScriptedHost()
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    host.hear(said())
    host.tell(FinishModel(ONE.id))
    before = len(host.all_of(commands.ReserveSpace))
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    assert len(host.all_of(commands.ReserveSpace)) == before
    host.tell(events.WantsChanged({}))
    assert host.all_of(commands.ReserveSpace)[-1].want.is_everything
    assert host.all_of(commands.CloseSwarm)[-1] == commands.CloseSwarm(ONE.id)
    assert host.all_of(commands.OpenSwarm)[-1].wanted is None


def test_a_want_that_changes_while_the_store_is_at_work_is_looked_at_afterwards() -> None:
    host = ScriptedHost()
    host.hear(said())
    host.tell(FinishModel(ONE.id))
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    host.wait(1.0)
    assert host.all_of(commands.ReserveSpace)[-1].want == SMALL


def test_a_want_that_means_nothing_fails_with_a_cure_and_begins_again_with_another() -> None:
    host = ScriptedHost()
    host.fail(commands.ReserveSpace, Failure.FINAL, WantError("want matches no file"))
    host.hear(said())
    assert states(host) == (HostState.FAILED, HostReason.WANT)
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    assert states(host) == (HostState.DOWNLOADING, HostReason.NONE)


def test_a_want_that_changes_while_chunks_come_is_opened_again() -> None:
    host = ScriptedHost()
    host.hear(said())
    assert states(host)[0] is HostState.DOWNLOADING
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    assert host.all_of(commands.OpenSwarm)[-1].wanted == WANTED
    host.tell(FinishModel(ONE.id))
    assert states(host)[0] is HostState.COMPLETE


def test_a_narrower_want_is_tried_where_the_model_has_no_space() -> None:
    host = ScriptedHost()
    host.fail(commands.ReserveSpace, Failure.NO_SPACE, LocalError("full", code="E_NO_SPACE"))
    host.hear(said())
    assert states(host)[1] is HostReason.NO_SPACE
    host.tell(events.WantsChanged({ONE.name: SMALL}, ONE.name))
    host.wait(10.0)
    asked = host.all_of(commands.ReserveSpace)[-1]
    assert (asked.want, asked.frees) == (SMALL, True)
    assert states(host)[0] is HostState.DOWNLOADING


def test_a_cancelled_version_that_is_whole_stays_when_another_part_is_wanted() -> None:
    host = ScriptedHost()
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    host.hear(said())
    host.tell(FinishModel(ONE.id))
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    before = len(host.all_of(commands.ReserveSpace))
    host.tell(events.WantsChanged({}))
    assert len(host.all_of(commands.ReserveSpace)) == before and states(host)[0] is HostState.COMPLETE


def test_an_order_to_free_opens_again_once_what_is_complete_and_no_other_name() -> None:
    host = ScriptedHost()
    host.hear(said())
    host.tell(FinishModel(ONE.id))
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    assert not host.all_of(commands.ReserveSpace)[-1].frees
    host.tell(FinishModel(ONE.id))
    host.tell(events.WantsChanged({ONE.name: SMALL}, "another"))
    before = len(host.all_of(commands.ReserveSpace))
    host.tell(events.WantsChanged({ONE.name: SMALL}, ONE.name))
    assert host.all_of(commands.ReserveSpace)[-1].frees
    host.wait(1.0)
    assert len(host.all_of(commands.ReserveSpace)) == before + 1


def test_a_lost_chunk_that_is_not_wanted_is_not_missed() -> None:
    host = ScriptedHost()
    host.tell(events.WantsChanged({ONE.name: SMALL}))
    host.hear(said())
    host.tell(FinishModel(ONE.id))
    other = min(FULL - set(WANTED))
    host.tell(ChunkLost(ONE.id, other))
    assert host.record().told_state is HostState.COMPLETE
