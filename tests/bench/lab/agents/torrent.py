"""One libtorrent session: ``torrent TORRENT DIRECTORY ADDRESS:PORT seed|leech|web SEED:PORT|- PEER:PORT...``.

``web`` is a leech that also reads from the web seeds that the torrent names (BEP 19); a leech does not look at them.
Peers and the super-seeding session are named, so neither tracker nor DHT is needed.

The settings are the ones that did best on these links: TCP only (uTP yields to itself), no encryption, no disk cache
limits that matter, slots for about as many peers as a host's link feeds at a useful rate, and for the seed
super-seeding, which keeps what leaves storage near one copy.

A leech is ready when the seed has offered it a first piece, or where there is none when it is connected to all others.
A super-seeding libtorrent 2.1 offers none before 10 s have passed in which the peer wanted nothing (its log: HAVE_NONE
at once, HAVE 10.7 s later). All hosts stood still meanwhile, whatever the size: 13 s, which are the program's and not
the swarm's. Until the word to go the seed sends next to nothing, and web seeds are not known.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

from tests.bench.lab.agents.protocol import answer, ready

libtorrent: Any = importlib.import_module("libtorrent")  # an extra that most machines do not have

SETTINGS: dict[str, Any] = {
    "enable_dht": False, "enable_lsd": False, "enable_upnp": False, "enable_natpmp": False,
    "enable_outgoing_utp": False, "enable_incoming_utp": False,
    "in_enc_policy": 2, "out_enc_policy": 2, "allow_multiple_connections_per_ip": True,
    "connections_limit": 200, "unchoke_slots_limit": 6, "connection_speed": 200, "torrent_connect_boost": 100,
    "peer_turnover": 0, "choking_algorithm": 0, "seed_choking_algorithm": 0, "strict_super_seeding": False,
    "unchoke_interval": 5, "optimistic_unchoke_interval": 10, "request_queue_time": 2, "max_out_request_queue": 200,
    "piece_timeout": 10, "send_buffer_watermark": 1024 * 1024, "hashing_threads": 1, "aio_threads": 2,
    "suggest_mode": 0, "smooth_connects": False, "close_redundant_connections": False, "alert_mask": 0,
    "min_reconnect_time": 1,  # who was not up yet is asked again at once
}  # fmt: skip


HELD_BYTES_PER_S = 2000  # room for offers: nine bytes for each


def main(torrent: str, directory: str, listen: str, role: str, seed: str, *peers: str) -> None:
    session = libtorrent.session({**SETTINGS, "listen_interfaces": listen})
    flags = libtorrent.torrent_flags
    wanted = libtorrent.load_torrent_file(torrent)
    wanted.save_path = directory
    wanted.flags &= ~(flags.auto_managed | flags.paused)
    web_seeds, wanted.url_seeds = wanted.url_seeds, []
    if role == "seed":
        wanted.flags |= flags.seed_mode | flags.super_seeding
        wanted.upload_limit = HELD_BYTES_PER_S
    handle = session.add_torrent(wanted)
    if role == "seed":
        ready()
        handle.set_upload_limit(-1)
        sys.stdin.read()
        return
    others = peers if seed == "-" else (seed, *peers)
    for other in others:
        host, _, port = other.rpartition(":")
        handle.connect_peer((host, int(port)))
    while not _is_met(handle.get_peer_info(), len(others), is_offered=seed != "-"):
        time.sleep(0.1)
    ready()
    for url in web_seeds if role == "web" else ():
        handle.add_url_seed(url)
    while not handle.status().is_seeding:
        time.sleep(0.02)
    status = handle.status()
    answer(received=status.total_wanted_done, duplicate=status.total_redundant_bytes + status.total_failed_bytes)


def _is_met(known: list[Any], count: int, *, is_offered: bool) -> bool:
    if is_offered:
        return any(peer.flags & libtorrent.peer_info.interesting for peer in known)
    return len(known) >= count


if __name__ == "__main__":
    main(*sys.argv[1:])
