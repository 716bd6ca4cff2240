"""Manifests as earlier versions wrote them, kept for ever: they must open to the same values.

The files in ``golden/`` are never regenerated. When the format changes, new files join them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from gossipd.core.targets import Targets
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_file import register_from_bytes
from gossipd.deployment.statement_store import Acceptance
from gossipd.manifest.annotations import Retention
from gossipd.manifest.manifest import FileEntry, ManifestDraft, ManifestError, open_manifest, seal_manifest
from gossipd.manifest.tensor_index import Tensor
from tests.gossipd.manifest.making import CHUNK, PUBLISHER, TRUSTED, fake_digests, sealed_fields

GOLDEN = Path(__file__).parent / "golden"
SMALL_ID = "dbce8f4dfae28297fc98c39db821df1996cb97454111c7d873614c149b530dcb"
FULL_ID = "7e5b02418f7c0e8f972c31701ef6dbce517d7efee13494cb4fbf5363d911fec7"

SECOND_ID = "25dffbc3c6fde4db65c00a2a91c4966f32d8d8130f9b7b27e309c98cb492f6c7"
SECOND_ROOT = "8ea8808a41e64866b3d09d8d91c88c2882984c7cd203fd0a75e8c376a60aeb50"


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def test_a_small_manifest_of_schema_1_opens_to_the_same_values() -> None:
    opened = open_manifest(golden("small-1.manifest"), TRUSTED)
    assert opened.id.hex() == SMALL_ID
    assert (opened.name, opened.version, opened.created_s, opened.expires_s) == ("tiny", 0, 1_700_000_000, None)
    assert opened.files == (FileEntry("weights.bin", 65_537, 0o644),)
    assert (opened.chunk_bytes, opened.chunk_count, opened.bytes_total) == (65_536, 2, 65_537)
    assert opened.digests == fake_digests(2)
    assert (opened.sources, opened.targets, opened.priority) == (("s3://bucket/tiny/",), Targets(), 5)
    assert opened.root.hex() == "039012c8c4b1f4c80b28b51b0ae62188e96fc17a8137e502e830155d09c92649"


def test_a_manifest_with_every_field_and_unknown_ones_opens_to_the_same_values() -> None:
    opened = open_manifest(golden("full-1.manifest"), TRUSTED, now_s=1_700_000_001.0)
    assert opened.id.hex() == FULL_ID
    assert (opened.name, opened.version) == ("org/Model-1.5_b", 9_007_199_254_740_991)
    assert opened.expires_s == 1_800_000_000
    assert opened.files == (
        FileEntry("config.json", 700, 0o644),
        FileEntry("shards/model-00001-of-00002.safetensors", 2 * CHUNK, 0o644),
        FileEntry("shards/model-00002-of-00002.safetensors", 2 * CHUNK + 9, 0o644),
        FileEntry("tokenizer/日本語.txt", 3, 0o755),
        FileEntry("empty", 0, 0o644),
    )
    assert [[(one.file_index, one.offset, one.length) for one in opened.segments(c)] for c in range(6)] == [
        [(1, 0, CHUNK)],
        [(1, CHUNK, CHUNK)],
        [(2, 0, CHUNK)],
        [(2, CHUNK, CHUNK)],
        [(2, 2 * CHUNK, 9)],
        [(0, 0, 700), (3, 0, 3)],
    ]
    assert opened.targets == Targets(("rack-1", "rack-2"), ("gpu-*",))
    assert opened.sources == ("https://storage.example/a%20b/", "file:///srv/models/m/")
    assert opened.priority == 9


def test_a_manifest_of_schema_2_opens_to_the_same_values() -> None:
    opened = open_manifest(golden("full-2.manifest"), TRUSTED)
    assert opened.id.hex() == SECOND_ID
    assert opened.root.hex() == SECOND_ROOT
    assert [opened.chunk_length(chunk) for chunk in range(opened.chunk_count)] == [100, CHUNK, CHUNK - 100, 10]
    assert (opened.directories, opened.keep) == (("logs", "x/empty"), Retention(last=3, every=1000))
    assert (opened.about_fields(), opened.labels) == ({"step": 7}, {"team": "rl"})
    assert list(opened.tensors()) == [Tensor(0, "w", "U8", (CHUNK,), 100, 100 + CHUNK)]


def test_today_s_writer_still_writes_the_same_bytes() -> None:
    draft = ManifestDraft(
        name="tiny",
        version=0,
        created_s=1_700_000_000,
        files=(FileEntry("weights.bin", 65_537, 0o644),),
        chunk_bytes=65_536,
        digests=fake_digests(2),
        sources=("s3://bucket/tiny/",),
    )
    assert seal_manifest(draft, PUBLISHER) == golden("small-1.manifest")


def test_a_manifest_of_a_schema_to_come_is_refused_by_its_number() -> None:
    with pytest.raises(ManifestError) as caught:
        open_manifest(sealed_fields(schema=3), TRUSTED)
    assert caught.value.sentence == "E_SCHEMA_VERSION: manifest schema 3, supported 1 and 2: upgrade this gossipd"


def test_what_was_a_schema_to_come_still_does_not_open() -> None:
    with pytest.raises(ManifestError) as caught:
        open_manifest(golden("future-2.manifest"), TRUSTED)
    assert caught.value.code == "E_DECODE"


def test_a_register_of_version_1_is_believed() -> None:
    kept = register_from_bytes(golden("register-1"))
    small, full = (open_manifest(golden(name), TRUSTED) for name in ("small-1.manifest", "full-1.manifest"))
    assert kept.accept(small, 0.0) is Acceptance.ALREADY
    assert kept.accept(full, 0.0) is Acceptance.ALREADY
    assert kept.is_removed(small.id)
    word = kept.statement(full.id)
    assert word is not None
    assert (word.epoch, word.verb, word.manifest_bytes) == (3, Verb.CANCEL, len(golden("full-1.manifest")))
    assert Statement.decode(word.encode()) == word


def test_the_ids_are_the_hashes_of_the_payloads() -> None:
    envelope = golden("small-1.manifest")
    assert blake3(envelope[envelope.index(b"\x8c\xa4name") - 1 :]).hexdigest() == SMALL_ID
