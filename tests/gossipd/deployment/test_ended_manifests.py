"""What ended in an earlier run still has a name: whose manifests are read again, and within which bounds."""

from __future__ import annotations

import pytest

from gossipd.core.events import FinishModel
from gossipd.deployment import commands, ended_manifests, events
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from tests.gossipd.deployment.scripted_host import ONE, ScriptedHost, said
from tests.gossipd.manifest.making import manifest

TWO, THREE = manifest(version=2), manifest(version=3)


def restarted(old: ScriptedHost, *, starts: bool = True) -> ScriptedHost:
    """The same host with what it has on its disk."""
    known = (ONE, TWO, THREE)
    host = ScriptedHost(
        statements=register_from_bytes(register_to_bytes(old.statements)),
        published=[one for one in known if one.id in old.published],
    )
    host.files, host.peers_have = dict(old.files), dict(old.peers_have)
    if starts:
        host.tell(events.DaemonStarted())
    return host


@pytest.fixture
def host() -> ScriptedHost:
    """It has version 1 whole."""
    made = ScriptedHost()
    made.drop()
    made.tell(FinishModel(ONE.id))
    assert made.record().state is HostState.COMPLETE
    return made


def end(host: ScriptedHost, how: HostState) -> None:
    match how:
        case HostState.REMOVED:
            host.request(events.RemoveOrdered, ONE.name, 1)
        case HostState.EVICTED:
            host.ask(events.EvictionBegun, ONE.id)
            host.published.discard(ONE.id)
            host.tell(events.VersionEvicted(ONE.id, ONE.name, 1, "watermark"))
        case HostState.CANCELLED:
            host.published.discard(ONE.id)
            host.hear(said(epoch=90, verb=Verb.CANCEL))


@pytest.mark.parametrize("how", [HostState.REMOVED, HostState.EVICTED, HostState.CANCELLED])
def test_what_ended_before_a_restart_is_found_by_name(host: ScriptedHost, how: HostState) -> None:
    end(host, how)
    again = restarted(host)
    [record] = again.brain.lifecycle.find(ONE.name)
    assert (record.state, record.label, record.is_open) == (how, ONE.label, False)
    assert not again.all_of(commands.PullManifest)


def test_what_was_removed_everywhere_is_found_by_name(host: ScriptedHost) -> None:
    host.request(events.RemoveOrdered, ONE.name, 1, False, True)
    [record] = restarted(host).brain.lifecycle.find(ONE.name, 1)
    assert record.state is HostState.REMOVED


def test_a_manifest_that_is_gone_leaves_the_rest_as_it_is(host: ScriptedHost) -> None:
    host.drop(TWO)
    for version in (1, 2):
        host.request(events.RemoveOrdered, ONE.name, version)
    del host.files[TWO.id]
    host.files[ONE.id] = host.files[ONE.id][:-1] + b"?"
    again = restarted(host)
    assert not again.brain.lifecycle.find(ONE.name), "neither is sound"
    assert again.record().state is HostState.REMOVED


def test_manifests_are_read_one_at_a_time_up_to_a_bound(host: ScriptedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (TWO, THREE):
        host.drop(one)
    for version in (1, 2, 3):
        host.request(events.RemoveOrdered, ONE.name, version)
    monkeypatch.setattr(ended_manifests, "ENDED_BYTES_MAX", len(ONE.envelope) + len(THREE.envelope))
    again = restarted(host, starts=False)
    again.held_back.add(commands.ReadManifest)
    again.tell(events.DaemonStarted())
    assert len(again.waiting) == 1
    while again.waiting:
        again.release(commands.ReadManifest)
    assert len(again.brain.lifecycle.find(ONE.name)) == 2


def test_one_that_begins_meanwhile_keeps_its_own_manifest(host: ScriptedHost) -> None:
    host.request(events.RemoveOrdered, ONE.name, 1)
    again = restarted(host, starts=False)
    again.held_back.add(commands.ReadManifest)
    again.tell(events.DaemonStarted())
    again.drop()
    state = again.record().state
    again.release(commands.ReadManifest)
    assert again.record().state is state is HostState.DOWNLOADING
    assert not again.all_of(commands.OpenManifest)[1:], "it was opened when it was dropped, and not once more"


def test_what_its_publisher_keeps_no_longer_is_forgotten_without_a_name(host: ScriptedHost) -> None:
    host.request(events.RemoveOrdered, ONE.name, 1)
    host.statements.supersede(ONE.id)
    again = restarted(host)
    again.wait(60.0)
    assert not again.all_of(commands.OpenManifest)
    assert again.brain.lifecycle.get(ONE.id) is None
