"""Chunks read back after complaints: bounded, each once, and a bug is reported."""

from __future__ import annotations

import threading
from collections import Counter
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

from gossipd.core.ids import DeploymentId
from gossipd.daemon.rechecks import RECHECKS_MAX, Rechecks

MODEL = DeploymentId(b"m" * 32)
TIMEOUT_S = 30.0


def test_complaints_without_end_read_back_a_bounded_number() -> None:
    holding, looked = threading.Event(), Queue[int]()

    def recheck(deployment: DeploymentId, chunk: int) -> bool:
        looked.put(chunk)
        holding.wait(TIMEOUT_S)
        return True

    rechecks = Rechecks(cast(Any, SimpleNamespace(recheck=recheck)), cast(Any, None))
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

    rechecks = Rechecks(cast(Any, SimpleNamespace(recheck=recheck)), cast(Any, SimpleNamespace(report=bugs.put)))
    rechecks.want(MODEL, 1)
    assert isinstance(bugs.get(timeout=TIMEOUT_S), ZeroDivisionError)
    rechecks.close()
    rechecks.want(MODEL, 2)  # too late, and no error
