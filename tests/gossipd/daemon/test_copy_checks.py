"""A host is asked for one chunk at random, and what it sends is compared with the manifest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.daemon.copy_checks import CopyChecks
from gossipd.manifest.manifest import Manifest
from gossipd.transfer.errors import PeerBusyError, TransferError
from membership.member import NodeId
from tests.gossipd.deployment.scripted_host import ONE

PEER = NodeId(b"p" * 16)


class Incoming:
    def __init__(self, body: bytes) -> None:
        self.view = memoryview(body)
        self.has_landed = self.is_over = False

    def land(self) -> None:
        self.has_landed = True

    def __enter__(self) -> Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True


class Asked:
    """A host that answers each request with the same."""

    def __init__(self, answer: bytes | TransferError, manifest: Manifest | None = ONE, port: int = 1) -> None:
        self.answer, self.manifest, self.port = answer, manifest, port
        self.requests: list[tuple[int, int]] = []
        self.sent: list[Incoming] = []
        self.checks = CopyChecks(cast(Any, self), cast(Any, self), cast(Any, self))

    def manifest_of(self, deployment: object) -> Manifest | None:
        return self.manifest

    def bulk_endpoint(self, node: NodeId) -> tuple[str, int] | None:
        return ("127.0.0.1", self.port) if self.port else None

    def name_of(self, node: NodeId) -> str:
        return "peer"

    def fetch_chunk(
        self, node: NodeId, endpoint: object, deployment: object, chunk: int, length: int, *, timeout_s: float
    ) -> Incoming:  # fmt: skip
        self.requests.append((chunk, length))
        if isinstance(self.answer, TransferError):
            raise self.answer
        self.sent.append(Incoming(self.answer))
        return self.sent[-1]


async def test_a_right_chunk_shows_the_copy_and_any_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.daemon.copy_checks.blake3", lambda view: SimpleNamespace(digest=lambda: bytes(view)))
    chunks = ONE.chunk_count
    assert chunks > 1
    for chunk in range(chunks):
        monkeypatch.setattr(
            "gossipd.daemon.copy_checks.SystemRandom",
            lambda chunk=chunk: SimpleNamespace(randrange=lambda count: chunk if count == chunks else -1),
        )
        asked = Asked(ONE.digest(chunk))
        assert await asked.checks.has(ONE.id, PEER) is True
        assert asked.requests == [(chunk, ONE.chunk_length(chunk))]
        assert asked.sent[0].has_landed and asked.sent[0].is_over


@pytest.mark.parametrize("answer", [b"?" * 32, PeerBusyError("no slot", retry_after_s=1.0)])
async def test_a_wrong_chunk_or_none_shows_nothing(answer: bytes | TransferError) -> None:
    asked = Asked(answer)
    assert await asked.checks.has(ONE.id, PEER) is False
    assert all(one.is_over and not one.has_landed for one in asked.sent)


async def test_nobody_is_asked_without_a_manifest_or_an_address() -> None:
    without = Asked(b"", manifest=None)
    assert await without.checks.has(ONE.id, PEER) is None
    gone = Asked(b"", port=0)
    assert await gone.checks.has(ONE.id, PEER) is False
    assert without.requests == gone.requests == []
