"""Whether a statement counts on this host: who signed it, may that signer say it, is its epoch within bounds.

What lives here: the one judgement, asked by membership before it keeps or passes on a statement
(``daemon.gossip_rules``) and by the deployment brain before it believes one. What does not: the bounds that the last
epoch sets (``statement_store``), roles (``identity.cancel_rights``). Were membership the laxer one, a statement that no
host believes would stand in the way of those that follow it.

The highest epochs are kept for those who may cancel: a member that deploys again and again must not use up the numbers
that a cancel needs.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from gossipd.core.ids import DeploymentId, short
from gossipd.deployment.statement import EPOCH_FIRST_MAX, ISSUED_MAX_S, Statement, Verb
from gossipd.deployment.statement_store import Heard, StatementStore
from gossipd.identity.cancel_rights import Authors
from gossipd.identity.trust import key_id
from gossipd.manifest.errors import ManifestError
from membership.bounds import fits

ISSUED_AHEAD_MAX_S = 600.0  # between the clocks of two hosts, and a statement's way


class CancelRights(Protocol):
    """Who may cancel, pause, roll back and remove everywhere, as this host is configured."""

    def may_cancel(self, signer: bytes, authors: Authors) -> bool:
        """Whether a statement of this signer's may cancel a deployment with these authors."""


def judge_statement(
    statement: Statement, statements: StatementStore, signers: Container[bytes], rights: CancelRights,
    *, publisher: bytes = b"",
) -> Heard:  # fmt: skip
    """What a statement with a proved signature would mean to this host; nothing is changed.

    Args:
        signers: Ed25519 keys that may sign statements.
        publisher: who signed the manifest, if that was verified a moment ago and is not in the store yet.
    Raises:
        ManifestError: ``E_KEY_UNKNOWN``, ``E_STATEMENT_BOUNDS``, ``E_MAY_NOT_CANCEL``. Fault: the signer.
    """
    authors = statements.authors(statement.deployment)
    authors = Authors(publisher or authors.publisher, authors.deployer)
    is_limited = statement.verb is not Verb.DEPLOY
    is_publishers = is_limited and statement.signer == authors.publisher
    heard = statements.judge(statement, (statement.signer,) if is_publishers else signers)
    # Before a manifest is verified here, nobody knows its publisher: then the brain asks again when it is.
    is_judged = heard is Heard.NEWS and (publisher != b"" or statements.is_proven(statement.deployment))
    if is_judged and statement.epoch > EPOCH_FIRST_MAX and not rights.may_cancel(statement.signer, authors):
        raise ManifestError(
            f"the statements on {short(statement.deployment)} have come to epoch {statement.epoch}: from there on only "
            "those count who may cancel it (security.may_cancel); deploy it with a client's key, or a new version",
            code="E_STATEMENT_BOUNDS",
        )
    if is_judged and is_limited and not rights.may_cancel(statement.signer, authors):
        raise ManifestError(
            f"key={short(key_id(statement.signer))} may not cancel, pause, roll back or remove "
            f"{short(statement.deployment)}: security.may_cancel allows none of its roles"
            f"{why_not(statement.deployment, statements)}",
            code="E_MAY_NOT_CANCEL",
        )
    return heard


def why_not(deployment: DeploymentId, statements: StatementStore) -> str:
    """The end of the sentence that refuses a statement, where there is more to say."""
    deployer = statements.deployer(deployment)
    if deployer is None or not deployer.is_contested:
        return ""
    return "; more than one host or client has deployed it, so none of them may alone"


def is_moot(statement: Statement, statements: StatementStore, rights: CancelRights) -> bool:
    """Whether a statement counts can be said only when its manifest is verified here and it is known who deployed it:
    anything but a deploy, by a member that perhaps has deployed it. Until then it must stand in the way of no other
    statement. So a newcomer hears of a deployment that its deployer has paused when it goes on.
    """
    deployment = statement.deployment
    is_open = not statements.is_proven(deployment) or statements.deployer(deployment) is None
    if statement.verb is Verb.DEPLOY or not is_open:
        return False
    return not rights.may_cancel(statement.signer, statements.authors(deployment))


def check_issued(statement: Statement, wall_s: float) -> None:
    """Refuse a statement from the future: those issued longest ago are forgotten first, so it would outlive all. Raises
    ManifestError ``E_STATEMENT_BOUNDS``."""
    latest_s = int(wall_s + ISSUED_AHEAD_MAX_S)
    if not fits(statement.issued_s, known=0, step=0, maximum=ISSUED_MAX_S, clock_bound=latest_s):
        ahead_s = statement.issued_s - wall_s
        raise ManifestError(f"a statement that is issued {ahead_s:.0f} s from now", code="E_STATEMENT_BOUNDS")
