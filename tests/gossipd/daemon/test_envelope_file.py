"""The manifest's file that an order names is read, or the order is told why not: also where nothing answers."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
import trio

from gossipd.daemon import envelope_file
from gossipd.daemon.envelope_file import PLACES_MAX, THREADS, envelope_of_order
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
    answers, ended = Event(), list[str]()

    def hang(path: Path) -> bytes:
        assert path.parts[1] != "hung" or answers.wait(60.0)
        return b""

    async def order(name: str) -> None:
        with pytest.raises(PublishError, match=f"{name} is not read: after ") as caught:
            await envelope_of_order(Path("/hung", name))
        ended.append(str(caught.value).rpartition(" s ")[2])

    monkeypatch.setattr(envelope_file, "WAIT_S", 0.3)
    monkeypatch.setattr(envelope_file, "read_envelope", hang)
    try:
        async with trio.open_nursery() as nursery:
            for number in range(THREADS * PLACES_MAX + 50):
                nursery.start_soon(order, f"place-{number % 2}/m{number}")
        assert ended.count("its file system has not answered") == 2 * THREADS
        assert len(ended) == THREADS * PLACES_MAX + 50
        with trio.fail_after(10.0):
            assert await trio.to_thread.run_sync(lambda: 7) == 7, "a thread is left for others"
            assert await envelope_of_order(tmp_path / "m") == b"", "and for files elsewhere"
    finally:
        answers.set()
