"""Mirrors as they are: replicas with tags of their own behind one address, and servers without ranges."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from gossipd.sources.errors import SourceError
from tests.gossipd.sources.balancer import balanced
from tests.gossipd.sources.models import sign, toy_files, write_tree
from tests.gossipd.sources.test_reader import QUICK, Seat
from tests.servers import free_port, nginx, wait_for_port

FILES = toy_files(Random(7))
MIB = 1024 * 1024


@contextmanager
def replicas(tmp_path: Path, *trees: dict[str, bytes]) -> Iterator[str]:
    """nginx for each tree, with dates and so tags of its own, behind one address."""
    ports: list[int] = []
    with (
        nginx_of(tmp_path / "0", trees[0], 1_700_000_000, ports),
        nginx_of(tmp_path / "1", trees[1], 1, ports),
        balanced(ports) as url,
    ):
        yield url


@contextmanager
def nginx_of(base: Path, tree: dict[str, bytes], written_s: int, ports: list[int]) -> Iterator[None]:
    write_tree(tree, base / "www")
    for path in tree:
        os.utime(base / "www" / path, (written_s, written_s))
    with nginx(base / "www", base / "nginx") as server:
        ports.append(server.port)
        yield


@pytest.mark.needs("nginx")
def test_replicas_whose_tags_differ_are_one_source(tmp_path: Path) -> None:
    with replicas(tmp_path, FILES, FILES) as url:
        seat = Seat(sign(FILES, url))
        for chunk in range(seat.manifest.chunk_count):
            outcome = seat.read(chunk)
            assert (outcome.stored, outcome.errors) == ((chunk,), ())
            seat.reader._requests._web.close()  # so that the next range comes from the other replica
    assert len(seat.store.chunks) == seat.manifest.chunk_count


@pytest.mark.needs("nginx")
def test_of_replicas_with_other_bytes_the_object_is_named_and_no_byte_is_taken(tmp_path: Path) -> None:
    stale = FILES | {"b.safetensors": bytes(len(FILES["b.safetensors"]))}
    with replicas(tmp_path, stale, stale) as url:
        seat = Seat(sign(FILES, url))
        outcome = seat.read()
    named = {error.what for error in outcome.errors if isinstance(error, SourceError)}
    assert named == {f"{url}/b.safetensors"}
    assert len(outcome.failed) == 3, "the chunks of that file, and no other"
    assert all(isinstance(error, SourceError) and error.is_permanent for error in outcome.errors)


@contextmanager
def rangeless(directory: Path) -> Iterator[str]:
    """``python3 -m http.server``, as people start it."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(120)


def test_small_files_of_a_server_without_ranges_are_taken_whole(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path)
    with rangeless(tmp_path) as url:
        seat = Seat(sign(FILES, url), settings=replace(QUICK, whole_file_bytes_max=16 * MIB))
        assert seat.reader.probe(seat.manifest).readable
        for chunk in reversed(range(seat.manifest.chunk_count)):
            outcome = seat.read(chunk)
            assert (outcome.stored, outcome.errors) == ((chunk,), ())
