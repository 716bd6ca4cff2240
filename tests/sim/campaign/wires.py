"""The one heap, and which host can send to which.

What lives here: membership's simulated cluster with cuts of single directions between single hosts. What does not:
control links (``plane``) and transfers (``bulk``), which ask ``is_open`` here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from gossipd.identity.keys import SecretKey
from gossipd.swarm.capabilities import NodeCapabilities
from membership.events import SendDatagram
from membership.fakes import FakeKeys
from membership.member import NodeId, Record
from membership.swim import Swim
from tests.membership.simulated_cluster import SimulatedCluster, SimulatedHost


class SigningKeys(FakeKeys):
    """Stand-in signatures for membership, under keys with which statements can really be signed."""

    def __init__(self, secrets: dict[bytes, SecretKey]) -> None:
        super().__init__()
        self.secrets = secrets

    def make(self, rng: Random) -> bytes:
        """See FakeKeys."""
        seed = rng.randbytes(32)
        secret = SecretKey(seed)
        public = secret.public.ed25519
        self._seeds[public], self.secrets[public] = seed, secret
        return public


class Wires(SimulatedCluster):
    """``cuts`` counts, for each direction of each pair, the faults that hold it cut."""

    def __init__(self, hosts: int, *, racks: int, seed: int, checkers: Sequence[Any]) -> None:
        self.secrets: dict[bytes, SecretKey] = {}
        super().__init__(hosts, racks=racks, seed=seed, checkers=checkers, trace=True)
        self.cuts: Counter[tuple[int, int]] = Counter()
        self.cut_struck: Callable[[int, int], None] = lambda source, target: None
        self.sign_progress = False
        """What hosts say of themselves: a run in which none tells its progress leaves it out."""

    def _make_keys(self) -> SigningKeys:
        return SigningKeys(self.secrets)

    def is_open(self, source: int, target: int) -> bool:
        """Whether what ``source`` sends arrives at ``target``."""
        return not self.cuts or (source, target) not in self.cuts

    def is_whole(self, one: int, other: int) -> bool:
        """Whether a connection between the two can make progress; tells the faults that it met them."""
        if not self.cuts:
            return True
        whole = True
        for pair in ((one, other), (other, one)):
            if pair in self.cuts:
                self.cut_struck(*pair)
                whole = False
        return whole

    def cut_pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        """From now on nothing goes these ways."""
        self.cuts.update(pairs)

    def mend_pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        """This fault holds them no more."""
        for pair in pairs:
            self.cuts[pair] -= 1
            if not self.cuts[pair]:
                del self.cuts[pair]

    def begin_life(self, index: int, *, join: Sequence[int], roster: Iterable[Record]) -> Swim:
        """Start a host's brain with a standing on its record, as a daemon does."""
        swim = self.start(index, join=join, roster=roster)
        self.publish_capabilities(index, NodeCapabilities(can_read_sources=True, signs_progress=self.sign_progress))
        return swim

    def publish_capabilities(self, index: int, capabilities: NodeCapabilities) -> None:
        """Put this on the host's record."""
        host = self.hosts[index]
        self.swim(index).update_payload(capabilities.to_bytes(), self.now + host.clock_offset)
        self._flush(index)

    def ask(self, index: int, node: NodeId) -> None:
        """The host is about to dial a member."""
        self.swim(index).ask(node, self.now + self.hosts[index].clock_offset)
        self._flush(index)

    def flush(self, index: int) -> None:
        """Carry out what the host's brain has queued."""
        self._flush(index)

    def draw(self) -> Random:
        """The run's randomness."""
        return self.rng

    def note(self, what: bytes) -> None:
        """Into the trace."""
        assert self._trace is not None
        self._trace.update(what)

    def _transmit(self, host: SimulatedHost, index: int, output: SendDatagram) -> None:
        if self.cuts:
            target = self.by_address.get(output.address)
            if target is not None and (index, target) in self.cuts:
                self.cut_struck(index, target)
                return
        super()._transmit(host, index, output)

    def _answer_control(self, index: int, target: int, node: NodeId) -> None:
        if self.is_whole(index, target):
            super()._answer_control(index, target, node)
