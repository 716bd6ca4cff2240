"""libtorrent (an extra, for benchmarks only): one session on each host, and what serves them.

``super``: a super-seeding session beside storage. ``web``: storage's nginx as a web seed (BEP 19), for every host.
``both``: both. ``racks``: the session, and the web seed for the first host of each rack only. Default: ``super``, which
did best; 8 hosts in 2 racks at 50 Mbit/s, 64 MiB, one run each on a machine whose other core was busy, libtorrent 2.1:

====== ==================== ===================
       last host / download storage's bytes / its
====== ==================== ===================
super  1.22                 1.01
racks  1.59                 1.41
both   1.94                 1.94
web    3.12                 3.06
====== ==================== ===================

With a web seed hosts read storage each for itself, and its link, which is the limit, carries the same pieces again.
Pieces of 256 KiB: 1.22 and 1.11 in an otherwise similar run, 64 KiB: 1.13 and 1.07. Upload slots bound
nothing here: peers on private addresses ignore them, as its log says.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tests.bench.lab.fabric import LabError
from tests.bench.lab.process import Agent
from tests.bench.lab.systems.base import START_SECONDS_MAX, Bench, Outcome, run_agents

PORT = 6881
PIECE_BYTES_MIN = 64 * 1024
PIECES = 4096
SEEDING = ("super", "racks", "both", "web")


def run_libtorrent(bench: Bench) -> Outcome:
    """Every host knows every other, and the seed where there is one."""
    torrent = bench.base / "model.torrent"
    torrent.write_bytes(_describe(bench.model, bench.url))
    stations = bench.fabric.hosts
    web = _web_hosts(bench)
    agents: list[Agent] = []
    copies = {}
    seeds = [] if bench.torrent_seeding == "web" else [_seed(bench, torrent)]
    try:
        for seed in seeds:
            seed.wait_ready(START_SECONDS_MAX)
        first = f"{bench.fabric.storage.address}:{PORT}" if seeds else "-"
        for station in stations:
            directory = bench.directory("libtorrent", station)
            copies[station.name] = directory / bench.model.name
            role = "web" if station.name in web else "leech"
            known = [f"{other.address}:{PORT}" for other in stations if other is not station]
            arguments = (str(torrent), str(directory), f"{station.address}:{PORT}", role, first, *known)
            agents.append(Agent(station, "torrent", *arguments, log=directory / "agent.log"))
        return run_agents(bench, "libtorrent", agents, copies, sources=seeds)
    finally:
        for agent in (*agents, *seeds):
            agent.process.kill()


def _web_hosts(bench: Bench) -> set[str]:
    """Who reads the web seed."""
    hosts = bench.fabric.hosts
    if bench.torrent_seeding == "racks":
        return {next(host.name for host in hosts if host.rack == rack) for rack in range(bench.fabric.racks)}
    return set() if bench.torrent_seeding == "super" else {host.name for host in hosts}


def _seed(bench: Bench, torrent: Path) -> Agent:
    station = bench.fabric.storage
    return Agent(
        station, "torrent", str(torrent), str(bench.model.parent), f"{station.address}:{PORT}", "seed", "-",
        log=bench.base / "torrent-seed.log",
    )  # fmt: skip


def _describe(model: Path, url: str) -> bytes:
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
    creator.add_url_seed(url)
    libtorrent.set_piece_hashes(creator, str(model.parent))
    encoded: bytes = libtorrent.bencode(creator.generate())
    return encoded
