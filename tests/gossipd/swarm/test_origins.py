"""Where a model comes from that no storage has, and what that changes for the hosts around it."""

from __future__ import annotations

from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    DeploymentOpened,
    LimitUploads,
    PreferFirstCopies,
    ProbeSource,
    ReportStall,
    StallReason,
    StartSourceRead,
)
from gossipd.swarm.origins import Origins
from tests.gossipd.swarm.planning import DEPLOYMENT, OWN, Driven, node, shape, view

SAVED = replace(shape(100), has_sources=False)


def test_origins_are_the_hosts_that_had_all_when_first_heard_and_still_have() -> None:
    origins = Origins(OWN, SAVED, is_own=False)
    origins.heard(node(1), is_full=True, is_first=True)
    origins.heard(node(2), is_full=True, is_first=False)
    origins.heard(node(3), is_full=False, is_first=True)
    assert origins.among({node(1): 100, node(2): 100, node(3): 40}) == {node(1)}
    assert origins.among({node(1): 99}) == frozenset()
    assert Origins(OWN, SAVED, is_own=True).among({}) == {OWN}


def test_what_storage_has_knows_no_origin() -> None:
    origins = Origins(OWN, shape(100), is_own=True)
    origins.heard(node(1), is_full=True, is_first=True)
    assert not origins.is_own
    assert origins.among({node(1): 100}) == frozenset()


def test_nobody_asks_storage_for_what_it_does_not_have_nor_blames_it() -> None:
    driven = Driven()
    driven.meet(view(1, reads=False), view(2, reads=False))
    commands = driven.tell(DeploymentOpened(DEPLOYMENT, SAVED, ChunkSet(100))) + driven.wait(10.0)
    assert not [one for one in commands if isinstance(one, ProbeSource | StartSourceRead)]
    reports = [one.reason for one in commands if isinstance(one, ReportStall)]
    assert reports == [StallReason.NO_HOLDER]


def test_an_origin_offers_the_whole_cluster_more_uploads_than_a_host_that_has_fetched_all() -> None:
    slots = {}
    for one in (SAVED, shape(100)):
        driven = Driven()
        driven.meet(view(1), view(2))
        commands = driven.tell(DeploymentOpened(DEPLOYMENT, one, ChunkSet.full(100))) + driven.wait(20.0)
        slots[one.has_sources] = [limit.slots for limit in commands if isinstance(limit, LimitUploads)][-1:]
    assert slots[False] > slots[True]


def test_only_an_origin_sends_each_chunk_once_before_any_twice() -> None:
    told = {}
    for has_sources, held in ((False, ChunkSet.full(100)), (True, ChunkSet.full(100)), (False, ChunkSet(100))):
        commands = Driven().tell(DeploymentOpened(DEPLOYMENT, replace(SAVED, has_sources=has_sources), held))
        told[has_sources, held.is_full] = [one for one in commands if isinstance(one, PreferFirstCopies)]
    assert told == {(False, True): [PreferFirstCopies(DEPLOYMENT, 100)], (True, True): [], (False, False): []}
