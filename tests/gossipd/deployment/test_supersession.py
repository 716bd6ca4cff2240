"""Versions that their publisher no longer keeps: which words and bytes go, when, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gossipd.core.errors import LocalError
from gossipd.core.events import FinishModel
from gossipd.core.reasons import HostReason
from gossipd.deployment import commands, events
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.statement import Verb
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.deployment.supersession import LOOK_AGAIN_S, LOOK_S, REFUSED_AGAIN_S, REFUSED_MAX_S, TOLD_S
from gossipd.manifest.annotations import Retention, pack_about
from gossipd.manifest.manifest import Manifest, open_manifest, seal_manifest
from tests.gossipd.deployment.scripted_host import PEER, ScriptedHost, said
from tests.gossipd.manifest.making import STRANGER, TRUSTED, draft, manifest

SETTLED_S = 6 * LOOK_S


def step(version: int, *, last: int = 2, **fields: Any) -> Manifest:
    keep = fields.pop("keep", Retention(last=last))
    return manifest((100,), name="run-7", version=version, salt=b"%d" % version, keep=keep, **fields)


def complete(host: ScriptedHost, one: Manifest) -> None:
    host.drop(one)
    host.tell(FinishModel(one.id))
    assert host.record(one.id).state is HostState.COMPLETE


def known(host: ScriptedHost, ones: Sequence[Manifest]) -> list[int]:
    return [one.version for one in ones if host.brain.lifecycle.get(one.id) is not None]


@pytest.fixture
def steps() -> list[Manifest]:
    return [step(version) for version in (100, 200, 300, 400)]


def test_all_of_a_superseded_version_goes_bytes_before_words(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps:
        complete(host, one)
        host.wait(SETTLED_S)
    assert known(host, steps) == [300, 400]
    assert host.published == set(host.files) == {steps[2].id, steps[3].id}
    state = host.statements.state
    assert set(state.statements) == set(state.accepted) == {steps[2].id, steps[3].id}
    assert list(state.versions["run-7"]) == [300, 400]
    order = [type(one) for one in host.done if isinstance(one, commands.EvictModel | commands.ForgetManifests)]
    assert order == [commands.EvictModel, commands.ForgetManifests] * 2
    assert host.audited().count("superseded") == host.audited().count("evicted") == 2


def test_a_superseded_version_is_remembered_durably_before_it_is_deleted(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps[:2]:
        complete(host, one)
    host.wait(SETTLED_S)
    complete(host, steps[2])
    host.held_back.add(commands.KeepStatements)
    host.wait(2 * LOOK_AGAIN_S)
    assert not host.all_of(commands.EvictModel)
    kept = register_from_bytes(host.waiting[-1].kept)  # type: ignore[union-attr]
    assert kept.is_superseded(steps[0].id)
    host.release(commands.KeepStatements)
    host.wait(SETTLED_S)
    assert known(host, steps) == [200, 300]


def test_a_disk_that_refuses_to_remember_is_asked_again_and_nothing_is_deleted(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps[:3]:
        complete(host, one)
    host.fail(commands.KeepStatements, Failure.DISK, LocalError("full", code="E_STATE_WRITE"), times=3)
    host.wait(LOOK_AGAIN_S)
    assert not host.all_of(commands.EvictModel)
    host.wait(4 * LOOK_AGAIN_S)
    assert known(host, steps) == [200, 300]


def test_what_its_publisher_does_not_limit_stays() -> None:
    host = ScriptedHost()
    steps = [step(version, keep=None) for version in (100, 200, 300)]
    for one in steps:
        complete(host, one)
    host.wait(SETTLED_S)
    assert known(host, steps) == [100, 200, 300]
    assert not host.all_of(commands.ForgetStatement)


def test_nothing_goes_while_no_newer_version_is_complete_on_a_living_host(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    complete(host, steps[0])
    for one in steps[1:]:
        host.drop(one)
    host.wait(4 * LOOK_AGAIN_S)
    assert known(host, steps) == [100, 200, 300, 400]
    host.roster.dead.add(PEER)
    told = Progress(state=HostState.COMPLETE, chunks_verified=1)
    host.progress.record(PEER, progress_key(steps[3].id), 1, told, now=host.now)
    host.wait(2 * LOOK_AGAIN_S)
    assert known(host, steps) == [100, 200, 300, 400], "a dead host's copy helps nobody"
    host.roster.dead.clear()
    host.wait(2 * LOOK_AGAIN_S)
    assert known(host, steps) == [100, 300, 400], "the newest that is complete here stays until another is"
    host.tell(FinishModel(steps[2].id))
    host.wait(2 * LOOK_AGAIN_S)
    assert known(host, steps) == [300, 400]


def test_one_that_a_job_holds_stays_until_it_is_let_go_and_no_newcomer_hears_of_it(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    complete(host, steps[0])
    host.held_by_jobs.add(steps[0].id)
    for one in steps[1:]:
        complete(host, one)
    host.wait(3 * REFUSED_AGAIN_S)
    assert known(host, steps) == [100, 300, 400]
    assert steps[0].id in {one.deployment for one in host.all_of(commands.ForgetStatement)}
    assert host.brain.lifecycle.is_served(steps[0].id)
    assert not [one for one in host.statements.orphans(()) if one.deployment == steps[0].id]
    host.held_by_jobs.clear()
    host.wait(4 * REFUSED_AGAIN_S + SETTLED_S)
    assert known(host, steps) == [300, 400]


def test_one_that_a_job_holds_is_asked_for_more_and_more_rarely(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    complete(host, steps[0])
    host.held_by_jobs.add(steps[0].id)
    for one in steps[1:]:
        complete(host, one)

    def asked() -> int:
        return sum(one.deployment == steps[0].id for one in host.all_of(commands.EvictModel))

    host.wait(SETTLED_S)
    assert asked() == 1
    host.wait(15 * REFUSED_AGAIN_S + SETTLED_S)
    assert asked() == 5, "after 1, 3, 7 and 15 minutes"
    host.wait(2 * REFUSED_MAX_S + SETTLED_S)
    assert asked() == 7
    host.held_by_jobs.clear()
    host.wait(REFUSED_MAX_S + SETTLED_S)
    assert known(host, steps) == [300, 400]


def test_one_that_a_newcomer_still_fetches_stays_for_a_time_of_grace(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps[:2]:
        complete(host, one)
    told = Progress(state=HostState.DOWNLOADING, chunks_verified=0)
    host.progress.record(PEER, progress_key(steps[0].id), 1, told, now=host.now)
    complete(host, steps[2])
    host.wait(500.0)
    assert known(host, steps) == [100, 200, 300]
    host.wait(150.0)
    assert known(host, steps) == [200, 300], "a host that never ends must not keep it for ever"


def test_a_restart_does_not_fetch_a_superseded_version_again(steps: list[Manifest]) -> None:
    before = ScriptedHost()
    for one in steps[:3]:
        complete(before, one)
    before.statements.supersede(steps[0].id)
    kept = register_from_bytes(register_to_bytes(before.statements))
    after = ScriptedHost(statements=kept, published=steps[1:3])  # killed after the bytes went, before the words did
    after.files = dict(before.files)
    after.tell(events.DaemonStarted())
    after.wait(SETTLED_S)
    assert steps[0].id not in {one.manifest.id for one in after.all_of(commands.ReserveSpace)}
    assert known(after, steps) == [200, 300]
    assert set(after.files) == {steps[1].id, steps[2].id}


def test_a_word_on_a_superseded_version_is_not_heard_again(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps[:3]:
        complete(host, one)
        host.wait(SETTLED_S)
    host.peers_have[steps[0].id] = steps[0].envelope
    host.hear(said(steps[0].id, epoch=5))
    host.wait(SETTLED_S)
    assert known(host, steps) == [200, 300]
    assert not host.all_of(commands.PullManifest)
    answer = host.drop(steps[0])
    assert answer.error is not None and answer.error.code == "E_ROLLBACK"


def test_a_newcomer_drops_words_that_were_superseded_before_it_came(steps: list[Manifest]) -> None:
    newcomer = ScriptedHost()
    newcomer.peers_have = {one.id: one.envelope for one in steps}
    for one in reversed(steps):  # the newest first: the others are too old for it
        newcomer.hear(said(one.id))
    newcomer.tell(FinishModel(steps[3].id))
    newcomer.wait(SETTLED_S)
    assert known(newcomer, steps) == [300, 400]
    assert set(newcomer.statements.state.statements) == {steps[2].id, steps[3].id}


@pytest.mark.parametrize("order", [(3, 2, 1, 0), (3, 0, 2, 1), (0, 1, 2, 3)])
def test_a_newcomer_takes_all_live_versions_in_whatever_order_it_hears_of_them(
    steps: list[Manifest], order: tuple[int, ...]
) -> None:
    newcomer = ScriptedHost()
    newcomer.peers_have = {one.id: one.envelope for one in steps}
    for place in order:
        newcomer.hear(said(steps[place].id))
    for one in steps:
        if newcomer.brain.lifecycle.get(one.id) is not None:
            newcomer.tell(FinishModel(one.id))
    newcomer.wait(SETTLED_S)
    assert newcomer.published == {steps[2].id, steps[3].id}


def test_an_older_version_is_still_a_rollback_where_an_operator_orders_it_or_nobody_keeps_it() -> None:
    host = ScriptedHost()
    old, new = step(100, last=3), step(200, last=3)
    complete(host, new)
    answer = host.drop(old)
    assert answer.error is not None and answer.error.code == "E_ROLLBACK"
    unsaid = [manifest(name="m", version=version) for version in (1, 2)]
    host.peers_have = {one.id: one.envelope for one in unsaid}
    host.hear(said(unsaid[1].id))
    host.hear(said(unsaid[0].id))
    assert host.record(unsaid[0].id).state is HostState.EXPIRED


def test_an_unfinished_copy_is_given_up_when_a_newer_one_is_complete(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps[:2]:
        host.drop(one)
    complete(host, steps[2])
    host.wait(SETTLED_S)
    given_up = host.record(steps[0].id)
    assert (given_up.state, given_up.reason) == (HostState.REMOVED, HostReason.SUPERSEDED), "others wait for this one"
    assert steps[0].id not in host.store
    assert steps[1].id in host.store
    host.wait(TOLD_S)
    assert known(host, steps) == [200, 300]


def test_a_version_that_was_taken_back_pushes_no_older_one_out(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps[:2]:
        complete(host, one)
    late = step(500)
    complete(host, late)
    host.hear(said(late.id, epoch=4, verb=Verb.ROLL_BACK))
    host.wait(SETTLED_S)
    assert known(host, [*steps, late]) == [100, 200, 500]


def test_a_cancelled_version_is_none_of_the_last_ones(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    for one in steps[:3]:
        complete(host, one)
    late = step(500)
    host.drop(late)
    host.hear(said(late.id, epoch=2, verb=Verb.CANCEL))
    host.wait(SETTLED_S)
    assert known(host, [*steps, late]) == [200, 300, 500]


def test_a_parent_stays_while_a_live_version_of_the_same_key_asks_for_it(steps: list[Manifest]) -> None:
    host = ScriptedHost()
    base = step(100)
    complete(host, base)
    asks = Retention(last=1, parents=True)
    about = pack_about({"parents": [base.id.hex()]})
    child, grandchild = step(200, keep=asks, about=about), step(300, keep=asks)
    complete(host, child)
    host.wait(SETTLED_S)
    assert known(host, [base, child]) == [100, 200]
    complete(host, grandchild)
    host.wait(2 * SETTLED_S)
    assert known(host, [base, child, grandchild]) == [300]


def test_a_parent_of_another_key_does_not_stay() -> None:
    host = ScriptedHost()
    host.trusted = [*TRUSTED, STRANGER.public.ed25519]
    steps = [step(version, last=1) for version in (100, 200)]
    about = pack_about({"parents": [steps[0].id.hex()]})
    greedy = draft((10,), name="other", keep=Retention(last=1, parents=True), about=about)
    complete(host, steps[0])
    complete(host, open_manifest(seal_manifest(greedy, STRANGER), host.trusted))
    complete(host, steps[1])
    host.wait(SETTLED_S)
    assert known(host, steps) == [200]


def test_many_jobs_leave_no_more_words_than_live_versions() -> None:
    host = ScriptedHost()
    for version in range(1, 9):
        for job in range(12):
            one = manifest((10,), name=f"run-{job}", version=version, salt=b"%d" % job, keep=Retention(last=3))
            complete(host, one)
        host.wait(SETTLED_S)
    assert len(host.statements.state.statements) == len(host.statements.state.accepted) == 12 * 3
    assert len(host.files) == len(host.published) == len(list(host.brain.lifecycle)) == 12 * 3
    assert sum(map(len, host.statements.state.versions.values())) == 12 * 3
    assert not host.statements.state.removed
