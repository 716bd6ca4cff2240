"""Lineage, labels and retention: what is signed, what is read, and what looks like a secret."""

from __future__ import annotations

from typing import Any

import pytest

from gossipd.core.lineage import parents_of
from gossipd.manifest.annotations import (
    Retention,
    check_labels,
    check_retention,
    pack_about,
    read_about,
)
from gossipd.manifest.errors import ManifestError

ID = "ab" * 32
ABOUT = {
    "run": "r7", "attempt": 2, "step": 300, "parents": [ID], "code": {"repo": "https://git/x", "commit": "f00"},
    "data": [{"name": "c4", "digest": "12"}], "metrics": {"loss": 1.25, "tokens": 10**12, "token_count": 3},
    "url": "https://wandb.example/runs/7", "tokenizer": "t5", "secretary": "none", "author": "a",
}  # fmt: skip


def code_of(about: dict[str, Any]) -> str:
    with pytest.raises(ManifestError) as caught:
        pack_about(about)
    return caught.value.code


def test_what_is_signed_is_read_again_with_its_floats() -> None:
    assert read_about(pack_about(ABOUT)) == ABOUT
    assert pack_about({"b": 1, "a": 2}) == b'{"a":2,"b":1}'
    assert pack_about({}) == b""
    assert read_about(b"") == {}


@pytest.mark.parametrize(
    "key",
    ["password", "db_password", "token", "HF_TOKEN", "hfToken", "wandb_api_key", "WANDB_API_KEY", "apiKey", "api-key",
     "apikey", "aws_secret_access_key", "private_key", "Authorization", "client_secret", "session_cookie", "auth"],
)  # fmt: skip
def test_a_field_that_looks_like_a_secret_is_not_signed(key: str) -> None:
    assert code_of({key: "x"}) == "E_SECRET"
    assert code_of({"env": [{"deep": {key: "x"}}]}) == "E_SECRET"


@pytest.mark.parametrize(
    "value",
    ["https://me:pw@host/x", "hf_abcdefghijklmnopqrstuvwx", "ghp_0123456789012345678901", "AKIAIOSFODNN7EXAMPLE",
     "-----BEGIN OPENSSH PRIVATE KEY-----", "xoxb-1", "glpat-xyz", "sk-0123456789abcdefg"],
)  # fmt: skip
def test_a_value_that_looks_like_a_secret_is_not_signed(value: str) -> None:
    assert code_of({"note": value}) == "E_SECRET"
    assert code_of({"list": ["fine", value]}) == "E_SECRET"


@pytest.mark.parametrize("parents", ["x", [1], ["AB" * 32], ["ab" * 31], [ID] * 17, {"a": 1}])
def test_parents_are_ids_of_deployments(parents: Any) -> None:
    assert code_of({"parents": parents}) == "E_DECODE"
    assert set(parents_of({"parents": parents})) <= {ID}


def test_about_has_a_bound_and_is_one_object() -> None:
    assert code_of({"a": "x" * 16 * 1024}) == "E_LIMIT"
    for text in (b"[]", b"7", b"{", b'{"a":NaN}', b"\xff", b"[" * 9000, b'{"a":' * 3000):
        with pytest.raises(ManifestError) as caught:
            read_about(text)
        assert caught.value.code in ("E_DECODE", "E_PATH_UNICODE")
    with pytest.raises(ManifestError, match="max=16384"):
        read_about(b" " * 16385)


def test_labels_are_names_with_printable_values() -> None:
    check_labels({"team": "rl", "tier": ""})
    for labels in ({"": "x"}, {"a b": "x"}, {"a": "x\n"}, {"a": "x" * 257}, {f"k{i}": "" for i in range(65)}):
        with pytest.raises(ManifestError):
            check_labels(labels)


def test_retention_keeps_at_least_one_version() -> None:
    check_retention(Retention(last=1))
    check_retention(Retention(last=1_000_000, every=1000))
    for keep in (Retention(last=0), Retention(last=1_000_001), Retention(last=1, every=-1)):
        with pytest.raises(ManifestError):
            check_retention(keep)
