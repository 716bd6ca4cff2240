"""What a node believes about deployments: the last statement on each, and the versions of each model that it trusts.

What lives here: merging statements, the rules for versions, and what was removed or superseded on this host. What does
not: files (the daemon keeps ``statement_file``'s bytes whenever ``revision`` has changed, before it acts on what it
heard), gossip, and whether a manifest is signed (``manifest``).

**Statements** merge like a register per deployment that only moves up: the highest rank wins, in any order and
number, so all nodes end at the same state: two statements of one rank say the same. When there are too many, those
issued longest ago are dropped first, or accepted here longest ago, whichever is later: nearly the same on all nodes, so
that they do not teach each other again what they drop.

**Versions** of one name only go up. A manifest is judged when this host first accepts it (rollback, equivocation,
expiry) and never again: accepted ones are remembered by id, so a restart, or hearing an old one once more, is
"already". A host that hears version 9 before 8 refuses 8, though another host has it, unless 9's manifest says that 8
is still to live (``manifest.retention``): then its publisher has just said so, and ``current`` stays 9.

**Removed** marks are this host's own: an operator's ``rm`` outlasts every later statement on the deployment, until the
operator drops the manifest into this host's inbox again.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import TypeVar

from msgspec import Struct, field

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId, short
from gossipd.deployment.deployer import Deployer, after_order, after_told, after_word
from gossipd.deployment.statement import (
    EPOCH_FIRST_MAX,
    EPOCH_LIMIT,
    EPOCH_MAX,
    EPOCH_STEP_MAX,
    Statement,
    Verb,
    epoch_after,
)
from gossipd.identity.cancel_rights import Authors
from gossipd.identity.trust import key_id
from gossipd.manifest.annotations import Retention
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.retention import live_rule
from membership.bounds import fits

STATEMENTS_MAX = 1_024  # a deployment a day for three years; 150 KB in all
NAMES_MAX, NAMES_PER_SIGNER_MAX = 8_192, 4_096  # a key that may sign a few names uses up nobody else's
VERSIONS_KEPT_MAX = 64  # per name; the store keeps two
REMOVED_MAX = 4_096
SUPERSEDED_MAX = 4_096  # one that is forgotten and heard again is refused as too old
ALARMS_MAX = 64
UNTRUSTED_MAX = 4_096
ACCEPTED_MAX = 16_384  # 80 bytes each on disk
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


class Equivocation(Struct, frozen=True):
    """One version of one name with two contents: a publisher signs carelessly, or a key is stolen."""

    name: str
    version: int
    trusted: DeploymentId
    offered: DeploymentId


class AcceptedManifest(Struct, frozen=True):
    """That this host has accepted a manifest is a fact: it outlasts the trust in its signer's key.

    ``signer``: the publisher's Ed25519 key, empty when the file of an older gossipd did not tell. ``accepted_s``: 0
    where nobody knows: of an older gossipd's file, or after the register was lost.
    """

    signer: bytes
    accepted_s: int


class RegisterState(Struct):
    """All that is kept; ``statement_file`` writes and reads it."""

    statements: dict[DeploymentId, Statement] = field(default_factory=dict)
    versions: dict[str, dict[int, DeploymentId]] = field(default_factory=dict)
    """Name -> accepted versions, always with the highest."""
    accepted: dict[DeploymentId, AcceptedManifest] = field(default_factory=dict)
    deployers: dict[DeploymentId, Deployer] = field(default_factory=dict)
    """Of those that have a statement or are accepted."""
    removed: dict[DeploymentId, None] = field(default_factory=dict)
    evicted: dict[DeploymentId, None] = field(default_factory=dict)
    """Those of them that the host itself has deleted to make room."""
    superseded: dict[DeploymentId, None] = field(default_factory=dict)
    """Their publishers keep newer versions: words on them are not heard any more."""
    untrusted_keys: dict[bytes, None] = field(default_factory=dict)
    """Ids of publishers' keys whose models this host no longer uses."""
    untrusted: dict[DeploymentId, None] = field(default_factory=dict)
    overridden: dict[str, None] = field(default_factory=dict)
    """Names whose next manifest may have any version."""
    alarms: dict[Equivocation, None] = field(default_factory=dict)
    last_signed_s: int = 0
    """Latest creation date of any accepted manifest: a clock of ours that is earlier is wrong."""


class StatementStore:
    """One node's beliefs. One task owns it."""

    def __init__(self, state: RegisterState | None = None) -> None:
        self.state = state or RegisterState()
        """All that is kept; callers do not change it."""
        self._keeps: dict[str, tuple[int, Retention | None]] = {}  # of the newest version of a name, since the start
        self.revision = 0
        """Grows with every change that must be kept."""

    # ---- statements ----

    def judge(self, statement: Statement, signers: Container[bytes]) -> Heard:
        """What a statement with a proved signature would mean to this node; nothing is changed.

        Args:
            signers: Ed25519 keys that may sign statements: those of the roster's hosts and of known clients.
        Raises:
            ManifestError: ``E_KEY_UNKNOWN`` when its signer may not sign statements, ``E_STATEMENT_BOUNDS`` when its
                epoch is too far above the last one.
        """
        known = self.state.statements.get(statement.deployment)
        if known is not None and known.rank >= statement.rank:
            return Heard.KNOWN if known.rank == statement.rank else Heard.OLDER
        if statement.signer not in signers:
            raise ManifestError(
                f"the statement on {short(statement.deployment)} is signed by key={short(key_id(statement.signer))}, "
                "which is neither a member's nor a configured client's",
                code="E_KEY_UNKNOWN",
            )
        last, step = (0, EPOCH_FIRST_MAX) if known is None else (known.epoch, EPOCH_STEP_MAX)
        if not fits(statement.epoch, known=last, step=step, maximum=EPOCH_MAX):
            epoch_max = min(last + step, EPOCH_LIMIT)
            raise ManifestError(
                f"the statement on {short(statement.deployment)} has epoch {statement.epoch}, at most {epoch_max}",
                code="E_STATEMENT_BOUNDS",
            )
        return Heard.NEWS

    def hear(self, statement: Statement, signers: Container[bytes]) -> Heard:
        """Merge a statement with a proved signature. Raises ManifestError as ``judge`` does."""
        heard = self.judge(statement, signers)
        if heard is not Heard.NEWS:
            return heard
        self.state.statements[statement.deployment] = statement
        self._note_deployer(statement)
        self._forget_oldest()
        self.revision += 1
        return Heard.NEWS if statement.deployment in self.state.statements else Heard.OLDER

    def hear_late(self, statement: Statement) -> None:
        """A statement whose signer may sign, and that is not later than the last one: it may tell who deployed it."""
        if statement.epoch == 1:
            self._note_deployer(statement)

    def _note_deployer(self, statement: Statement) -> None:
        if statement.verb is Verb.DEPLOY:
            known = self.state.deployers.get(statement.deployment)
            self._keep_deployer(statement.deployment, after_word(known, statement.signer, statement.epoch))

    def note_order(self, deployment: DeploymentId, signer: bytes) -> None:
        """It was deployed on this host, by the order of ``signer``."""
        self._keep_deployer(deployment, after_order(self.state.deployers.get(deployment), signer))

    def note_told(self, deployment: DeploymentId, head: bytes) -> None:
        """Another host tells who deployed it (``Deployer.told``)."""
        if self.is_proven(deployment):
            self._keep_deployer(deployment, after_told(self.state.deployers.get(deployment), head))

    def _keep_deployer(self, deployment: DeploymentId, deployer: Deployer) -> None:
        if self.state.deployers.get(deployment) != deployer:
            self.state.deployers[deployment] = deployer
            self.revision += 1

    def is_proven(self, deployment: DeploymentId) -> bool:
        """Whether a manifest of that id was verified here: only statements on those are believed and kept."""
        return deployment in self.state.statements or deployment in self.state.accepted

    def withdraw(self, statement: Statement, before: Statement | None, deployer: Deployer | None) -> None:
        """Undo ``hear`` of a statement that was told to nobody and cannot be made durable; ``before`` was the last, and
        ``deployer`` what was known of that."""
        if self.state.statements.get(statement.deployment) is statement:
            del self.state.statements[statement.deployment]
            if before is not None:
                self.state.statements[statement.deployment] = before
            if deployer is None:
                self.state.deployers.pop(statement.deployment, None)
            else:
                self.state.deployers[statement.deployment] = deployer
            self.revision += 1

    def statement(self, deployment: DeploymentId) -> Statement | None:
        """The last statement on a deployment."""
        return self.state.statements.get(deployment)

    def deployers(self) -> set[bytes]:
        """Keys that have deployed what is believed here."""
        return {one.key for one in self.state.deployers.values()}

    def deployer(self, deployment: DeploymentId) -> Deployer | None:
        """What is known of who deployed it."""
        return self.state.deployers.get(deployment)

    def statements(self) -> tuple[Statement, ...]:
        """All last statements, oldest issued first; the order does not depend on the order of hearing."""
        return tuple(sorted(self.state.statements.values(), key=lambda one: (one.issued_s, one.deployment)))

    def next_epoch(self, deployment: DeploymentId, verb: Verb) -> int:
        """The epoch that a new statement on a deployment must have."""
        known = self.state.statements.get(deployment)
        return epoch_after(known.epoch if known else 0, verb)

    def authors(self, deployment: DeploymentId) -> Authors:
        """Who published it and who alone deployed it, as far as this host knows."""
        accepted, deployer = self.state.accepted.get(deployment), self.state.deployers.get(deployment)
        is_alone = deployer is not None and not deployer.is_contested
        return Authors(accepted.signer if accepted else b"", deployer.key if deployer and is_alone else b"")

    def model_of(self, deployment: DeploymentId) -> tuple[str, int] | None:
        """Name and version of an accepted manifest."""
        found = (
            (name, version)
            for name, versions in self.state.versions.items()
            for version, one in versions.items()
            if one == deployment
        )
        return next(found, None)

    def accepted_version(self, name: str, version: int) -> DeploymentId | None:
        """The manifest that is trusted as that version."""
        return self.state.versions.get(name, {}).get(version)

    def orphans(self, vouchers: Container[bytes]) -> tuple[Statement, ...]:
        """Statements that no key of ``vouchers`` has signed. A newcomer would refuse them, so a member signs them."""
        orphaned = (one for one in self.statements() if one.signer not in vouchers)
        return tuple(one for one in orphaned if not self.is_superseded(one.deployment))

    def _forget_oldest(self) -> None:
        statements = self.state.statements
        while len(statements) > STATEMENTS_MAX:
            oldest = min(statements.values(), key=self._age).deployment
            del statements[oldest]
            self.state.deployers.pop(oldest, None)

    def _age(self, statement: Statement) -> tuple[int, DeploymentId]:
        """A signer may name any time that has been, so none counts as older than its acceptance here."""
        accepted = self.state.accepted.get(statement.deployment)
        return max(statement.issued_s, accepted.accepted_s if accepted else 0), statement.deployment

    # ---- versions ----

    def accept(
        self, manifest: Manifest, now_s: float, *, is_heard: bool = False, is_here: bool = False
    ) -> Acceptance:  # fmt: skip
        """Trust this version of its name from now on.

        Args:
            is_heard: from other hosts, which have it already; nobody has ordered it here.
            is_here: the store has it whole, so this host has accepted it once.
        Raises:
            ManifestError: ``E_UNTRUSTED``, ``E_ROLLBACK``, ``E_EXPIRED``, ``E_LIMIT``, or ``E_EQUIVOCATION``, after
                which ``alarms`` names both contents and the one accepted first stays trusted.
        """
        if self.is_untrusted(manifest):
            raise ManifestError(
                f"an operator of this host has said: gossipd untrust {manifest.label}, or its key",
                code="E_UNTRUSTED",
            )
        versions = self.state.versions.get(manifest.name, {})
        trusted = versions.get(manifest.version)
        if trusted == manifest.id or manifest.id in self.state.accepted:
            if self._note_accepted(manifest, now_s):
                self.revision += 1
            self._note_keep(manifest)
            return Acceptance.ALREADY
        if trusted is not None:
            alarm = Equivocation(manifest.name, manifest.version, trusted, manifest.id)
            if alarm not in self.state.alarms:
                self._keep(self.state.alarms, alarm, ALARMS_MAX)
            raise ManifestError(
                f"{manifest.label} is trusted as {short(trusted)} and offered as "
                f"{short(manifest.id)}; publish changed content under a higher version",
                code="E_EQUIVOCATION",
            )
        is_overridden = manifest.name in self.state.overridden and not is_here
        is_too_old = bool(versions) and manifest.version < max(versions) and not is_overridden
        if is_too_old and not is_here and not (is_heard and self._lives(manifest)):
            raise ManifestError(manifest.rollback_words(max(versions)), code="E_ROLLBACK")
        if not versions:
            self._check_room_for_name(manifest.signer)
        manifest.check_time(max(now_s, self.state.last_signed_s))
        kept = self.state.versions.setdefault(manifest.name, {})
        if is_overridden:
            del self.state.overridden[manifest.name]
            for version in [one for one in kept if one > manifest.version]:
                del kept[version]
        kept[manifest.version] = manifest.id
        self.state.superseded.pop(manifest.id, None)
        if len(kept) > VERSIONS_KEPT_MAX:
            del kept[min(kept)]
        self.state.last_signed_s = max(self.state.last_signed_s, manifest.created_s)
        self._note_accepted(manifest, 0 if is_here else now_s)  # it was accepted once, and nobody knows when
        self._note_keep(manifest)
        self.revision += 1
        return Acceptance.NEW

    def _check_room_for_name(self, signer: bytes) -> None:
        """A name counts as that of the key that has signed its newest version."""
        names, accepted = self.state.versions, self.state.accepted
        if len(names) >= NAMES_MAX:
            raise ManifestError(f"names={NAMES_MAX + 1} max={NAMES_MAX}", code="E_LIMIT")
        if len(names) < NAMES_PER_SIGNER_MAX:
            return
        newest = (accepted.get(versions[max(versions)]) for versions in names.values())
        own = sum(one is not None and one.signer == signer for one in newest)
        if own >= NAMES_PER_SIGNER_MAX:
            raise ManifestError(f"names={own + 1} of one key max={NAMES_PER_SIGNER_MAX}", code="E_LIMIT")

    def _note_keep(self, manifest: Manifest) -> None:
        if manifest.version == max(self.state.versions.get(manifest.name, {}), default=-1):
            self._keeps[manifest.name] = manifest.version, manifest.keep

    def _lives(self, manifest: Manifest) -> bool:
        """Whether the newest version that is trusted says of an older one that it is still to live."""
        versions = self.state.versions[manifest.name]
        newest, keep = self._keeps.get(manifest.name, (-1, None))
        if keep is None or newest != max(versions):
            return False
        return live_rule({*versions, manifest.version}, keep)(manifest.version)

    def _note_accepted(self, manifest: Manifest, now_s: float) -> bool:
        accepted = self.state.accepted
        known = accepted.get(manifest.id)
        if known is not None and known.signer:
            return False
        accepted[manifest.id] = AcceptedManifest(manifest.signer, int(now_s))
        if len(accepted) > ACCEPTED_MAX:
            unsaid = (one for one in accepted if one not in self.state.statements)
            dropped = next(unsaid, next(iter(accepted)))
            del accepted[dropped]
            if dropped not in self.state.statements:
                self.state.deployers.pop(dropped, None)
        return True

    def accepted(self, deployment: DeploymentId) -> AcceptedManifest | None:
        """What is known of the acceptance of that manifest; None when this host has not accepted it."""
        return self.state.accepted.get(deployment)

    # ---- versions that their publishers no longer keep ----

    def supersede(self, deployment: DeploymentId) -> None:
        """No word on it counts any more; what is here stays until ``drop``."""
        self._keep(self.state.superseded, deployment, SUPERSEDED_MAX)

    def is_superseded(self, deployment: DeploymentId) -> bool:
        """Whether ``supersede`` was said of it."""
        return deployment in self.state.superseded

    def check_superseded(self, manifest: Manifest) -> None:
        """Raises ManifestError ``E_ROLLBACK`` when it is, unless an operator lets the name have any version."""
        if self.is_superseded(manifest.id) and manifest.name not in self.state.overridden:
            raise ManifestError(
                f"{manifest.label} is one of the versions that its publisher no longer keeps; "
                "publish it under a new version",
                code="E_ROLLBACK",
            )

    def is_over(self, deployment: DeploymentId) -> bool:
        """Whether no word brings it here: it was removed from this host, or is superseded."""
        return self.is_removed(deployment) or self.is_superseded(deployment)

    def drop(self, deployment: DeploymentId) -> None:
        """Forget all of a superseded version but that it is one, and that it was the highest of its name."""
        state = self.state
        for table in (state.statements, state.deployers, state.accepted, state.removed):
            table.pop(deployment, None)
        for versions in state.versions.values():
            for version in [one for one, kept in versions.items() if kept == deployment and one != max(versions)]:
                del versions[version]
        self.revision += 1

    # ---- what the operator of this host says of trust ----

    def untrust(self, key: bytes, deployment: DeploymentId | None, *, is_undone: bool = False) -> bool:
        """Do not use models of this key (its id), or this one model; or use them again. False when that is known.

        Raises:
            ManifestError: ``E_LIMIT``.
        """
        keys, models = self.state.untrusted_keys, self.state.untrusted
        is_known = key in keys if deployment is None else deployment in models
        if is_known is not is_undone:
            return False
        if len(keys) + len(models) >= UNTRUSTED_MAX and not is_undone:
            raise ManifestError(f"{UNTRUSTED_MAX} keys and models are untrusted", code="E_LIMIT")
        if deployment is None and is_undone:
            del keys[key]
        elif deployment is None:
            keys[key] = None
        elif is_undone:
            del models[deployment]
        else:
            models[deployment] = None
        self.revision += 1
        return True

    def is_untrusted(self, manifest: Manifest) -> bool:
        """Whether the operator has said so of it or its signer."""
        return manifest.id in self.state.untrusted or key_id(manifest.signer) in self.state.untrusted_keys

    def override(self, name: str) -> int:
        """Let the next manifest of that name have any version; the highest trusted one is returned.

        Raises:
            NotFoundError: this host trusts no version of it.
        """
        versions = self.state.versions.get(name)
        if not versions:
            raise NotFoundError(f"no version of {name} is trusted here")
        self.state.overridden[name] = None
        self.revision += 1
        return max(versions)

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
        self.state.evicted.pop(deployment, None)
        self._keep(self.state.removed, deployment, REMOVED_MAX)

    def mark_evicted(self, deployment: DeploymentId) -> None:
        """The host removed the deployment to make room: later statements do not bring it back either."""
        self._keep(self.state.removed, deployment, REMOVED_MAX)
        self._keep(self.state.evicted, deployment, REMOVED_MAX)

    def clear_removed(self, deployment: DeploymentId) -> None:
        """An operator dropped the manifest into this host's inbox again."""
        if deployment in self.state.removed:
            del self.state.removed[deployment]
            self.state.evicted.pop(deployment, None)
            self.revision += 1

    def is_removed(self, deployment: DeploymentId) -> bool:
        """Whether the deployment must not be fetched here."""
        return deployment in self.state.removed

    def is_evicted(self, deployment: DeploymentId) -> bool:
        """Whether it must not be fetched here because this host made room."""
        return deployment in self.state.evicted and deployment in self.state.removed
