"""What liars say by gossip: to membership, and about deployments and progress.

What lives here: the words, sealed and sent from the liars' addresses. What does not: what liars do with chunks
(``host``). A liar holds the cluster key and its own key, and no other host's key.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.signed_progress import ProgressKey, sign_progress
from gossipd.deployment.statement import EPOCH_LIMIT, Verb, sign_statement
from gossipd.identity.keys import SecretKey
from gossipd.swarm.capabilities import NodeCapabilities
from membership import wire
from membership.member import NodeId, Record, node_id
from tests.bench import liars
from tests.sim.campaign.deployment_runner import WALL_S

if TYPE_CHECKING:
    from tests.sim.liars.world import LiarWorld

_STATEMENT, _PROGRESS = 1, 2
SYBIL_TERM = 9  # above all terms that honest hosts claim
_VERSIONS = (2**63 - 1, 2**62, 2**40)
_AHEAD_S = (-600.0, 1.5, 240.0, 1e9)
_EPOCHS = (1, 2, 900, 1_500, 10**6, EPOCH_LIMIT)


class LyingWords(liars.Liars):
    """Words of membership (``tests.bench.liars``), and of deployments."""

    sybil_payload = NodeCapabilities(True, SYBIL_TERM, signs_progress=True).to_bytes()

    def __init__(self, world: LiarWorld, indexes: list[int], rng: Random) -> None:
        super().__init__(world.wires, indexes, rng)
        self._world = world
        self._made: dict[str, Callable[[int, Record], bytes]] = {
            "nothing": self._about_nothing, "cancel": self._cancel, "deploy": self._deploy, "rank": self._rank,
            "usurp": self._usurp,
            "unsigned_progress": self._unsigned_progress, "signed_progress": self._signed_progress,
            "much_progress": self._much_progress, "own_complete": self._own_complete,
            "sybil_complete": self._sybil_complete,
        }  # fmt: skip
        self.sorts = (*liars.SORTS, *self._made)
        self.sybils: list[NodeId] = []
        self._secrets: dict[NodeId, SecretKey] = {}

    def sybils_held(self) -> int:
        """The most made-up members that any honest host has on its roster."""
        world, made = self._world, set(self.sybils)
        return max(len(made & world.daemons[index].members.records.keys()) for index in world.honest)

    def _sybil(self, index: int, victim: Record) -> bytes:
        item = super()._sybil(index, victim)
        made = list(self.cluster.by_node)[-1]
        self.sybils.append(made)
        self._secrets[made] = self._world.wires.secrets[list(self._world.wires.secrets)[-1]]
        self._world.add_nobody(made)
        return item

    def sybils_counted(self) -> int:
        """How often an honest host takes a made-up member for a seed, or keeps what one told of its progress."""
        daemons, made = [self._world.daemons[index] for index in self._world.honest], set(self.sybils)
        seeds = sum(len(made & one.planner.statistics().seeds) for one in daemons)
        tables = [one.deployments.progress._rows.values() for one in daemons]
        return seeds + sum(len(made & rows.keys()) for table in tables for rows in table)

    def _item(self, sort: str, index: int, victim: Record) -> bytes:
        make = self._made.get(sort)
        return super()._item(sort, index, victim) if make is None else make(index, victim)

    # ---- statements ------------------------------------------------------------------------------

    def _event(self, index: int, version: int, key: bytes, payload: bytes, kind: int = _STATEMENT) -> bytes:
        return wire.event(kind, self.cluster.hosts[index].node, version, key, payload)

    def _said(self, index: int, deployment: DeploymentId, epoch: int, verb: Verb, version: int = 0) -> bytes:
        model = self._world.models.get(deployment)
        size = 900 if model is None else len(model.manifest.envelope)
        statement = sign_statement(
            self._world.daemons[index].secret, deployment, epoch=epoch, verb=verb, manifest_bytes=size,
            now_s=WALL_S + self.cluster.now,
        )  # fmt: skip
        return self._event(index, version or statement.rank, deployment, statement.encode())

    def _target(self) -> DeploymentId:
        return self._rng.choice(self._world.opened or list(self._world.models))

    def _about_nothing(self, index: int, _: Record) -> bytes:
        return self._said(index, DeploymentId(self._rng.randbytes(32)), 1, Verb.DEPLOY)

    def _cancel(self, index: int, _: Record) -> bytes:
        return self._said(index, self._target(), self._rng.choice(_EPOCHS), self._rng.choice((Verb.CANCEL, Verb.PAUSE)))

    def _deploy(self, index: int, _: Record) -> bytes:
        return self._said(index, self._target(), self._rng.choice(_EPOCHS), Verb.DEPLOY)

    def _usurp(self, index: int, _: Record) -> bytes:
        """It deploys what another will deploy, and stops that as its own when it is under way."""
        deployment = self._rng.choice(list(self._world.models))
        if deployment in self._world.opened:
            known = self._world.daemons[index].deployments.statements
            return self._said(index, deployment, known.next_epoch(deployment, Verb.CANCEL), Verb.CANCEL)
        return self._said(index, deployment, self._rng.choice((1, 2)), Verb.DEPLOY)

    def _rank(self, index: int, _: Record) -> bytes:
        return self._said(index, self._target(), 1, Verb.DEPLOY, self._rng.choice(_VERSIONS))

    # ---- progress --------------------------------------------------------------------------------

    def _progress(self, index: int, node: NodeId, *, is_signed: bool, short_key: bytes = b"") -> bytes:
        done = Progress(
            state=self._rng.choice((HostState.COMPLETE, HostState.COMPLETE, HostState.FAILED, HostState.INIT)),
            chunks_verified=24, started_s=int(WALL_S), elapsed_s=4,
        )  # fmt: skip
        key = ProgressKey(node, short_key or progress_key(self._target()), is_signed)
        version = int((WALL_S + self.cluster.now + self._rng.choice(_AHEAD_S)) * 1000)
        secret = self._secrets.get(node) or self._world.daemons[index].secret
        payload = sign_progress(secret, key, version, done) if is_signed else done.to_bytes()
        return self._event(index, version, key.encode(), payload, _PROGRESS)

    def _unsigned_progress(self, index: int, victim: Record) -> bytes:
        return self._progress(index, victim.node, is_signed=False)

    def _signed_progress(self, index: int, victim: Record) -> bytes:
        return self._progress(index, victim.node, is_signed=True)

    def _much_progress(self, index: int, _: Record) -> bytes:
        own = self.cluster.hosts[index].node
        made = [self._progress(index, own, is_signed=True, short_key=self._rng.randbytes(8)) for _ in range(6)]
        return b"".join(made)

    def _sybil_complete(self, index: int, victim: Record) -> bytes:
        """A made-up member tells its own progress, as any member may."""
        own = [node for node in self.sybils if self.cluster.by_node[node] == index]
        return (
            self._progress(index, self._rng.choice(own), is_signed=True) if own else self._own_complete(index, victim)
        )

    def _own_complete(self, index: int, _: Record) -> bytes:
        return self._progress(index, node_id(self.cluster.hosts[index].public), is_signed=True)
