"""Which sketches become part of a course, how often, and at what price."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.core.sketch import KnownHoldings
from gossipd.daemon.sketch_sampler import HOSTS_MAX, SketchSampler
from gossipd.deployment.history import FINE_COLUMNS, Histories
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from membership.member import NodeId

ID = DeploymentId(b"d" * 32)
CHUNKS = 64


class Parts:
    """A sampler over ``hosts`` that have told something at second 1,000; ``held`` is what their neighbour knows."""

    def __init__(self, hosts: int) -> None:
        self.histories = Histories()
        self.nodes = [NodeId(number.to_bytes(16, "big")) for number in range(hosts)]
        told = Progress(state=HostState.DOWNLOADING, chunks_verified=1)
        for node in self.nodes:
            self.histories.heard(progress_key(ID), node, None, told, chunk_count=CHUNKS, wall_s=1_000.0)
        self.held: dict[NodeId, int] = {}
        deployment = SimpleNamespace(id=ID)
        self.sampler = SketchSampler(cast(Any, self), cast(Any, [deployment]), self.histories)

    def holdings(self, deployment: DeploymentId, node: NodeId) -> KnownHoldings | None:
        bits = self.held.get(node)
        return None if bits is None else KnownHoldings(ChunkSet(CHUNKS, bits), ChunkSet.full(CHUNKS), 0.0)

    def reached(self, number: int) -> list[int]:
        raw = self.histories.live[progress_key(ID)].hosts[self.nodes[number]].reached
        return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 8)]


def test_only_hosts_whose_chunks_are_known_have_a_sketch() -> None:
    parts = Parts(2)
    parts.held = {parts.nodes[1]: 0b11}
    parts.sampler.look(1_004.0)
    parts.held = {parts.nodes[1]: 0b111}
    parts.sampler.look(1_005.0)
    assert parts.reached(0) == []
    assert parts.reached(1)[:4] == [4, 4, 5, 65535]


def test_after_ten_minutes_a_look_counts_each_ten_seconds() -> None:
    parts = Parts(1)
    for second in range(FINE_COLUMNS + 1, FINE_COLUMNS + 40):
        parts.held = {parts.nodes[0]: (1 << (second - FINE_COLUMNS)) - 1}
        parts.sampler.look(1_000.0 + second)
    assert sorted(set(parts.reached(0))) == [600, 601, 602, 603, 65535]
    assert parts.histories.live[progress_key(ID)].hosts[parts.nodes[0]].chunks_sketched == 31


def test_one_look_makes_a_bounded_number_of_sketches() -> None:
    parts = Parts(3 * HOSTS_MAX)
    parts.held = dict.fromkeys(parts.nodes, 1)
    done = []
    for second in range(4):
        parts.sampler.look(1_001.0 + second)
        done.append(sum(bool(parts.reached(number)) for number in range(len(parts.nodes))))
    assert done == [HOSTS_MAX, 2 * HOSTS_MAX, 3 * HOSTS_MAX, 3 * HOSTS_MAX]
