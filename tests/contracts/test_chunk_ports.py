"""What every ChunkReader and ChunkWriter promises, run on the fake and on whatever else is registered.

To add a store: write a function that returns a ``StoreUnderTest`` with the deployment of ``BODIES`` open and nothing
held, and put it into ``STORES``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.runtime.ports import ChunkReader, ChunkWriter, DigestMismatchError, NotHeldError
from gossipd.store.chunk_store import ChunkStore
from tests.contracts.chunk_store_fakes import FakeChunkStore
from tests.gossipd.store.small_models import small

BODIES = (bytes(range(256)) * 1024, b"second chunk" * 1000, b"short last one")
UNKNOWN = DeploymentId(b"\xee" * 32)


@dataclass
class StoreUnderTest:
    """A store, the deployment it has open, and the envelope that was opened."""

    reader: ChunkReader
    writer: ChunkWriter
    deployment: DeploymentId
    bodies: tuple[bytes, ...]
    envelope: bytes


def fake_store(_root: Path) -> StoreUnderTest:
    store = FakeChunkStore(span_bytes=5000)
    deployment = DeploymentId(b"\x01" * 32)
    store.add_model(deployment, BODIES, held=False)
    return StoreUnderTest(store, store, deployment, BODIES, b"envelope")


def real_store(root: Path) -> StoreUnderTest:
    """The chunk store on the real disk; the last chunk is several small files packed together."""
    model = small()
    store = ChunkStore(root, on_event=lambda event: None, background=False)
    store.open(model.manifest)
    return StoreUnderTest(
        store, store, model.manifest.id, tuple(bytes(body) for body in model.chunks), model.manifest.envelope
    )


STORES: dict[str, Callable[[Path], StoreUnderTest]] = {"fake": fake_store, "real": real_store}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUnderTest:
    return STORES[request.param](tmp_path)


def put(store: StoreUnderTest, chunk: int, body: bytes | None = None) -> None:
    body = store.bodies[chunk] if body is None else body
    store.writer.put(store.deployment, chunk, memoryview(body), SOURCE, 0.1)


def read(store: StoreUnderTest, chunk: int) -> bytes:
    opened = store.reader.open_chunk(store.deployment, chunk)
    try:
        body = b"".join(os.pread(span.descriptor, span.length, span.offset) for span in opened.spans)
        assert opened.length == len(body)
        return body
    finally:
        opened.close()


def test_what_was_put_is_read_back(store: StoreUnderTest) -> None:
    for chunk in range(len(store.bodies)):
        put(store, chunk)
    assert [read(store, chunk) for chunk in range(len(store.bodies))] == list(store.bodies)


def test_a_chunk_that_was_not_put_is_not_held(store: StoreUnderTest) -> None:
    put(store, 0)
    with pytest.raises(NotHeldError) as caught:
        store.reader.open_chunk(store.deployment, 1)
    assert caught.value.code == "E_NOT_HELD"


def test_wrong_bytes_are_refused_and_nothing_is_held(store: StoreUnderTest) -> None:
    with pytest.raises(DigestMismatchError):
        put(store, 0, b"\xff" + store.bodies[0][1:])
    with pytest.raises(NotHeldError):
        store.reader.open_chunk(store.deployment, 0)


def test_a_body_of_the_wrong_length_is_refused(store: StoreUnderTest) -> None:
    for body in (store.bodies[1][:-1], store.bodies[1] + b"\x00"):
        with pytest.raises(DigestMismatchError):
            put(store, 1, body)


def test_the_body_is_free_again_when_put_returns(store: StoreUnderTest) -> None:
    body = bytearray(store.bodies[1])
    store.writer.put(store.deployment, 1, memoryview(body), SOURCE, 0.1)
    body[:] = bytes(len(body))
    assert read(store, 1) == store.bodies[1]


def test_putting_a_chunk_again_changes_nothing(store: StoreUnderTest) -> None:
    put(store, 2)
    put(store, 2)
    assert read(store, 2) == store.bodies[2]


def test_an_unknown_deployment_and_a_chunk_out_of_range_have_their_own_codes(store: StoreUnderTest) -> None:
    with pytest.raises(NotHeldError) as caught:
        store.reader.open_chunk(UNKNOWN, 0)
    assert caught.value.code == "E_UNKNOWN_MANIFEST"
    with pytest.raises(NotHeldError) as caught:
        store.reader.open_chunk(store.deployment, len(store.bodies))
    assert caught.value.code == "E_CHUNK_RANGE"
    with pytest.raises(NotHeldError):
        store.reader.manifest_bytes(UNKNOWN)
    with pytest.raises(NotHeldError):
        store.writer.put(UNKNOWN, 0, memoryview(b"x"), SOURCE, 0.1)


def test_the_manifest_is_served_byte_for_byte(store: StoreUnderTest) -> None:
    assert store.reader.manifest_bytes(store.deployment) == store.envelope


def test_an_open_chunk_survives_others_being_opened_and_closed(store: StoreUnderTest) -> None:
    put(store, 0)
    first = store.reader.open_chunk(store.deployment, 0)
    store.reader.open_chunk(store.deployment, 0).close()
    span = first.spans[0]
    assert os.pread(span.descriptor, span.length, span.offset) == store.bodies[0][: span.length]
    first.close()
