"""What a node believes: the last word on each deployment, and which versions it trusts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.ids import DeploymentId
from gossipd.core.versions import step_version
from gossipd.deployment import statement_store as register_module
from gossipd.deployment.deployer import CONTESTED_HEAD
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_file import RegisterFormatError, register_from_bytes, register_to_bytes
from gossipd.deployment.statement_store import Acceptance, Equivocation, Heard, StatementStore
from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import pack_about
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, open_manifest, seal_manifest
from gossipd.manifest.strict_msgpack import pack
from tests.gossipd.manifest.making import PUBLISHER, STRANGER, draft, manifest

NOW_S = 1_790_000_100.0
OTHER_NODE = SecretKey(b"another node's seed of 32 bytes.")
SIGNERS = frozenset([PUBLISHER.public.ed25519, OTHER_NODE.public.ed25519])


def a_deployment(number: int) -> DeploymentId:
    return DeploymentId(number.to_bytes(32, "big"))


def word(
    number: int = 1, epoch: int = 1, verb: Verb = Verb.DEPLOY, secret: SecretKey = PUBLISHER, now_s: float = 5.0
) -> Statement:
    return sign_statement(secret, a_deployment(number), epoch=epoch, verb=verb, manifest_bytes=100, now_s=now_s)


def register(*words: Statement) -> StatementStore:
    made = StatementStore()
    for one in words:
        made.hear(one, SIGNERS)
    return made


def ranks(made: StatementStore) -> dict[DeploymentId, int]:
    return {one.deployment: one.rank for one in made.statements()}


def refusal(made: StatementStore, offered: Manifest, now_s: float = NOW_S) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        made.accept(offered, now_s)
    return caught.value


# ---- statements ----


def test_a_word_is_news_once_and_later_words_win() -> None:
    made = register()
    assert made.next_epoch(a_deployment(1), Verb.CANCEL) == 1
    assert made.hear(word(), SIGNERS) is Heard.NEWS
    assert made.hear(word(), SIGNERS) is Heard.KNOWN
    assert made.hear(word(verb=Verb.CANCEL), SIGNERS) is Heard.NEWS
    assert made.hear(word(), SIGNERS) is Heard.OLDER
    assert made.next_epoch(a_deployment(1), Verb.CANCEL) == 2
    assert made.hear(word(epoch=2), SIGNERS) is Heard.NEWS
    assert made.statement(a_deployment(1)) == word(epoch=2)


def test_a_stranger_s_word_is_refused_until_it_may_sign() -> None:
    made = register()
    with pytest.raises(ManifestError) as caught:
        made.hear(word(secret=STRANGER), SIGNERS)
    assert caught.value.code == "E_KEY_UNKNOWN"
    assert made.statements() == ()
    assert made.hear(word(secret=STRANGER), [STRANGER.public.ed25519]) is Heard.NEWS


def test_words_of_a_member_that_was_forgotten_are_kept_and_can_be_said_again() -> None:
    made = register(word(1), word(2, secret=OTHER_NODE))
    left = [PUBLISHER.public.ed25519]
    assert made.orphans(left) == (word(2, secret=OTHER_NODE),)
    assert made.hear(word(2, epoch=made.next_epoch(a_deployment(2), Verb.DEPLOY)), left) is Heard.NEWS
    assert made.orphans(left) == ()


WORDS = st.lists(
    st.builds(
        word,
        number=st.integers(1, 4),
        epoch=st.integers(1, 3),
        verb=st.sampled_from(Verb),
        secret=st.sampled_from([PUBLISHER, OTHER_NODE]),
    ),
    max_size=12,
)


@given(WORDS, st.integers())
def test_all_nodes_end_alike_whatever_they_hear_in_whatever_order_and_however_often(
    words: list[Statement], seed: int
) -> None:
    again = [*words, *words[: len(words) // 2]]
    Random(seed).shuffle(again)
    one, other = register(*words), register(*again)
    assert ranks(one) == ranks(other)
    for statement in one.statements():
        assert other.hear(statement, SIGNERS) is Heard.KNOWN


def test_two_nodes_that_tell_each_other_everything_believe_the_same() -> None:
    one, other = register(word(1), word(2, epoch=2)), register(word(2), word(3, verb=Verb.CANCEL))
    assert ranks(one) != ranks(other)
    for statement in other.statements():
        one.hear(statement, SIGNERS)
    for statement in one.statements():
        other.hear(statement, SIGNERS)
    assert one.statements() == other.statements() == (word(1), word(2, epoch=2), word(3, verb=Verb.CANCEL))


def test_a_statement_that_is_withdrawn_leaves_the_one_before() -> None:
    made = register(word(epoch=1))
    later, last = word(epoch=2), word(epoch=3)
    deployer = made.deployer(later.deployment)
    made.hear(later, SIGNERS)
    made.withdraw(later, word(epoch=1), deployer)
    assert made.statements() == (word(epoch=1),)
    made.hear(last, SIGNERS)
    made.withdraw(later, word(epoch=1), deployer)
    assert made.statements() == (last,), "another has come since"
    assert made.deployer(later.deployment) == deployer
    made.withdraw(last, None, None)
    assert made.statements() == ()
    assert made.deployer(later.deployment) is None


def test_the_oldest_words_are_forgotten_first_the_same_ones_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "STATEMENTS_MAX", 5)
    words = [word(number, now_s=1000 + number) for number in range(1, 9)]
    forwards, backwards = register(*words), register(*reversed(words))
    assert forwards.statements() == backwards.statements()
    assert [one.deployment for one in forwards.statements()] == [a_deployment(number) for number in range(4, 9)]
    assert forwards.hear(words[0], SIGNERS) is Heard.OLDER, "told again what it forgot, it does not take it for news"


def test_a_date_of_long_ago_makes_no_deployment_the_first_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "STATEMENTS_MAX", 2)
    victim = manifest(version=9)
    made = register()
    made.accept(victim, NOW_S)
    lie = sign_statement(PUBLISHER, victim.id, epoch=1, verb=Verb.DEPLOY, manifest_bytes=9, now_s=0.0)
    for one in (word(1, now_s=NOW_S - 2), lie, word(2, now_s=NOW_S - 1)):
        made.hear(one, SIGNERS)
    assert made.statement(victim.id) == lie
    assert made.statement(a_deployment(1)) is None


# ---- versions ----


def test_versions_of_a_name_only_go_up() -> None:
    made = register()
    assert made.accept(manifest(version=7), NOW_S) is Acceptance.NEW
    assert made.accept(manifest(version=9), NOW_S) is Acceptance.NEW
    error = refusal(made, manifest(version=8))
    assert error.sentence == f"E_ROLLBACK: {manifest().name}: offered 8, trusted 9"
    assert made.accept(manifest(version=1, name="other"), NOW_S) is Acceptance.NEW


def test_a_step_that_is_too_old_is_told_as_steps_are() -> None:
    made = register()
    made.accept(manifest(version=step_version(250, 2)), NOW_S)
    error = refusal(made, manifest(version=300, about=pack_about({"step": 300})))
    assert error.sentence == f"E_ROLLBACK: {manifest().name}: offered 300, trusted 250.2"


def test_what_this_host_accepted_before_is_no_rollback() -> None:
    made = register()
    made.accept(manifest(version=7), NOW_S)
    made.accept(manifest(version=9), NOW_S)
    restarted = register_from_bytes(register_to_bytes(made))
    assert restarted.accept(manifest(version=7), NOW_S) is Acceptance.ALREADY
    assert refusal(restarted, manifest(version=6)).code == "E_ROLLBACK"


def test_the_same_version_with_other_content_is_an_alarm_that_keeps_both() -> None:
    made = register()
    first, second = manifest(version=3), manifest(version=3, salt=b"changed")
    made.accept(first, NOW_S)
    before = made.revision
    assert refusal(made, second).code == "E_EQUIVOCATION"
    assert made.alarms() == (Equivocation("org/model", 3, first.id, second.id),)
    assert made.revision == before + 1
    assert refusal(made, second).code == "E_EQUIVOCATION"
    assert len(made.alarms()) == 1
    assert made.state.versions["org/model"] == {3: first.id}
    assert made.accept(first, NOW_S) is Acceptance.ALREADY


def test_an_old_version_with_other_content_is_an_alarm_too() -> None:
    made = register()
    made.accept(manifest(version=3), NOW_S)
    made.accept(manifest(version=4), NOW_S)
    assert refusal(made, manifest(version=3, salt=b"changed")).code == "E_EQUIVOCATION"


def test_expiry_is_judged_once() -> None:
    made = register()
    short_lived = manifest(version=1, expires_s=1_790_000_500)
    made.accept(short_lived, NOW_S)
    assert made.accept(short_lived, NOW_S + 10_000) is Acceptance.ALREADY
    assert refusal(register(), short_lived, NOW_S + 10_000).code == "E_EXPIRED"


def test_a_clock_set_back_does_not_revive_what_has_expired() -> None:
    made = register()
    made.accept(manifest(version=1, created_s=1_790_000_000), NOW_S)
    stale = manifest(name="other", created_s=1_000, expires_s=1_789_999_999)
    assert refusal(made, stale, now_s=2_000.0).code == "E_EXPIRED"


def test_one_key_does_not_use_up_the_names_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "NAMES_MAX", 5)
    monkeypatch.setattr(register_module, "NAMES_PER_SIGNER_MAX", 3)

    def by_another(name: str) -> Manifest:
        return open_manifest(seal_manifest(draft((9,), name=name), STRANGER), [STRANGER.public.ed25519])

    made = register()
    for name in ("a", "b", "c"):
        made.accept(manifest(name=name), NOW_S)
    assert "of one key max=3" in str(refusal(made, manifest(name="d")))
    made.accept(manifest(name="a", version=7), NOW_S)
    for name in ("d", "e"):
        made.accept(by_another(name), NOW_S)
    assert refusal(made, by_another("f")).code == "E_LIMIT"


def test_a_refused_manifest_leaves_nothing_behind() -> None:
    made = register()
    refusal(made, manifest(created_s=1_790_009_999))
    assert made.state.versions == {}
    assert made.revision == 0


def test_memory_is_bounded_but_the_highest_version_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "VERSIONS_KEPT_MAX", 2)
    monkeypatch.setattr(register_module, "NAMES_MAX", 2)
    monkeypatch.setattr(register_module, "REMOVED_MAX", 2)
    monkeypatch.setattr(register_module, "ALARMS_MAX", 2)
    made = register()
    for version in range(5):
        made.accept(manifest(version=version), NOW_S)
    assert list(made.state.versions["org/model"]) == [3, 4]
    assert refusal(made, manifest(version=1, salt=b"new")).code == "E_ROLLBACK"
    assert made.accept(manifest(version=1), NOW_S) is Acceptance.ALREADY, "that it was accepted is a fact"
    made.accept(manifest(name="b"), NOW_S)
    assert refusal(made, manifest(name="c")).code == "E_LIMIT"
    for number in range(5):
        made.mark_removed(a_deployment(number))
        refusal(made, manifest(version=4, salt=bytes([number])))
    assert [made.is_removed(a_deployment(number)) for number in range(5)] == [False, False, False, True, True]
    assert len(made.alarms()) == 2


# ---- removed ----


def test_removed_stays_removed_until_the_operator_changes_their_mind() -> None:
    made = register(word(1))
    made.mark_removed(a_deployment(1))
    made.hear(word(1, epoch=2), SIGNERS)
    made = register_from_bytes(register_to_bytes(made))
    assert made.is_removed(a_deployment(1))
    made.clear_removed(a_deployment(1))
    assert not made.is_removed(a_deployment(1))


def test_every_change_raises_the_revision_and_nothing_else_does() -> None:
    made = register()
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: made.hear(word(), SIGNERS), 2),  # the word, and who deployed it
        (lambda: made.hear(word(), SIGNERS), 2),
        (lambda: made.note_order(word().deployment, word().signer), 2),
        (lambda: made.note_told(word().deployment, CONTESTED_HEAD), 3),
        (lambda: made.note_told(word().deployment, CONTESTED_HEAD), 3),
        (lambda: made.accept(manifest(), NOW_S), 4),
        (lambda: made.accept(manifest(), NOW_S), 4),
        (lambda: made.mark_removed(a_deployment(1)), 5),
        (lambda: made.clear_removed(a_deployment(1)), 6),
        (lambda: made.clear_removed(a_deployment(1)), 6),
    ]
    for step, revision in steps:
        step()
        assert made.revision == revision


# ---- kept ----


def full_register() -> StatementStore:
    made = register(word(1), word(2, verb=Verb.CANCEL, epoch=4))
    made.accept(manifest(), NOW_S)
    made.mark_removed(a_deployment(9))
    made.untrust(b"k" * 16, None)
    made.untrust(b"", a_deployment(3))
    made.override(manifest().name)
    with pytest.raises(ManifestError):
        made.accept(manifest(salt=b"changed"), NOW_S)
    return made


def test_everything_that_is_believed_is_kept() -> None:
    made = full_register()
    kept = register_from_bytes(register_to_bytes(made))
    assert kept.state == made.state
    assert register_to_bytes(kept) == register_to_bytes(made)


def test_a_torn_or_rotted_file_is_not_believed() -> None:
    kept = register_to_bytes(full_register())
    for at in range(len(kept)):
        altered = bytearray(kept)
        altered[at] ^= 0x10
        with pytest.raises(RegisterFormatError):
            register_from_bytes(bytes(altered))
        with pytest.raises(RegisterFormatError):
            register_from_bytes(kept[:at])


def test_a_newer_file_is_named_as_such() -> None:
    with pytest.raises(RegisterFormatError) as caught:
        register_from_bytes(b"\x02" + register_to_bytes(StatementStore())[1:])
    assert caught.value.code == "E_STORE_VERSION"


def test_the_file_of_an_older_gossipd_is_read_without_what_was_never_accepted() -> None:
    made = StatementStore()
    made.accept(manifest(), NOW_S)
    made.hear(sign_statement(PUBLISHER, manifest().id, epoch=1, verb=Verb.DEPLOY, manifest_bytes=9, now_s=5.0), SIGNERS)
    made.hear(word(1), SIGNERS)
    older = {"statements", "versions", "removed", "alarms", "last_signed"}
    fields = {key: value for key, value in msgspec.msgpack.decode(register_to_bytes(made)[17:]).items() if key in older}
    body = pack(fields)
    kept = register_from_bytes(bytes([1]) + blake3(body).digest(16) + body)
    assert [one.deployment for one in kept.statements()] == [manifest().id]
    assert kept.is_proven(manifest().id)
    assert kept.authors(manifest().id).deployer == PUBLISHER.public.ed25519
    assert kept.accept(manifest(), NOW_S) is Acceptance.ALREADY
    assert kept.authors(manifest().id).publisher == manifest().signer, "it is written down when it is opened again"


def test_an_older_gossipd_reads_the_file_too() -> None:
    fields = msgspec.msgpack.decode(register_to_bytes(full_register())[17:])
    assert {"statements", "versions", "removed", "alarms", "last_signed"} < set(fields)
    assert register_to_bytes(full_register())[0] == 1
