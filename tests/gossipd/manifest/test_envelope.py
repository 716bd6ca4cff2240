"""What an envelope promises besides the rows of the bad-input table."""

from __future__ import annotations

import pytest

from gossipd.identity.keys import SecretKey
from gossipd.manifest.envelope import SIGNATURES_MAX, open_envelope, payload_of, seal
from gossipd.manifest.errors import ManifestError
from tests.gossipd.manifest.making import PUBLISHER, STRANGER, TRUSTED

KIND = "gossipd-test"


def code_of(envelope: bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        open_envelope(KIND, envelope, TRUSTED)
    return caught.value.code


def test_what_was_sealed_is_opened_and_its_signer_named() -> None:
    opened = open_envelope(KIND, seal(KIND, b"payload", [PUBLISHER]), TRUSTED)
    assert bytes(opened.payload) == b"payload"
    assert opened.signer == PUBLISHER.public.ed25519


def test_a_stranger_s_additional_signature_does_no_harm() -> None:
    envelope = seal(KIND, b"payload", [STRANGER, PUBLISHER])
    assert open_envelope(KIND, envelope, TRUSTED).signer == PUBLISHER.public.ed25519


def test_a_bad_signature_by_a_trusted_key_is_not_outvoted_by_a_good_one() -> None:
    second = SecretKey(bytes(32))
    envelope = bytearray(seal(KIND, b"payload", [PUBLISHER, second]))
    envelope[2 + len(KIND) + 1 + 20] ^= 1  # in the first signature
    with pytest.raises(ManifestError) as caught:
        open_envelope(KIND, bytes(envelope), [*TRUSTED, second.public.ed25519])
    assert caught.value.code == "E_SIG_INVALID"


def test_no_more_than_eight_signatures_are_looked_at() -> None:
    secrets = [SecretKey(bytes([number]) * 32) for number in range(SIGNATURES_MAX + 1)]
    good = seal(KIND, b"", [*secrets[:7], PUBLISHER])
    open_envelope(KIND, good, TRUSTED)
    at = 2 + len(KIND)
    assert good[at] == SIGNATURES_MAX
    assert code_of(good[:at] + b"\x09" + bytes(80) + good[at + 1 :]) == "E_LIMIT"


def test_every_cut_is_refused() -> None:
    envelope = seal(KIND, b"payload", [PUBLISHER])
    for length in range(len(envelope)):
        assert code_of(envelope[:length]) in ("E_DECODE", "E_SCHEMA_VERSION", "E_SIG_INVALID")


def test_bytes_moved_between_type_and_payload_change_what_is_signed() -> None:
    envelope = seal(KIND, b"-payload", [PUBLISHER])
    width = 1 + 80
    head = 2 + len(KIND)
    moved = bytes([1, len(KIND) + 1]) + KIND.encode() + b"-" + envelope[head : head + width] + b"payload"
    with pytest.raises(ManifestError) as caught:
        open_envelope(f"{KIND}-", moved, TRUSTED)
    assert caught.value.code == "E_SIG_INVALID"


def test_the_payload_can_be_hashed_without_trusting_it() -> None:
    assert bytes(payload_of(KIND, seal(KIND, b"payload", [STRANGER]))) == b"payload"
