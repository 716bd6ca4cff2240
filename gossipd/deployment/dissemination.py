"""Statements between hosts: signing ours, believing others', and keeping all of them believable.

What lives here: what to do with a statement that was heard or made here. What does not: who tells whom (membership's
gossip brings statements to every host, late joiners too), orders (``orders``), a deployment's life
(``deployment_table``).

A statement on a deployment whose manifest was never verified here is **unproven** (``unproven``): it is looked into,
and believed, kept and acted on when its manifest is verified.

A statement may come before the member record that vouches for its signer; some such are kept and tried again when the
roster changes. They are bounded, and where there are too many the host that brought most of them loses its oldest, so
that one host cannot push out what the others bring.

A statement to deploy whose signer is dead, has left or is forgotten is an **orphan**: a host that joins now is told of
living members only, so it would refuse the statement. (A cancel needs no successor: who joins now has nothing to stop,
and only some may say it again.) A host that knows the orphan says it again, one epoch higher, when it
has found it at two looks in a row. The host with the lowest id does so first; each next one waits one look longer, for
the case that the hosts before it cannot: they have only just started, or never heard the orphan.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from gossipd.core.ids import DeploymentId, short
from gossipd.deployment.commands import TellStatement
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.events import StatementHeard
from gossipd.deployment.progress_record import MANIFEST_REFUSED, progress_key
from gossipd.deployment.statement import EPOCH_FIRST_MAX, Statement, Verb, sign_statement
from gossipd.deployment.statement_rules import check_issued, is_moot
from gossipd.deployment.statement_store import Heard
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from membership.member import NodeId


class Dissemination:
    """One per brain."""

    def __init__(self, context: BrainContext, lifecycle: DeploymentTable) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._unvouched: dict[bytes, StatementHeard] = {}  # at most settings.unproven_max, oldest first
        self._seen_revision = 0
        self._orphans_s = math.inf  # when to look for orphans
        self._orphaned: dict[DeploymentId, int] = {}  # at how many looks in a row; as many as there are statements

    def begin(self, now: float, wall_s: float) -> None:
        """At start: act on what was believed in the last run, and tell it again."""
        self._orphans_s = now + self._context.settings.orphan_uptime_s
        for statement in self._context.statements.statements():
            self.tell(statement, wall_s)

    # ---- heard ---------------------------------------------------------------------------------------

    def heard(self, event: StatementHeard, now: float, wall_s: float) -> None:
        """A statement from gossip, which passes it on."""
        context, statement = self._context, None
        try:
            statement = Statement.decode(event.wire)
            if event.key != statement.deployment:
                raise ManifestError("a statement that is told under another deployment's key", code="E_DECODE")
            if context.statements.is_superseded(statement.deployment):
                return
            check_issued(statement, context.clock.latest_s(wall_s))
            signers = context.roster.signers
            is_proven = context.statements.is_proven(statement.deployment)
            if is_proven:
                heard = context.believe(statement, signers, event.forwarder)
            else:
                heard = context.statements.judge(statement, signers)
        except ManifestError as error:
            if error.code == "E_KEY_UNKNOWN":
                self._keep_unvouched(event)
            elif statement is not None:
                context.refuse(statement, event.forwarder, error)
            else:
                context.audit("statement refused", subject=short(event.forwarder), code=error.code)
            return
        if not is_proven:
            moot = is_moot(statement, context.statements, context.roster)
            context.unproven.add(statement, event.forwarder, now, is_moot=moot)
            key = progress_key(statement.deployment)
            rows = context.progress.everybody(key).items()
            self.vouched(
                key, [node for node, row in rows if row.is_signed and row.progress.state not in MANIFEST_REFUSED]
            )
        elif heard is Heard.NEWS:
            self.act(statement, wall_s)
        self._lifecycle.holder_heard(statement.deployment, event.forwarder)

    def vouched(self, key: bytes, nodes: Collection[NodeId]) -> None:
        """Hosts tell that they have the manifest of a deployment with that progress key."""
        if nodes and self._context.unproven.is_about(key):
            answered = self._context.roster.answered()
            for node in nodes:
                if node in answered:
                    self._context.unproven.vouch(key, node)

    def _keep_unvouched(self, event: StatementHeard) -> None:
        self._unvouched.setdefault(event.wire, event)
        if len(self._unvouched) > self._context.settings.unproven_max:
            forwarders = [one.forwarder for one in self._unvouched.values()]
            loudest = max(forwarders, key=forwarders.count)
            del self._unvouched[next(wire for wire, one in self._unvouched.items() if one.forwarder == loudest)]

    def roster_changed(self, now: float, wall_s: float) -> None:
        """Who may sign has changed: the unvouched may be vouched for now."""
        unvouched, self._unvouched = self._unvouched, {}
        for event in unvouched.values():
            self.heard(event, now, wall_s)

    def look_into_unproven(self, wall_s: float) -> None:
        """Have the lifecycle look into those that are worth it now, and forget the others."""
        unproven = self._context.unproven
        if unproven.revision != self._seen_revision:
            self._seen_revision = unproven.revision
            self._lifecycle.look_into(unproven.wanted(self._context.standings()), wall_s)

    # ---- said ----------------------------------------------------------------------------------------

    def sign(self, deployment: DeploymentId, verb: Verb, manifest_bytes: int, wall_s: float) -> Statement:
        """Our own next statement on a deployment, in the store and not told yet. Raises ManifestError
        ``E_STATEMENT_BOUNDS``, ``E_MAY_NOT_CANCEL``."""
        context = self._context
        epoch = context.statements.next_epoch(deployment, verb)
        statement = sign_statement(
            context.identity.secret,
            deployment,
            epoch=epoch,
            verb=verb,
            manifest_bytes=manifest_bytes,
            now_s=context.clock.true_s(wall_s),
        )
        context.believe(statement, (statement.signer,), None)
        return statement

    def deploy_again(self, last: Statement, wall_s: float) -> None:
        """Say that it is deployed, after the last word on it. Raises as ``sign`` does."""
        manifest = self._lifecycle.manifest_of(last.deployment)
        size = last.manifest_bytes if manifest is None else len(manifest.envelope)  # what is so, not what was said
        self.tell(self.sign(last.deployment, Verb.DEPLOY, size, wall_s), wall_s)

    def tell(self, statement: Statement, wall_s: float, manifest: Manifest | None = None) -> None:
        """Tell a statement of the store to all hosts, and act on it."""
        self._context.put(TellStatement(statement))
        self.act(statement, wall_s, manifest)

    def act(self, statement: Statement, wall_s: float, manifest: Manifest | None = None) -> None:
        """Act on a statement that is news, or on a later one that has come since."""
        last = self._context.statements.statement(statement.deployment) or statement
        self._context.info("statement", deployment=short(last.deployment), verb=last.verb.name, epoch=last.epoch)
        self._lifecycle.act(last, wall_s, manifest)

    # ---- orphans -------------------------------------------------------------------------------------

    def tick(self, now: float, wall_s: float) -> None:
        """Drop what was not proven in time; look for orphans, when it is time."""
        self._context.unproven.expire(now)
        if now < self._orphans_s:
            return
        settings, roster = self._context.settings, self._context.roster
        self._orphans_s = now + settings.orphan_interval_s
        live = roster.live()
        is_majority = len(live) + 1 > roster.host_count // 2
        orphans = [
            one
            for one in (self._context.statements.orphans(roster.vouchers()) if is_majority else ())
            if one.verb is Verb.DEPLOY and one.epoch < EPOCH_FIRST_MAX - 1
        ]
        self._orphaned = {one.deployment: self._orphaned.get(one.deployment, 0) + 1 for one in orphans}
        rank = sum(node < self._context.identity.node for node in live)
        for orphan in orphans:
            if self._orphaned[orphan.deployment] >= 2 + min(rank, settings.orphan_ranks_max):
                self.deploy_again(orphan, wall_s)

    def next_deadline(self) -> float:
        """When ``tick`` is wanted next."""
        return min(self._orphans_s, self._context.unproven.next_deadline())
