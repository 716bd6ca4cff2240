"""Who knows everything, and looks after every event whether the promises hold. Each broken one is a ``Violation``.

What lives here: the rules about chunks, claims, blame, bounds and commands, and the state of the whole cluster at the
end. What does not: rules of membership (``tests.membership.checkers``, which run here too,
but for false deaths, see below, and for the rule that a version of a statement is told once: every daemon that hears a
statement publishes it under its own name, and of equal versions the highest bytes win).

The rules, by the name that a violation carries:

* ``accepted``    what the store tells as stored has the right bytes;
* ``published``   a published file has the right bytes, but for chunks that have been made to rot;
* ``claimed``     what the journal claims is on the device, rightly: the claim never precedes durability;
* ``remembered``  what was claimed is still held after a restart, however the last life ended;
* ``dropped``     a claimed chunk is given up only if it has rotted or could not be read;
* ``again``       a chunk that is held is not asked for: not by a fetch, not by a read;
* ``blamed``      a chunk that came corrupt is held against the peer that sent it, and no other peer's standing changes;
* ``bounds``      fetches in flight, uploads in all and per peer stay under what was set;
* ``announced``   what a peer announces is heard, or known to be missing;
* ``ended``       every fetch ends; none is asked of a host that has been dead for long;
* ``cancelled``   a cancelled deployment is not opened, in no later life either, unless it is published already;
* ``removed``     what was removed from a host is never opened there again;
* ``outside``     a host outside the targets opens nothing;
* ``trusted``     no version below one that was opened is accepted, and none is opened that had expired;
* ``newcomer``    a host that joins after another was forgotten knows all deployments within 30 s;
* ``alive``       when the faults are over, every host that runs publishes everything, all views agree, and nobody
                  listens for chunks that it has.

False deaths (a healthy host declared dead by a healthy one) are counted, not judged: membership's own simulation judges
them in scenarios in which they may not happen, and here half of the cluster may be ill at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import ChunkLost, ChunkStored, Command, FetchFailed, StartFetch, StartSourceRead
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.commands import OpenSwarm
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb
from gossipd.manifest.manifest import Manifest
from gossipd.store.models import layout
from gossipd.store.models.catalogue import StoredModel
from membership.events import Event as SaidEvent
from membership.events import MemberDown
from membership.member import NodeId
from tests.membership.checkers import Rule
from tests.membership.simulated_cluster import SimulatedCluster
from tests.sim.campaign.deployment_runner import WALL_S
from tests.sim.campaign.model import CHUNK_BYTES

if TYPE_CHECKING:
    from tests.sim.campaign.bulk import Fetch
    from tests.sim.campaign.daemon import Daemon
    from tests.sim.campaign.world import World

DEAD_S = 30.0
"""After so long nobody may ask a dead host for a chunk: SWIM's verdict takes at most its lone accuser's 18 s and local
health up to as long again, and the planner hears of it at once."""


class Violation(AssertionError):
    """A promise was broken. Fault: the code under test. State: the world is left as it was found."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class FalseDeaths(Rule):
    """Counts; see the module."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.count = 0

    def on_event(self, cluster: SimulatedCluster, index: int, event: SaidEvent) -> None:
        """See ``Rule``."""
        if isinstance(event, MemberDown):
            self.looked += 1
            subject = cluster.by_node[event.member.node]
            sick = self._world.faults.sick
            self.count += index not in sick and subject not in sick and cluster.hosts[subject].up


class Oracle:
    """One per world. ``looked`` counts what each rule looked at: one that looked at nothing has proved nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.looked: Counter[str] = Counter()
        self.rotten: set[tuple[int, DeploymentId, int]] = set()
        """Chunks on a host whose bytes were spoiled at rest, until they are written again."""
        self.claimed: dict[tuple[int, DeploymentId], int] = {}
        """Bits of what each host's journal has claimed, and must remember."""
        self._read_failures: dict[int, int] = {}
        self.removed: set[tuple[int, DeploymentId]] = set()
        self.forgetful: set[int] = set()  # hosts that have lost their register once
        """What hosts have said to have removed for good."""
        self._opened_versions: dict[tuple[int, str], set[int]] = {}
        self._kept_versions: dict[tuple[int, str], set[int]] = {}

    # ---- bytes ---------------------------------------------------------------------------------

    def _bytes(self, daemon: Daemon, deployment: DeploymentId, *, device: bool = False) -> bytes:
        model = self._world.models[deployment]
        manifest = model.manifest
        for tree in (layout.incoming(deployment), layout.version(manifest.name, manifest.version)):
            file = daemon.disk.look(f"{tree}/{model.path}")
            if file is not None:
                return bytes(file.device if device else file.data)
        return b""

    def _is_right(self, body: bytes, deployment: DeploymentId, chunk: int) -> bool:
        right = self._world.models[deployment].chunks[chunk]
        return body[chunk * CHUNK_BYTES : chunk * CHUNK_BYTES + len(right)] == right

    def stored(self, daemon: Daemon, event: ChunkStored) -> None:
        """The store tells of a chunk."""
        self.looked["accepted"] += 1
        deployment, chunk = event.deployment, event.chunk
        if not self._is_right(self._bytes(daemon, deployment), deployment, chunk):
            raise Violation("accepted", f"host {daemon.index} took wrong bytes for chunk {chunk}")
        self.rotten.discard((daemon.index, deployment, chunk))

    def published(self, daemon: Daemon, deployment: DeploymentId) -> None:
        """The store has published a model."""
        self.looked["published"] += 1
        model = self._world.models[deployment]
        manifest = model.manifest
        file = daemon.disk.look(f"{layout.version(manifest.name, manifest.version)}/{model.path}")
        body = b"" if file is None else bytes(file.data)
        wrong = [chunk for chunk in range(manifest.chunk_count) if not self._is_right(body, deployment, chunk)]
        wrong = [chunk for chunk in wrong if (daemon.index, deployment, chunk) not in self.rotten]
        if wrong or len(body) != manifest.bytes_total:
            raise Violation("published", f"host {daemon.index} published wrong bytes in chunks {wrong[:5]}")

    # ---- claims --------------------------------------------------------------------------------

    def committed(self, daemon: Daemon) -> None:
        """The store may have claimed more."""
        for replica in daemon.store._models.all():
            self._claims(daemon, replica.deployment, replica.durable.snapshot().bits)

    def _claims(self, daemon: Daemon, deployment: DeploymentId, bits: int) -> None:
        key = (daemon.index, deployment)
        fresh = bits & ~self.claimed.get(key, 0)
        if not fresh:
            return
        device = self._bytes(daemon, deployment, device=True)
        for chunk in ChunkSet(fresh.bit_length(), fresh):
            self.looked["claimed"] += 1
            if (daemon.index, deployment, chunk) not in self.rotten and not self._is_right(device, deployment, chunk):
                raise Violation("claimed", f"host {daemon.index} claims chunk {chunk}, which is not on its device")
        self.claimed[key] = self.claimed.get(key, 0) | bits

    def lost(self, daemon: Daemon, event: ChunkLost) -> None:
        """The store gives a chunk up."""
        key = (daemon.index, event.deployment)
        bit = 1 << event.chunk
        if not self.claimed.get(key, 0) & bit:
            return
        self.looked["dropped"] += 1
        failures = daemon.disk.read_failures
        unread = failures > self._read_failures.get(daemon.index, 0)
        self._read_failures[daemon.index] = failures
        if not unread and (daemon.index, event.deployment, event.chunk) not in self.rotten:
            raise Violation("dropped", f"host {daemon.index} gave up the good chunk {event.chunk}")
        self.claimed[key] &= ~bit

    def opened(self, daemon: Daemon, deployment: DeploymentId, held: ChunkSet) -> None:
        """A life of a host takes up what the last one left."""
        self.looked["remembered"] += 1
        body = self._bytes(daemon, deployment)
        for chunk in held:
            if (daemon.index, deployment, chunk) not in self.rotten and not self._is_right(body, deployment, chunk):
                raise Violation(
                    "accepted", f"host {daemon.index} believes chunk {chunk} after a start, and it is wrong"
                )
        forgotten = self.claimed.get((daemon.index, deployment), 0) & ~held.bits
        if forgotten:
            raise Violation("remembered", f"host {daemon.index} forgot {forgotten.bit_count()} chunks that it claimed")
        self._claims_of_start(daemon, deployment)

    def _claims_of_start(self, daemon: Daemon, deployment: DeploymentId) -> None:
        # What a start finds by hashing is claimed in the journal that it begins.
        for replica in daemon.store._models.all():
            if replica.deployment == deployment:
                self._claims(daemon, deployment, replica.durable.snapshot().bits)

    def wiped(self, daemon: Daemon) -> None:
        """The host's disk is empty: nothing that it claimed or that had rotted is there."""
        self.claimed = {key: bits for key, bits in self.claimed.items() if key[0] != daemon.index}
        self.rotten = {key for key in self.rotten if key[0] != daemon.index}
        self.forgot(daemon, ())

    def forgot(self, daemon: Daemon, whole: Iterable[StoredModel]) -> None:
        """The host's register is lost: no order that it was given, and no version that it trusted but the ``whole``
        ones of its store."""
        self.forgetful.add(daemon.index)
        self.removed = {key for key in self.removed if key[0] != daemon.index}
        for versions in (self._opened_versions, self._kept_versions):
            for key in [key for key in versions if key[0] == daemon.index]:
                del versions[key]
        for one in whole:
            self._kept_versions.setdefault((daemon.index, one.name), set()).add(one.version)

    # ---- deployments ---------------------------------------------------------------------------

    def swarm_opened(self, daemon: Daemon, command: OpenSwarm) -> None:
        """A host begins to fetch, or to serve what is published."""
        manifest, statements = command.manifest, daemon.deployments.statements
        key = (daemon.index, manifest.id)
        self.looked["cancelled"] += 1
        last = statements.statement(manifest.id)
        is_published = daemon.store.is_published(manifest.id)
        if last is not None and last.verb is Verb.CANCEL and not is_published:
            raise Violation("cancelled", f"host {daemon.index} opens {manifest.name}, which is cancelled")
        self.looked["removed"] += 1
        if statements.is_removed(manifest.id) or key in self.removed:
            raise Violation("removed", f"host {daemon.index} opens {manifest.name}, which was removed from it")
        self.looked["outside"] += 1
        if not manifest.is_target(daemon.name, daemon.rack):
            raise Violation("outside", f"host {daemon.index} opens {manifest.name}, which is for others")
        self.looked["trusted"] += 1
        if manifest.expires_s is not None and manifest.expires_s <= WALL_S:
            raise Violation("trusted", f"host {daemon.index} opens {manifest.name}, which has expired")
        self._opened_versions.setdefault((daemon.index, manifest.name), set()).add(manifest.version)

    def manifest_accepted(self, daemon: Daemon, manifest: Manifest) -> None:
        """A host trusts a manifest that it had not kept yet."""
        key = (daemon.index, manifest.name)
        kept = self._kept_versions.setdefault(key, set())
        self.looked["trusted"] += 1
        is_older = any(manifest.version < one for one in self._opened_versions.get(key, ()))
        if manifest.version not in kept and is_older:
            raise Violation("trusted", f"host {daemon.index} accepts {manifest.name}@{manifest.version}, a rollback")
        kept.add(manifest.version)

    def newcomer(self, daemon: Daemon) -> None:
        """Some time after it joined a host knows every deployment that is to be everywhere."""
        for deployment in self._world.opened:
            self.looked["newcomer"] += 1
            if daemon.deployments.records.get(deployment) is None:
                raise Violation("newcomer", f"host {daemon.index} has joined and knows nothing of a deployment")

    def deleted(self, daemon: Daemon, deployment: DeploymentId) -> None:
        """The store has deleted what is not published of a deployment, or all of it."""
        if not any(one.deployment == deployment and one.is_published for one in daemon.store.models()):
            self.claimed.pop((daemon.index, deployment), None)
            self.rotten = {one for one in self.rotten if one[:2] != (daemon.index, deployment)}

    # ---- commands ------------------------------------------------------------------------------

    def commanded(self, daemon: Daemon, command: Command) -> None:
        """The planner wants something done."""
        if self._world.tell is not None:
            self._world.tell(f"host {daemon.index} {command}")
        if type(command) is StartFetch:
            self._asks(daemon, command.deployment, (command.chunk,))
            peer = self._world.daemons[self._world.index_of[command.peer]]
            self.looked["ended"] += 1
            if not peer.is_up and self._world.now - self._world.faults.since(peer.index) > DEAD_S:
                raise Violation("ended", f"host {daemon.index} asks host {peer.index}, long dead, for a chunk")
            self._world.wires.note(b"f%d %d %d" % (daemon.index, command.chunk, peer.index))
        elif type(command) is StartSourceRead:
            self._asks(daemon, command.deployment, command.chunks)
            self._world.wires.note(b"r%d %d" % (daemon.index, command.chunks[0]))
        else:
            self._world.wires.note(b"c%d %s" % (daemon.index, type(command).__name__.encode()))

    def _asks(self, daemon: Daemon, deployment: DeploymentId, chunks: tuple[int, ...]) -> None:
        held = daemon.store.held(deployment).bits | self.claimed.get((daemon.index, deployment), 0)
        for chunk in chunks:
            self.looked["again"] += 1
            if held >> chunk & 1:
                raise Violation("again", f"host {daemon.index} asks for chunk {chunk}, which it holds")

    def planned(self, daemon: Daemon) -> None:
        """All commands of a plan are begun."""
        self.looked["bounds"] += 1
        settings = self._world.settings
        most = settings.fetches_max + len(list(daemon.deployments.records))  # each deployment may always have one
        if len(daemon.bulk.fetches) > most:
            raise Violation("bounds", f"host {daemon.index} has {len(daemon.bulk.fetches)} fetches in flight")
        compared, holes = daemon.plane.announcements.holes(daemon.plane, self._world.now)
        self.looked["announced"] += compared
        if holes:
            peer = self._world.index_of[holes[0][0]]
            raise Violation("announced", f"host {daemon.index} has not heard all that host {peer} announced to it")

    def upload_began(self, daemon: Daemon, node: NodeId) -> None:
        """A slot was taken, and is not counted yet."""
        bulk = daemon.bulk
        self.looked["bounds"] += 1
        if sum(bulk.serving.values()) >= bulk.slot_count:
            raise Violation("bounds", f"host {daemon.index} uploads more than {bulk.slot_count} at once")
        if bulk.serving.get(node, 0) >= bulk.slots_per_peer:
            raise Violation("bounds", f"host {daemon.index} gives one peer more than {bulk.slots_per_peer} slots")

    # ---- blame ---------------------------------------------------------------------------------

    def blamed(self, daemon: Daemon, fetch: Fetch, peer: NodeId) -> None:
        """A chunk came corrupt and ``peer`` is blamed for it."""
        self.looked["blamed"] += 1
        right = self._world.models[fetch.deployment].chunks[fetch.chunk]
        if fetch.server.node != peer or fetch.body == right:
            raise Violation("blamed", f"host {daemon.index} blames the wrong peer for chunk {fetch.chunk}")

    def hear_corrupt(self, daemon: Daemon, event: FetchFailed) -> None:
        """The planner hears of a corrupt chunk; only its sender's standing may change."""
        records, now = daemon.planner._peers.records, self._world.now
        before = {node for node, peer in records.items() if peer.shunned_until > now}
        daemon.planner.handle(event, now)
        after = {node for node, peer in records.items() if peer.shunned_until > now}
        if after - before - {event.peer}:
            raise Violation("blamed", f"host {daemon.index} shuns others for the chunk of one")

    # ---- the end -------------------------------------------------------------------------------

    def unfinished(self) -> Iterator[str]:
        """Why the cluster is not as it should be when the faults are over; nothing when it is. Who asks for the first
        reason only looks no further than that."""
        world = self._world
        running = [daemon for daemon in world.daemons if daemon.is_up]
        digests = {world.wires.swim(daemon.index).view_digest for daemon in running}
        if len(digests) > 1:
            yield f"{len(digests)} different views"
        yield from world.operations.unfinished()
        for daemon in running:
            live = world.wires.swim(daemon.index).statistics()["members_live"]
            if live != len(running):
                yield f"host {daemon.index} counts {live} of {len(running)} hosts"
            for deployment in world.opened:
                yield from self._incomplete(daemon, deployment)
            yield from world.operations.wrong(daemon)
        down = [daemon.index for daemon in world.daemons if not daemon.is_up and world.faults.should_run(daemon.index)]
        yield from [f"host {index} does not start" for index in down]

    def _incomplete(self, daemon: Daemon, deployment: DeploymentId) -> list[str]:
        record = daemon.deployments.records.get(deployment)
        held = daemon.planner.statistics().swarms.get(deployment)
        if record is not None and record.reason is HostReason.REFUSED_ROLLBACK:
            manifest = self._world.models[deployment].manifest  # a newcomer may hear of the newer version first
            newest = max(daemon.deployments.statements.state.versions[manifest.name])
            if newest > manifest.version:
                return []
        if record is None or record.state is not HostState.COMPLETE:
            return [f"host {daemon.index} is {'unaware' if record is None else record.state.value}"]
        if held is None or held.chunks_held < held.chunks_total:
            return [f"host {daemon.index} lacks chunks of what it published"]
        listens_to = daemon.plane.listens_to(deployment)
        return [f"host {daemon.index} listens to host {index} in vain" for index in listens_to]

    def close(self) -> None:
        """The run is over. Raises Violation when the cluster has not recovered, or a fetch has never ended."""
        if wrong := list(self.unfinished()):
            raise Violation("alive", "; ".join(wrong[:6]) + f" ({len(wrong)} in all)")
        now = self._world.now
        for daemon in self._world.daemons:
            for fetch in daemon.bulk.fetches.values() if daemon.is_up else ():
                if now - fetch.began_s > 60.0:  # twelve times the shortest deadline
                    raise Violation("ended", f"host {daemon.index} never heard how a fetch ended")
