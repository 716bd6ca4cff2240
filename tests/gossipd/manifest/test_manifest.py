"""What an opened manifest is good for."""

from __future__ import annotations

import dataclasses
import tracemalloc

import msgpack
import pytest
from blake3 import blake3
from msgspec import structs

from gossipd.core.model import Shape
from gossipd.core.targets import Targets
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.manifest import (
    FileEntry,
    Manifest,
    ManifestError,
    Segment,
    deployment_id,
    open_manifest,
    seal_manifest,
)
from gossipd.manifest.payload import root_hash
from tests.gossipd.manifest.making import (
    CHUNK,
    PUBLISHER,
    STRANGER,
    TRUSTED,
    draft,
    fake_digests,
    manifest,
    payload_fields,
    sealed,
    sealed_fields,
)


def test_what_was_drafted_is_what_is_opened() -> None:
    wanted = draft(expires_s=1_800_000_000, targets=Targets(("r1",), ("gpu-*",)), priority=9)
    opened = open_manifest(seal_manifest(wanted, PUBLISHER), TRUSTED)
    for field in ("name", "version", "created_s", "expires_s", "files", "sources", "targets", "priority", "digests"):
        assert getattr(opened, field) == getattr(wanted, field)
    assert opened.signer == PUBLISHER.public.ed25519
    assert (opened.chunk_bytes, opened.chunk_count, opened.bytes_total) == (CHUNK, 5, 3 * CHUNK + 105)
    assert [opened.digest(chunk) for chunk in range(5)] == [fake_digests(5)[at : at + 32] for at in range(0, 160, 32)]
    assert opened.segments(4) == (Segment(1, 0, 100),)
    assert opened.chunk_length(3) == 5


def test_the_id_is_the_hash_of_the_signed_bytes_and_not_of_who_signed_them() -> None:
    payload = b"\x01" + msgpack.packb(payload_fields())
    ours, theirs = sealed(payload), sealed(payload, STRANGER)
    assert open_manifest(ours, TRUSTED).id == blake3(payload).digest() == deployment_id(theirs)
    assert open_manifest(theirs, [STRANGER.public.ed25519]) == open_manifest(ours, TRUSTED)


def test_nothing_else_makes_a_manifest() -> None:
    good = manifest()
    fields = {one.name: getattr(good, one.name) for one in dataclasses.fields(good)}
    with pytest.raises(AssertionError):
        Manifest(**fields)
    with pytest.raises(AssertionError):
        dataclasses.replace(good, version=2, proof=None)


def test_a_later_version_may_say_more_and_an_older_reader_ignores_it() -> None:
    fields = payload_fields() | {"licence": {"spdx": ["MIT"]}}
    fields["files"] = [[*entry, "sha256:..."] for entry in fields["files"]]
    assert open_manifest(sealed(b"\x01" + msgpack.packb(fields)), TRUSTED).version == 1


def test_what_is_ignored_is_still_bounded() -> None:
    fields = payload_fields() | {"score": 0.5}
    with pytest.raises(ManifestError):
        open_manifest(sealed(b"\x01" + msgpack.packb(fields)), TRUSTED)


def test_a_draft_that_a_reader_would_refuse_is_not_signed() -> None:
    bad = structs.replace(draft(), files=(FileEntry("../up", 3 * CHUNK, 0o644),))
    with pytest.raises(ManifestError) as caught:
        seal_manifest(bad, PUBLISHER)
    assert caught.value.code == "E_PATH_COMPONENT"
    with pytest.raises(ManifestError):
        seal_manifest(structs.replace(draft(), files=(FileEntry("a", 1, 2**40),)), PUBLISHER)


def test_the_root_names_the_tree_whatever_its_name_and_version() -> None:
    one = manifest()
    assert one.root == manifest(name="other", version=7, created_s=1_790_000_001, priority=0).root
    assert one.root != manifest(salt=b"other bytes").root
    files = one.files
    renamed = (FileEntry("renamed", files[0].size, files[0].mode), *files[1:])
    assert root_hash(renamed, CHUNK, one.digests) != one.root
    assert root_hash((FileEntry(files[0].path, files[0].size, 0o755), *files[1:]), CHUNK, one.digests) != one.root


@pytest.mark.parametrize(
    ("targets", "host", "meant"),
    [
        (Targets(), ("node-1", "r1"), True),
        (Targets(("r1", "r2")), ("node-1", "r2"), True),
        (Targets(("r1",)), ("node-1", "r2"), False),
        (Targets((), ("gpu-*", "node-?")), ("node-1", "r2"), True),
        (Targets((), ("gpu-*",)), ("node-1", "r1"), False),
        (Targets(("r1",), ("gpu-*",)), ("gpu-7", "r2"), False),
        (Targets(("r1",), ("gpu-*",)), ("gpu-7", "r1"), True),
        (Targets((), ("GPU-*",)), ("gpu-7", "r1"), False),
    ],
)
def test_targets_are_racks_and_name_patterns_and_both_must_fit(
    targets: Targets, host: tuple[str, str], meant: bool
) -> None:
    assert manifest(targets=targets).is_target(*host) is meant


def test_reads_of_chunks_that_pack_many_small_files_may_take_longer() -> None:
    packed = manifest([2 * CHUNK, *[100] * 1000]).shape()
    assert (packed.packed_chunk, packed.packed_files) == (2, -(-1000 // (packed.chunk_count - 2)))
    assert packed.packed_s(1) == 0.0 < packed.packed_s(2)


def test_extents_are_at_most_16_mib_and_a_256th_of_the_model() -> None:
    assert manifest([1024 * CHUNK]).shape() == Shape(1024, CHUNK, 1024 * CHUNK, 4)
    assert manifest([100 * CHUNK]).shape().extent_chunks == 1
    assert manifest([100 * CHUNK]).shape().packed_s(99) == 0.0
    large = manifest([500 * 10**9], chunk_bytes=1024 * 1024)
    assert large.shape().extent_chunks == 16


def test_a_manifest_of_500_gb_is_one_megabyte_and_stays_that_small_in_memory() -> None:
    """Opening takes 3 ms here, which no test can promise; that it makes few objects, one can."""
    shards = [5 * 10**9] * 100
    chunk_bytes = 16 * 1024 * 1024
    count = Layout(shards, chunk_bytes).chunk_count
    envelope = seal_manifest(draft(shards, chunk_bytes=chunk_bytes), PUBLISHER)
    assert count == 29_900
    assert len(envelope) < 1_000_000
    tracemalloc.start()
    try:
        opened = open_manifest(envelope, TRUSTED)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert opened.chunk_count == count
    assert kept < 1_100_000, "the hashes once, and next to nothing beside them"
    assert peak < 2 * len(envelope) + 8_000_000


def test_its_repr_is_short_enough_for_a_log() -> None:
    assert len(repr(manifest([CHUNK] * 500))) < 500


def test_expired_manifests_open_so_that_a_restart_can_resume_them() -> None:
    opened = open_manifest(sealed_fields(created=1, expires=2), TRUSTED)
    with pytest.raises(ManifestError):
        opened.check_time(3.0)
