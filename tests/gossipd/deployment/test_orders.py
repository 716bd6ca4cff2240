"""What operators order, by values: each order once, its answer once, and nothing of what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gossipd.core.errors import LocalError, QueueFullError
from gossipd.core.events import ChunkStored, FinishModel
from gossipd.core.ids import SOURCE
from gossipd.core.reasons import HostReason
from gossipd.core.units import show_bytes
from gossipd.deployment import commands, events
from gossipd.deployment.context import DeploymentSettings
from gossipd.deployment.deployer import Deployer, Evidence
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import EPOCH_FIRST_MAX, EPOCH_LIMIT, EPOCH_MAX, Statement, Verb
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from gossipd.identity.trust import key_id
from gossipd.manifest.annotations import pack_about
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, seal_manifest
from membership.member import NodeId
from tests.gossipd.deployment.scripted_host import ONE, PEER, PEER_KEY, WALL_S, ScriptedHost, said
from tests.gossipd.manifest.making import PUBLISHER, draft, manifest

LIVE_MAX = 5
FULL_DISK = LocalError("No space left on device", code="E_STATE_WRITE")
STRANGER = SecretKey(b"s" * 32)


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost(settings=DeploymentSettings(live_max=LIVE_MAX))


def error_of(answer: commands.Answer) -> str:
    assert answer.error is not None
    return answer.error.code


def trigger(host: ScriptedHost, statement: Statement, envelope: bytes | None = None) -> commands.Answer:
    return host.request(events.OrderTriggered, statement, envelope)


def kinds(host: ScriptedHost) -> list[str]:
    return [type(one).__name__ for one in host.done if isinstance(one, commands.Work)]


# ---- dropped -----------------------------------------------------------------------------------------


def test_a_step_is_called_in_answers_as_status_calls_it(host: ScriptedHost) -> None:
    about = pack_about({"step": 300, "attempt": 2})
    step = manifest(version=(2 << 32) + 300, about=about)
    assert host.drop(step).sentence == "org/model@300.2 accepted"


def test_orders_for_steps_name_them_as_status_does(host: ScriptedHost) -> None:
    steps = [manifest(version=(2 << 32) + step, about=pack_about({"step": step, "attempt": 2})) for step in (300, 400)]
    for step in steps:
        host.drop(step)
    name, version = steps[0].name, steps[0].version
    assert host.request(events.UntrustOrdered, b"", name, version).sentence.startswith("org/model@300.2 is no longer")
    assert host.request(events.OverrideOrdered, name).sentence.endswith("also one below 400.2")
    unknown = host.request(events.CancelOrdered, name, (3 << 32) + 500)
    assert "no deployment org/model@500.3 is known here" in str(unknown.error)
    back = host.request(events.RollbackOrdered, name, (3 << 32) + 500)
    assert "org/model@500.3 is not deployed; see: gossipd status" in str(back.error)
    dry = host.request(events.RemoveOrdered, name, steps[1].version, True).sentence
    assert dry == "would remove org/model@400.2, 0 B, from this host", "no chunk of it has come"
    assert host.brain.lifecycle.label(name, None) == name
    assert host.brain.lifecycle.label("other", 3 << 32) == f"other@{3 << 32}"


def test_a_dropped_manifest_is_opened_accepted_and_written_once(
    host: ScriptedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = []
    accept = type(host.statements).accept

    def counted(self: object, *arguments: object) -> object:
        accepted.append(arguments)
        return accept(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(host.statements), "accept", counted)
    assert host.drop().sentence == "org/model@1 accepted"
    host.tell(FinishModel(ONE.id))
    assert host.record().state is HostState.COMPLETE
    assert kinds(host) == ["OpenManifest", "KeepManifest", "KeepStatements", "ReserveSpace", "PublishModel"]
    assert len(accepted) == 1


def test_the_audit_log_says_which_run_and_step_a_version_is_of(host: ScriptedHost) -> None:
    step = manifest(version=7, about=pack_about({"run": "r7", "step": 7, "code": {"commit": "0" * 40}}))
    host.request(events.ManifestDropped, step.envelope, "step.manifest")
    (record,) = [one for one in host.all_of(commands.RecordAudit) if one.kind == "manifest accepted"]
    assert (record.fields["name"], record.fields["lineage"]) == (step.name, "run r7, step 7")


def test_what_is_told_and_begun_is_durable_before(host: ScriptedHost) -> None:
    host.held_back.add(commands.KeepStatements)
    host.ask(events.ManifestDropped, ONE.envelope, "one.manifest")
    assert host.files[ONE.id] == ONE.envelope
    assert not host.all_of(commands.TellStatement)
    assert not host.all_of(commands.ReserveSpace)
    [work] = host.all_of(commands.KeepStatements)
    kept = register_from_bytes(work.kept)
    assert kept.state.versions[ONE.name] == {1: ONE.id}
    assert [one.deployment for one in kept.statements()] == [ONE.id]
    host.release(commands.KeepStatements)
    assert len(host.all_of(commands.TellStatement)) == 1
    assert host.audited() == ["manifest accepted"]


def test_a_refusal_is_written_down_with_its_code_and_changes_nothing(host: ScriptedHost) -> None:
    envelope = bytearray(ONE.envelope)
    envelope[-1] ^= 1
    answer = host.request(events.ManifestDropped, bytes(envelope), "broken.manifest")
    assert error_of(answer) == "E_SIG_INVALID"
    [record] = host.all_of(commands.RecordAudit)
    assert (record.kind, record.fields["file"], record.fields["code"]) == (
        "manifest refused", "broken.manifest", "E_SIG_INVALID",
    )  # fmt: skip
    assert kinds(host) == ["OpenManifest"]


@pytest.mark.parametrize(
    ("offered", "code"),
    [
        (manifest(version=1), "E_ROLLBACK"),
        (manifest(version=2, salt=b"other"), "E_EQUIVOCATION"),
        (manifest(version=3, expires_s=int(WALL_S) - 1), "E_EXPIRED"),
    ],
)
def test_a_manifest_that_may_not_follow_is_refused(host: ScriptedHost, offered: Manifest, code: str) -> None:
    host.drop(manifest(version=2))
    assert error_of(host.drop(offered)) == code
    assert offered.id not in host.files
    assert host.brain.lifecycle.get(offered.id) is None


def test_b33_more_than_a_host_takes_on_wait_their_turn(host: ScriptedHost) -> None:
    manifests = [manifest(version=version) for version in range(LIVE_MAX + 1)]
    for one in manifests[:LIVE_MAX]:
        assert host.drop(one).error is None
    answer = host.drop(manifests[LIVE_MAX])
    assert isinstance(answer.error, QueueFullError)
    assert f"at most {LIVE_MAX}" in answer.error.sentence
    assert LIVE_MAX not in host.statements.state.versions["org/model"], "refused before it was accepted"
    again = host.drop(manifests[LIVE_MAX - 1])
    assert again.sentence.endswith("deployed again"), "one that is under way needs no room"
    host.record(manifests[0].id).enter(HostState.DOWNLOADING)
    host.tell(FinishModel(manifests[0].id))
    assert host.drop(manifests[LIVE_MAX]).sentence.endswith("accepted")


def test_what_this_host_only_passes_on_takes_no_room(host: ScriptedHost) -> None:
    manifests = [manifest(version=version) for version in range(LIVE_MAX + 1)]
    for one in manifests[:LIVE_MAX]:
        host.drop(one)
        host.record(one.id).is_target = False
    assert host.drop(manifests[LIVE_MAX]).error is None


def test_the_same_manifest_twice_is_one_deployment(host: ScriptedHost) -> None:
    host.drop()
    answer = host.drop()
    assert answer.sentence == "org/model@1 was known already; deployed again"
    assert [one.statement.epoch for one in host.all_of(commands.TellStatement)] == [1, 3]
    assert len(host.all_of(commands.ReserveSpace)) == 1


@pytest.mark.parametrize("kind", [commands.KeepManifest, commands.KeepStatements])
def test_a_disk_that_refuses_has_the_file_offered_again(host: ScriptedHost, kind: type) -> None:
    host.fail(kind, Failure.DISK, FULL_DISK)
    answer = host.drop()
    assert isinstance(answer.error, QueueFullError)
    assert error_of(answer) == "E_STATE_WRITE"
    assert host.statements.statement(ONE.id) is None
    assert not host.all_of(commands.TellStatement)
    host.drop()
    assert [one.statement.epoch for one in host.all_of(commands.TellStatement)] == [1]
    assert host.record().state is HostState.DOWNLOADING


def test_a_refused_write_leaves_an_earlier_statement_and_mark(host: ScriptedHost) -> None:
    host.drop()
    host.request(events.RemoveOrdered, "org/model", 1)
    host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK)
    host.drop()
    last = host.statements.statement(ONE.id)
    assert last is not None
    assert last.epoch == 1
    assert host.statements.is_removed(ONE.id)


def test_a_cancel_while_the_statement_is_written_wins(host: ScriptedHost) -> None:
    host.held_back.add(commands.KeepStatements)
    host.ask(events.ManifestDropped, ONE.envelope, "one.manifest")
    host.hear(said(epoch=7, verb=Verb.CANCEL))
    host.release(commands.KeepStatements)
    assert host.record().state is HostState.CANCELLED
    assert not host.all_of(commands.ReserveSpace)


# ---- triggered ---------------------------------------------------------------------------------------


def test_b31_the_same_order_again_starts_nothing(host: ScriptedHost) -> None:
    first = trigger(host, said(), ONE.envelope)
    assert (first.sentence, first.is_changed) == ("org/model@1 accepted", True)
    for envelope in (ONE.envelope, None):
        again = trigger(host, said(), envelope)
        assert (again.sentence, again.is_changed) == ("org/model@1 is known already", False)
    assert kinds(host) == ["OpenManifest", "KeepManifest", "KeepStatements", "ReserveSpace", "OpenManifest"]
    assert [one.statement for one in host.all_of(commands.TellStatement)] == [said()]


def test_b31_an_old_order_played_back_after_a_cancel_changes_nothing(host: ScriptedHost) -> None:
    trigger(host, said(), ONE.envelope)
    assert trigger(host, said(epoch=2, verb=Verb.CANCEL)).sentence == "org/model@1 cancelled"
    again = trigger(host, said(), ONE.envelope)
    assert not again.is_changed
    assert host.record().state is HostState.CANCELLED


def test_an_old_order_played_back_undoes_no_removal(host: ScriptedHost) -> None:
    trigger(host, said(), ONE.envelope)
    host.request(events.RemoveOrdered, "org/model", 1)
    trigger(host, said(), ONE.envelope)
    host.hear(said(epoch=2))
    assert host.record().reason is HostReason.REMOVED


def test_an_order_again_takes_a_removed_model_up(host: ScriptedHost) -> None:
    trigger(host, said(), ONE.envelope)
    host.request(events.RemoveOrdered, "org/model", 1)
    host.roster.clients = {said().signer}
    trigger(host, said(epoch=2), None)
    assert host.record().state is HostState.DOWNLOADING


def test_b30_what_may_not_be_ordered_is_refused_with_its_code(host: ScriptedHost) -> None:
    nine, eight = manifest(version=9), manifest(version=8)
    assert error_of(trigger(host, said(nine.id))) == "E_UNKNOWN_MANIFEST"
    assert error_of(trigger(host, said(nine.id), nine.envelope[:-1])) == "E_SIG_INVALID"
    assert error_of(trigger(host, said(nine.id, secret=STRANGER), nine.envelope)) == "E_KEY_UNKNOWN"
    assert 9 not in host.statements.state.versions.get("org/model", {}), "a stranger cannot have a version trusted"
    trigger(host, said(nine.id), nine.envelope)
    assert error_of(trigger(host, said(eight.id), eight.envelope)) == "E_ROLLBACK"


def test_b33_clients_are_refused_more_than_a_host_takes_on(host: ScriptedHost) -> None:
    manifests = [manifest(version=version) for version in range(LIVE_MAX + 1)]
    for one in manifests[:LIVE_MAX]:
        trigger(host, said(one.id), one.envelope)
    late = manifests[LIVE_MAX]
    assert error_of(trigger(host, said(late.id), late.envelope)) == "E_QUEUE_FULL"
    assert host.statements.statement(late.id) is None


def test_a_cancel_by_trigger_needs_the_manifest_to_name_it(host: ScriptedHost) -> None:
    envelope = seal_manifest(draft(version=1), PUBLISHER)
    answer = trigger(host, said(verb=Verb.CANCEL), envelope)
    assert answer.sentence == "org/model@1 cancelled"
    assert host.record().state is HostState.CANCELLED
    assert kinds(host) == ["OpenManifest", "ReadManifest"], "nothing is kept, but a manifest of an earlier run is named"


def test_a_disk_that_refuses_is_told_to_the_client(host: ScriptedHost) -> None:
    host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK)
    answer = trigger(host, said(), ONE.envelope)
    assert answer.error is FULL_DISK
    assert host.statements.statement(ONE.id) is None


# ---- cancel and rm -----------------------------------------------------------------------------------


def test_a_cancel_is_answered_when_it_is_durable(host: ScriptedHost) -> None:
    host.drop()
    host.held_back.add(commands.KeepStatements)
    number = host.ask(events.CancelOrdered, "org/model", 1)
    assert host.record().state is HostState.CANCELLED
    assert [one.statement.verb for one in host.all_of(commands.TellStatement)] == [Verb.DEPLOY, Verb.CANCEL]
    host.release(commands.KeepStatements)
    assert host.answer(number).sentence == "org/model@1 is cancelled"
    again = host.request(events.CancelOrdered, "org/model", 1)
    assert (again.sentence, again.is_changed) == ("org/model@1 is cancelled already", False)
    assert error_of(host.request(events.CancelOrdered, "org/other", 1)) == "E_NOT_FOUND"


def test_a_pause_is_told_and_a_resume_is_a_deploy(host: ScriptedHost) -> None:
    host.drop()
    assert host.request(events.PauseOrdered, "org/model", 1, True).sentence == "org/model@1 is not paused"
    paused = host.request(events.PauseOrdered, "org/model", 1)
    assert (paused.sentence, paused.is_changed) == (
        "org/model@1 is paused: hosts begin no fetch and serve what they have", True,
    )  # fmt: skip
    assert host.request(events.PauseOrdered, "org/model", 1).sentence == "org/model@1 is paused already"
    assert host.request(events.PauseOrdered, "org/model", 1, True).sentence == "org/model@1 goes on"
    told = [(one.statement.verb, one.statement.epoch) for one in host.all_of(commands.TellStatement)]
    assert told == [(Verb.DEPLOY, 1), (Verb.PAUSE, 2), (Verb.DEPLOY, 3)]
    assert [one.is_paused for one in host.all_of(commands.PauseSwarm)] == [True, False]
    assert error_of(host.request(events.PauseOrdered, "org/other", 1)) == "E_NOT_FOUND"
    host.request(events.CancelOrdered, "org/model", 1)
    assert error_of(host.request(events.PauseOrdered, "org/model", 1)) == "E_CANCELLED"


def test_only_those_who_may_cancel_may_pause(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.drop()
    host.hear(said(epoch=2, verb=Verb.PAUSE))
    [refused] = [one for one in host.all_of(commands.RecordAudit) if one.kind == "statement refused"]
    assert refused.fields["code"] == "E_MAY_NOT_CANCEL"
    assert not host.all_of(commands.PauseSwarm)


def test_a_trigger_may_pause(host: ScriptedHost) -> None:
    host.drop()
    assert trigger(host, said(epoch=2, verb=Verb.PAUSE)).sentence == "org/model@1 paused"
    assert host.record().told_state is HostState.PAUSED


def complete_of(host: ScriptedHost, *versions: int) -> dict[int, Manifest]:
    """Versions that are deployed and whole on this host."""
    made = {version: manifest(version=version) for version in versions}
    for one in made.values():
        host.store[one.id] = set(range(one.chunk_count))
        host.drop(one)
        host.tell(FinishModel(one.id))
    return made


def pointed(host: ScriptedHost) -> list[set[int]]:
    return [set(one.avoided) for one in host.all_of(commands.PointCurrent)]


def test_a_rollback_everywhere_takes_the_newest_back_and_a_deploy_brings_it_again(host: ScriptedHost) -> None:
    made = complete_of(host, 1, 2)
    answer = host.request(events.RollbackOrdered, "org/model")
    assert answer.sentence == (
        "org/model@2 is rolled back: current leads to org/model@1 on hosts that have it, 1 of 2, "
        "and no host goes on to fetch org/model@2"
    )
    assert pointed(host) == [{2}]
    assert host.record(made[2].id).state is HostState.COMPLETE, "it stays here, and users do not see it"
    again = host.request(events.RollbackOrdered, "org/model", 2)
    assert (again.sentence, again.is_changed) == ("org/model@2 is rolled back already", False)
    host.drop(made[2])
    assert pointed(host)[1:] == [set()]
    told = [(one.statement.verb, one.statement.epoch) for one in host.all_of(commands.TellStatement)]
    assert told[2:] == [(Verb.ROLL_BACK, 4), (Verb.DEPLOY, 5)]


def test_a_rollback_without_an_older_complete_version_is_refused(host: ScriptedHost) -> None:
    complete_of(host, 1)
    assert error_of(host.request(events.RollbackOrdered, "org/model")) == "E_NOT_FOUND"
    assert error_of(host.request(events.RollbackOrdered, "org/model", 7)) == "E_NOT_FOUND"
    assert error_of(host.request(events.RollbackOrdered, "org/other")) == "E_NOT_FOUND"
    assert len(host.all_of(commands.TellStatement)) == 1


def test_who_may_not_cancel_may_neither_roll_back_nor_remove_everywhere(host: ScriptedHost) -> None:
    made = complete_of(host, 1, 2)
    host.roster.roles = ("client",)
    for order in ((events.RollbackOrdered, "org/model"), (events.RemoveOrdered, "org/model", 2, False, True)):
        assert error_of(host.request(*order)) == "E_MAY_NOT_CANCEL"
    host.hear(said(made[2].id, epoch=4, verb=Verb.ROLL_BACK))
    host.hear(said(made[2].id, epoch=6, verb=Verb.REMOVE))
    assert host.record(made[2].id).state is HostState.COMPLETE
    assert not pointed(host)


def test_an_order_to_remove_everywhere_deletes_here_and_is_told_and_leaves_no_mark(host: ScriptedHost) -> None:
    made = complete_of(host, 1)
    dry = host.request(events.RemoveOrdered, "org/model", 1, True, True)
    assert dry.sentence == "would remove org/model@1 everywhere: 1 of 2 hosts have it complete"
    host.request(events.RemoveOrdered, "org/model", 1, False, True)
    assert host.record(made[1].id).state is HostState.REMOVED
    assert made[1].id not in host.store
    assert host.all_of(commands.TellStatement)[-1].statement.verb is Verb.REMOVE
    again = host.request(events.RemoveOrdered, "org/model", 1, False, True)
    assert again.sentence == "org/model@1 is removed everywhere already"
    assert host.request(events.CancelOrdered, "org/model", 1).sentence == "org/model@1 is removed already"
    host.hear(said(made[1].id, epoch=7))
    assert host.record(made[1].id).state is HostState.DOWNLOADING, "a deploy brings it back"


def test_a_cancel_on_a_full_disk_is_told_all_the_same(host: ScriptedHost) -> None:
    host.drop()
    host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK)
    error = host.request(events.CancelOrdered, "org/model", 1).error
    assert isinstance(error, LocalError) and (error.code, error.code_of_exit) == (
        FULL_DISK.code,
        FULL_DISK.code_of_exit,
    )
    assert str(error) == f"org/model@1 is cancelled all the same, but a restart of this host may forget it: {FULL_DISK}"
    assert host.record().state is HostState.CANCELLED
    assert host.audited()[-1] == "cancelled", "what acts is written down"


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (events.CancelOrdered, ("org/model", 1), "org/model@1 is cancelled already"),
        (events.PauseOrdered, ("org/model", 1), "org/model@1 is paused already"),
        (events.RemoveOrdered, ("org/model", 1, False, True), "org/model@1 is removed everywhere already"),
        (events.RemoveOrdered, ("org/model", 1), "org/model@1 was removed from this host before"),
        (events.UntrustOrdered, (b"", "org/model", 1), "org/model@1 is no longer trusted already"),
    ],
)
def test_what_a_full_disk_has_not_kept_is_not_done_already(
    host: ScriptedHost, kind: type[events.Order], given: tuple[object, ...], words: str
) -> None:
    host.drop()
    for _ in range(2):
        host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK, times=3)
        if kind is events.RemoveOrdered:
            host.fail(commands.RemoveModel, Failure.GONE, LocalError("gone"))
        error = host.request(kind, *given).error
        assert error is not None and error.code == FULL_DISK.code and str(error).endswith(str(FULL_DISK))
        host.failing.clear()
    assert host.request(events.RemoveOrdered, "org/model", 1, True).error is None, "a dry run writes nothing"
    if kind is events.RemoveOrdered:
        host.fail(commands.RemoveModel, Failure.GONE, LocalError("gone"))
    assert host.request(kind, *given).sentence == words


def test_an_override_on_a_full_disk_acts_and_is_written_down(host: ScriptedHost) -> None:
    host.drop(manifest(version=9))
    host.drop()
    host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK)
    error = host.request(events.OverrideOrdered, ONE.name).error
    assert str(error).startswith("the next manifest of org/model may have any version, also one below 9 all the same")
    assert host.audited()[-1] == "trust override"
    assert host.drop().error is None


def test_what_is_removed_is_deleted_and_no_statement_brings_it_back(host: ScriptedHost) -> None:
    host.drop()
    host.tell(ChunkStored(ONE.id, 0, SOURCE, ONE.chunk_bytes, 0.1))
    dry = host.request(events.RemoveOrdered, "org/model", 1, True)
    here = show_bytes(ONE.bytes_total // ONE.chunk_count)
    assert dry.sentence == f"would remove org/model@1, {here}, from this host", "as much as is here"
    assert not dry.is_changed
    answer = host.request(events.RemoveOrdered, "org/model", 1)
    assert answer.sentence == "org/model@1 is removed from this host and stays removed"
    assert (host.record().state, host.record().reason) == (HostState.REMOVED, HostReason.REMOVED)
    host.hear(said(epoch=5))
    assert host.record().reason is HostReason.REMOVED
    assert len(host.all_of(commands.OpenSwarm)) == 1
    assert host.drop().error is None
    assert host.record().state is HostState.DOWNLOADING


def test_another_hosts_order_does_not_bring_back_what_was_removed(host: ScriptedHost) -> None:
    host.drop()
    host.request(events.RemoveOrdered, "org/model", 1)
    answer = host.request(events.OrderTriggered, said(epoch=5), ONE.envelope)
    assert answer.sentence.startswith("org/model@1 accepted; it was removed from this host and stays so")
    assert host.record().reason is HostReason.REMOVED
    assert host.statements.is_removed(ONE.id)
    client = said(epoch=7)
    host.roster.clients = {client.signer}
    assert host.request(events.OrderTriggered, client, ONE.envelope).sentence == "org/model@1 accepted"
    assert host.record().state is HostState.DOWNLOADING


def test_a_mark_is_durable_before_the_model_is_deleted(host: ScriptedHost) -> None:
    host.drop()
    host.held_back.add(commands.KeepStatements)
    host.ask(events.RemoveOrdered, "org/model", 1)
    assert not host.all_of(commands.RemoveModel)
    assert register_from_bytes(host.all_of(commands.KeepStatements)[-1].kept).is_removed(ONE.id)
    host.release(commands.KeepStatements)
    assert len(host.all_of(commands.RemoveModel)) == 1


def test_a_disk_too_full_to_remember_a_removal_deletes_first(host: ScriptedHost) -> None:
    host.drop()
    host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK)
    assert host.request(events.RemoveOrdered, "org/model", 1).error is None
    assert kinds(host)[-4:] == ["KeepStatements", "DeleteModel", "RemoveModel", "KeepStatements"]
    host.drop()
    host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK, times=2)
    error = host.request(events.RemoveOrdered, "org/model", 1).error
    assert str(error).startswith("org/model@1 is removed all the same, but a restart of this host may forget it: ")


def test_a_removal_that_the_store_refused_can_be_repeated(host: ScriptedHost) -> None:
    host.drop()
    broken, gone = LocalError("broken", code="E_STORE_IO"), LocalError("not here", code="E_NOT_FOUND")
    host.fail(commands.RemoveModel, Failure.DISK, broken)
    assert host.request(events.RemoveOrdered, "org/model", 1).error is broken
    host.fail(commands.RemoveModel, Failure.GONE, gone)
    again = host.request(events.RemoveOrdered, "org/model", 1)
    assert (again.sentence, again.is_changed) == ("org/model@1 was removed from this host before", False)


def test_a_cancelled_complete_model_survives_a_restart_and_can_be_removed() -> None:
    host = ScriptedHost(published=[ONE])
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.COMPLETE
    assert host.request(events.RemoveOrdered, "org/model", 1).is_changed
    assert host.published == set()


def test_an_eviction_is_remembered_on_disk_before_its_answer(host: ScriptedHost) -> None:
    host.drop()
    host.held_back.add(commands.KeepStatements)
    number = host.ask(events.EvictionBegun, ONE.id)
    assert not [one for one in host.all_of(commands.Answer) if one.request == number]
    host.release(commands.KeepStatements)
    assert host.answer(number).is_changed
    host.tell(events.VersionEvicted(ONE.id, "org/model", 1, "watermark"))
    assert (host.record().state, host.record().reason) == (HostState.EVICTED, HostReason.EVICTED)
    assert host.audited()[-1] == "evicted"


def test_a_version_that_made_room_is_taken_again_for_the_rack_and_stays(host: ScriptedHost) -> None:
    host.drop()
    host.request(events.EvictionBegun, ONE.id)
    host.store.pop(ONE.id, None)
    host.published.discard(ONE.id)
    host.tell(events.VersionEvicted(ONE.id, "org/model", 1, "watermark"))
    host.tell(events.CopyWanted(ONE.id))
    assert host.record().state is HostState.DOWNLOADING
    assert host.audited()[-1] == "taken again"
    host.tell(events.CopyWanted(ONE.id))
    assert host.audited().count("taken again") == 1
    again = ScriptedHost(statements=host.statements)
    again.files[ONE.id] = ONE.envelope
    again.tell(events.DaemonStarted())
    assert again.record().state is HostState.DOWNLOADING


def test_what_was_removed_or_cancelled_is_not_taken_again(host: ScriptedHost) -> None:
    host.drop()
    host.request(events.RemoveOrdered, "org/model", 1)
    host.tell(events.CopyWanted(ONE.id))
    assert host.record().state is HostState.REMOVED
    host = ScriptedHost()
    host.drop()
    host.request(events.EvictionBegun, ONE.id)
    host.tell(events.VersionEvicted(ONE.id, "org/model", 1, "watermark"))
    host.hear(said(epoch=3, verb=Verb.CANCEL))
    host.tell(events.CopyWanted(ONE.id))
    assert host.record().state is HostState.EVICTED


def test_a_statement_is_not_told_once_its_signer_is_forgotten(host: ScriptedHost) -> None:
    host.held_back.add(commands.KeepManifest)
    number = host.ask(events.OrderTriggered, said(), ONE.envelope)
    host.roster.signers.discard(PEER_KEY.public.ed25519)
    host.release(commands.KeepManifest)
    assert error_of(host.answer(number)) == "E_KEY_UNKNOWN"
    assert not host.all_of(commands.TellStatement)


# ---- bounds of numbers, and who may cancel -----------------------------------------------------------


def test_an_epoch_counts_only_near_the_one_before(host: ScriptedHost) -> None:
    host.drop()
    host.hear(said(epoch=1_002))
    assert host.record().statement.epoch == 1
    host.hear(said(epoch=1_001))
    assert host.record().statement.epoch == 1_001
    [refused] = [one for one in host.all_of(commands.RecordAudit) if one.kind == "statement refused"]
    assert (refused.fields["code"], refused.fields["epoch"]) == ("E_STATEMENT_BOUNDS", 1_002)


def test_a_member_that_deploys_again_and_again_leaves_epochs_to_those_who_may_cancel(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.drop()
    host.statements.state.statements[ONE.id] = said(epoch=EPOCH_FIRST_MAX)
    host.hear(said(epoch=EPOCH_FIRST_MAX + 1))
    [refused] = [one for one in host.all_of(commands.RecordAudit) if one.kind == "statement refused"]
    assert refused.fields["code"] == "E_STATEMENT_BOUNDS"
    assert host.request(events.CancelOrdered, ONE.name, 1).error is None
    last = host.statements.statement(ONE.id)
    assert last is not None
    assert (last.verb, last.epoch) == (Verb.CANCEL, EPOCH_FIRST_MAX + 1)
    host.hear(said(epoch=EPOCH_FIRST_MAX + 2))
    assert host.record().state is HostState.CANCELLED


def test_a_member_that_deploys_at_its_highest_epoch_first_keeps_no_host_from_the_model(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.hear(said(epoch=EPOCH_FIRST_MAX))
    assert host.drop().error is None
    assert (host.record().statement.epoch, host.record().state) == (EPOCH_FIRST_MAX, HostState.DOWNLOADING)


def test_an_orphan_of_the_highest_epoch_that_a_member_may_use_stays_one(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.statements.state.deployers[ONE.id] = Deployer(STRANGER.public.ed25519, Evidence.FIRST_HAND)
    host.statements.state.statements[ONE.id] = said(epoch=EPOCH_FIRST_MAX)
    host.tell(events.DaemonStarted())
    host.roster.signers.discard(PEER_KEY.public.ed25519)
    del host.roster.peers[PEER]
    host.wait(1_000.0)
    assert {one.statement.epoch for one in host.all_of(commands.TellStatement)} == {EPOCH_FIRST_MAX}


@pytest.mark.parametrize("epoch", [EPOCH_LIMIT + 1, EPOCH_MAX])
def test_no_epoch_near_the_highest_is_ever_believed(host: ScriptedHost, epoch: int) -> None:
    wire = forged_epoch(epoch)
    host.tell(events.StatementHeard(wire.encode(), ONE.id, PEER))
    assert host.brain.lifecycle.get(ONE.id) is None
    assert host.drop().sentence == "org/model@1 accepted"
    assert host.record().statement.epoch == 1


def forged_epoch(epoch: int) -> Statement:
    """A cancel of any epoch, well signed."""
    bare = replace(said(verb=Verb.CANCEL), epoch=epoch, signature=b"")
    return replace(bare, signature=PEER_KEY.sign(b"gossipd-statement-1 " + bare.encode()))


def test_orders_at_the_highest_epoch_are_refused_in_words(host: ScriptedHost) -> None:
    host.drop()
    host.statements.state.statements[ONE.id] = said(epoch=EPOCH_LIMIT)
    assert error_of(host.request(events.CancelOrdered, ONE.name, 1)) == "E_STATEMENT_BOUNDS"
    host.statements.state.statements[ONE.id] = said(epoch=EPOCH_LIMIT, verb=Verb.CANCEL)
    assert error_of(host.drop()) == "E_STATEMENT_BOUNDS"
    with pytest.raises(ManifestError):
        said(epoch=EPOCH_LIMIT + 1)


def test_a_member_that_did_not_deploy_it_cancels_nothing(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.drop()
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.DOWNLOADING
    assert host.record().statement.epoch == 1
    [refused] = [one for one in host.all_of(commands.RecordAudit) if one.kind == "statement refused"]
    assert refused.fields["code"] == "E_MAY_NOT_CANCEL"
    host.roster.roles = (*DEFAULT_ROLES, "member")
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.CANCELLED


def test_deploying_it_again_gives_no_right_to_cancel(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.drop()
    host.hear(said(epoch=2))
    host.hear(said(epoch=3, verb=Verb.CANCEL))
    assert host.record().state is HostState.DOWNLOADING


def after_two_deploys_at_once(first: SecretKey, second: SecretKey, *, apart_s: float = 0.0) -> ScriptedHost:
    host = ScriptedHost()
    host.roster.roles = DEFAULT_ROLES
    host.roster.signers.add(STRANGER.public.ed25519)
    host.hear(said(secret=first))
    host.wall_s += apart_s
    host.hear(said(secret=second))
    return host


def test_of_two_members_that_deploy_the_same_neither_may_cancel_alone() -> None:
    for order in ((PEER_KEY, STRANGER), (STRANGER, PEER_KEY)):
        for apart_s in (0.0, 3_600.0):
            host = after_two_deploys_at_once(*order, apart_s=apart_s)
            for secret in order:
                for verb, epoch in ((Verb.CANCEL, 2), (Verb.PAUSE, 2), (Verb.ROLL_BACK, 4), (Verb.REMOVE, 6)):
                    host.hear(said(epoch=epoch, verb=verb, secret=secret))
            assert host.record().state is HostState.DOWNLOADING
            assert host.record().statement.epoch == 1
            host.hear(said(epoch=2, verb=Verb.CANCEL, secret=PUBLISHER))
            assert host.record().state is HostState.CANCELLED


def test_of_two_first_statements_that_wait_for_the_manifest_neither_counts() -> None:
    for order in ((PEER_KEY, STRANGER), (STRANGER, PEER_KEY)):
        host = ScriptedHost()
        host.held_back.add(commands.PullManifest)
        host.roster.signers.add(STRANGER.public.ed25519)
        for secret in order:
            host.hear(said(secret=secret))
        host.release(commands.PullManifest)
        assert host.statements.authors(ONE.id).deployer == b""


def test_a_host_that_is_given_what_another_has_deployed_takes_its_right_to_cancel(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.hear(said())
    assert host.drop().error is None
    host.hear(said(epoch=4, verb=Verb.CANCEL))
    assert host.record().state is HostState.DOWNLOADING
    refused = host.request(events.CancelOrdered, ONE.name, 1)
    assert error_of(refused) == "E_MAY_NOT_CANCEL"
    assert "more than one host or client has deployed it" in str(refused.error)


def test_a_client_that_triggers_what_a_member_said_first_takes_its_right_to_cancel(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.roster.clients.add(STRANGER.public.ed25519)
    host.roster.signers.add(STRANGER.public.ed25519)
    host.hear(said())
    assert not trigger(host, said(secret=STRANGER)).is_changed
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.DOWNLOADING


def test_an_order_that_the_disk_refuses_leaves_the_deployer_as_it_was(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.hear(said())
    host.fail(commands.KeepStatements, Failure.DISK, FULL_DISK)
    assert host.drop().error is not None
    host.hear(said(epoch=2, verb=Verb.CANCEL))
    assert host.record().state is HostState.CANCELLED


def test_who_resumes_or_renews_a_deployment_does_not_contest_it(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.PAUSE))
    assert host.request(events.PauseOrdered, ONE.name, 1, True).error is None
    host.hear(said(epoch=5, secret=PEER_KEY))
    host.hear(said(epoch=6, verb=Verb.CANCEL))
    assert host.record().state is HostState.CANCELLED


def test_a_first_statement_of_a_stranger_takes_no_right() -> None:
    low, high = sorted((PEER_KEY, STRANGER), key=lambda one: one.public.ed25519)
    host = ScriptedHost()
    host.roster.signers = {low.public.ed25519}
    host.hear(said(secret=low))
    host.hear(said(secret=high))
    assert host.statements.authors(ONE.id).deployer == low.public.ed25519


def test_who_deployed_it_who_published_it_and_clients_may_cancel() -> None:
    for secret in (PEER_KEY, PUBLISHER, STRANGER):
        host = ScriptedHost()
        host.roster.roles = DEFAULT_ROLES
        host.roster.signers.add(STRANGER.public.ed25519)
        host.roster.clients.add(STRANGER.public.ed25519)
        host.hear(said())
        host.hear(said(epoch=2, verb=Verb.CANCEL, secret=secret))
        assert host.record().state is HostState.CANCELLED


def test_a_cancel_that_its_signer_may_not_give_is_refused_where_it_is_ordered(host: ScriptedHost) -> None:
    host.roster.roles = DEFAULT_ROLES
    host.hear(said())
    refused = host.request(events.CancelOrdered, ONE.name, 1)
    assert error_of(refused) == "E_MAY_NOT_CANCEL"
    told = str(refused.error)
    assert "this host may not cancel, pause, roll back or remove org/model@1: security.may_cancel allows none" in told
    assert "the host or client that alone has deployed it" in told
    assert host.all_of(commands.TellStatement) == []


def test_every_statement_that_changes_something_is_written_down_with_its_signer(host: ScriptedHost) -> None:
    host.hear(said())
    host.hear(said())
    host.hear(said(epoch=2, verb=Verb.CANCEL), NodeId(b"f" * 16))
    found = [one.fields for one in host.all_of(commands.RecordAudit) if one.kind == "statement"]
    assert [(one["verb"], one["epoch"], one["signer"], one["forwarder"]) for one in found] == [
        ("deploy", 1, PEER.hex(), PEER.hex()), ("cancel", 2, PEER.hex(), (b"f" * 16).hex()),
    ]  # fmt: skip


# ---- trust: what was accepted stays usable, and what is revoked ends at once --------------------------


def again(host: ScriptedHost) -> ScriptedHost:
    """The same host after a restart, which trusts no publisher any more."""
    made = ScriptedHost(statements=register_from_bytes(register_to_bytes(host.statements)), published=[ONE])
    made.files, made.trusted, made.peers_have = host.files, (), {}
    made.tell(events.DaemonStarted())
    return made


def complete(host: ScriptedHost) -> ScriptedHost:
    host.drop()
    host.tell(FinishModel(ONE.id))
    assert host.record().state is HostState.COMPLETE
    return host


def test_a_model_outlives_the_trust_in_its_publishers_key(host: ScriptedHost) -> None:
    restarted = again(complete(host))
    assert restarted.record().state is HostState.COMPLETE
    assert [one.manifest for one in restarted.all_of(commands.OpenSwarm)] == [ONE]
    assert restarted.brain.lifecycle.find(ONE.name, 1)
    assert restarted.request(events.RemoveOrdered, ONE.name, 1).error is None
    new = manifest(version=2)
    assert error_of(restarted.drop(new)) == "E_KEY_UNKNOWN", "new ones are not accepted"


@pytest.mark.parametrize("order", [(key_id(ONE.signer),), (b"", ONE.name, 1)])
def test_what_is_untrusted_ends_at_once_and_stays_so(host: ScriptedHost, order: tuple[object, ...]) -> None:
    complete(host)
    assert host.brain.lifecycle.is_served(ONE.id)
    assert host.request(events.UntrustOrdered, *order).sentence.endswith("no longer trusted on this host")
    assert (host.record().state, host.record().reason) == (HostState.FAILED, HostReason.REFUSED_OPERATOR)
    assert [one.deployment for one in host.all_of(commands.CloseSwarm)] == [ONE.id]
    assert not host.brain.lifecycle.is_served(ONE.id)
    assert not host.all_of(commands.DeleteModel), "files stay until they are removed"
    assert not host.request(events.UntrustOrdered, *order).is_changed
    assert error_of(host.drop()) == "E_UNTRUSTED"
    restarted = again(host)
    assert restarted.record().state is HostState.FAILED
    assert restarted.record().sentence.startswith("E_UNTRUSTED")
    assert not restarted.all_of(commands.OpenSwarm)
    assert restarted.brain.lifecycle.find(ONE.name, 1), "it can be named, to be removed"
    names = (*order, "", 0)[:3]
    assert restarted.request(events.UntrustOrdered, *names, True).error is None
    assert restarted.record().state is HostState.COMPLETE


def test_one_that_is_under_way_is_deleted_when_it_is_untrusted(host: ScriptedHost) -> None:
    host.drop()
    host.request(events.UntrustOrdered, key_id(ONE.signer))
    assert host.record().state is HostState.FAILED
    assert "untrust" in host.audited()


def test_a_name_that_a_jump_has_locked_goes_on_after_an_override(host: ScriptedHost) -> None:
    host.drop(manifest(version=2**53 - 1))
    assert error_of(host.drop(manifest(version=3))) == "E_ROLLBACK"
    assert host.request(events.OverrideOrdered, ONE.name).error is None
    kept = register_from_bytes(register_to_bytes(host.statements))
    assert kept.state.overridden == {ONE.name: None}
    assert host.drop(manifest(version=3)).sentence.endswith("accepted")
    assert host.statements.state.versions[ONE.name] == {3: manifest(version=3).id}
    assert error_of(host.drop(manifest(version=2))) == "E_ROLLBACK", "one override lets one manifest in"
    assert host.drop(manifest(version=4)).error is None
    assert error_of(host.request(events.OverrideOrdered, "nobody")) == "E_NOT_FOUND"
    assert "trust override" in host.audited()
