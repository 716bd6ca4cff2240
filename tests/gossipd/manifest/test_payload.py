"""Bounds in bytes, judged before any value is made."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest

from gossipd.manifest import payload as payload_module
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import open_manifest
from gossipd.manifest.payload import FILES_BYTES_MAX, OTHER_BYTES_MAX, parse_payload
from tests.gossipd.manifest.making import CHUNK, TRUSTED, fake_digests, payload_fields, sealed_fields


def parsed(**changes: Any) -> Any:
    return parse_payload(memoryview(b"\1" + bytes(msgpack.packb(payload_fields(**changes)))))


def refusal(**changes: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        parsed(**changes)
    return caught.value.sentence


def test_the_list_of_files_has_a_most_in_bytes() -> None:
    entry = ["a.bin", 2 * CHUNK, 0o644]
    assert parsed(files=[[*entry, b"x" * (FILES_BYTES_MAX - 100)]]).files[0].path == "a.bin"
    assert refusal(files=[[*entry, b"x" * FILES_BYTES_MAX]]).startswith("E_LIMIT: bytes of files=")


@pytest.mark.parametrize(
    "unknown", [b"x" * OTHER_BYTES_MAX, "x" * OTHER_BYTES_MAX, [[]] * OTHER_BYTES_MAX, [[[]] * 60_000] * 10]
)
def test_all_other_fields_together_have_a_most_in_bytes(unknown: object) -> None:
    assert refusal(unknown=unknown).startswith("E_LIMIT: bytes of other fields=")


def test_what_is_too_much_is_refused_before_it_is_made() -> None:
    wire = b"\1" + bytes(msgpack.packb(payload_fields(unknown=[[]] * 2_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError):
            parse_payload(memoryview(wire))
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_long_key_is_refused() -> None:
    assert "key" in refusal(**{"k" * 300: 1})


def test_hashes_are_a_part_of_the_envelope_and_no_copy() -> None:
    opened = open_manifest(sealed_fields(), TRUSTED)
    assert opened.digests.obj is opened.envelope
    assert opened.digests == fake_digests(3)


def test_the_limit_of_files_is_told_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_module, "FILES_MAX", 3)
    assert refusal(files=[["a", 1, 0o644]] * 4) == "E_LIMIT: files=4 max=3"
