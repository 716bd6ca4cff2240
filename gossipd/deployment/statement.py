"""A signed statement about one deployment: deploy it, cancel it, pause it, roll it back, or remove it.

What lives here: the value, its wire form, and which of two is the later. What does not: the statements that a node
knows (``statement_store``), and their transport.

Wire form, 150 bytes, little-endian::

    u8        version of this format, 1; any other is refused as E_SCHEMA_VERSION
    u8        verb: 1 deploy, 2 cancel, 3 pause, 4 roll back, 5 remove
    32 bytes  deployment
    u64       epoch, from 1
    u32       size of the manifest's envelope, so that a host without it knows how much to ask for
    u64       when it was issued, seconds since 1970 by its signer's clock: for people, and for forgetting the oldest
    32 bytes  the signer's Ed25519 public key
    64 bytes  signature over "gossipd-statement-1 " and everything before it

The key itself, not its id, is on the wire: a node must be able to check a statement before it has heard of the member
that signed it. ``statement_store`` knows the keys that may sign.

The last statement is the one of the highest ``rank``: higher epoch first, cancel before the others. Two different
statements of equal rank say the same thing, so either may be kept: a deploy that follows another word has an odd epoch,
and each of pause, roll back and remove even ones of its own (``epoch_after``). To deploy it again is also what resumes
it, or brings it back. Hosts of 0.1.0 refuse the verbs from 3 on; rejected: a pause under a key of its own, because a
newcomer would hear of the deployment first.

A roll back is a cancel that also moves ``current`` where it leads to this version. It is said of the version that is
left, not of the one that is wanted: hosts differ in what older versions they have, and a newer one needs no word.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache

from msgspec.structs import replace

from gossipd.core.hiding_struct import HidingStruct
from gossipd.core.ids import DeploymentId
from gossipd.identity.keys import SecretKey, verify
from gossipd.identity.trust import is_degenerate
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.manifest.errors import ManifestError
from membership.bounds import ceiling

STATEMENT_VERSION = 1
EPOCH_MAX = 2**32  # so that a rank fits every integer on the wire; one epoch a second lasts 136 years
EPOCH_LIMIT = ceiling(EPOCH_MAX)  # of those that count: what nobody can follow must not be the last word
EPOCH_FIRST_MAX = 1_000_000  # where none is known, and of those who may not cancel: far above what honest hosts reach
EPOCH_STEP_MAX = 1_000  # above the last one that is known: two parts of a cluster that were apart
ISSUED_MAX_S = 2**40  # year 36,812: leaves the sum with any interval inside 53 bits
_HEAD = struct.Struct("<BB32sQIQ32s")
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_WORD_BYTES = struct.calcsize("<BB32sQI")
STATEMENT_BYTES = _HEAD.size + _SIGNATURE_BYTES
_DOMAIN = b"gossipd-statement-1 "


class Verb(IntEnum):
    """What is to be done with the deployment."""

    DEPLOY = 1
    CANCEL = 2
    PAUSE = 3
    ROLL_BACK = 4
    REMOVE = 5


STOPS = frozenset({Verb.CANCEL, Verb.ROLL_BACK, Verb.REMOVE})
"""After these no host goes on to fetch it."""
_EVEN_EPOCHS = {Verb.PAUSE: 2, Verb.ROLL_BACK: 4, Verb.REMOVE: 0}  # modulo 6


class Statement(HidingStruct, frozen=True):
    """One statement. ``decode`` proves its signature; ``sign_statement`` makes one."""

    deployment: DeploymentId
    epoch: int
    verb: Verb
    manifest_bytes: int
    issued_s: int
    signer: bytes
    signature: bytes

    hidden = ("signature",)

    @property
    def rank(self) -> int:
        """The order of two statements on one deployment: the higher rank is the later word. Also their version under
        gossip."""
        return self.epoch * 2 + (self.verb is Verb.CANCEL)

    def encode(self) -> bytes:
        """The wire form."""
        return _head(self) + self.signature

    @classmethod
    def decode(cls, wire: bytes) -> Statement:
        """The statement, if the key that it names has signed it; whether that key may sign is not checked here. Raises
        ManifestError ``E_SCHEMA_VERSION``, ``E_DECODE`` or ``E_SIG_INVALID``. Membership's judgement and the deployment
        brain each ask for it, and a check of a signature costs more than all else: the last few are remembered."""
        return _decoded(wire)

    @classmethod
    def _from_wire(cls, wire: bytes) -> Statement:
        if not wire or wire[0] != STATEMENT_VERSION:
            found = wire[0] if wire else "none"
            raise ManifestError(f"statement version {found}, supported {STATEMENT_VERSION}", code="E_SCHEMA_VERSION")
        if len(wire) != STATEMENT_BYTES:
            raise ManifestError(f"a statement has {STATEMENT_BYTES} bytes, not {len(wire)}")
        _, verb, deployment, epoch, manifest_bytes, issued_s, signer = _HEAD.unpack_from(wire)
        if verb not in set(Verb):
            raise ManifestError(f"a statement has verb {verb}, known are 1 to 5")
        if not 1 <= epoch <= EPOCH_MAX:
            raise ManifestError(f"a statement has epoch {epoch}, must be 1 to {EPOCH_MAX}")
        if epoch % 6 != _EVEN_EPOCHS.get(Verb(verb), epoch % 6):
            raise ManifestError(f"a statement has verb {verb} and epoch {epoch}, which is another verb's")
        if not 1 <= manifest_bytes <= ENVELOPE_BYTES_MAX or issued_s > ISSUED_MAX_S:
            raise ManifestError("a statement has a manifest size or a time out of bounds")
        signature = wire[_HEAD.size :]
        if is_degenerate(signer) or not verify(signer, signature, _DOMAIN + wire[: _HEAD.size]):
            raise ManifestError("a statement's signature does not match its content", code="E_SIG_INVALID")
        return cls(DeploymentId(deployment), epoch, Verb(verb), manifest_bytes, issued_s, signer, signature)


def signer_of(wire: bytes) -> bytes:
    """The key that bytes name, which may be no statement, or one that another key has signed."""
    return wire[_HEAD.size - _KEY_BYTES : _HEAD.size]


def same_word(one: bytes, other: bytes) -> bool:
    """Whether two statements of one rank say the same, which need not have the same signer and time."""
    return one[:_WORD_BYTES] == other[:_WORD_BYTES]


def verb_of(wire: bytes) -> Verb | None:
    """The verb that bytes name, which may be no statement."""
    return Verb(wire[1]) if wire[1:2] and wire[1] in set(Verb) else None


@lru_cache(maxsize=512)  # all that wait for a member record, which are judged at each change of members
def _decoded(wire: bytes) -> Statement:
    return Statement._from_wire(wire)


def epoch_after(last: int, verb: Verb) -> int:
    """The epoch that a new statement has after one of epoch ``last`` (0: none)."""
    if verb is Verb.CANCEL:
        return last + 1
    if verb is Verb.DEPLOY:
        return last + 1 + last % 2
    return last + 1 + (_EVEN_EPOCHS[verb] - last - 1) % 6


def sign_statement(
    secret: SecretKey, deployment: DeploymentId, *, epoch: int, verb: Verb, manifest_bytes: int, now_s: float
) -> Statement:
    """A new statement. ``epoch`` is above the highest that was heard (``StatementStore.next_epoch``). Raises
    ManifestError ``E_STATEMENT_BOUNDS``: a peer may have told the numbers."""
    if not 1 <= epoch <= EPOCH_LIMIT:
        raise ManifestError(
            f"the statements on this deployment have come to epoch {epoch - 1}; publish a new version",
            code="E_STATEMENT_BOUNDS",
        )
    if not 1 <= manifest_bytes <= ENVELOPE_BYTES_MAX:
        raise ManifestError(f"a manifest of {manifest_bytes} bytes", code="E_STATEMENT_BOUNDS")
    issued_s = min(max(0, int(now_s)), ISSUED_MAX_S)
    bare = Statement(deployment, epoch, verb, manifest_bytes, issued_s, secret.public.ed25519, b"")
    return replace(bare, signature=secret.sign(_DOMAIN + _head(bare)))


def _head(statement: Statement) -> bytes:
    return _HEAD.pack(
        STATEMENT_VERSION, statement.verb, statement.deployment, statement.epoch, statement.manifest_bytes,
        statement.issued_s, statement.signer,
    )  # fmt: skip
