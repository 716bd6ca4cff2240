"""What all parts of the deployment brain share: who we are, what is believed, and the queue of commands.

What lives here: ``BrainContext`` and its ports. What does not: any decision.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from gossipd.core.hiding_struct import HidingStruct
from gossipd.core.ids import DeploymentId, short
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.commands import (
    DeploymentCommand,
    JudgeStatements,
    KeepStatements,
    RecordAudit,
    RecordLog,
    Scalar,
    WorkNumber,
)
from gossipd.deployment.events import WorkDone, WorkEnded
from gossipd.deployment.manifest_holders import ManifestGivers
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_record import progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Statement
from gossipd.deployment.statement_file import snapshot
from gossipd.deployment.statement_rules import judge_statement
from gossipd.deployment.statement_store import Heard, StatementStore
from gossipd.deployment.unproven import PullShares, Standing, UnprovenStatements
from gossipd.identity.cancel_rights import Authors
from gossipd.identity.keys import SecretKey
from gossipd.identity.trust import key_id
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import EVERYTHING, Want
from membership.member import NodeId, node_id


class HostIdentity(HidingStruct, frozen=True):
    """Who we are, as targets name us, and the key that signs our statements."""

    node: NodeId
    name: str
    rack: str
    secret: SecretKey

    hidden = ("secret",)


class WorkOwner(Protocol):
    """A part of the brain that has asked for work."""

    def work_ended(self, event: WorkEnded, now: float, wall_s: float) -> None:
        """Work that this part has asked for has ended."""
        ...


class RosterPort(Protocol):
    """Who belongs to the cluster, as known at this moment. Only read, at each use: nothing of it is remembered."""

    @property
    def signers(self) -> Container[bytes]:
        """Ed25519 keys that may sign statements: of every host on the roster and of configured clients."""
        ...

    def vouchers(self) -> Container[bytes]:
        """The signers that a host which joins now would know: the living hosts, this one, and configured clients."""
        ...

    def is_client(self, signer: bytes) -> bool:
        """Whether it is a configured client's key."""
        ...

    def may_cancel(self, signer: bytes, authors: Authors) -> bool:
        """Whether a statement of this signer's may cancel a deployment with these authors (``cancel_rights``)."""
        ...

    @property
    def host_count(self) -> int:
        """Hosts on the roster, this one and dead ones included; without members that may be made up."""
        ...

    def key_of(self, node: NodeId) -> bytes | None:
        """The Ed25519 key of a host on the roster, other than this one."""
        ...

    def live(self) -> set[NodeId]:
        """Hosts that membership counts on, without this one and without members that may be made up."""
        ...

    def answered(self) -> set[NodeId]:
        """Those of them that have spoken to this host: no other host can have made them up."""
        ...

    def rack_of(self, node: NodeId) -> str | None:
        """The rack of a host on the roster."""
        ...

    def targets(self, manifest: Manifest) -> list[NodeId]:
        """Hosts on the roster for which it is meant, this one and dead ones included; without members that may be made
        up."""
        ...


class DeploymentSettings(Struct, frozen=True, kw_only=True):
    """Times in seconds, and bounds."""

    space_retry_s: float = 5.0  # a freed disk is noticed within the 10 s that the fault table allows
    pull_retry_first_s: float = 0.05  # doubled in between: holders multiply as fast as we wait
    pull_retry_max_s: float = 5.0
    pull_answer_first_s: float = 1.0
    """For which the first peer that is asked for a manifest may be silent; doubled with each that is asked next, as all
    may be slow. A silent one would else cost as long as connecting and the handshake may take, some 3 s."""
    pull_answer_stranger_s: float = 0.25
    """The same where that peer never gave this host a manifest and others did."""
    pull_answer_max_s: float = 20.0
    givers_max: int = 64  # more than the hosts that tell one host of a deployment first
    pulls_refused_max: int = 3
    """Manifests with the announced content and a signature that does not verify: the signature was altered on the way,
    or no trusted key is among the signers. Other content is always its sender's fault and another holder is asked."""
    pull_any_share: float = 0.2
    """Of the pulls, asked of any live host instead of one that is known to have the manifest."""
    probe_again_s: float = 10.0  # storage that is back is found within the least pause of a seed
    live_max: int = 64  # under way at once; as many as the table of progress has room for with 4,096 hosts
    unproven_max: int = 64
    unproven_per_signer_max: int = 8
    unproven_s: float = 600.0
    """For which a statement is kept whose manifest is not verified: by then every holder was asked many times."""
    pulls_max: int = 8
    pulls_per_signer_max: int = 4
    pulls_per_peer_max: int = 4
    supersede_grace_s: float = 600.0
    """For which a version that its publisher no longer keeps stays while other hosts still fetch it."""
    pull_turn_s: float = 0.1  # a pull that waits for its turn asks again
    clock_retry_s: float = 5.0  # a manifest that waits for the clock; a look at it costs a signature
    orphan_interval_s: float = 15.0  # two looks pass while a host restarts slowly, and a newcomer waits no longer
    orphan_uptime_s: float = 120.0  # by then every living host of the persisted roster has been heard
    orphan_ranks_max: int = 4
    """Intervals for which a host waits at most for hosts with a lower id to adopt orphans."""


@dataclass(slots=True, kw_only=True)
class BrainContext:
    """Made for one brain, whose parts share it."""

    identity: HostIdentity
    statements: StatementStore
    roster: RosterPort
    progress: ClusterProgress
    """From which this host's own counters are restored."""
    budgets: OrderedBudgets = field(default_factory=OrderedBudgets)
    """The brain puts into them those of other hosts that are followed."""
    clock: ClusterClock = field(default_factory=ClusterClock)
    """Only read here."""
    settings: DeploymentSettings = field(default_factory=DeploymentSettings)
    complete_before: frozenset[DeploymentId] = frozenset()
    """Models that the store had published when the daemon started."""
    cut_short: frozenset[DeploymentId] = frozenset()
    """Those of them whose publication here an earlier run has not ended: they may be deleted yet."""
    wants: Mapping[str, Want] = field(default_factory=dict)
    """By model name, what this host wants of it; of other names everything."""
    commands: list[DeploymentCommand] = field(default_factory=list, init=False)
    retries: dict[DeploymentId, float] = field(default_factory=dict, init=False)
    """When work is to be asked for again, of the deployments that wait for that."""
    is_space_wanted: bool = field(default=False, init=False)
    """A model does not fit; taken back when something was deleted for it."""
    is_look_wanted: bool = field(default=False, init=False)
    """A version of a name with a ``keep`` has come, or has changed its state (``supersession``)."""
    names_moved: dict[str, bool] = field(default_factory=dict, init=False)
    """Names whose ``current`` may have to lead elsewhere, and whether it may lead again to a version that it avoided.
    At most as many as there are deployments."""
    unproven: UnprovenStatements = field(init=False)
    pulls: PullShares = field(init=False)
    givers: ManifestGivers = field(init=False)
    _works: WorkNumber = field(default=0, init=False)
    _owners: dict[WorkNumber, WorkOwner] = field(default_factory=dict, init=False)  # one for each work under way
    _kept_revision: int = field(default=0, init=False)
    _keeping: dict[WorkNumber, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.unproven = UnprovenStatements(
            per_signer_max=settings.unproven_per_signer_max, in_all_max=settings.unproven_max,
            life_s=settings.unproven_s,
        )  # fmt: skip
        self.pulls = PullShares(
            in_all_max=settings.pulls_max, per_signer_max=settings.pulls_per_signer_max,
            per_peer_max=settings.pulls_per_peer_max,
        )  # fmt: skip
        self.givers = ManifestGivers(settings.givers_max)

    def next_work(self, owner: WorkOwner) -> WorkNumber:
        """A number that no other piece of work has. ``owner`` hears how it ended."""
        self._works += 1
        self._owners[self._works] = owner
        return self._works

    def work_ended(self, event: WorkEnded, now: float, wall_s: float) -> None:
        """Pass the event on to the part that asked for the work."""
        revision = self._keeping.pop(event.work, 0)
        if isinstance(event, WorkDone):
            self._kept_revision = max(self._kept_revision, revision)
        self._owners.pop(event.work).work_ended(event, now, wall_s)

    def put(self, command: DeploymentCommand) -> None:
        """Queue a command."""
        self.commands.append(command)

    def judge_statements(self) -> None:
        """Have gossip judge again what it keeps back: once for all that has come to be known since."""
        if JudgeStatements() not in self.commands:
            self.commands.append(JudgeStatements())

    def audit(self, kind: str, *, label: str = "", **fields: Scalar) -> None:
        """Queue a record for the audit log. ``label``: of the deployment, for events."""
        self.commands.append(RecordAudit(kind, fields, label))

    def audit_manifest(self, kind: str, manifest: Manifest, **fields: Scalar) -> None:
        """The same of a version, with the run and step that its publisher names."""
        lineage: dict[str, Scalar] = {"lineage": manifest.lineage} if manifest.lineage else {}
        self.audit(
            kind, label=manifest.label, deployment=manifest.id.hex(), name=manifest.name, version=manifest.version,
            **fields, **lineage,
        )  # fmt: skip

    def info(self, sentence: str, **fields: Scalar) -> None:
        """Queue a line for the log."""
        self.commands.append(RecordLog("info", sentence, fields))

    def warning(self, sentence: str, **fields: Scalar) -> None:
        """Queue a line for the log that an operator should see."""
        self.commands.append(RecordLog("warning", sentence, fields))

    def standings(self) -> Callable[[bytes], Standing]:
        """How each signer stands now, or each member by its id."""
        proven, answered = self.statements.deployers(), self.roster.answered()

        def standing(signer: bytes) -> Standing:
            if signer in proven:
                return Standing.PROVEN
            is_heard = signer in answered or node_id(signer) in answered or self.roster.is_client(signer)
            return Standing.HEARD if is_heard else Standing.UNHEARD

        return standing

    def believe_unproven(self, deployment: DeploymentId, publisher: bytes) -> None:
        """The deployment's manifest is verified, which ``publisher`` has signed: what was said of it before is judged
        now, lowest rank first.
        """
        for statement, forwarder in self.unproven.take(deployment):
            try:
                self.believe(statement, (statement.signer,), forwarder, publisher=publisher)
            except ManifestError as error:
                self.refuse(statement, forwarder, error)

    def believe(
        self, statement: Statement, signers: Container[bytes], forwarder: NodeId | None, *, publisher: bytes = b"",
    ) -> Heard:  # fmt: skip
        """Merge a statement on a deployment whose manifest is verified; ``forwarder`` brought it.

        Raises:
            ManifestError: as ``judge_statement``.
        """
        heard = judge_statement(statement, self.statements, signers, self.roster, publisher=publisher)
        if heard is not Heard.NEWS and statement.signer in signers:
            self.statements.hear_late(statement)
        if heard is not Heard.NEWS:
            return heard
        self.audit(
            "statement", subject=short(key_id(statement.signer)), verb=statement.verb.name.lower(),
            deployment=statement.deployment.hex(), epoch=statement.epoch, signer=key_id(statement.signer).hex(),
            forwarder=forwarder.hex() if forwarder is not None else "this host",
        )  # fmt: skip
        return self.statements.hear(statement, (statement.signer,))

    def refuse(self, statement: Statement, forwarder: NodeId, error: ManifestError) -> None:
        """Write down that a statement with a good signature was refused, and why."""
        self.audit(
            "statement refused", subject=short(forwarder), code=error.code, reason=str(error.args[0]),
            signer=key_id(statement.signer).hex(), epoch=statement.epoch,
        )  # fmt: skip

    def note_told_deployer(self, deployment: DeploymentId, node: NodeId) -> None:
        """Take in what another host tells of who deployed it."""
        row = self.progress.host(node, progress_key(deployment))
        if node != self.identity.node and row is not None and row.is_signed and row.progress.deployer:
            self.statements.note_told(deployment, row.progress.deployer)

    def is_for_the_clock(self, manifest: Manifest, error: ManifestError, wall_s: float) -> bool:
        """Whether a refusal to accept it is only because this host's clock is wrong."""
        if error.code != "E_EXPIRED" or not self.clock.is_wrong:
            return False
        try:
            manifest.check_time(self.clock.true_s(wall_s))
        except ManifestError:
            return False
        return True

    def want_of(self, name: str) -> Want:
        """What this host wants of the models of a name."""
        return self.wants.get(name, EVERYTHING)

    @property
    def is_durable(self) -> bool:
        """Whether the statement store is known to be on disk as it is now."""
        return self._kept_revision >= self.statements.revision

    def keep_statements(self, owner: WorkOwner) -> WorkNumber:
        """Have the statement store made durable as it is now."""
        work = self.next_work(owner)
        kept, revision = snapshot(self.statements)
        self._keeping[work] = revision
        self.put(KeepStatements(work, kept, revision))
        return work
