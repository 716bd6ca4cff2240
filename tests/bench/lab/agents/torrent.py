"""One libtorrent session: ``torrent TORRENT DIRECTORY ADDRESS PORT seed|leech PEER:PORT...``.

The settings are the ones that did best on these links: TCP only (uTP yields to itself), no encryption, no disk cache
limits that matter, slots for about as many peers as a host's link feeds at a useful rate, and for the seed
super-seeding, which keeps what leaves storage near one copy. Peers are named, so neither tracker nor DHT is needed.
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
}  # fmt: skip


def main(torrent: str, directory: str, address: str, port: str, role: str, *peers: str) -> None:
    session = libtorrent.session({**SETTINGS, "listen_interfaces": f"{address}:{port}"})
    wanted = libtorrent.add_torrent_params()
    wanted.ti = libtorrent.torrent_info(torrent)
    wanted.save_path = directory
    wanted.flags &= ~(libtorrent.torrent_flags.auto_managed | libtorrent.torrent_flags.paused)
    if role == "seed":
        wanted.flags |= libtorrent.torrent_flags.seed_mode | libtorrent.torrent_flags.super_seeding
    handle = session.add_torrent(wanted)
    ready()
    for peer in peers:
        host, _, peer_port = peer.rpartition(":")
        handle.connect_peer((host, int(peer_port)))
    if role == "seed":
        sys.stdin.read()
        return
    while not handle.status().is_seeding:
        time.sleep(0.02)
    status = handle.status()
    answer(received=status.total_wanted_done, duplicate=status.total_redundant_bytes + status.total_failed_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
