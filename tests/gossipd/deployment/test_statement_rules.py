"""One judgement of statements for membership and the deployment brain."""

from __future__ import annotations

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_rules import ISSUED_AHEAD_MAX_S, check_issued, judge_statement
from gossipd.deployment.statement_store import Heard, StatementStore
from gossipd.identity.cancel_rights import Authors
from gossipd.identity.keys import SecretKey
from gossipd.manifest.errors import ManifestError

MEMBER, STRANGER = SecretKey(b"m" * 32), SecretKey(b"x" * 32)
SIGNERS = {MEMBER.public.ed25519}
DEPLOYMENT = DeploymentId(b"d" * 32)
NOW_S = 1_800_000_000.0


class Rights:
    def __init__(self, *, allows: bool) -> None:
        self.allows = allows

    def may_cancel(self, signer: bytes, authors: Authors) -> bool:
        return self.allows


def signed(epoch: int = 1, verb: Verb = Verb.DEPLOY, key: SecretKey = MEMBER, now_s: float = NOW_S) -> Statement:
    return sign_statement(key, DEPLOYMENT, epoch=epoch, verb=verb, manifest_bytes=9, now_s=now_s)


def refusal(statement: Statement, statements: StatementStore, rights: Rights) -> str:
    with pytest.raises(ManifestError) as caught:
        judge_statement(statement, statements, SIGNERS, rights)
    return caught.value.code


def test_a_stranger_signs_nothing() -> None:
    assert refusal(signed(key=STRANGER), StatementStore(), Rights(allows=True)) == "E_KEY_UNKNOWN"


def test_a_cancel_needs_a_right_where_its_manifest_is_known() -> None:
    statements = StatementStore()
    cancel = signed(2, Verb.CANCEL)
    assert judge_statement(cancel, statements, SIGNERS, Rights(allows=False)) is Heard.NEWS, "judged again later"
    statements.hear(signed(), SIGNERS)
    assert refusal(cancel, statements, Rights(allows=False)) == "E_MAY_NOT_CANCEL"
    assert judge_statement(cancel, statements, SIGNERS, Rights(allows=True)) is Heard.NEWS


def test_a_statement_may_be_issued_a_little_ahead_of_our_clock() -> None:
    check_issued(signed(now_s=NOW_S + ISSUED_AHEAD_MAX_S), NOW_S)
    with pytest.raises(ManifestError):
        check_issued(signed(now_s=NOW_S + ISSUED_AHEAD_MAX_S + 1), NOW_S)
