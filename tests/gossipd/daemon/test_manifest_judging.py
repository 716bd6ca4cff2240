"""Large manifests are judged one after the other, small ones at once."""

from __future__ import annotations

import threading
import time

import pytest
import trio

from gossipd.daemon import manifest_judging
from gossipd.daemon.manifest_judging import LARGE_BYTES, judge_manifest


@pytest.mark.parametrize(("size", "together"), [(LARGE_BYTES + 1, 1), (LARGE_BYTES, 2)])
async def test_only_small_manifests_are_judged_at_once(
    monkeypatch: pytest.MonkeyPatch, size: int, together: int
) -> None:
    under_way, most, both = 0, 0, threading.Barrier(2)

    def judge(envelope: bytes, trusted: object) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if together == 2:
            both.wait(120)
        else:
            time.sleep(0.05)
        under_way -= 1

    monkeypatch.setattr(manifest_judging, "open_manifest", judge)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(judge_manifest, bytes(size), [])
    assert most == together
