"""Lines to a pipe that nobody reads: they are kept or counted, in order, and nobody waits."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

from gossipd.runtime.line_stream import WAITING_BYTES_MAX, LineStream

LINE = "x" * 999
PIPE_BYTES = 64 * 1024


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reads, writes = os.pipe()
    with open(writes, "w") as stream:
        yield reads, stream
    with suppress(OSError):
        os.close(reads)


def everything(reads: int) -> bytes:
    os.set_blocking(reads, False)
    parts = []
    with suppress(BlockingIOError):
        while part := os.read(reads, 1 << 20):
            parts.append(part)
    return b"".join(parts)


def test_a_pipe_that_nobody_reads_holds_nobody_up(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    lines = LineStream(stream)
    for number in range(400):
        lines.write(f"{number:03}{LINE[3:]}")
    assert lines.take_lost() == 0, "they are told when the reader goes on"
    told = b""
    while part := everything(reads):
        told += part
        lines.flush()
    numbers = [int(line[:3]) for line in told.splitlines()]
    assert numbers == list(range(len(numbers))), "in order, each whole"
    assert len(numbers) * 1000 >= 0.95 * (PIPE_BYTES + WAITING_BYTES_MAX)
    assert lines.take_lost() == 400 - len(numbers)
    assert lines.take_lost() == 0


def test_a_line_longer_than_a_pipe_comes_whole(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    lines = LineStream(stream)
    lines.write("y" * 150_000)
    lines.write("later")
    told = b""
    while part := everything(reads):
        told += part
        lines.flush()
    assert told == b"y" * 150_000 + b"\nlater\n"


def test_a_socket_that_nobody_reads_holds_nobody_up() -> None:
    reader, writer = socket.socketpair()
    with reader, writer, writer.makefile("w") as stream:
        lines = LineStream(stream)
        for _ in range(2000):
            lines.write(LINE)
        assert len(reader.recv(1000)) == 1000


def test_a_reader_that_has_gone_costs_lines_and_nothing_else(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    lines = LineStream(stream)
    for _ in range(100):
        lines.write(LINE)
    os.close(reads)
    lines.write("nobody reads this")
    lines.flush()
    assert lines.take_lost() == 0


def test_a_file_and_a_stream_without_a_descriptor_take_all(tmp_path: Path) -> None:
    plain = io.StringIO()
    with open(tmp_path / "log", "w") as file:
        for stream in (plain, file):
            for number in range(1000):
                LineStream(stream).write(f"{number} \udcff{LINE}")
    assert len((tmp_path / "log").read_text().splitlines()) == len(plain.getvalue().splitlines()) == 1000
