"""The manifest's file that an order names is read, or the order is told why not: also where nothing answers."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
import trio

from gossipd.daemon import envelope_file
from gossipd.daemon.envelope_file import THREADS, envelope_of_order
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.publish.errors import PublishError


async def test_a_file_of_a_manifest_is_read_and_others_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.manifest"
    path.write_bytes(b"words")
    assert await envelope_of_order(path) == b"words"
    with pytest.raises(PublishError, match="missing: No such file"):
        await envelope_of_order(tmp_path / "missing")
    path.write_bytes(bytes(ENVELOPE_BYTES_MAX + 1))
    with pytest.raises(PublishError, match=r"m\.manifest is no manifest"):
        await envelope_of_order(path)


async def test_files_that_are_never_read_end_their_orders_and_leave_threads_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, ended = Event(), []

    def hang(path: Path) -> bytes:
        assert answers.wait(120.0)
        return b""

    async def order(name: str) -> None:
        with pytest.raises(PublishError, match=f"{name} is not read: after .* its file system has not answered"):
            await envelope_of_order(tmp_path / name)
        ended.append(name)

    monkeypatch.setattr(envelope_file, "WAIT_S", 0.05)
    monkeypatch.setattr(envelope_file, "read_envelope", hang)
    try:
        async with trio.open_nursery() as nursery:
            for number in range(THREADS + 50):
                nursery.start_soon(order, f"m{number}")
        assert len(ended) == THREADS + 50
        with trio.fail_after(10.0):
            assert await trio.to_thread.run_sync(lambda: 7) == 7, "a thread is left for others"
    finally:
        answers.set()
