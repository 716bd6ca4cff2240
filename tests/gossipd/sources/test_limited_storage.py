"""The reader against storage with limits and faults, over real sockets; judged by what the server counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from gossipd.sources.settings import SourceSettings
from tests.gossipd.sources.models import sign
from tests.gossipd.sources.test_reader import Seat
from tests.limited_storage import Rules, limited_storage
from tests.servers import free_port

CHUNK_BYTES = 256 * 1024
BODY = Random(7).randbytes(24 * CHUNK_BYTES)
WORKERS = 8


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.bin").write_bytes(BODY)
    return tmp_path


def seat(*urls: str) -> Seat:
    manifest = sign({"a.bin": BODY}, *urls, chunk_bytes=CHUNK_BYTES)
    return Seat(manifest, settings=SourceSettings(), pool_bytes=32 * 1024 * 1024)


def read_all(one: Seat, *, chunks_each: int = 1) -> list[str]:
    """Read everything over as many threads as a daemon has; the codes of the errors."""
    count = one.manifest.chunk_count
    units = [range(at, min(at + chunks_each, count)) for at in range(0, count, chunks_each)]
    with ThreadPoolExecutor(WORKERS) as pool:
        outcomes = list(pool.map(lambda unit: one.reader.read_chunks(one.manifest, unit, is_awaited=True), units))
    assert [outcome.failed for outcome in outcomes if outcome.failed] == []
    assert len(one.store.chunks) == count
    return [error.code for outcome in outcomes for error in outcome.errors]


@pytest.mark.parametrize("counts_sockets", [False, True])
@pytest.mark.parametrize("connections", [1, 2])
def test_a_mirror_that_allows_few_connections_gets_few_and_refuses_few(
    root: Path, connections: int, counts_sockets: bool
) -> None:
    rules = Rules(connection_bytes_per_s=8e6, connections=connections, counts_sockets=counts_sockets)
    with limited_storage(root, rules) as (url, storage):
        one = seat(url)
        assert read_all(one) == []
        assert one.reader.statistics().retries == storage.counts.refused <= 2 * 24
        assert storage.counts.requests - storage.counts.refused == 24 + 1


def test_requests_per_second_are_learned_from_429(root: Path) -> None:
    with limited_storage(root, Rules(requests_per_s=20, burst=5, status=429)) as (url, storage):
        assert read_all(seat(url)) == []
        assert storage.counts.refused <= 2 * 24


def test_bodies_that_break_in_the_middle_cost_few_bytes_more(root: Path) -> None:
    with limited_storage(root, Rules(reset_each=3)) as (url, storage):
        assert read_all(seat(url)) == []
        assert storage.counts.sent_bytes <= 1.2 * len(BODY)


def test_of_a_read_that_breaks_off_everything_that_came_is_kept(root: Path) -> None:
    with limited_storage(root, Rules(reset_each=2)) as (url, storage):
        assert read_all(seat(url), chunks_each=16) == []
        assert storage.counts.sent_bytes <= 1.1 * len(BODY)


def test_refusals_whatever_the_number_are_repeated_alone(root: Path) -> None:
    with limited_storage(root, Rules(refuse_each=3, refuse_for_s=10.0)) as (url, storage):
        assert read_all(seat(url)) == []
        assert storage.counts.requests <= 1.8 * (24 + 1)


def test_a_request_that_drips_is_made_again_on_another_connection(root: Path) -> None:
    rules = Rules(total_bytes_per_s=20e6, drip_each=8)
    with limited_storage(root, rules) as (url, storage):
        assert read_all(seat(url)) == []
        assert 24 + 1 < storage.counts.requests <= 24 + 1 + 8


def test_two_mirrors_are_read_at_once(root: Path) -> None:
    with ExitStack() as stack:
        rules = Rules(connection_bytes_per_s=8e6, connections=2)
        mirrors = [stack.enter_context(limited_storage(root, rules)) for _ in range(2)]
        # A request that a busy machine makes look slow beside the others is made again.
        assert set(read_all(seat(*(url for url, _ in mirrors)))) <= {"E_SOURCE_SLOW"}
        assert all(storage.counts.sent_bytes > len(BODY) / 4 for _, storage in mirrors)


def test_a_dead_a_lying_and_a_slow_mirror_cost_the_good_one_little(root: Path) -> None:
    with ExitStack() as stack:
        lies, _ = stack.enter_context(limited_storage(root, Rules(connection_bytes_per_s=8e6, lies=True)))
        slow, dripping = stack.enter_context(limited_storage(root, Rules(connection_bytes_per_s=10_000)))
        good, storage = stack.enter_context(limited_storage(root, Rules(connection_bytes_per_s=8e6)))
        one = seat(f"http://127.0.0.1:{free_port()}", lies, slow, good)
        codes = read_all(one)
        assert "E_SOURCE_HASH" in codes, "told"
        assert one.store.mismatches <= 2
        assert dripping.counts.requests <= 4
        assert storage.counts.sent_bytes <= 1.05 * len(BODY)


def test_mirrors_of_mixed_schemes_are_read_at_once(root: Path) -> None:
    with limited_storage(root, Rules(connection_bytes_per_s=8e6)) as (url, storage):
        manifest = sign({"a.bin": BODY}, f"file://{root}", url, chunk_bytes=CHUNK_BYTES)
        allowed = [f"file://{root}", "http://127.0.0.1:*"]
        one = Seat(manifest, settings=SourceSettings(), allow=allowed, pool_bytes=32 * 1024 * 1024)
        assert read_all(one) == []
        assert storage.counts.sent_bytes < len(BODY)
