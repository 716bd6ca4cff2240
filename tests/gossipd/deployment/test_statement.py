"""One signed word: its wire form, and which of two is the last."""

from __future__ import annotations

import pytest
from msgspec import structs

from gossipd.core.ids import DeploymentId
from gossipd.deployment import statement as module
from gossipd.deployment.statement import (
    EPOCH_MAX,
    STATEMENT_BYTES,
    Statement,
    Verb,
    epoch_after,
    sign_statement,
    signer_of,
)  # fmt: skip
from gossipd.identity.keys import verify
from gossipd.manifest.errors import ManifestError
from tests.gossipd.manifest.making import PUBLISHER, STRANGER

DEPLOYMENT = DeploymentId(b"d" * 32)


def word(epoch: int = 1, verb: Verb = Verb.DEPLOY) -> Statement:
    return sign_statement(PUBLISHER, DEPLOYMENT, epoch=epoch, verb=verb, manifest_bytes=961_753, now_s=1_790_000_000.9)


def code_of(wire: bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        Statement.decode(wire)
    return caught.value.code


def test_what_was_signed_comes_back_and_fits_into_a_datagram_many_times() -> None:
    wire = word().encode()
    assert Statement.decode(wire) == word()
    assert len(wire) == STATEMENT_BYTES == 150
    assert word().signer == PUBLISHER.public.ed25519
    assert word().issued_s == 1_790_000_000


def test_a_signature_is_checked_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bytes] = []

    def counted(key: bytes, signature: bytes, message: bytes) -> bool:
        checked.append(key)
        return verify(key, signature, message)

    monkeypatch.setattr(module, "verify", counted)
    wire = word(epoch=777).encode()
    assert Statement.decode(wire) is Statement.decode(bytes(bytearray(wire)))
    assert checked == [signer_of(wire)]
    assert [code_of(wire[:-1] + b"!") for _ in range(2)] == ["E_SIG_INVALID"] * 2


def test_the_wire_form_is_kept_for_ever() -> None:
    assert word().encode().hex() == (
        "0101646464646464646464646464646464646464646464646464646464646464646401000000000000"
        "00d9ac0e00803bb16a00000000" + PUBLISHER.public.ed25519.hex() + word().signature.hex()
    )


def test_every_altered_or_missing_byte_is_found() -> None:
    wire = word().encode()
    for at in range(len(wire)):
        altered = bytearray(wire)
        altered[at] ^= 1
        assert code_of(bytes(altered)).startswith("E_"), at
        assert code_of(wire[:at]) in ("E_DECODE", "E_SCHEMA_VERSION")
    assert code_of(wire + b"\0") == "E_DECODE"


def test_an_unknown_version_is_refused_by_its_number() -> None:
    assert code_of(b"\x02" + word().encode()[1:]) == "E_SCHEMA_VERSION"


def test_a_signature_by_one_key_is_not_one_by_another() -> None:
    forged = structs.replace(word(), signer=STRANGER.public.ed25519)
    assert code_of(forged.encode()) == "E_SIG_INVALID"


def test_a_key_that_anybody_can_sign_for_is_refused() -> None:
    neutral = (1).to_bytes(32, "little")
    forged = structs.replace(word(), signer=neutral, signature=neutral + bytes(32))
    assert code_of(forged.encode()) == "E_SIG_INVALID"


def test_a_verb_or_an_epoch_out_of_bounds_is_refused_though_signed() -> None:
    for wrong in ({"epoch": 0}, {"epoch": EPOCH_MAX + 1}, {"manifest_bytes": 0}, {"manifest_bytes": 2**27}):
        bad = structs.replace(word(), **wrong)
        assert code_of(bad.encode()) == "E_DECODE"
    wire = bytearray(word().encode())
    wire[1] = 6
    assert code_of(bytes(wire)) == "E_DECODE"
    assert Statement.decode(word(2, Verb.PAUSE).encode()) == word(2, Verb.PAUSE)
    assert code_of(word(3, Verb.PAUSE).encode()) == "E_DECODE", "it would have the rank of a deploy"
    assert code_of(word(2, Verb.REMOVE).encode()) == "E_DECODE", "it would have the rank of a pause"
    assert Statement.decode(word(4, Verb.ROLL_BACK).encode()) == word(4, Verb.ROLL_BACK)


@pytest.mark.parametrize(
    ("last", "verb", "epoch"),
    [
        (0, Verb.DEPLOY, 1), (1, Verb.DEPLOY, 3), (2, Verb.DEPLOY, 3), (0, Verb.PAUSE, 2), (1, Verb.PAUSE, 2),
        (2, Verb.PAUSE, 8), (1, Verb.CANCEL, 2), (2, Verb.CANCEL, 3), (1, Verb.ROLL_BACK, 4), (1, Verb.REMOVE, 6),
        (4, Verb.ROLL_BACK, 10), (6, Verb.REMOVE, 12), (5, Verb.PAUSE, 8),
    ],
)  # fmt: skip
def test_no_verb_has_the_rank_of_another(last: int, verb: Verb, epoch: int) -> None:
    assert epoch_after(last, verb) == epoch
    others = {one: word(epoch_after(last, one), one).rank for one in Verb}
    assert len(set(others.values())) == len(Verb), "whatever two hosts say at once, all end at the same"


def test_a_higher_epoch_is_later_and_cancel_beats_deploy_of_one_epoch() -> None:
    words = [word(2), word(1, Verb.CANCEL), word(1), word(2, Verb.CANCEL), word(10)]
    ordered = sorted(words, key=lambda one: one.rank)
    assert [(one.epoch, one.verb.name) for one in ordered] == [
        (1, "DEPLOY"),
        (1, "CANCEL"),
        (2, "DEPLOY"),
        (2, "CANCEL"),
        (10, "DEPLOY"),
    ]
