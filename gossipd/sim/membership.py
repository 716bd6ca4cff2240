"""The membership of a simulated cluster in full: each host's own ``Swim``, on the clock of the world.

What lives here: the brains, their datagrams (delayed like any message of the world, counted with their headers), and
the translation of their verdicts for the planner, as ``daemon.member_directory`` does it: a member that is alive, has
changed or is suspected is seen, a dead one is lost. What does not: verdicts where the brains do not run
(``death_verdicts``), evidence of broken connections (``world``).

The cluster is converged when time begins, as after
``tests.membership.simulated_cluster.SimulatedCluster.start_all_known``. Seals and signatures are stand-ins of the same
size. Left out: lost datagrams, and the few bytes of the control probe, which takes four delays. Draws come from a
source of their own, so that a run equals the run without deaths up to the first death.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gossipd.core.events import IsolationChanged, PeerLost, PeerSeen
from gossipd.core.model import PeerView
from gossipd.sim.host import Network, SimHost
from gossipd.sim.traffic_model import datagram_bytes
from gossipd.swarm.capabilities import NodeCapabilities
from membership import events as membership_events
from membership.credentials import Credentials
from membership.fakes import FakeKeys, OpenSeal
from membership.member import Address, Member, NodeId, Record, node_id
from membership.seal import KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim
from membership.verified_cache import VerifiedCache

_RING = KeyRing(b"simulated cluste", (b"k" * 32,))
_BOOT = 1_700_000_000_000  # milliseconds since 1970, as long on the wire as a real one
_PORT = 7946  # the daemon's default
_CONTROL_DELAYS = 4  # a connection and a question: there and back twice


@dataclass(slots=True, eq=False)
class _HostMembership:
    """The brain of one host, and its next deadline."""

    host: SimHost
    swim: Swim
    address: Address
    wake_at: float = float("inf")


class Membership:
    """All brains of one world. Every living host is a member."""

    def __init__(self, world: Network, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._brains: list[_HostMembership] = []
        self._by_address: dict[Address, _HostMembership] = {}
        self._by_node: dict[NodeId, _HostMembership] = {}  # by the node ids of records, which follow from their keys
        self._keys = FakeKeys()
        self._verified_cache = VerifiedCache(_RING.cluster_id, self._keys.verify)
        for host in world.hosts:
            self._add(host)
        first = self._brains[0].swim
        first.adopt_view([brain.swim for brain in self._brains])
        for brain in self._brains[1:]:
            brain.swim.adopt_view([first])
        for brain in self._brains:
            self._flush(brain)

    def _add(self, host: SimHost) -> None:
        index = host.index
        address = (f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}", _PORT)
        public = self._keys.make(self._rng)
        view = self._world.views[host.node]
        record = Record(
            public, _BOOT, 1, view.name, view.rack, view.zone, *address, _PORT + 1, public,
            software="1.0.0", payload=NodeCapabilities(view.can_read_sources, view.seed_term).to_bytes(),
        )  # fmt: skip
        credentials = Credentials(self._keys.signer(public), _RING, self._verified_cache, OpenSeal)
        rng = Random(self._rng.getrandbits(64))
        swim = Swim(SwimSettings(), record, credentials, rng=rng, now=self._world.clock.now)
        brain = _HostMembership(host, swim, address)
        self._brains.append(brain)
        self._by_address[address] = self._by_node[node_id(public)] = brain

    def claim(self, view: PeerView) -> None:
        """A host has another seed term: its record says so."""
        brain = self._brains[self._world.by_node[view.node].index]
        payload = NodeCapabilities(view.can_read_sources, view.seed_term).to_bytes()
        brain.swim.update_payload(payload, self._world.clock.now)
        self._flush(brain)

    # ---- time ----------------------------------------------------------------------------------

    def _wake(self, brain: _HostMembership, when: float) -> None:
        if when < brain.wake_at or not brain.host.alive:
            return
        brain.wake_at = float("inf")
        brain.swim.handle_timer(self._world.clock.now)
        self._flush(brain)

    def _arrive(self, brain: _HostMembership, datagram: bytes, sender: Address) -> None:
        if brain.host.alive:
            brain.swim.handle_datagram(datagram, sender, self._world.clock.now)
            self._flush(brain)

    def _flush(self, brain: _HostMembership) -> None:
        world = self._world
        for output in brain.swim.drain():
            if isinstance(output, membership_events.SendDatagram):
                brain.host.membership_bytes += datagram_bytes(len(output.datagram))
                other = self._by_address[output.address]
                delay_s = world.delay(brain.host, other.host, self._rng)
                world.clock.after(delay_s, self._arrive, other, output.datagram, brain.address)
            else:
                self._hear(brain, output)
        deadline = brain.swim.next_deadline()
        if deadline < brain.wake_at:
            brain.wake_at = max(deadline, world.clock.now)
            world.clock.at(brain.wake_at, self._wake, brain, brain.wake_at)

    # ---- what the planner hears ----------------------------------------------------------------

    def _hear(self, brain: _HostMembership, event: membership_events.Event) -> None:
        host = brain.host
        if isinstance(
            event, membership_events.MemberUp | membership_events.MemberChanged | membership_events.MemberSuspected
        ):
            host.post(PeerSeen(self._view(event.member)))
        elif isinstance(event, membership_events.MemberDown):
            lost = self._by_node[event.member.node].host
            self._world.lost(host, lost)
            host.post(PeerLost(lost.node))
        elif isinstance(event, membership_events.Isolated):
            host.post(IsolationChanged(event.isolated))
        elif isinstance(event, membership_events.ControlProbeWanted):
            subject = self._by_node[event.node]
            delay_s = _CONTROL_DELAYS * self._world.delay(host, subject.host, self._rng)
            self._world.clock.after(delay_s, self._answer_control, brain, subject)

    def _view(self, member: Member) -> PeerView:
        record, capabilities = member.record, NodeCapabilities.from_bytes(member.record.payload)
        node = self._by_node[member.node].host.node
        return PeerView(
            node, record.rack, record.zone, capabilities.can_read_sources, capabilities.seed_term, name=record.name
        )

    def _answer_control(self, brain: _HostMembership, subject: _HostMembership) -> None:
        if brain.host.alive and subject.host.alive:
            brain.swim.control_probe_answered(node_id(subject.swim.self_record().public_key), self._world.clock.now)
            self._flush(brain)
