"""libtorrent (an extra, for benchmarks only): a super-seeding session beside storage, one session on each host."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tests.bench.lab.fabric import LabError
from tests.bench.lab.process import Agent
from tests.bench.lab.systems.base import START_SECONDS_MAX, Bench, Outcome, run_agents

PORT = 6881
PIECE_BYTES_MIN = 256 * 1024
PIECES = 1024


def run_libtorrent(bench: Bench) -> Outcome:
    """Every host knows every other and the seed."""
    torrent = bench.base / "model.torrent"
    torrent.write_bytes(_describe(bench.model))
    seed_station, stations = bench.fabric.storage, bench.fabric.hosts
    peers = [f"{station.address}:{PORT}" for station in (seed_station, *stations)]
    agents, copies = [], {}
    seed = Agent(
        seed_station, "torrent", str(torrent), str(bench.model.parent), seed_station.address, str(PORT), "seed",
        log=bench.base / "torrent-seed.log",
    )  # fmt: skip
    try:
        seed.wait_ready(START_SECONDS_MAX)
        for station in stations:
            directory = bench.directory("libtorrent", station)
            copies[station.name] = directory / bench.model.name
            known = [peer for peer in peers if not peer.startswith(f"{station.address}:")]
            arguments = (str(torrent), str(directory), station.address, str(PORT), "leech", *known)
            agents.append(Agent(station, "torrent", *arguments, log=directory / "agent.log"))
        seed.go()
        return run_agents(bench, "libtorrent", agents, copies)
    finally:
        for agent in (*agents, seed):
            agent.process.kill()


def _describe(model: Path) -> bytes:
    try:
        libtorrent: Any = importlib.import_module("libtorrent")
    except ImportError:
        raise LabError("libtorrent is not installed: pip install -e '.[bench]'") from None
    storage = libtorrent.file_storage()
    libtorrent.add_files(storage, str(model))
    piece = PIECE_BYTES_MIN
    while piece * PIECES < model.stat().st_size:
        piece *= 2
    creator = libtorrent.create_torrent(storage, piece_size=piece, flags=libtorrent.create_torrent.v1_only)
    libtorrent.set_piece_hashes(creator, str(model.parent))
    encoded: bytes = libtorrent.bencode(creator.generate())
    return encoded
