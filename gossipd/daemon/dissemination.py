"""Statements and manifests between hosts: signing ours, believing others', pulling bodies.

What lives here: what to do with a statement that was heard or made here, and where to ask for a manifest. What does
not: who tells whom (membership's gossip brings statements to everybody, late joiners too), and the life of a
deployment afterwards (``deployments``).

A manifest takes the way of its statement: who is told of one asks the teller first, and the teller answers when it has
the body itself (``StateDirectory.envelope_soon``). So each host is asked by the few that it told, and a thousand hosts
have the body as soon as gossip reaches them. It was asked of whoever had said the statement last, and everybody said it
anew: eight and four of sixteen hosts were told "not here" at first, and began 0.1 to 0.3 s later (lab, two runs).

A statement may come before the member record that vouches for its signer; a few such are kept and tried again when
the roster changes. A statement whose signer has left the roster would be refused by the next newcomer, so the
member with the lowest id says it anew, one epoch higher.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from random import Random

import structlog
import trio

from gossipd.core.ids import DeploymentId, short
from gossipd.daemon.deployment import Deployment, check_room
from gossipd.daemon.deployments import Deployments
from gossipd.daemon.judging import judge_manifest
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_store import Acceptance, Heard, StatementStore
from gossipd.identity.keys import PublicKey, SecretKey
from gossipd.identity.trust import key_id
from gossipd.inbox.inbox import QueueFullError
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.worker_threads import run_blocking
from gossipd.transfer.client import BulkClient
from gossipd.transfer.errors import TransferError
from membership.member import NodeId

UNPROVEN_MAX = 64  # statements whose signer is unknown yet
PULL_THREADS = 8  # at once: whoever announces many manifests must not hold all threads, nor the pool, with their bodies
PULL_TIMEOUT_S = 20.0  # the largest manifest, 64 MiB, over 100 Mbit/s is 6 s
ORPHAN_INTERVAL_S = 30.0
ORPHAN_UPTIME_S = 120.0  # by then everybody of the persisted roster that lives has been heard
log = structlog.get_logger("spread")


class Dissemination:
    """Made on the loop and used there."""

    def __init__(
        self,
        *,
        secret: SecretKey,
        own: NodeId,
        cluster: MemberDirectory,
        register: StatementStore,
        state: StateDirectory,
        client: BulkClient,
        clients: Callable[[], tuple[PublicKey, ...]],
        trusted: Callable[[], frozenset[bytes]],
        publish: Callable[[Statement], None],
        audit: Callable[..., None],
        rng: Random,
    ) -> None:
        self._secret = secret
        self._own = own
        self._cluster = cluster
        self._register = register
        self._state = state
        self._client = client
        self._clients = clients
        self._trusted = trusted
        self._publish = publish
        self._audit = audit
        self._rng = rng
        self._unproven: OrderedDict[bytes, None] = OrderedDict()
        self._roster_is_stale = True
        self._pulling = trio.CapacityLimiter(PULL_THREADS)
        self.deployments: Deployments | None = None

    # ---- statements ----------------------------------------------------------------------------------

    def roster_changed(self) -> None:
        """Somebody joined or is forgotten: who may sign has changed, and the unproven may be proven now."""
        self._roster_is_stale = True
        for wire in list(self._unproven):
            del self._unproven[wire]
            self.heard(wire)

    def heard(self, wire: bytes, forwarder: NodeId | None = None, key: bytes | None = None) -> None:
        """A statement from gossip, which passes it on; ``forwarder`` brought it and has its manifest, or is about to.

        Args:
            key: under which gossip keeps it, and of which it bounds the number: it must be the deployment's.
        """
        try:
            statement = Statement.decode(wire)
            if key is not None and key != statement.deployment:
                raise ManifestError("the statement came under another deployment's key", code="E_DECODE")
            heard = self._hear(statement)
        except ManifestError as error:
            if error.code == "E_KEY_UNKNOWN" and wire not in self._unproven:
                self._unproven[wire] = None
                if len(self._unproven) > UNPROVEN_MAX:
                    self._unproven.popitem(last=False)
            elif error.code != "E_KEY_UNKNOWN":
                self._audit("statement refused", subject=short(forwarder) if forwarder else "roster", code=error.code)
            return
        if heard is Heard.NEWS:
            self._act(statement)
        assert self.deployments is not None
        known = self.deployments.by_id.get(statement.deployment)
        if known is not None and forwarder is not None:
            known.holders[forwarder] = None

    def order(self, statement: Statement) -> bool:
        """A client's statement that came by trigger; False when we had it. Raises ManifestError."""
        if self._hear(statement) is not Heard.NEWS:
            return False
        self._tell(statement)
        return True

    def _hear(self, statement: Statement) -> Heard:
        if self._roster_is_stale:
            keys = {record.public_key for record in self._cluster.records.values()}
            self._register.set_signers(keys | {key.ed25519 for key in self._clients()})
            self._roster_is_stale = False
        return self._register.hear(statement)

    def _tell(self, statement: Statement) -> None:
        self._publish(statement)
        self._act(statement)

    def _act(self, statement: Statement) -> None:
        assert self.deployments is not None
        log.info("statement", deployment=short(statement.deployment), verb=statement.verb.name, epoch=statement.epoch)
        self.deployments.act(statement)

    def say(self, deployment: DeploymentId, verb: Verb, manifest_bytes: int) -> Statement:
        """Our own next word on a deployment, told to everybody."""
        epoch = self._register.next_epoch(deployment)
        statement = sign_statement(
            self._secret, deployment, epoch=epoch, verb=verb, manifest_bytes=manifest_bytes, now_s=time.time()
        )
        self._hear(statement)
        self._tell(statement)
        return statement

    def begin(self) -> None:
        """At start: act on what was believed in the last run, and tell it again."""
        for statement in self._register.statements():
            self._tell(statement)

    async def adopt_orphans(self) -> None:
        """Never returns: now and then, say anew what nobody on the roster vouches for any more."""
        await trio.sleep(ORPHAN_UPTIME_S)
        while True:
            live = self._cluster.live()
            is_lowest = not live or self._own < min(live)
            if is_lowest and len(live) + 1 > len(self._cluster.records) // 2:
                for orphan in self._register.orphans():
                    self.say(orphan.deployment, orphan.verb, orphan.manifest_bytes)
            await trio.sleep(ORPHAN_INTERVAL_S)

    # ---- manifests -----------------------------------------------------------------------------------

    async def offer(self, envelope: bytes, file_name: str) -> str:
        """A file from the inbox: judge it and deploy it; what was done, in words.

        Raises ManifestError, and QueueFullError to be asked again later.
        """
        try:
            manifest = await judge_manifest(envelope, self._trusted())
            is_new = await self.deploy(manifest)
        except ManifestError as error:
            self._audit("manifest refused", file=file_name, code=error.code, reason=str(error.args[0]))
            raise
        except StateWriteError as error:
            raise QueueFullError(str(error), code=error.code) from error
        return f"{manifest.name}@{manifest.version} {'accepted' if is_new else 'was known already; deployed again'}"

    async def deploy(self, manifest: Manifest) -> bool:
        """Accept a manifest that an operator gave to this host and say so to everybody; False when it was known.

        Raises:
            ManifestError: rollback, equivocation or expiry.
            QueueFullError: as many as this host takes on are under way.
        """
        assert self.deployments is not None
        check_room(self.deployments.by_id.values(), manifest.id)
        accepted = self._register.accept(manifest, time.time())
        await self.deployments.keep(manifest)
        self._register.clear_removed(manifest.id)
        statement = self.say(manifest.id, Verb.DEPLOY, len(manifest.envelope))
        self._audit(
            "manifest accepted", deployment=manifest.id.hex(), name=manifest.name, version=manifest.version,
            signer=key_id(manifest.signer).hex(), epoch=statement.epoch,
        )  # fmt: skip
        return accepted is Acceptance.NEW

    async def pull(self, deployment: Deployment) -> bytes | None:
        """Ask one host for the body: who told us first, then any that is known to have it, now and then any at all."""
        live = self._cluster.live()
        known = [node for node in map(NodeId, deployment.holders) if node in live]
        is_first, deployment.pulls = not deployment.pulls, deployment.pulls + 1
        candidates = known if known and (is_first or self._rng.random() < 0.8) else sorted(live)
        if not candidates:
            return None
        node = known[0] if known and is_first else self._rng.choice(candidates)
        endpoint = self._cluster.bulk_endpoint(node)
        if endpoint is None:
            return None
        size = deployment.statement.manifest_bytes

        def fetch() -> bytes:
            return self._client.fetch_manifest(node, endpoint, deployment.id, size, timeout_s=PULL_TIMEOUT_S)

        try:
            return await run_blocking(fetch, abandon_on_cancel=True, limiter=self._pulling)
        except TransferError as error:
            log.debug("manifest not available", deployment=short(deployment.id), code=error.code)
            return None
