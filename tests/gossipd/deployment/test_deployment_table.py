"""The table of deployments, by values: counting, what explains a stall, room, and what a restart takes up."""

from __future__ import annotations

import pytest

from gossipd.core.errors import LocalError
from gossipd.core.events import ChunkLost, ChunkStored, FinishModel, ProbeSource, ReportStall, StallReason
from gossipd.core.ids import LOCAL, SOURCE, DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment import commands, events
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Verb
from gossipd.deployment.statement_store import STATEMENTS_MAX, AcceptedManifest
from gossipd.identity.trust import key_id
from gossipd.sources.errors import SourceAuthError
from membership.member import NodeId
from tests.gossipd.deployment.scripted_host import ONE, OWN, PEER, WALL_S, ScriptedHost, said
from tests.gossipd.manifest.making import TRUSTED, manifest

MATE = NodeId(b"m" * 16)


@pytest.fixture
def host() -> ScriptedHost:
    made = ScriptedHost()
    made.roster.peers[MATE] = "rack-1"
    made.hear(said())
    return made


def hear_accepted(host: ScriptedHost, deployment: DeploymentId, issued_s: float) -> None:
    """A statement on a deployment whose manifest was accepted in an earlier run."""
    host.statements.state.accepted[deployment] = AcceptedManifest(ONE.signer, 0)
    host.hear(said(deployment, issued_s=issued_s))


def test_no_more_deployments_are_kept_than_there_are_last_statements() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.ReadManifest)
    for number in range(STATEMENTS_MAX + 200):
        hear_accepted(host, DeploymentId(number.to_bytes(32, "big")), WALL_S - 2_000 + number)
    known = [record.id for record in host.brain.lifecycle]
    assert len(known) <= STATEMENTS_MAX + 1
    assert all(host.statements.statement(one) for one in known[-STATEMENTS_MAX:])
    host.release(commands.ReadManifest)
    assert len(host.all_of(commands.PullManifest)) == len(known), "a forgotten one goes no further"


def test_one_that_is_still_to_be_deleted_is_not_forgotten() -> None:
    host = ScriptedHost()
    host.fail(commands.DeleteModel, Failure.DISK, LocalError("broken", code="E_STORE_IO"))
    host.statements.state.accepted[ONE.id] = AcceptedManifest(ONE.signer, 0)
    host.hear(said(epoch=2, verb=Verb.CANCEL, issued_s=WALL_S - 5_000))
    host.held_back.add(commands.ReadManifest)
    for number in range(STATEMENTS_MAX + 200):
        hear_accepted(host, DeploymentId(number.to_bytes(32, "big")), WALL_S - 2_000 + number)
    assert host.statements.statement(ONE.id) is None
    host.wait(10.0)
    assert len(host.all_of(commands.DeleteModel)) == 2


def test_chunks_are_counted_by_their_supplier_once_the_store_is_open(host: ScriptedHost) -> None:
    for supplier, length in ((SOURCE, 1), (MATE, 10), (PEER, 100), (LOCAL, 1000)):
        host.tell(ChunkStored(ONE.id, 0, supplier, length, 0.1))
    record = host.record()
    counters = record.counters
    assert (counters.source_bytes, counters.peer_bytes_same_rack, counters.peer_bytes_cross_rack) == (1, 10, 100)
    assert record.chunks_verified == 3, "local copies are in what the store held when it opened"
    host.tell(ChunkLost(ONE.id, 0))
    assert record.chunks_verified == 2
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.tell(ChunkStored(ONE.id, 0, SOURCE, 1, 0.1))
    host.tell(ChunkLost(ONE.id, 0))
    assert record.chunks_verified == 2


def test_a_lost_and_repaired_chunk_leaves_a_trace(host: ScriptedHost) -> None:
    host.tell(FinishModel(ONE.id))
    host.tell(ChunkLost(ONE.id, 3))
    host.tell(ChunkStored(ONE.id, 3, SOURCE, 100, 0.1))
    assert host.audited() == ["published", "chunk lost", "chunk repaired"]
    assert host.record().chunks_verified == ONE.chunk_count


def test_a_troubled_source_is_probed_until_it_delivers(host: ScriptedHost) -> None:
    host.wait(25.0)
    assert not host.all_of(ProbeSource)
    trouble = LocalError("no", code="E_SOURCE_AUTH")
    for _ in range(2):
        host.tell(events.SourceTroubled(ONE.id, trouble))
    assert host.audited() == ["source trouble"]
    assert host.record().sentence == "E_SOURCE_AUTH: no"
    host.wait(30.0)
    assert len(host.all_of(ProbeSource)) == 3
    host.tell(ReportStall(ONE.id, StallReason.STORAGE))
    assert host.record().progress(WALL_S).reason is HostReason.SOURCE_AUTH
    host.tell(ChunkStored(ONE.id, 0, SOURCE, 1, 0.1))
    host.wait(30.0)
    assert len(host.all_of(ProbeSource)) == 3


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("E_STORE_READ_ONLY", HostReason.DISK_READ_ONLY),
        ("E_STORE_IO", HostReason.DISK_FAILING),
        ("E_NO_SPACE", HostReason.NO_SPACE),
        ("E_STORE_HANDLES", HostReason.DISK),
        ("", HostReason.DISK),
    ],
)
def test_a_stall_for_the_disk_says_what_the_disk_refuses(host: ScriptedHost, code: str, reason: HostReason) -> None:
    host.tell(ReportStall(ONE.id, StallReason.DISK))
    host.tell(events.DiskConditionChanged("E_STORE_IO"))
    host.tell(events.DiskConditionChanged(code))
    assert host.record().progress(WALL_S).reason is reason


def test_a_later_deployment_knows_the_state_of_the_disk() -> None:
    host = ScriptedHost()
    host.tell(events.DiskConditionChanged("E_STORE_READ_ONLY"))
    host.hear(said())
    host.tell(ReportStall(ONE.id, StallReason.DISK))
    assert host.record().progress(WALL_S).reason is HostReason.DISK_READ_ONLY


def test_a_stall_is_told_once_and_ends(host: ScriptedHost) -> None:
    for reason in (StallReason.NO_HOLDER, StallReason.NO_HOLDER, None):
        host.tell(ReportStall(ONE.id, reason))
    warnings = [one for one in host.all_of(commands.RecordLog) if one.sentence == "no progress"]
    assert len(warnings) == 1
    assert host.record().stall is None


def test_a_restart_goes_on_counting_where_the_last_run_left_off() -> None:
    table = ClusterProgress()
    earlier = Progress(state=HostState.DOWNLOADING, source_bytes=256 * 1024, started_s=1_000_000)
    table.record(OWN, progress_key(ONE.id), 1, earlier, now=0.0, wall_s=WALL_S)
    host = ScriptedHost(progress=table)
    host.hear(said())
    assert host.record().counters.source_bytes == 256 * 1024
    assert host.record().started_s == 1_000_000


def test_a_start_deletes_what_was_cancelled_before() -> None:
    host = ScriptedHost()
    host.store[ONE.id] = {0, 1}
    host.statements.hear(said(epoch=2, verb=Verb.CANCEL), host.roster.signers)
    host.tell(events.DaemonStarted())
    assert host.store == {}
    assert host.record().state is HostState.CANCELLED


def test_models_are_found_by_name_newest_version_first(host: ScriptedHost) -> None:
    lifecycle = host.brain.lifecycle
    assert [one.id for one in lifecycle.find("org/model")] == [ONE.id]
    assert lifecycle.find("org/model", 2) == []
    assert lifecycle.manifest_of(ONE.id) is not None
    assert lifecycle.manifest_of(DeploymentId(b"x" * 32)) is None


def refused_for_want_of_a_key(host: ScriptedHost) -> None:
    host.trusted = ()
    host.hear(said())
    host.wait(2.0)
    assert (host.record().state, host.record().reason) == (HostState.FAILED, HostReason.REFUSED_KEY)


def test_a_refusal_names_the_key_that_is_missing() -> None:
    host = ScriptedHost()
    refused_for_want_of_a_key(host)
    told = host.brain.lifecycle.progress_of(host.record(), host.now, WALL_S)
    assert (told.reason, told.subject) == (HostReason.REFUSED_KEY, key_id(ONE.signer)[:8])


def test_a_reload_that_brings_the_key_begins_what_was_refused() -> None:
    host = ScriptedHost()
    refused_for_want_of_a_key(host)
    host.tell(events.TrustReloaded())
    host.wait(2.0)
    assert host.record().reason is HostReason.REFUSED_KEY, "nothing was trusted that was not"
    host.trusted = TRUSTED
    host.tell(events.TrustReloaded())
    host.wait(2.0)
    assert (host.record().state, host.record().reason) == (HostState.DOWNLOADING, HostReason.NONE)


def test_a_kept_manifest_that_was_refused_at_the_start_is_judged_again() -> None:
    host = ScriptedHost()
    host.hear(said())
    host.wait(1.0)
    host = ScriptedHost(statements=host.statements)
    host.statements.state.accepted.clear()  # a register of an older gossipd
    host.files[ONE.id], host.trusted = ONE.envelope, ()
    host.tell(events.DaemonStarted())
    assert host.record().reason is HostReason.REFUSED_KEY
    host.trusted = TRUSTED
    host.tell(events.TrustReloaded())
    assert host.record().state is HostState.DOWNLOADING


def test_an_override_begins_the_highest_version_that_was_refused() -> None:
    host = ScriptedHost()
    for one in (manifest(version=9), manifest(version=3), manifest(version=5)):
        host.peers_have[one.id] = one.envelope
        host.hear(said(one.id))
        host.wait(2.0)
    host.request(events.OverrideOrdered, ONE.name)
    host.wait(2.0)
    states = {one.manifest.version: one.state for one in host.brain.lifecycle if one.manifest is not None}
    assert states == {9: HostState.DOWNLOADING, 3: HostState.EXPIRED, 5: HostState.DOWNLOADING}


def reader_says(host: ScriptedHost, reason: HostReason, *, node: NodeId = PEER, at_s: float = 0.0) -> None:
    said_by_it = Progress(state=HostState.DOWNLOADING, reason=reason)
    version = int((WALL_S + at_s) * 1000)
    host.progress.record(node, progress_key(ONE.id), version, said_by_it, now=host.now, wall_s=WALL_S)


@pytest.mark.parametrize("stall", [StallReason.NO_HOLDER, StallReason.STORAGE])
def test_a_host_that_waits_for_a_reader_says_for_which(host: ScriptedHost, stall: StallReason) -> None:
    host.tell(ReportStall(ONE.id, stall))
    reader_says(host, HostReason.SOURCE_AUTH)
    told = host.brain.lifecycle.progress_of(host.record(), host.now, WALL_S)
    assert (told.reason, told.subject) == (HostReason.WAITS_FOR_READER, PEER[:8])


def test_a_host_with_a_reason_of_its_own_blames_no_reader(host: ScriptedHost) -> None:
    reader_says(host, HostReason.SOURCE_AUTH)
    for stall, reason in ((StallReason.ALL_BUSY, HostReason.ALL_BUSY), (StallReason.DISK, HostReason.DISK)):
        host.tell(ReportStall(ONE.id, stall))
        assert host.brain.lifecycle.progress_of(host.record(), host.now, WALL_S).reason is reason
    host.tell(events.SourceTroubled(ONE.id, SourceAuthError("s3://b/k", "no")))
    host.tell(ReportStall(ONE.id, StallReason.STORAGE))
    assert host.brain.lifecycle.progress_of(host.record(), host.now, WALL_S).reason is HostReason.SOURCE_AUTH


def test_a_dead_reader_is_blamed_for_nothing(host: ScriptedHost) -> None:
    host.tell(ReportStall(ONE.id, StallReason.NO_HOLDER))
    reader_says(host, HostReason.SOURCE_AUTH)
    host.roster.dead.add(PEER)
    assert host.brain.lifecycle.progress_of(host.record(), host.now, WALL_S).reason is HostReason.NO_HOLDER


def test_a_published_model_that_is_refilled_is_called_complete_by_nobody() -> None:
    host = ScriptedHost(published=[ONE])
    host.hear(said())
    host.wait(1.0)
    assert host.record().progress(WALL_S).state is HostState.COMPLETE
    host.record().changed = False
    host.tell(ChunkLost(ONE.id, 0))
    told = host.record().progress(WALL_S)
    assert (told.state, told.reason, told.elapsed_s) == (HostState.DOWNLOADING, HostReason.REFILLING, 0)
    assert host.record().changed, "told at once"
    host.record().changed = False
    host.tell(ChunkStored(ONE.id, 0, SOURCE, 10, 0.1))
    assert (host.record().progress(WALL_S).state, host.record().changed) == (HostState.COMPLETE, True)


def test_a_model_that_rotted_before_the_start_is_refilled_too() -> None:
    host = ScriptedHost(published=[ONE])
    host.store[ONE.id].discard(0)
    host.hear(said())
    host.wait(1.0)
    assert host.record().progress(WALL_S).reason is HostReason.REFILLING
    host.tell(ReportStall(ONE.id, StallReason.ALL_BUSY))
    assert host.record().progress(WALL_S).reason is HostReason.ALL_BUSY
