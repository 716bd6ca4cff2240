"""What a statement must be before membership keeps it or passes it on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.daemon.audit_gossip import HeadRules
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.daemon.gossip_rules import (
    STATEMENTS_BURST,
    STATEMENTS_FIRST_BURST,
    STATEMENTS_FIRST_S,
    STATEMENTS_PER_S,
    GossipRules,
)
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.progress_record import HostState, Progress
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_progress import ProgressKey, ProgressWriter, sign_progress
from gossipd.deployment.statement import EPOCH_FIRST_MAX, EPOCH_LIMIT, Statement, Verb, sign_statement
from gossipd.deployment.statement_store import AcceptedManifest, StatementStore
from gossipd.identity.keys import SecretKey
from membership.event_store import WRITERS_SHARE
from membership.events import PayloadKind
from membership.host_rules import Verdict
from membership.member import NodeId, node_id
from membership.settings import SwimSettings

KEY, OTHER, STRANGER = SecretKey(b"s" * 32), SecretKey(b"t" * 32), SecretKey(b"x" * 32)
SIGNER = KEY.public.ed25519
DEPLOYMENT = DeploymentId(b"d" * 32)
REFUSED: list[tuple[bytes | None, str]] = []
WRITERS = {
    node_id(one.public.ed25519): ProgressWriter(one.public.ed25519, signs=True, began_s=0) for one in (KEY, OTHER)
}
NOW_S = 1_800_000_000


class StoppedClocks:
    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_s(self) -> float:
        return NOW_S

    def monotonic_s(self) -> float:
        return self.now_s


def statement(
    *, epoch: int = 1, verb: Verb = Verb.DEPLOY, key: SecretKey = KEY, deployment: DeploymentId = DEPLOYMENT
) -> Statement:
    return sign_statement(key, deployment, epoch=epoch, verb=verb, manifest_bytes=100, now_s=NOW_S)


def rules(
    known: Statement | None = None, clock: ClusterClock | None = None, clocks: StoppedClocks | None = None
) -> GossipRules:
    store = StatementStore()
    if known is not None:
        store.hear(known, {SIGNER})
    roster = SimpleNamespace(
        signers={SIGNER, OTHER.public.ed25519}, may_cancel=lambda signer, authors: False, host_count=1_000, own=b"own",
        progress_writer=WRITERS.get,
    )  # fmt: skip
    heads = SimpleNamespace(judge=lambda key, version, payload: Verdict(key))
    said = SimpleNamespace(word_refused=lambda signer, code: REFUSED.append((signer, code)))
    return GossipRules(
        store,
        cast(ClusterRoster, roster),
        ClusterProgress(),
        cast(HeadRules, heads),
        said,
        clocks=clocks or StoppedClocks(),
        cluster_clock=clock,
    )


def judged(one: Statement, *, version: int | None = None, key: bytes = DEPLOYMENT, wire: bytes = b"") -> Verdict | None:
    rank = one.rank if version is None else version
    return rules().judge(PayloadKind.STATEMENT, key, rank, wire or one.encode())


def test_a_statement_counts_as_its_signers() -> None:
    assert judged(statement()) == Verdict(SIGNER, is_known=True)


def test_a_statement_of_an_unknown_signer_is_kept_back() -> None:
    assert judged(statement(key=STRANGER)) == Verdict(STRANGER.public.ed25519, is_known=False)


def test_a_word_on_a_superseded_version_is_over_and_nobodys_fault() -> None:
    REFUSED.clear()
    judging, one = rules(), statement()
    judging._statements.supersede(DEPLOYMENT)
    verdict = judging.judge(PayloadKind.STATEMENT, DEPLOYMENT, one.rank, one.encode())
    assert verdict == Verdict(SIGNER, is_over=True)
    assert not REFUSED


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
    [(0, EPOCH_FIRST_MAX, True), (0, EPOCH_FIRST_MAX + 1, False), (7, 1_007, True), (7, 1_008, False),
     (5, EPOCH_LIMIT, False), (0, EPOCH_LIMIT, False)],
)  # fmt: skip
def test_an_epoch_is_a_few_steps_from_the_last_one(known: int, epoch: int, counts: bool) -> None:
    one = statement(epoch=epoch)
    judge = rules(statement(epoch=known) if known else None).judge
    assert (judge(PayloadKind.STATEMENT, DEPLOYMENT, one.rank, one.encode()) is not None) is counts


def test_what_is_refused_is_written_down_by_signer_and_code() -> None:
    REFUSED.clear()
    one = sign_statement(KEY, DEPLOYMENT, epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=NOW_S + 601)
    assert judged(one) is None
    assert judged(statement(), wire=b"x") is None
    assert judged(statement(key=STRANGER)) is not None, "a joiner's, perhaps"
    assert [signer for signer, _ in REFUSED] == [SIGNER, None]
    assert all(code.startswith("E_") for _, code in REFUSED)


def about(
    number: int, key: SecretKey = KEY, *, altered: bool = False, verb: Verb = Verb.DEPLOY
) -> tuple[bytes, int, bytes]:
    deployment = DeploymentId(number.to_bytes(32, "big"))
    one = statement(key=key, deployment=deployment, epoch=1 + (verb is not Verb.DEPLOY), verb=verb)
    wire = one.encode()
    return one.deployment, one.rank, wire[:-1] + bytes((wire[-1] ^ altered,))


def spent(clocks: StoppedClocks) -> GossipRules:
    """Rules whose one signer has said all that it may."""
    judging = rules(clocks=clocks)
    clocks.now_s = STATEMENTS_FIRST_S
    for number in range(int(STATEMENTS_BURST)):
        assert judging.judge(PayloadKind.STATEMENT, *about(number)) == Verdict(SIGNER)
    return judging


def test_one_signer_has_so_many_statements_looked_at_and_no_more() -> None:
    clocks = StoppedClocks()
    judging = spent(clocks)
    assert judging.judge(PayloadKind.STATEMENT, *about(1_000)) == Verdict(SIGNER, is_too_much=True)
    assert judging.judge(PayloadKind.STATEMENT, *about(1_000, altered=True)) == Verdict(SIGNER, is_too_much=True)
    assert judging.judge(PayloadKind.STATEMENT, *about(1_000, OTHER)) == Verdict(OTHER.public.ed25519)
    clocks.now_s += 1.0
    found = [judging.judge(PayloadKind.STATEMENT, *about(1_000 + number)) for number in range(100)]
    assert found.count(Verdict(SIGNER)) == STATEMENTS_PER_S


def test_what_is_said_again_uses_up_nothing_that_counts() -> None:
    clocks = StoppedClocks()
    judging = rules(statement(), clocks=clocks)
    judging._statements.supersede(DeploymentId(bytes(31) + b"!"))
    clocks.now_s = STATEMENTS_FIRST_S
    for number in range(2 * int(STATEMENTS_BURST)):
        judging.judge(PayloadKind.STATEMENT, *about(ord("!")))
        moot = judging.judge(PayloadKind.STATEMENT, *about(7, verb=Verb.CANCEL))
        judging.judge(PayloadKind.STATEMENT, *about(7, SecretKey(number.to_bytes(32, "big"))))
    assert moot == Verdict(SIGNER, is_too_much=True)
    assert judging.judge(PayloadKind.STATEMENT, *about(8)) == Verdict(SIGNER)
    later = statement(epoch=3)
    assert judging.judge(PayloadKind.STATEMENT, DEPLOYMENT, later.rank, later.encode()) == Verdict(SIGNER)
    unknown = judging.judge(PayloadKind.STATEMENT, *about(9, STRANGER))
    assert unknown == Verdict(STRANGER.public.ed25519, is_too_much=True), "they have one bound together"


def test_forged_statements_count_against_nobody_that_they_name() -> None:
    clocks = StoppedClocks()
    judging = rules(clocks=clocks)
    clocks.now_s = STATEMENTS_FIRST_S
    for number in range(int(STATEMENTS_BURST) + 1):
        assert judging.judge(PayloadKind.STATEMENT, *about(number, altered=True)) is None
    assert judging.judge(PayloadKind.STATEMENT, *about(0)) == Verdict(SIGNER)


def test_a_host_that_has_just_started_hears_all_that_others_keep_of_a_signer() -> None:
    judging = rules()
    found = [judging.judge(PayloadKind.STATEMENT, *about(number)) for number in range(int(STATEMENTS_FIRST_BURST))]
    assert set(found) == {Verdict(SIGNER)}
    assert len(found) == SwimSettings().statement_count_max // WRITERS_SHARE


def test_one_signer_cannot_keep_a_host_that_has_just_started_busy() -> None:
    clocks = StoppedClocks()
    judging = rules(clocks=clocks)
    found = []
    for second in range(int(STATEMENTS_FIRST_S)):
        clocks.now_s = float(second)
        found += [judging.judge(PayloadKind.STATEMENT, *about(200 * second + number)) for number in range(200)]
        if second == 1:
            assert judging.judge(PayloadKind.STATEMENT, *about(9_999, altered=True)) is None
    assert found.count(Verdict(SIGNER)) <= STATEMENTS_FIRST_BURST + STATEMENTS_FIRST_S * STATEMENTS_PER_S
    assert judging.judge(PayloadKind.STATEMENT, *about(9_999)) == Verdict(SIGNER, is_too_much=True)
    assert judging.judge(PayloadKind.STATEMENT, *about(9_999, OTHER)) == Verdict(OTHER.public.ed25519)


def test_what_a_signer_said_at_first_leaves_it_what_it_may_say_later() -> None:
    clocks = StoppedClocks()
    judging = rules(clocks=clocks)
    for number in range(int(STATEMENTS_FIRST_BURST)):
        judging.judge(PayloadKind.STATEMENT, *about(number))
    clocks.now_s = STATEMENTS_FIRST_S
    assert judging.judge(PayloadKind.STATEMENT, *about(9_999)) == Verdict(SIGNER)


def test_a_cancel_that_no_host_would_obey_stands_in_nobodys_way() -> None:
    one = statement(epoch=8, verb=Verb.CANCEL)
    assert rules(statement(epoch=7)).judge(PayloadKind.STATEMENT, DEPLOYMENT, one.rank, one.encode()) is None


def test_a_cancel_before_its_manifest_is_kept_back_until_it_can_be_judged() -> None:
    one = statement(epoch=EPOCH_FIRST_MAX, verb=Verb.CANCEL)
    assert judged(one) == Verdict(SIGNER, is_known=False), "it stands in no statement's way"
    roster = SimpleNamespace(signers={SIGNER}, may_cancel=lambda signer, authors: True)
    nothing: Any = None
    clients = GossipRules(
        StatementStore(), cast(ClusterRoster, roster), ClusterProgress(), nothing, nothing, clocks=StoppedClocks()
    )
    assert clients.judge(PayloadKind.STATEMENT, DEPLOYMENT, one.rank, one.encode()) == Verdict(SIGNER)


def test_a_statement_from_the_future_is_refused() -> None:
    one = sign_statement(KEY, DEPLOYMENT, epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=NOW_S + 601)
    assert judged(one) is None


def test_a_boot_number_is_at_most_an_hour_ahead_of_the_clock() -> None:
    assert rules().latest_boot() == NOW_S + 3_600


def progress(secret: SecretKey, number: int, *, by: SecretKey | None = None) -> tuple[bytes, int, bytes]:
    """Key, version and payload of a record of a host's."""
    key = ProgressKey(node_id(secret.public.ed25519), number.to_bytes(8, "big"), is_signed=True)
    version = NOW_S * 1000 + number
    return key.encode(), version, sign_progress(by or secret, key, version, Progress(state=HostState.COMPLETE))


def test_progress_counts_as_its_hosts_when_that_has_signed_it() -> None:
    node = node_id(SIGNER)
    assert rules().judge(PayloadKind.PROGRESS, *progress(KEY, 1)) == Verdict(node)
    assert rules().judge(PayloadKind.PROGRESS, *progress(KEY, 1, by=STRANGER)) is None
    unknown = Verdict(node_id(STRANGER.public.ed25519), is_known=False)
    assert rules().judge(PayloadKind.PROGRESS, *progress(STRANGER, 1)) == unknown
    assert rules().judge(PayloadKind.PROGRESS, NodeId(b"n" * 16), 1, b"?") is None


def test_a_host_that_tells_without_end_is_cut_short_and_no_other() -> None:
    judge, mate = rules().judge, SecretKey(b"t" * 32)
    believed = [judge(PayloadKind.PROGRESS, *progress(KEY, number)) for number in range(200)]
    assert [one for one in believed if one is not None and one.is_known] == [Verdict(node_id(SIGNER))] * 64
    assert None not in believed, "who passes it on has done nothing wrong"
    forged = [judge(PayloadKind.PROGRESS, *progress(mate, number, by=KEY)) for number in range(200)]
    assert not any(forged)
    assert judge(PayloadKind.PROGRESS, *progress(SecretKey(b"t" * 32), 2)) is not None, "only its own words count"


def test_a_writer_that_says_two_things_of_one_version_is_named() -> None:
    REFUSED.clear()
    key, version, other = progress(KEY, 1)
    named = ProgressKey.decode(key)
    known = sign_progress(KEY, named, version, Progress(state=HostState.FAILED))
    assert rules().told_twice(PayloadKind.PROGRESS, key, version, known, other)
    assert [(SIGNER, "E_TWO_WORDS")] == REFUSED
    forged = sign_progress(OTHER, named, version, Progress(state=HostState.COMPLETE))
    assert not rules().told_twice(PayloadKind.PROGRESS, key, version, known, forged)
    one, larger = statement(), sign_statement(
        KEY, DEPLOYMENT, epoch=1, verb=Verb.DEPLOY, manifest_bytes=200, now_s=NOW_S
    )  # fmt: skip
    assert rules().told_twice(PayloadKind.STATEMENT, DEPLOYMENT, one.rank, one.encode(), larger.encode())
    assert [(SIGNER, "E_TWO_WORDS")] * 2 == REFUSED


def test_a_statement_that_is_signed_again_says_the_same() -> None:
    REFUSED.clear()
    one = statement()
    for key in (KEY, OTHER):
        again = sign_statement(key, DEPLOYMENT, epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=NOW_S + 1)
        assert rules().told_twice(PayloadKind.STATEMENT, DEPLOYMENT, one.rank, one.encode(), again.encode())
    assert not REFUSED


def ahead(secret: SecretKey, by_s: int, *, by: SecretKey | None = None) -> tuple[bytes, int, bytes]:
    """A record of a host whose clock is ahead of ours."""
    key = ProgressKey(node_id(secret.public.ed25519), b"deployed", is_signed=True)
    version = (NOW_S + by_s) * 1000
    return key.encode(), version, sign_progress(by or secret, key, version, Progress(state=HostState.COMPLETE))


def test_records_that_others_date_hours_ahead_show_that_this_clock_is_behind() -> None:
    clock = ClusterClock()
    judge = rules(clock=clock).judge
    late = sign_statement(KEY, DEPLOYMENT, epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=NOW_S + 7_200)
    for secret in (KEY, SecretKey(b"t" * 32)):
        assert judge(PayloadKind.PROGRESS, *ahead(secret, 7_200)) is None
        assert judge(PayloadKind.STATEMENT, DEPLOYMENT, late.rank, late.encode()) is None
    clock.look(NOW_S, 0.0)
    assert clock.offset_s == -7_200
    assert judge(PayloadKind.PROGRESS, *ahead(KEY, 7_200)) == Verdict(node_id(SIGNER))
    assert judge(PayloadKind.STATEMENT, DEPLOYMENT, late.rank, late.encode()) == Verdict(SIGNER)


def test_an_old_record_that_is_sent_again_says_nothing_of_the_clock() -> None:
    clock, clocks = ClusterClock(), StoppedClocks()
    judging = rules(clock=clock, clocks=clocks)
    writer = node_id(SIGNER)
    kept = ClusterProgress()
    kept.record(writer, bytes(8), NOW_S * 1000, Progress(state=HostState.COMPLETE), now=0.0)
    judging._table = ClusterProgress.from_bytes(kept.to_bytes(), now=0.0, wall_s=NOW_S)
    key = ProgressKey(writer, b"anything", is_signed=True)
    for version in ((NOW_S - 7_200) * 1000, (NOW_S - 5) * 1000):
        told = sign_progress(KEY, key, version, Progress(state=HostState.COMPLETE))
        assert judging.judge(PayloadKind.PROGRESS, key.encode(), version, told) == Verdict(writer)
        clock.look(NOW_S, clocks.now_s)
        assert clock.hosts == 0
    told = sign_progress(KEY, key, NOW_S * 1000 + 5, Progress(state=HostState.COMPLETE))
    judging.judge(PayloadKind.PROGRESS, key.encode(), NOW_S * 1000 + 5, told)
    clock.look(NOW_S, clocks.now_s)
    assert clock.hosts == 1


def test_forged_records_and_unknown_hosts_say_nothing_of_the_clock() -> None:
    clock = ClusterClock()
    judge = rules(clock=clock).judge
    for secret in (KEY, SecretKey(b"t" * 32)):
        judge(PayloadKind.PROGRESS, *ahead(secret, 7_200, by=STRANGER))
    judge(PayloadKind.PROGRESS, *ahead(STRANGER, 7_200))
    clock.look(NOW_S, 0.0)
    assert clock.hosts == 0


def test_whether_all_sign_is_asked_of_the_members_again_only_when_they_have_changed() -> None:
    looks = 0

    class Directory:
        revision = 0
        unheard: frozenset[NodeId] = frozenset()

        def live(self) -> set[NodeId]:
            nonlocal looks
            looks += 1
            return set()

        def record(self, node: NodeId) -> None:
            raise AssertionError("nobody lives")

    directory = Directory()
    roster = ClusterRoster(cast(Any, directory), cast(Any, None))
    for _ in range(5):
        assert roster.all_sign_progress()
    assert looks == 1
    directory.revision += 1
    assert roster.all_sign_progress()
    assert looks == 2


def test_a_moot_word_said_again_takes_nothing_from_what_its_signer_says_of_others() -> None:
    clocks = StoppedClocks()
    made, other = rules(clocks=clocks), DeploymentId(b"o" * 32)
    clocks.now_s = 2 * STATEMENTS_FIRST_S
    store = made._statements
    for one in (DEPLOYMENT, other):
        store.state.accepted[one] = AcceptedManifest(b"p" * 32, NOW_S)
    store.hear(statement(), {SIGNER})
    made._roster.may_cancel = lambda signer, authors: authors.is_deployer(signer)  # type: ignore[method-assign]
    moot = statement(epoch=4, verb=Verb.ROLL_BACK, deployment=other)
    for _ in range(3 * int(STATEMENTS_BURST)):
        made.judge(PayloadKind.STATEMENT, other, moot.rank, moot.encode())
    cancel = statement(epoch=2, verb=Verb.CANCEL)
    assert made.judge(PayloadKind.STATEMENT, DEPLOYMENT, cancel.rank, cancel.encode()) == Verdict(SIGNER)
