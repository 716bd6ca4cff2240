"""Chunks read back after complaints: bounded, each once, and a bug is reported."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

from gossipd.core.ids import DeploymentId
from gossipd.daemon.rechecks import (
    ALL_BYTES,
    MEMBER_BYTES,
    MIB,
    RECHECK_AGAIN_S,
    RECHECKS_MAX,
    Rechecks,
)
from gossipd.runtime.ports import NotHeldError
from membership.member import NodeId

MODEL = DeploymentId(b"m" * 32)
TIMEOUT_S = 120.0
LIAR, HONEST = NodeId(b"l" * 16), NodeId(b"h" * 16)


def store_of(recheck: Callable[[DeploymentId, int], bool], length: int = 1) -> Any:
    return SimpleNamespace(recheck=recheck, chunk_length=lambda _deployment, _chunk: length)


class Looked:
    """Counts what is read back of chunks of ``length`` bytes; ``now`` is the clock."""

    def __init__(self, length: int) -> None:
        self.now = 0.0
        self.chunks = Queue[int]()
        self.rechecks = Rechecks(store_of(self._recheck, length), cast(Any, None), clock=lambda: self.now)

    def _recheck(self, _deployment: DeploymentId, chunk: int) -> bool:
        self.chunks.put(chunk)
        return True

    def complain(self, chunk: int, member: NodeId = LIAR) -> int:
        """How many were read back once this complaint was heard."""
        self.rechecks.want(MODEL, chunk, member)
        self.rechecks._pool.submit(lambda: None).result(TIMEOUT_S)
        return self.chunks.qsize()


def test_complaints_without_end_read_back_a_bounded_number() -> None:
    holding, looked = threading.Event(), Queue[int]()

    def recheck(deployment: DeploymentId, chunk: int) -> bool:
        looked.put(chunk)
        holding.wait(TIMEOUT_S)
        return True

    rechecks = Rechecks(store_of(recheck), cast(Any, None))
    for _ in range(3):
        for chunk in range(1000):
            rechecks.want(MODEL, chunk)
    holding.set()
    rechecks._pool.shutdown(wait=True)
    counts = Counter(looked.queue)
    assert len(counts) <= RECHECKS_MAX + 2, "as many as wait, and those being looked at"
    assert max(counts.values()) <= 2, "one that waits is not looked at twice"


def test_an_error_that_cannot_be_is_a_bug() -> None:
    bugs = Queue[BaseException]()

    def recheck(deployment: DeploymentId, chunk: int) -> bool:
        raise ZeroDivisionError

    rechecks = Rechecks(store_of(recheck), cast(Any, SimpleNamespace(report=bugs.put)))
    rechecks.want(MODEL, 1)
    assert isinstance(bugs.get(timeout=TIMEOUT_S), ZeroDivisionError)
    rechecks.close()
    rechecks.want(MODEL, 2)  # too late, and no error


def test_a_chunk_is_read_back_once_a_minute_for_all_that_complain() -> None:
    looked = Looked(16 * MIB)
    for member in (LIAR, HONEST, LIAR):
        assert looked.complain(1, member) == 1
    assert looked.rechecks.ignored == 2
    looked.now = RECHECK_AGAIN_S
    assert looked.complain(1, HONEST) == 2


def test_one_members_complaints_cost_a_bounded_number_of_bytes_and_another_is_still_heard() -> None:
    looked = Looked(16 * MIB)
    for chunk in range(100):
        looked.complain(chunk)
    assert looked.chunks.qsize() == MEMBER_BYTES // (16 * MIB)
    assert looked.complain(100, HONEST) == MEMBER_BYTES // (16 * MIB) + 1


def test_complaints_about_small_chunks_are_bounded_too_and_so_are_those_of_many_members() -> None:
    looked = Looked(1)
    for chunk in range(300):
        looked.complain(chunk)
    assert looked.chunks.qsize() == MEMBER_BYTES // MIB
    for number in range(10):
        for chunk in range(300 * (number + 1), 300 * (number + 2)):
            looked.complain(chunk, NodeId(bytes([number]) * 16))
    assert looked.chunks.qsize() == ALL_BYTES // MIB


def test_complaints_about_what_is_not_here_are_nothing() -> None:
    def unknown(_deployment: DeploymentId, _chunk: int) -> int:
        raise NotHeldError("no chunk", code="E_CHUNK_RANGE")

    looked: list[int] = []
    store = SimpleNamespace(recheck=lambda _deployment, chunk: looked.append(chunk), chunk_length=unknown)
    rechecks = Rechecks(cast(Any, store), cast(Any, None))
    rechecks.want(MODEL, 1, LIAR)
    rechecks.close()
    assert looked == []
