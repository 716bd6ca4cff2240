"""The bytes in which a statement store is kept between runs.

What lives here: the format. What does not: the file, which the daemon writes atomically and durably.

Format: one byte, the version (1); 16 bytes of BLAKE3 over what follows; then a MessagePack map: ``statements`` (wire
forms), ``versions`` (name, version, id), ``accepted`` (id, signer, seconds since 1970), ``deployers`` (id, key),
``evidence`` (id, how that is known), ``untrusted_keys``, ``untrusted`` (ids), ``overridden`` (names), ``removed``,
``superseded`` (ids), ``alarms`` (name, version, id, id) and ``last_signed``. Unknown keys are ignored, as in manifests,
so an older gossipd reads the file too. A file without ``accepted`` is an older one's: it may hold statements about
nothing, so only those are read whose manifest it had accepted. The checksum finds torn and rotted files; it is no
signature."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from blake3 import blake3
from msgspec import Meta

from gossipd.core.errors import ExitCode, LocalError
from gossipd.core.ids import DeploymentId
from gossipd.deployment.deployer import Deployer, Evidence, after_word
from gossipd.deployment.statement import EPOCH_LIMIT, STATEMENT_BYTES, Statement, Verb
from gossipd.deployment.statement_store import (
    NAMES_MAX,
    VERSIONS_KEPT_MAX,
    AcceptedManifest,
    Equivocation,
    RegisterState,
    StatementStore,
)
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.strict_msgpack import INTEGER_MAX, pack, unpack

REGISTER_VERSION = 1
_CHECKSUM_BYTES = 16

_Id = Annotated[bytes, Meta(min_length=32, max_length=32)]
_Key = Annotated[bytes, Meta(max_length=32)]
_Natural = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]


_CURE = (
    "; remove state/register: the other hosts tell this one what is deployed, and a host alone is given its manifests "
    "again; chunks stay"
)


class RegisterFormatError(LocalError):
    """The kept store is damaged or from a newer gossipd. Fault: this host's disk, or a downgrade. State: unchanged.

    Retry: after restoring or removing the file. Without it the versions that this host trusts are unknown, so gossipd
    never deletes it: removing it is an operator's decision.
    """

    code = "E_STORE_FORMAT"
    exit_code: ClassVar[ExitCode] = ExitCode.VERIFICATION


class _Kept(msgspec.Struct, frozen=True):
    statements: list[bytes]
    versions: list[tuple[str, _Natural, _Id]]
    removed: list[_Id]
    alarms: list[tuple[str, _Natural, _Id, _Id]]
    last_signed: _Natural
    accepted: list[tuple[_Id, _Key, _Natural]] | None = None
    deployers: list[tuple[_Id, _Key]] = []
    evidence: list[tuple[_Id, Evidence]] = []
    untrusted_keys: list[_Key] = []
    untrusted: list[_Id] = []
    overridden: list[str] = []
    superseded: list[_Id] = []
    evicted: list[_Id] = []


def register_to_bytes(register: StatementStore) -> bytes:
    """The bytes that ``register_from_bytes`` reads."""
    state = register.state
    kept = {
        "statements": [one.encode() for one in register.statements()],
        "versions": [[name, version, one] for name, held in state.versions.items() for version, one in held.items()],
        "accepted": [[one, fact.signer, fact.accepted_s] for one, fact in state.accepted.items()],
        "deployers": [[one, deployer.key] for one, deployer in state.deployers.items()],
        "evidence": [[one, int(deployer.evidence)] for one, deployer in state.deployers.items()],
        "untrusted_keys": list(state.untrusted_keys),
        "untrusted": list(state.untrusted),
        "overridden": list(state.overridden),
        "removed": list(state.removed),
        "superseded": list(state.superseded),
        "evicted": list(state.evicted),
        "alarms": [[one.name, one.version, one.trusted, one.offered] for one in state.alarms],
        "last_signed": state.last_signed_s,
    }
    body = pack(kept)
    return bytes([REGISTER_VERSION]) + blake3(body).digest(_CHECKSUM_BYTES) + body


def snapshot(register: StatementStore) -> tuple[bytes, int]:
    """The bytes to keep, and the revision that orders them among all snapshots of this store."""
    return register_to_bytes(register), register.revision


def register_from_bytes(kept: bytes) -> StatementStore:
    """The store that was kept. Raises RegisterFormatError (``E_STORE_VERSION``, ``E_STORE_FORMAT``)."""
    if kept and kept[0] != REGISTER_VERSION:
        raise RegisterFormatError(
            f"the statements file has version {kept[0]}, supported {REGISTER_VERSION}: a later gossipd wrote it, or it "
            f"is damaged{_CURE}",
            code="E_STORE_VERSION",
        )
    body = kept[1 + _CHECKSUM_BYTES :]
    if blake3(body).digest(_CHECKSUM_BYTES) != kept[1 : 1 + _CHECKSUM_BYTES]:
        raise RegisterFormatError(f"the checksum of the statements file does not match: torn, or rotted{_CURE}")
    try:
        fields = unpack(
            body, array_items_max=NAMES_MAX * VERSIONS_KEPT_MAX, text_bytes_max=512, bytes_max=STATEMENT_BYTES
        )
        found = msgspec.convert(fields, _Kept, builtin_types=(bytes,))
        statements = [Statement.decode(wire) for wire in found.statements]
    except (ManifestError, msgspec.ValidationError) as error:
        raise RegisterFormatError(f"the statements file is damaged: {error}{_CURE}") from None
    state = RegisterState(last_signed_s=found.last_signed)
    for name, version, deployment in found.versions:
        state.versions.setdefault(name, {})[version] = DeploymentId(deployment)
    if found.accepted is None:
        older = [one for kept_versions in state.versions.values() for one in kept_versions.values()]
        state.accepted = {one: AcceptedManifest(b"", 0) for one in older}
        statements = [one for one in statements if one.deployment in state.accepted]
    else:
        state.accepted = {DeploymentId(one): AcceptedManifest(signer, at) for one, signer, at in found.accepted}
    state.statements = {one.deployment: one for one in statements if one.epoch <= EPOCH_LIMIT}
    state.deployers = {
        one.deployment: after_word(None, one.signer, one.epoch) for one in statements if one.verb is Verb.DEPLOY
    }
    evidence = dict(found.evidence)  # an older gossipd did not tell words of epoch 1 from others
    state.deployers |= {
        DeploymentId(one): Deployer(key, evidence.get(one, Evidence.LATER_WORD)) for one, key in found.deployers
    }
    state.untrusted_keys = dict.fromkeys(found.untrusted_keys)
    state.untrusted = {DeploymentId(one): None for one in found.untrusted}
    state.overridden = dict.fromkeys(found.overridden)
    state.removed = {DeploymentId(one): None for one in found.removed}
    state.superseded = {DeploymentId(one): None for one in found.superseded}
    state.evicted = {DeploymentId(one): None for one in found.evicted}
    state.alarms = {
        Equivocation(name, version, DeploymentId(trusted), DeploymentId(offered)): None
        for name, version, trusted, offered in found.alarms
    }
    return StatementStore(state)
