"""Random lives of one deployment in a planner that lets it rest, and the same lives in one that never does.

A chunk rots at the end of each. With a rest it must come back from the same kind of supplier, not much later, and no
host may stand in for seeds that would not have without one.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    ChunkLost,
    ChunkStored,
    Command,
    DeploymentPaused,
    Event,
    FailReason,
    FetchFailed,
    HoldingsHeard,
    PeerLost,
    PeerReachable,
    PeerSeen,
    PeerWantHeard,
    ProbeSource,
    SourceProbed,
    StartFetch,
    StartSourceRead,
    StartSubscription,
    SubscribeHeard,
    UnsubscribeHeard,
)
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.core.model import PeerView
from gossipd.swarm.open_deployments import OpenDeployments
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, Driven, node, opened, view

CHUNKS = 12
OTHER = DeploymentId(b"o" * 32)
LATER_S = 2.0  # readers that changed during a rest have a second's grace, and a turn may be settled late
_STEP_S, _LONG_STEP_S = 0.05, 0.25


class Outcome(Struct, frozen=True):
    """How the lost chunks came back."""

    took_s: float
    reads: int
    stands_in: bool


class Life:
    """The hosts of one random cluster, whose answers the planner hears, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self._driven = Driven(reads=random.random() < 0.8)
        members = random.choice([3, 6, 30, 80])
        self._racks = {
            number: "a" if random.random() < 0.5 else f"r{random.randrange(4)}" for number in range(1, members)
        }
        self._holds = {number: 0 if random.random() < 0.5 else random.getrandbits(CHUNKS) for number in self._racks}
        seeds = random.sample(sorted(self._racks), 2) if random.random() < 0.7 else []
        self._terms = dict.fromkeys(seeds, 1)
        self._answer_s = random.choice([0.05, 0.3])
        self._alive = set(self._racks)
        self._coming: list[tuple[float, int, Event]] = []
        self._said = self._reads = 0

    def outcome(self) -> Outcome:
        """Until the lost chunks are back, or a minute is over."""
        self._step(*[PeerSeen(self._view(number)) for number in self._racks])
        self._wait(20)
        held = () if self._random.random() < 0.6 else tuple(range(self._random.choice([6, CHUNKS])))
        self._step(opened(CHUNKS, held=held))
        for _ in range(400):
            self._step()
        for _ in range(self._random.randrange(12)):
            self._wait(self._random.choice([2, 40]))
            self._step(*self._happens(self._random.choice(sorted(self._racks))))
        self._wait(40)
        replica = self._driven.swarm().replica
        kept = [chunk for chunk in range(CHUNKS) if replica.holds(chunk)]
        lost = self._random.sample(kept, min(len(kept), self._random.choice([1, 1, 3])))
        self._reads, begun_s = 0, self._driven.now
        self._step(*[ChunkLost(DEPLOYMENT, chunk) for chunk in lost])
        while replica.missing_count and self._driven.now < begun_s + 60.0:
            self._step()
        return Outcome(self._driven.now - begun_s, self._reads, self._driven.swarm().stand_in.is_active)

    def _happens(self, number: int) -> list[Event]:
        """One thing that happens to a host."""
        peer, what = node(number), self._random.random()
        if what < 0.25:
            self._alive.discard(number)
            return [PeerLost(peer)]
        if what < 0.5:
            if number not in self._alive and self._random.random() < 0.5:
                self._holds[number] = 0
            self._alive.add(number)
            return [PeerSeen(self._view(number))]
        if what < 0.6:
            self._holds[number] = self._random.getrandbits(CHUNKS)
            return [PeerReachable(peer, False), PeerReachable(peer, True)]
        if what < 0.7:
            self._later(3.0, UnsubscribeHeard(peer, DEPLOYMENT))
            return [SubscribeHeard(peer, DEPLOYMENT)]
        if what < 0.8:
            self._holds[number] = (1 << CHUNKS) - 1
            return []
        if what < 0.85:
            self._later(2.0, DeploymentPaused(DEPLOYMENT, False))
            return [DeploymentPaused(DEPLOYMENT, True)]
        if what < 0.9:
            return [PeerWantHeard(peer, DEPLOYMENT, ChunkSet(CHUNKS, self._random.getrandbits(CHUNKS)))]
        if what < 0.95:
            self._terms[number] = self._terms.get(number, 0) + 1
            return [PeerSeen(self._view(number))] if number in self._alive else []
        return [replace(opened(CHUNKS), deployment=OTHER)]

    def _view(self, number: int) -> PeerView:
        return view(number, self._racks[number], term=self._terms.get(number, 0))

    def _wait(self, steps: int) -> None:
        for _ in range(steps):
            self._step(step_s=_LONG_STEP_S)

    def _later(self, after_s: float, event: Event) -> None:
        self._said += 1
        self._coming.append((self._driven.now + after_s, self._said, event))

    def _step(self, *events: Event, step_s: float = _STEP_S) -> None:
        now = self._driven.now + step_s
        due = sorted(one for one in self._coming if one[0] <= now)
        self._coming = [one for one in self._coming if one[0] > now]
        for command in self._driven.tell(*events, *[event for _, _, event in due], after=step_s):
            self._answer(command)

    def _answer(self, command: Command) -> None:
        match command:
            case StartSubscription(peer, deployment) if deployment == DEPLOYMENT:
                if (number := int.from_bytes(peer)) in self._alive:
                    held = ChunkSet(CHUNKS, self._holds[number])
                    self._later(self._answer_s, HoldingsHeard(peer, DEPLOYMENT, held, 4))
            case ProbeSource(deployment) if deployment == DEPLOYMENT:
                self._later(0.1, SourceProbed(DEPLOYMENT, True))
            case StartSourceRead(deployment, chunks) if deployment == DEPLOYMENT:
                self._reads += len(chunks)
                for chunk in chunks:
                    self._later(0.2, ChunkStored(DEPLOYMENT, chunk, SOURCE, CHUNK_BYTES, 0.2))
            case StartFetch() if command.deployment == DEPLOYMENT:
                self._answer_fetch(command)

    def _answer_fetch(self, fetch: StartFetch) -> None:
        number, chunk = int.from_bytes(fetch.peer), fetch.chunk
        if number not in self._alive:
            self._later(0.3, FetchFailed(DEPLOYMENT, chunk, fetch.peer, FailReason.GONE))
        elif self._holds[number] >> chunk & 1:
            self._later(0.05, ChunkStored(DEPLOYMENT, chunk, fetch.peer, CHUNK_BYTES, 0.05))
        else:
            self._later(0.05, FetchFailed(DEPLOYMENT, chunk, fetch.peer, FailReason.NOT_HELD))


# In the latter a host stood in for living seeds after a rest, or read what it need not have read.
@pytest.mark.parametrize("seed", [*range(16), 131, 381, 393, 451, 545, 574, 752, 986, 1121])
def test_a_life_with_rests_ends_as_one_without(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    resting = Life(seed).outcome()
    monkeypatch.setattr(OpenDeployments, "settle", lambda self, now: None)
    awake = Life(seed).outcome()
    assert resting.took_s <= awake.took_s + LATER_S
    assert resting.reads <= awake.reads
    assert resting.stands_in == awake.stands_in
