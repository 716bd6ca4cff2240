"""Whatever words members say of a deployment, in whatever order, a host follows the last one and never fails."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.deployment import events
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import STOPS, Verb, epoch_after
from tests.gossipd.deployment.scripted_host import ONE, ScriptedHost, said


@pytest.mark.parametrize("state", [HostState.REMOVED, HostState.COMPLETE, HostState.CANCELLED])
@pytest.mark.parametrize("verb", sorted(STOPS))
def test_a_word_that_stops_meets_any_end(state: HostState, verb: Verb) -> None:
    """``rm --everywhere`` and ``rollback --everywhere`` that cross: the second has the higher epoch."""
    host = ScriptedHost()
    host.hear(said(epoch=5))
    if state is HostState.COMPLETE:
        host = ScriptedHost(published=[ONE])
        host.hear(said(epoch=5))
    else:
        before = Verb.REMOVE if state is HostState.REMOVED else Verb.CANCEL
        host.hear(said(epoch=epoch_after(5, before), verb=before))
    assert host.record().state is state
    host.hear(said(epoch=epoch_after(7, verb), verb=verb))
    if state is HostState.REMOVED:
        assert host.record().state is HostState.REMOVED, "what is deleted holds nothing that could be cancelled"


def test_what_was_evicted_stays_so_when_it_is_removed_and_deployed_again() -> None:
    host = ScriptedHost(published=[ONE])
    host.hear(said(epoch=5))
    host.ask(events.EvictionBegun, ONE.id)
    host.published.discard(ONE.id)
    host.tell(events.VersionEvicted(ONE.id, ONE.name, 1, "watermark"))
    removed = epoch_after(5, Verb.REMOVE)
    host.hear(said(epoch=removed, verb=Verb.REMOVE))
    assert host.record().state is HostState.REMOVED
    host.hear(said(epoch=epoch_after(removed, Verb.DEPLOY)))
    assert host.record().state is HostState.EVICTED


@pytest.mark.parametrize("seed", range(60))
def test_random_words_orders_and_restarts_are_followed(seed: int) -> None:
    random, host, epoch = Random(seed), ScriptedHost(), 0
    for _ in range(40):
        match random.randrange(8):
            case 0:
                host.wait(random.choice([0.1, 5.0, 120.0]))
            case 1:
                host.request(events.RemoveOrdered, ONE.name, 1)
            case 2:
                host.drop()
            case 3:
                if ONE.id in host.published and host.record().state is HostState.COMPLETE:
                    host.published.discard(ONE.id)
                    host.store.pop(ONE.id, None)
                    host.tell(events.VersionEvicted(ONE.id, ONE.name, 1, "watermark"))
            case _:
                verb = random.choice(list(Verb))
                epoch = epoch_after(epoch, verb)
                host.hear(said(epoch=epoch, verb=verb))
    host.hear(said(epoch=epoch_after(epoch + 6, Verb.DEPLOY)))
    host.wait(300.0)
    assert host.record().state not in (HostState.CANCELLED, HostState.FAILED)
