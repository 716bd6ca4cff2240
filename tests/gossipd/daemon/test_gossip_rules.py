"""What a statement must be before membership keeps it or passes it on."""

from __future__ import annotations

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.daemon.gossip_rules import GossipRules
from gossipd.deployment.statement import EPOCH_MAX, Statement, Verb, sign_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.keys import SecretKey
from membership.events import PayloadKind
from membership.host_rules import Verdict

KEY, STRANGER = SecretKey(b"s" * 32), SecretKey(b"x" * 32)
SIGNER = KEY.public.ed25519
DEPLOYMENT = DeploymentId(b"d" * 32)
NOW_S = 1_800_000_000


def statement(*, epoch: int = 1, verb: Verb = Verb.DEPLOY, key: SecretKey = KEY) -> Statement:
    return sign_statement(key, DEPLOYMENT, epoch=epoch, verb=verb, manifest_bytes=100, now_s=NOW_S)


def rules(known: Statement | None = None) -> GossipRules:
    store = StatementStore()
    if known is not None:
        store.hear(known, {SIGNER})
    return GossipRules(store, {SIGNER}, wall_clock=lambda: NOW_S)


def judged(one: Statement, *, version: int | None = None, key: bytes = DEPLOYMENT, wire: bytes = b"") -> Verdict | None:
    rank = one.rank if version is None else version
    return rules().judge(PayloadKind.STATEMENT, key, rank, wire or one.encode())


def test_a_statement_counts_as_its_signers() -> None:
    assert judged(statement()) == Verdict(SIGNER, is_known=True)


def test_a_statement_of_an_unknown_signer_is_kept_back() -> None:
    assert judged(statement(key=STRANGER)) == Verdict(STRANGER.public.ed25519, is_known=False)


@pytest.mark.parametrize("version", [0, 3, 2**63 - 1])
def test_a_version_that_is_not_the_statements_rank_is_refused(version: int) -> None:
    assert judged(statement(), version=version) is None


def test_another_deployments_key_is_refused() -> None:
    assert judged(statement(), key=b"e" * 32) is None


@pytest.mark.parametrize("wire", [b"x", statement().encode()[:-1] + b"!", b"\x02" + statement().encode()[1:]])
def test_bytes_that_nobody_signed_are_refused(wire: bytes) -> None:
    assert judged(statement(), wire=wire) is None


@pytest.mark.parametrize(
    ("known", "epoch", "counts"),
    [(0, NOW_S, True), (0, NOW_S + 1_001, False), (NOW_S, NOW_S + 1_000, True), (NOW_S, NOW_S + 1_001, False),
     (5, EPOCH_MAX, False), (0, EPOCH_MAX, False)],
)  # fmt: skip
def test_an_epoch_steps_or_is_what_the_clock_explains(known: int, epoch: int, counts: bool) -> None:
    one = statement(epoch=epoch, verb=Verb.CANCEL)
    judge = rules(statement(epoch=known) if known else None).judge
    assert (judge(PayloadKind.STATEMENT, DEPLOYMENT, one.rank, one.encode()) is not None) is counts


def test_a_boot_number_is_at_most_an_hour_ahead_of_the_clock() -> None:
    assert rules().latest_boot() == NOW_S + 3_600
