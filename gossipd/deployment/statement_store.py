"""What a node believes about deployments: the last statement on each, and the versions of each model that it trusts.

What lives here: merging statements, the rules for versions, and what was removed on this host. What does not: files
(the daemon keeps ``statement_file``'s bytes whenever ``revision`` has changed, before it acts on what it heard),
gossip, and whether a manifest is signed (``manifest``).

**Statements** merge like a register per deployment that only moves up: the highest rank wins, in any order and
number, so all nodes end at the same state: two statements of one rank say the same. When there are too many, those
issued longest ago are dropped first. The order is the same everywhere, so all nodes drop the same ones and do not teach
them to each other again.

**Versions** of one name only go up. A manifest is judged when this host first accepts it (rollback, equivocation,
expiry) and never again: accepted ones are remembered by id, so a restart, or hearing an old one once more, is
"already". A host that hears version 9 before 8 refuses 8, though another host has it.

**Removed** marks are this host's own: an operator's ``rm`` outlasts every later statement on the deployment, until the
operator drops the manifest into this host's inbox again.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from gossipd.core.ids import DeploymentId, short
from gossipd.deployment.statement import EPOCH_MAX, Statement
from gossipd.identity.trust import key_id
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest

STATEMENTS_MAX = 1_024  # a deployment a day for three years; 150 KB in all
NAMES_MAX = 4_096
VERSIONS_KEPT_MAX = 64  # per name; the store keeps two
REMOVED_MAX = 4_096
ALARMS_MAX = 64
_Key = TypeVar("_Key")


class Heard(Enum):
    """What a statement meant to this node."""

    NEWS = "news"  # it is the last statement now: act on it, pass it on
    KNOWN = "known"  # this node had it
    OLDER = "older"  # this node knows a later statement


class Acceptance(Enum):
    """What a manifest meant to this node."""

    NEW = "new"
    ALREADY = "already"


@dataclass(frozen=True, slots=True)
class Equivocation:
    """One version of one name with two contents: a publisher signs carelessly, or a key is stolen."""

    name: str
    version: int
    trusted: DeploymentId
    offered: DeploymentId


@dataclass(slots=True)
class RegisterState:
    """All that is kept; ``statement_file`` writes and reads it."""

    statements: dict[DeploymentId, Statement] = field(default_factory=dict)
    versions: dict[str, dict[int, DeploymentId]] = field(default_factory=dict)
    """Name -> accepted versions, always with the highest."""
    removed: dict[DeploymentId, None] = field(default_factory=dict)
    alarms: dict[Equivocation, None] = field(default_factory=dict)
    last_signed_s: int = 0
    """Latest creation date of any accepted manifest: a clock of ours that is earlier is wrong."""


class StatementStore:
    """One node's beliefs. One task owns it."""

    def __init__(self, state: RegisterState | None = None) -> None:
        self.state = state or RegisterState()
        """All that is kept; callers do not change it."""
        self.revision = 0
        """Grows with every change that must be kept."""

    # ---- statements ----

    def judge(self, statement: Statement, signers: Container[bytes]) -> Heard:
        """What a statement with a proved signature would mean to this node; nothing is changed. Raises ManifestError
        ``E_KEY_UNKNOWN`` when its signer is not among the Ed25519 keys of ``signers``."""
        known = self.state.statements.get(statement.deployment)
        if known is not None and known.rank >= statement.rank:
            return Heard.KNOWN if known.rank == statement.rank else Heard.OLDER
        if statement.signer not in signers:
            raise ManifestError(
                f"the statement on {short(statement.deployment)} is signed by key={short(key_id(statement.signer))}, "
                "which is neither a member's nor a configured client's",
                code="E_KEY_UNKNOWN",
            )
        return Heard.NEWS

    def hear(self, statement: Statement, signers: Container[bytes]) -> Heard:
        """Merge a statement with a proved signature. Raises ManifestError as ``judge`` does."""
        heard = self.judge(statement, signers)
        if heard is not Heard.NEWS:
            return heard
        self.state.statements[statement.deployment] = statement
        self._forget_oldest()
        self.revision += 1
        return Heard.NEWS if statement.deployment in self.state.statements else Heard.OLDER

    def withdraw(self, statement: Statement, before: Statement | None) -> None:
        """Undo ``hear`` of a statement that was told to nobody and cannot be made durable; ``before`` was the last."""
        if self.state.statements.get(statement.deployment) is statement:
            del self.state.statements[statement.deployment]
            if before is not None:
                self.state.statements[statement.deployment] = before
            self.revision += 1

    def statement(self, deployment: DeploymentId) -> Statement | None:
        """The last statement on a deployment."""
        return self.state.statements.get(deployment)

    def statements(self) -> tuple[Statement, ...]:
        """All last statements, oldest issued first; the order does not depend on the order of hearing."""
        return tuple(sorted(self.state.statements.values(), key=_age))

    def next_epoch(self, deployment: DeploymentId) -> int:
        """The epoch that a new statement on a deployment must have."""
        known = self.state.statements.get(deployment)
        return min(known.epoch + 1, EPOCH_MAX) if known else 1

    def orphans(self, vouchers: Container[bytes]) -> tuple[Statement, ...]:
        """Statements that no key of ``vouchers`` has signed. A newcomer would refuse them, so a member signs them."""
        return tuple(one for one in self.statements() if one.signer not in vouchers)

    def _forget_oldest(self) -> None:
        statements = self.state.statements
        while len(statements) > STATEMENTS_MAX:
            del statements[min(statements.values(), key=_age).deployment]

    # ---- versions ----

    def accept(self, manifest: Manifest, now_s: float) -> Acceptance:
        """Trust this version of its name from now on. Raises ManifestError ``E_ROLLBACK``, ``E_EXPIRED``, ``E_LIMIT``,
        or ``E_EQUIVOCATION``, after which ``alarms`` names both contents and the one accepted first stays trusted."""
        versions = self.state.versions.get(manifest.name, {})
        trusted = versions.get(manifest.version)
        if trusted == manifest.id:
            return Acceptance.ALREADY
        if trusted is not None:
            alarm = Equivocation(manifest.name, manifest.version, trusted, manifest.id)
            if alarm not in self.state.alarms:
                self._keep(self.state.alarms, alarm, ALARMS_MAX)
            raise ManifestError(
                f"{manifest.name}@{manifest.version} is trusted as {short(trusted)} and offered as "
                f"{short(manifest.id)}; publish changed content under a higher version",
                code="E_EQUIVOCATION",
            )
        if versions and manifest.version < max(versions):
            raise ManifestError(
                f"{manifest.name}: offered {manifest.version}, trusted {max(versions)}", code="E_ROLLBACK"
            )
        if not versions and len(self.state.versions) >= NAMES_MAX:
            raise ManifestError(f"names={NAMES_MAX + 1} max={NAMES_MAX}", code="E_LIMIT")
        manifest.check_time(max(now_s, self.state.last_signed_s))
        kept = self.state.versions.setdefault(manifest.name, {})
        kept[manifest.version] = manifest.id
        if len(kept) > VERSIONS_KEPT_MAX:
            del kept[min(kept)]
        self.state.last_signed_s = max(self.state.last_signed_s, manifest.created_s)
        self.revision += 1
        return Acceptance.NEW

    def alarms(self) -> tuple[Equivocation, ...]:
        """Equivocations seen, oldest first, at most 64."""
        return tuple(self.state.alarms)

    def _keep(self, table: dict[_Key, None], key: _Key, keys_max: int) -> None:
        table[key] = None
        if len(table) > keys_max:
            del table[next(iter(table))]
        self.revision += 1

    # ---- removed here ----

    def mark_removed(self, deployment: DeploymentId) -> None:
        """An operator removed the deployment from this host: later statements do not bring it back here."""
        self._keep(self.state.removed, deployment, REMOVED_MAX)

    def clear_removed(self, deployment: DeploymentId) -> None:
        """An operator dropped the manifest into this host's inbox again."""
        if deployment in self.state.removed:
            del self.state.removed[deployment]
            self.revision += 1

    def is_removed(self, deployment: DeploymentId) -> bool:
        """Whether the deployment must not be fetched here."""
        return deployment in self.state.removed


def _age(statement: Statement) -> tuple[int, DeploymentId]:
    return statement.issued_s, statement.deployment
