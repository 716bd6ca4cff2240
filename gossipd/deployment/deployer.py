"""Who deployed a model, as far as one host knows: from words that it heard, orders given here, and what others tell.

What lives here: the value, and what each piece of evidence changes about it. What does not: what follows from it (the
right to cancel, ``identity.cancel_rights``), where it is kept (``statement_store``), and how hosts tell it
(``progress_record``, ``told_deployers``).

Nothing proves which of two members was first: a member can sign a deployment as soon as it knows the manifest's id,
name any time, and tell each host in another order. So a host that knows first hand, by a word of epoch 1 or by an order
given to itself, tells the others which deployer it knows. Where two hosts name two, the deployer is contested on all
hosts: what two members have deployed neither may cancel alone. Evidence comes in any order and is never taken back, so
all hosts end at the same answer. Rejected: the higher key, which a liar can look for; the earlier time, which it can
write; the majority, because a member can make up any number of members.

A word of a later epoch is weak evidence: who resumes or renews a deployment says it, too. It counts until a host tells.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

HEAD_BYTES = 8  # of the key; nobody finds another key with the same ones
CONTESTED_HEAD = bytes(HEAD_BYTES)


class Evidence(IntEnum):
    """How a host knows. The numbers are on the disk."""

    LATER_WORD = 1
    """It signed the first word that was heard here, which was not the first of all."""
    TOLD = 2
    """Hosts that know first hand tell of it, and none of another."""
    FIRST_HAND = 3
    """Its word of epoch 1 was heard here, or it gave the order here."""
    CONTESTED = 4
    """Two have deployed it."""


class Deployer(Struct, frozen=True):
    """``key``: its Ed25519 key, or the first 8 bytes where only others have told of it; of a contested one the key that
    was known first.
    """

    key: bytes
    evidence: Evidence

    @property
    def is_contested(self) -> bool:
        """Whether no member may cancel alone."""
        return self.evidence is Evidence.CONTESTED

    @property
    def told(self) -> bytes:
        """What this host tells of it, 8 bytes; nothing where it does not know first hand."""
        if self.is_contested:
            return CONTESTED_HEAD
        return self.key[:HEAD_BYTES] if self.evidence is Evidence.FIRST_HAND else b""


def after_word(known: Deployer | None, signer: bytes, epoch: int) -> Deployer:
    """A statement to deploy it was believed."""
    if epoch == 1:
        return after_order(known, signer)
    return known or Deployer(signer, Evidence.LATER_WORD)


def after_order(known: Deployer | None, signer: bytes) -> Deployer:
    """``signer`` has deployed it first, or here."""
    is_weak = known is None or known.evidence is Evidence.LATER_WORD
    if known is None or is_weak or (not known.is_contested and signer.startswith(known.key)):
        return Deployer(signer, Evidence.FIRST_HAND)
    return Deployer(known.key, Evidence.CONTESTED)


def after_told(known: Deployer | None, head: bytes) -> Deployer:
    """Another host tells, first hand, of the deployer whose key begins so, or that it is contested."""
    if head == CONTESTED_HEAD:
        return Deployer(b"" if known is None else known.key, Evidence.CONTESTED)
    if known is None or known.evidence is Evidence.LATER_WORD:
        return Deployer(head, Evidence.TOLD)
    return known if known.key.startswith(head) else Deployer(known.key, Evidence.CONTESTED)
