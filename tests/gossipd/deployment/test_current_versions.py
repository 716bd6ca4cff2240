"""Where ``current`` of a name leads: one work at a time for a name, asked again when the disk has refused."""

from __future__ import annotations

from gossipd.core.errors import LocalError
from gossipd.core.events import FinishModel
from gossipd.deployment import commands, events
from gossipd.deployment.events import Failure
from gossipd.deployment.statement import Verb
from gossipd.identity.trust import key_id
from tests.gossipd.deployment.scripted_host import ONE, ScriptedHost, said
from tests.gossipd.manifest.making import manifest


def complete() -> ScriptedHost:
    host = ScriptedHost()
    host.hear(said())
    host.tell(FinishModel(ONE.id))
    return host


def asked(host: ScriptedHost) -> list[set[int]]:
    return [set(one.avoided) for one in host.all_of(commands.PointCurrent)]


def test_what_the_disk_refused_is_asked_for_again_later() -> None:
    host = complete()
    host.fail(commands.PointCurrent, Failure.DISK, LocalError("Input/output error", code="E_STORE_IO"))
    host.hear(said(epoch=4, verb=Verb.ROLL_BACK))
    assert len(asked(host)) == 1
    host.wait(6.0)
    assert asked(host) == [{ONE.version}] * 2


def test_a_word_that_comes_while_current_moves_is_followed_after_it() -> None:
    host = complete()
    host.held_back.add(commands.PointCurrent)
    host.hear(said(epoch=4, verb=Verb.ROLL_BACK))
    host.hear(said(epoch=5))
    assert asked(host) == [{ONE.version}], "two at once might end in either order"
    host.release(commands.PointCurrent)
    assert asked(host)[1:] == [set()]


def test_every_complete_version_of_the_name_is_looked_at_when_current_has_moved() -> None:
    host = complete()
    other = manifest(version=2)
    host.drop(other)
    host.record().current_moved = False
    host.hear(said(epoch=4, verb=Verb.ROLL_BACK))
    assert host.record().current_moved
    assert not host.record(other.id).current_moved, "it is told when it is complete"


def test_current_leaves_what_the_operator_trusts_no_longer_and_comes_back() -> None:
    host = complete()
    host.request(events.UntrustOrdered, b"", ONE.name, 1)
    assert asked(host) == [{1}]
    host.request(events.UntrustOrdered, b"", ONE.name, 1, True)
    assert asked(host)[1:] == [set()]


def test_current_moves_back_once_for_all_versions_of_a_key() -> None:
    host, two = complete(), manifest(version=2)
    host.drop(two)
    host.tell(FinishModel(two.id))
    host.request(events.UntrustOrdered, key_id(ONE.signer))
    assert asked(host) == [{1, 2}]
    host.request(events.UntrustOrdered, key_id(ONE.signer), "", 0, True)
    assert asked(host)[1:] == [set()]


def test_what_is_refused_while_it_is_published_is_not_current_in_the_end() -> None:
    host = ScriptedHost()
    host.held_back.add(commands.PublishModel)
    host.hear(said())
    host.tell(FinishModel(ONE.id))
    host.request(events.UntrustOrdered, b"", ONE.name, 1)
    before = len(asked(host))
    host.release(commands.PublishModel)
    assert asked(host)[before:] == [{1}], "its tree has just come to be there"


def test_current_leaves_what_is_refused_when_the_daemon_starts() -> None:
    old = complete()
    old.request(events.UntrustOrdered, b"", ONE.name, 1)
    host = ScriptedHost(statements=old.statements, published=[ONE])
    host.files = dict(old.files)
    host.tell(events.DaemonStarted())
    assert asked(host) == [{1}], "the move may not have been made before the restart"
