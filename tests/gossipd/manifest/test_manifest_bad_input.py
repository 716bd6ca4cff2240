"""The bad-input table for manifests, rows B1 to B23: one code each, whatever the signature says.

Rows that do not apply to manifests, and where they are proved instead:

* B10 (a symbolic link planted in the target tree) is the disk's: the store's tests.
* B14 (thresholds in trust files): there is no trust file with thresholds in this version; hosts list publishers'
  keys one by one. B15 applies in the form that an envelope has: one key may not sign twice.
* B16's revoked keys: there is no root role that could revoke; a key is taken out of the hosts' trust list, and is
  unknown then. B17 and B18 need memory: ``test_register``. B23's allow-list: ``test_source_policy``.
* B20's duplicate index: chunks have no index in the format, only an order.
* B21's limits on delegation and roles come with the root role.
"""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX, seal
from gossipd.manifest.manifest import ENVELOPE_TYPE, ManifestError, open_manifest, seal_manifest
from tests.gossipd.manifest.making import (
    CHUNK,
    PUBLISHER,
    STRANGER,
    TRUSTED,
    draft,
    fake_digests,
    payload_fields,
    sealed,
    sealed_fields,
)

RIGHT_TO_LEFT, ZERO_WIDTH, DECOMPOSED = "\u202e", "\u200b", "e\u0301"


def refusal(envelope: bytes, **options: Any) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        open_manifest(envelope, TRUSTED, **options)
    return caught.value


def file_list(*paths: str) -> list[list[object]]:
    return [[path, 1, 0o644] for path in paths]


def refused_path(*paths: str) -> ManifestError:
    return refusal(sealed_fields(files=file_list(*paths), hashes=fake_digests(1)))


PATHS = [
    ("B1", "E_PATH_ABSOLUTE", ["/etc/passwd"]),
    ("B2", "E_PATH_COMPONENT", ["a/../../b"]),
    ("B2", "E_PATH_COMPONENT", [".."]),
    ("B2", "E_PATH_COMPONENT", ["."]),
    ("B2", "E_PATH_COMPONENT", [""]),
    ("B2", "E_PATH_COMPONENT", ["a//b"]),
    ("B2", "E_PATH_COMPONENT", ["a/./b"]),
    ("B2", "E_PATH_COMPONENT", ["a/"]),
    ("B3", "E_PATH_CHAR", ["a\0b"]),
    ("B3", "E_PATH_CHAR", ["a\nb"]),
    ("B3", "E_PATH_CHAR", ["a\x1b[2Jb"]),
    ("B3", "E_PATH_CHAR", [f"a{RIGHT_TO_LEFT}b"]),
    ("B3", "E_PATH_CHAR", [f"a{ZERO_WIDTH}b"]),
    ("B3", "E_PATH_CHAR", ["a\\b"]),
    ("B3", "E_PATH_CHAR", ["c:a"]),
    ("B3", "E_PATH_CHAR", ["a\u2028b"]),
    ("B3", "E_PATH_CHAR", ["a\u00a0b"]),
    ("B4", "E_PATH_UNICODE", [f"caf{DECOMPOSED}"]),
    ("B5", "E_PATH_COLLISION", ["Model.bin", "model.bin"]),
    ("B5", "E_PATH_COLLISION", ["same", "same"]),
    ("B5", "E_PATH_COLLISION", ["strasse", "straße"]),
    ("B5", "E_PATH_COLLISION", ["fish", "ﬁsh"]),
    ("B5", "E_PATH_COLLISION", ["part-１", "part-1"]),
    ("B5", "E_PATH_COLLISION", ["a/one", "A/two"]),
    ("B5", "E_PATH_COLLISION", ["x/a/b/one", "x/A/b/two"]),
    ("B6", "E_PATH_RESERVED", ["con"]),
    ("B6", "E_PATH_RESERVED", ["a/NUL.txt"]),
    ("B6", "E_PATH_RESERVED", ["com1.tar.gz"]),
    ("B6", "E_PATH_RESERVED", ["a."]),
    ("B6", "E_PATH_RESERVED", ["a /b"]),
    ("B7", "E_PATH_LENGTH", ["x" * 256]),
    ("B7", "E_PATH_LENGTH", ["é" * 128]),
    ("B7", "E_PATH_LENGTH", ["/".join(["x" * 200] * 6)]),
    ("B7", "E_PATH_LENGTH", ["/".join("x" * 33)]),
    ("B8", "E_PATH_PREFIX", ["a", "a/b"]),
    ("B8", "E_PATH_PREFIX", ["a/b/c", "a"]),
    ("B8", "E_PATH_PREFIX", ["a", "A/b/c"]),
    ("B11", "E_PATH_RESERVED", [".gossipd"]),
    ("B11", "E_PATH_RESERVED", ["a/.gossipd-journal"]),
    ("B11", "E_PATH_RESERVED", ["model.bin.part"]),
]


@pytest.mark.parametrize(("row", "code", "paths"), PATHS)
def test_a_path_that_could_leave_the_directory_or_clash_is_refused(row: str, code: str, paths: list[str]) -> None:
    error = refused_path(*paths)
    assert error.code == code, row
    assert "\n" not in error.sentence
    assert error.sentence.isascii(), "nothing that could move a terminal's cursor"


def test_a_refusal_names_the_field_and_the_limit() -> None:
    assert refused_path("ok", "/etc/passwd").sentence == (
        "E_PATH_ABSOLUTE: files[1].path must be relative, not '/etc/passwd'"
    )
    assert "forbidden component '..'" in refused_path("a/../b").sentence
    assert "U+0000" in refused_path("a\0").sentence
    assert "files[0] and files[2]" in refused_path("A", "b", "a").sentence


@pytest.mark.parametrize(
    "path", ["model-00001-of-00002.safetensors", "ä/日本語.txt", ".gitattributes", "a b", "конфиг"]
)
def test_ordinary_names_are_accepted(path: str) -> None:
    envelope = sealed_fields(files=file_list(path), hashes=fake_digests(1))
    assert open_manifest(envelope, TRUSTED).files[0].path == path


@pytest.mark.parametrize("mode", [0o120777, 0o060644, 0o140644, 0o4755, 0o2755, 0o1777, 0o100644])
def test_b9_only_permission_bits_of_regular_files_are_accepted(mode: int) -> None:
    assert refusal(sealed_fields(files=[["a", 3 * CHUNK, mode]])).code == "E_FILE_TYPE"


@pytest.mark.parametrize(
    "name",
    ["", "a/b/c", "..", "a/..", ".hidden", "-x", "a b", "a\n", "ä", "x" * 129, "a.", "org/7", "current", "a/", "/a"],
)
def test_b12_a_name_that_could_not_be_a_directory_is_refused(name: str) -> None:
    assert refusal(sealed_fields(name=name)).code == "E_NAME"


@pytest.mark.parametrize("changes", [{"racks": ["r 1"]}, {"racks": [""]}, {"names": ["a/b"]}, {"names": ["{a}"]}])
def test_b12_so_is_a_target_that_no_host_could_be(changes: dict[str, Any]) -> None:
    assert refusal(sealed_fields(**changes)).code == "E_NAME"


def test_b13_an_unsigned_manifest_is_refused() -> None:
    good = sealed_fields()
    kind_end = 2 + len(ENVELOPE_TYPE)
    bare = good[:kind_end] + b"\0" + good[kind_end + 1 + 80 :]
    assert refusal(bare).code == "E_SIG_MISSING"


def test_b13_a_stranger_s_signature_is_refused_and_named() -> None:
    error = refusal(seal_manifest(draft(), STRANGER))
    assert error.code == "E_KEY_UNKNOWN"
    assert "key=" in error.sentence


def test_b13_every_altered_byte_is_found() -> None:
    good = sealed_fields()
    for at in range(len(good)):
        altered = bytearray(good)
        altered[at] ^= 0x40
        assert refusal(bytes(altered)).code.startswith("E_"), at


def test_b13_a_signature_on_another_type_does_not_count() -> None:
    payload = bytes([1]) + msgpack.packb(payload_fields())
    other = seal("gossipd-channel-", payload, [PUBLISHER])  # as long as the right type
    assert refusal(other).code == "E_SCHEMA_VERSION"
    forged = other.replace(b"gossipd-channel-", ENVELOPE_TYPE.encode(), 1)
    assert refusal(forged).code == "E_SIG_INVALID"


def test_b13_the_signature_is_checked_before_anything_is_parsed() -> None:
    garbage = b"\x01" + b"\xc1" * 50
    assert refusal(seal(ENVELOPE_TYPE, garbage, [STRANGER])).code == "E_KEY_UNKNOWN"
    assert refusal(sealed(garbage)).code == "E_DECODE"


def test_b15_one_key_signing_twice_is_not_two_keys() -> None:
    payload = bytes([1]) + msgpack.packb(payload_fields())
    error = refusal(seal(ENVELOPE_TYPE, payload, [PUBLISHER, PUBLISHER]))
    assert error.code == "E_SIG_THRESHOLD"
    assert "1 of 2" in error.sentence


def test_b16_expiry_is_judged_only_when_asked_for() -> None:
    envelope = sealed_fields(expires=2_000)
    assert open_manifest(envelope, TRUSTED).expires_s == 2_000
    error = refusal(sealed_fields(created=1_000, expires=2_000), now_s=2_000.0)
    assert error.sentence == "E_EXPIRED: expired at 1970-01-01T00:33:20Z, now 1970-01-01T00:33:20Z"
    open_manifest(sealed_fields(created=1_000, expires=2_000), TRUSTED, now_s=1_999.0)


def test_b16_a_manifest_from_the_future_is_refused_but_not_for_a_clock_some_minutes_ahead() -> None:
    assert refusal(sealed_fields(created=10_000), now_s=9_000.0).code == "E_EXPIRED"
    open_manifest(sealed_fields(created=10_000), TRUSTED, now_s=9_500.0)


@pytest.mark.parametrize("schema", [0, 3, 0x81, 255])
def test_b19_an_unknown_schema_is_refused_by_its_number(schema: int) -> None:
    error = refusal(sealed_fields(schema=schema))
    assert error.code == "E_SCHEMA_VERSION"
    assert str(schema) in error.sentence


def test_b19_so_is_an_unknown_envelope() -> None:
    assert refusal(b"\x02" + sealed_fields()[1:]).code == "E_SCHEMA_VERSION"
    assert refusal(sealed(b"")).code == "E_SCHEMA_VERSION"


@pytest.mark.parametrize("chunk", [0, 1, CHUNK - 1, CHUNK + 1, CHUNK * 3, CHUNK // 2, 128 * 1024 * 1024])
def test_b20_a_chunk_size_that_is_no_power_of_two_within_bounds_is_refused(chunk: int) -> None:
    assert refusal(sealed_fields(chunk=chunk)).code == "E_CHUNK_LAYOUT"


@pytest.mark.parametrize("count", [0, 2, 4])
def test_b20_sizes_and_hashes_must_agree(count: int) -> None:
    assert refusal(sealed_fields(hashes=fake_digests(count))).code == "E_CHUNK_LAYOUT"


@pytest.mark.parametrize("changes", [{"hashes": fake_digests(3)[:-1]}, {"root": b""}, {"root": bytes(31)}])
def test_b20_a_short_hash_is_refused(changes: dict[str, Any]) -> None:
    assert refusal(sealed_fields(**changes)).code == "E_HASH_LENGTH"


def test_hashes_spliced_from_another_version_have_a_wrong_root() -> None:
    fields = payload_fields()
    spliced = fields["hashes"][:32] + fake_digests(2, b"other")
    assert refusal(sealed_fields(hashes=spliced, root=fields["root"])).code == "E_ROOT_HASH"


def test_b21_too_many_files_are_refused() -> None:
    error = refusal(sealed_fields(files=file_list(*[f"f{i}" for i in range(100_001)]), hashes=fake_digests(2)))
    assert error.sentence == "E_LIMIT: files=100001 max=100000"


def test_b21_too_many_chunks_too_many_bytes_and_too_large_an_envelope_are_refused() -> None:
    assert refusal(sealed_fields(files=[["a", 1_000_001 * CHUNK, 0o644]])).code == "E_LIMIT"
    large: dict[str, Any] = {"chunk": 64 * 1024 * 1024, "files": [["a", 2**44 + 1, 0o644]]}
    assert refusal(sealed_fields(**large)).code == "E_LIMIT"
    assert refusal(bytes([1]) * (ENVELOPE_BYTES_MAX + 1)).code == "E_LIMIT"
    assert refusal(sealed_fields(sources=["https://a/"] * 17)).code == "E_LIMIT"
    assert refusal(sealed_fields(racks=["r"] * 1025)).code == "E_LIMIT"


def test_b22_an_empty_file_is_fine_but_a_model_has_files_and_bytes() -> None:
    envelope = sealed_fields(files=[["a", 0, 0o644], ["b", 1, 0o644]], hashes=fake_digests(1))
    assert open_manifest(envelope, TRUSTED).files[0].size == 0
    assert refusal(sealed_fields(files=[], hashes=b"")).code == "E_EMPTY"
    assert refusal(sealed_fields(files=[["a", 0, 0o644]], hashes=b"")).code == "E_EMPTY"


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pw@host/",
        "https://host/?token=x",
        "https://host/#x",
        "nowhere",
        "http://2130706433/",
        "http://h/%2e%2e/",
    ],
)
def test_b23_a_source_with_credentials_or_in_disguise_is_refused(url: str) -> None:
    error = refusal(sealed_fields(sources=[url]))
    assert error.code == "E_SOURCE_FORBIDDEN"
    assert "pw" not in error.sentence
    assert "token" not in error.sentence


WRONG_TYPES: list[dict[str, Any]] = [
    {"version": -1}, {"version": 2**53}, {"version": True}, {"version": 1.0}, {"version": "1"}, {"version": None},
    {"priority": 10}, {"priority": -1}, {"files": "a"}, {"files": [["a", 1]]}, {"files": [["a", 1.0, 0o644]]},
    {"files": [[1, 1, 0o644]]}, {"files": [["a", -1, 0o644]]}, {"hashes": "text"}, {"sources": [1]}, {"name": b"raw"},
    {"created": float("nan")}, {"expires": "never"},
]  # fmt: skip


@pytest.mark.parametrize("changes", WRONG_TYPES)
def test_a_field_of_the_wrong_type_is_refused(changes: dict[str, Any]) -> None:
    assert refusal(sealed_fields(**changes)).code == "E_DECODE"


def test_a_missing_field_is_refused_and_named() -> None:
    fields = payload_fields()
    del fields["root"]
    error = refusal(sealed(b"\x01" + msgpack.packb(fields)))
    assert error.code == "E_DECODE"
    assert "root" in error.sentence
