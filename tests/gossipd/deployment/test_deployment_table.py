"""The table of deployments, by values: counting, what explains a stall, room, and what a restart takes up."""

from __future__ import annotations

import pytest

from gossipd.core.errors import LocalError
from gossipd.core.events import ChunkLost, ChunkStored, FinishModel, ProbeSource, ReportStall, StallReason
from gossipd.core.ids import COPIED, LOCAL, SOURCE, DeploymentId, Supplier, short
from gossipd.core.reasons import HostReason
from gossipd.deployment import commands, events, lost_chunks
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Verb
from gossipd.deployment.statement_store import STATEMENTS_MAX, AcceptedManifest
from gossipd.identity.trust import key_id
from gossipd.sources.errors import (
    SourceAuthError,
    SourceError,
    SourceHashError,
    SourceTruncatedError,
    SourceUnreachableError,
)
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
    suppliers: list[Supplier] = [SOURCE, MATE, PEER, LOCAL]
    for chunk, supplier in enumerate(suppliers):
        length = 10**chunk
        host.tell(ChunkStored(ONE.id, chunk, supplier, length, 0.1))
    record = host.record()
    counters = record.counters
    assert (counters.source_bytes, counters.peer_bytes_same_rack, counters.peer_bytes_cross_rack) == (1, 10, 100)
    assert record.chunks_verified == 4, "local copies are here too, and no bytes that came"
    host.tell(ChunkLost(ONE.id, 0))
    assert record.chunks_verified == 3
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    host.tell(ChunkStored(ONE.id, 0, SOURCE, 1, 0.1))
    host.tell(ChunkLost(ONE.id, 0))
    assert record.chunks_verified == 3


def test_a_chunk_copied_from_an_equal_one_counts_and_is_no_traffic(host: ScriptedHost) -> None:
    host.tell(ChunkStored(ONE.id, 0, PEER, 100, 0.1))
    host.tell(ChunkStored(ONE.id, 1, COPIED, 100, 0.1))
    record = host.record()
    assert (record.chunks_verified, record.counters.peer_bytes_cross_rack) == (2, 100)


def test_a_lost_and_repaired_chunk_leaves_a_trace(host: ScriptedHost) -> None:
    host.tell(FinishModel(ONE.id))
    host.tell(ChunkLost(ONE.id, 3))
    host.tell(ChunkStored(ONE.id, 3, SOURCE, 100, 0.1))
    assert host.audited() == ["published", "chunk lost", "chunk repaired"]
    assert host.record().chunks_verified == ONE.chunk_count


def test_a_model_that_lost_everything_fills_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_chunks, "TOLD_MAX", 2)
    host = ScriptedHost(published=[ONE])
    host.hear(said())
    for _ in range(2):
        before = len(host.audited())
        for chunk in range(ONE.chunk_count):
            host.tell(ChunkLost(ONE.id, chunk))
        assert host.audited()[before:] == ["chunk lost"] * 2
        for chunk in range(ONE.chunk_count):
            host.tell(ChunkStored(ONE.id, chunk, PEER, 10, 0.1))
        assert host.audited()[before:] == ["chunk lost"] * 2 + ["chunk repaired"] * 2, "those whose loss was told"
    host.tell(ChunkLost(ONE.id, 0))
    host.tell(ChunkStored(ONE.id, 0, PEER, 10, 0.1))
    assert host.audited()[-2:] == ["chunk lost", "chunk repaired"], "it was whole meanwhile"


def test_a_copy_that_is_told_after_the_stores_answer_counts() -> None:
    host = ScriptedHost(published=[ONE])
    host.hear(said())
    host.tell(ChunkLost(ONE.id, 1))
    host.tell(ChunkStored(ONE.id, 1, LOCAL, 10, 0.1))
    assert host.record().chunks_verified == ONE.chunk_count and host.record().told_state is HostState.COMPLETE


def test_a_loss_that_the_stores_answer_knows_is_counted_once() -> None:
    host = ScriptedHost(published=[ONE])
    host.store[ONE.id] = {0, 1}
    host.hear(said())
    for chunk in range(2, ONE.chunk_count):
        host.tell(ChunkLost(ONE.id, chunk))
    assert host.record().chunks_verified == 2
    for chunk in range(2, ONE.chunk_count):
        host.tell(ChunkStored(ONE.id, chunk, PEER, 10, 0.1))
    assert host.record().chunks_verified == ONE.chunk_count


def test_current_is_settled_when_the_last_lost_chunk_is_back() -> None:
    host = ScriptedHost(published=[ONE])
    host.hear(said())
    asked = len(host.all_of(commands.PointCurrent))
    for chunk in (1, 2):
        host.tell(ChunkLost(ONE.id, chunk))
    host.tell(ChunkStored(ONE.id, 1, PEER, 10, 0.1))
    assert len(host.all_of(commands.PointCurrent)) == asked
    host.tell(ChunkStored(ONE.id, 2, PEER, 10, 0.1))
    assert len(host.all_of(commands.PointCurrent)) == asked + 1


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


def test_a_disk_that_does_not_answer_is_told_of_a_deployment_that_waits_for_it(host: ScriptedHost) -> None:
    """Where its room is reserved no chunk is asked for, so no stall tells of it."""
    for state, reason in ((HostState.DOWNLOADING, HostReason.NONE), (HostState.INIT, HostReason.DISK_SILENT)):
        host.record().state, host.record().changed = state, False
        host.tell(events.DiskConditionChanged("E_STORE_SILENT"))
        assert host.record().progress(WALL_S).reason is reason
        assert host.record().changed is (reason is not HostReason.NONE), "others are told at once"
        host.tell(events.DiskConditionChanged(""))
        assert host.record().progress(WALL_S).reason is HostReason.NONE


@pytest.mark.parametrize("stall", [StallReason.HOLDER_SILENT, StallReason.STORAGE, StallReason.DISK])
def test_a_silent_disk_is_the_reason_of_a_stall_that_peers_seem_to_cause(
    host: ScriptedHost, stall: StallReason
) -> None:
    host.tell(ReportStall(ONE.id, stall))
    host.tell(events.DiskConditionChanged("E_STORE_SILENT"))
    assert host.record().progress(WALL_S).reason is HostReason.DISK_SILENT


def test_a_deployment_without_its_manifest_hears_what_the_disk_does() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.PullManifest)
    host.hear(said())
    host.tell(events.DiskConditionChanged("E_STORE_SILENT"))
    host.release(commands.PullManifest)
    host.record().state = HostState.INIT
    assert host.record().progress(WALL_S).reason is HostReason.DISK_SILENT


def test_a_stall_is_told_once_and_ends(host: ScriptedHost) -> None:
    for reason in (StallReason.NO_HOLDER, StallReason.NO_HOLDER, None):
        host.tell(ReportStall(ONE.id, reason))
    warnings = [one for one in host.all_of(commands.RecordLog) if one.sentence == "no progress"]
    assert len(warnings) == 1
    assert host.record().stall is None


def test_a_restart_goes_on_counting_where_the_last_run_left_off() -> None:
    table = ClusterProgress()
    earlier = Progress(state=HostState.DOWNLOADING, source_bytes=256 * 1024, started_s=1_000_000)
    table.record(OWN, progress_key(ONE.id), 1, earlier, now=0.0)
    host = ScriptedHost(progress=table)
    host.hear(said())
    assert host.record().counters.source_bytes == 256 * 1024
    assert host.record().started_s == 1_000_000


def test_what_was_cancelled_before_a_start_is_kept_until_space_is_needed() -> None:
    host = ScriptedHost()
    host.store[ONE.id] = {0, 1}
    host.statements.hear(said(epoch=2, verb=Verb.CANCEL), host.roster.signers)
    host.tell(events.DaemonStarted())
    assert (host.record().state, host.store) == (HostState.CANCELLED, {ONE.id: {0, 1}})
    host.tell(events.DiskConditionChanged("E_NO_SPACE"))
    assert host.store == {}


def test_an_operators_cancel_is_refused_when_there_is_nothing_to_stop() -> None:
    host = ScriptedHost(published=[ONE])
    host.hear(said())
    key = progress_key(ONE.id)
    told = Progress(state=HostState.DOWNLOADING)
    host.progress.record(PEER, key, 1, told, now=0.0)
    lifecycle = host.brain.lifecycle
    assert lifecycle.count_complete(host.record()) == (1, 0, 2)
    host.progress.record(PEER, key, 2, Progress(state=HostState.COMPLETE), now=0.0)
    assert lifecycle.count_complete(host.record()) == (2, 0, 2)
    refused = host.request(events.CancelOrdered, ONE.name, 1).error
    assert refused is not None
    assert refused.code == "E_COMPLETE"
    assert "complete on all 2 hosts" in str(refused)
    by_trigger = host.request(events.OrderTriggered, said(epoch=2, verb=Verb.CANCEL), None).error
    assert by_trigger is not None
    assert by_trigger.code == "E_COMPLETE"
    assert not host.all_of(commands.TellStatement)
    forced = host.request(events.CancelOrdered, ONE.name, 1, True)
    assert forced.sentence == "org/model@1 is cancelled; 2 of 2 hosts have it complete and keep it"
    assert host.record().state is HostState.COMPLETE


def test_a_cancel_counts_hosts_that_were_removed_as_over() -> None:
    host = ScriptedHost(published=[ONE])
    host.hear(said())
    removed = Progress(state=HostState.REMOVED, reason=HostReason.REMOVED)
    host.progress.record(PEER, progress_key(ONE.id), 1, removed, now=0.0)
    assert host.brain.lifecycle.count_complete(host.record()) == (1, 1, 2)
    assert host.request(events.CancelOrdered, ONE.name, 1).error is not None


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
    host.progress.record(node, progress_key(ONE.id), version, said_by_it, now=host.now)


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


@pytest.mark.parametrize(
    ("reads", "others", "told"),
    [
        (1, (HostReason.READ_LIMIT,), HostReason.STORAGE),
        (0, (HostReason.READ_LIMIT,), HostReason.WAITS_FOR_READER),
        (1, (HostReason.READ_LIMIT, HostReason.SOURCE_AUTH), HostReason.WAITS_FOR_READER),
    ],
)
def test_a_host_that_reads_slow_storage_itself_is_told_no_others_limit(
    host: ScriptedHost, reads: int, others: tuple[HostReason, ...], told: HostReason
) -> None:
    host.tell(ReportStall(ONE.id, StallReason.STORAGE, reads=reads))
    for node, reason in zip((PEER, NodeId(b"z" * 16)), others, strict=False):
        host.roster.peers[node] = "rack-2"
        reader_says(host, reason, node=node)
    found = host.brain.lifecycle.progress_of(host.record(), host.now, WALL_S)
    assert (found.reason, found.subject == b"z" * 8) == (told, len(others) > 1)


def test_a_silent_peer_is_told_with_its_reason_and_only_with_it(host: ScriptedHost) -> None:
    host.tell(ReportStall(ONE.id, StallReason.HOLDER_SILENT, PEER))
    [line] = [one for one in host.all_of(commands.RecordLog) if one.sentence == "no progress"]
    assert line.fields["peer"] == short(PEER)
    told = host.record().progress(WALL_S)
    assert (told.reason, told.subject) == (HostReason.HOLDER_SILENT, PEER[:8])
    host.record().changed = False
    host.tell(ReportStall(ONE.id, StallReason.HOLDER_SILENT, NodeId(b"x" * 16)))
    assert (host.record().changed, host.record().progress(WALL_S).subject) == (True, b"x" * 8)
    host.tell(ReportStall(ONE.id, StallReason.ALL_BUSY))
    assert host.record().progress(WALL_S).subject == b""


@pytest.mark.parametrize(
    ("reason", "reads", "seconds_a_chunk", "told"),
    [
        (StallReason.STORAGE, 1, 3.1, HostReason.READ_LIMIT),
        (StallReason.STORAGE, 1, 2.9, HostReason.STORAGE),
        (StallReason.STORAGE, 2, 1.6, HostReason.READ_LIMIT),
        (StallReason.STORAGE, 2, 1.4, HostReason.STORAGE),
        (StallReason.STORAGE, 0, 3.1, HostReason.STORAGE),
        (StallReason.STORAGE, 1, None, HostReason.STORAGE),
        (StallReason.ALL_BUSY, 1, 3.1, HostReason.ALL_BUSY),
    ],
)
def test_a_limit_that_lets_no_chunk_come_is_not_told_as_storage(
    host: ScriptedHost, reason: StallReason, reads: int, seconds_a_chunk: float | None, told: HostReason
) -> None:
    rate = None if seconds_a_chunk is None else ONE.layout.chunk_bytes_mean / seconds_a_chunk
    host.tell(ReportStall(ONE.id, reason, reads=reads, read_bytes_per_s=rate))
    assert host.record().progress(WALL_S).reason is told
    host.tell(events.SourceTroubled(ONE.id, SourceAuthError("s3://b/k", "no")))
    is_of_storage = reason is StallReason.STORAGE
    assert host.record().progress(WALL_S).reason is (HostReason.SOURCE_AUTH if is_of_storage else told)


def test_a_limit_of_reads_that_is_lifted_or_set_is_told_at_once(host: ScriptedHost) -> None:
    enough, host.record().changed = float(ONE.layout.chunk_bytes_mean), False
    for rate, told in ((enough / 4, HostReason.READ_LIMIT), (enough, HostReason.STORAGE)):
        for is_news in (True, False):
            host.tell(ReportStall(ONE.id, StallReason.STORAGE, reads=1, read_bytes_per_s=rate))
            assert (host.record().changed, host.record().progress(WALL_S).reason) == (is_news, told)
            host.record().changed = False


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


def test_a_wrong_clock_is_told_as_that_and_the_deployment_goes_on_when_it_is_right() -> None:
    host = ScriptedHost()
    off_s = ONE.created_s - 7_200.0 - WALL_S  # this host's clock is two hours behind the publisher's
    host.wall_s += off_s
    for number in range(3):
        host.clock.heard(NodeId(bytes([number]) * 16), float(ONE.created_s), 0.0)
    host.clock.look(host.wall_s, 0.0)
    host.hear(said(issued_s=float(ONE.created_s)))
    told = host.brain.lifecycle.progress_of(host.record(), host.now, host.wall_s)
    assert (told.state, told.reason) == (HostState.INIT, HostReason.CLOCK_WRONG)
    assert host.record().manifest is not None, "so that it is told"
    host.wait(20.0)
    assert host.record().state is HostState.INIT
    host.wall_s -= off_s
    host.clock.look(host.wall_s + host.now, host.now)
    host.wait(6.0)
    assert (host.record().state, host.record().reason) == (HostState.DOWNLOADING, HostReason.NONE)


def test_what_was_closed_before_the_clock_was_known_to_be_wrong_is_opened_again() -> None:
    host = ScriptedHost()
    off_s = ONE.created_s - 7_200.0 - WALL_S
    host.wall_s += off_s
    host.statements.state.accepted.clear()
    host.hear(said(issued_s=host.wall_s))
    assert (host.record().state, host.record().reason) == (HostState.EXPIRED, HostReason.REFUSED_EXPIRED)
    for number in range(3):
        host.clock.heard(NodeId(bytes([number]) * 16), float(ONE.created_s), 0.0)
    host.clock.look(host.wall_s, 0.0)
    host.tell(events.ClockJudged())
    assert (host.record().state, host.record().reason) == (HostState.INIT, HostReason.CLOCK_WRONG)


def test_what_has_expired_by_every_clock_is_expired_on_a_host_with_a_wrong_one() -> None:
    host = ScriptedHost()
    old = manifest(version=7, created_s=int(WALL_S) - 9_000, expires_s=int(WALL_S) - 8_000)
    host.peers_have[old.id] = old.envelope
    for number in range(3):
        host.clock.heard(NodeId(bytes([number]) * 16), WALL_S - 7_200.0, 0.0)
    host.clock.look(host.wall_s, 0.0)
    assert host.clock.is_wrong
    host.hear(said(old.id))
    assert host.record(old.id).state is HostState.EXPIRED


def test_a_manifest_dropped_on_a_host_with_a_wrong_clock_waits_in_the_inbox() -> None:
    host = ScriptedHost()
    host.wall_s = ONE.created_s - 7_200.0
    for number in range(3):
        host.clock.heard(NodeId(bytes([number]) * 16), float(ONE.created_s), 0.0)
    host.clock.look(host.wall_s, 0.0)
    error = host.drop().error
    assert error is not None
    assert (error.code, type(error).__name__) == ("E_CLOCK", "QueueFullError")
    assert "this host's clock is wrong" in str(error)


@pytest.mark.parametrize(
    ("holder_lives", "state", "reason"),
    [
        (False, HostState.COMPLETE, HostReason.NO_COPY),
        (True, HostState.COMPLETE, HostReason.SOURCE_GONE),
        (False, HostState.DOWNLOADING, HostReason.SOURCE_GONE),
    ],
)
def test_a_model_whose_last_copy_went_is_told_as_that(
    host: ScriptedHost, holder_lives: bool, state: HostState, reason: HostReason
) -> None:
    host.progress.record(PEER, progress_key(ONE.id), 1, Progress(state=state), now=0.0)
    if not holder_lives:
        host.roster.dead.add(PEER)
    host.tell(events.SourceTroubled(ONE.id, LocalError("not there", code="E_SOURCE_NOT_FOUND")))
    host.tell(ReportStall(ONE.id, StallReason.STORAGE))
    assert host.brain.lifecycle.progress_of(host.record(), host.now, WALL_S).reason is reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SourceHashError("http://s/x", "chunk 3 does not hash"), HostReason.SOURCE_CHANGED),
        (SourceUnreachableError("http://s/x", "no answer"), HostReason.VERIFICATION),
    ],
)
def test_wrong_bytes_of_storage_are_told_as_the_storages_and_not_as_some_peers(
    host: ScriptedHost, error: SourceError, reason: HostReason
) -> None:
    host.tell(events.SourceTroubled(ONE.id, error))
    host.tell(ReportStall(ONE.id, StallReason.VERIFICATION))
    assert host.record().progress(WALL_S).reason is reason


def test_an_objects_trouble_is_told_until_the_chunk_it_is_about_is_here() -> None:
    host = ScriptedHost()
    host.hear(said())
    host.wait(1.0)
    error = SourceHashError("http://s/x", "chunk 1 does not hash")
    error.path = ONE.files[0].path
    host.tell(events.SourceTroubled(ONE.id, error, (1,)))
    host.tell(ReportStall(ONE.id, StallReason.VERIFICATION))
    host.tell(ChunkStored(ONE.id, 0, SOURCE, 1, 0.1))
    assert host.record().progress(WALL_S).reason is HostReason.SOURCE_CHANGED, "another chunk of it came right"
    host.tell(ChunkStored(ONE.id, 2, PEER, 1, 0.1))
    assert host.record().progress(WALL_S).reason is HostReason.SOURCE_CHANGED
    host.tell(ChunkStored(ONE.id, 1, PEER, 1, 0.1))
    assert host.record().progress(WALL_S).reason is HostReason.VERIFICATION


def test_trouble_with_a_file_is_told_with_its_index_while_nothing_comes() -> None:
    host = ScriptedHost()
    host.hear(said())
    host.wait(1.0)
    error = SourceTruncatedError("http://s/x", "it is shorter")
    error.path = ONE.files[-1].path
    host.tell(events.SourceTroubled(ONE.id, error))
    host.tell(ReportStall(ONE.id, StallReason.STORAGE))
    told = host.record().progress(WALL_S)
    assert (told.reason, int.from_bytes(told.subject, "big")) == (HostReason.OBJECT_SHORT, len(ONE.files) - 1)
    host.tell(ReportStall(ONE.id, None))
    assert host.record().progress(WALL_S).subject == b"", "no reason, no subject"
    error.path = "no file of this model"
    host.tell(events.SourceTroubled(ONE.id, error))
    host.tell(ReportStall(ONE.id, StallReason.STORAGE))
    assert host.record().progress(WALL_S).subject == b""


@pytest.mark.parametrize("state", [HostState.REMOVED, HostState.CANCELLED, HostState.EXPIRED])
def test_untrusting_a_key_leaves_what_is_over_as_it_is(state: HostState) -> None:
    host = ScriptedHost()
    match state:
        case HostState.REMOVED:
            host.drop()
            host.request(events.RemoveOrdered, ONE.name, 1)
        case HostState.CANCELLED:
            host.drop()
            host.hear(said(epoch=2, verb=Verb.CANCEL))
        case _:
            host.drop(manifest(version=2))
            host.hear(said())
    assert host.record().state is state
    host.request(events.UntrustOrdered, key_id(ONE.signer))
    host.request(events.UntrustOrdered, key_id(ONE.signer), "", 0, True)
    assert host.record().state is state
