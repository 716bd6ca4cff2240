"""libtorrent, one seed and one downloader, encryption off, its send and receive paths set for a fast local link.

Settings that measured faster here than the defaults: TCP only (its own uTP paces itself), no rate limits by protocol
overhead, large socket buffers and send watermarks, more disk threads than cores. It hashes with SHA-256 (v2 torrents)
or SHA-1; v1 is used, being the quicker of the two on a machine without SHA instructions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import libtorrent

from tests.bench.pair_systems.endpoint import Plan, Usage, await_word, main, say

POLL_S = 0.005
BUFFER_BYTES = 4 << 20


def session(port: int) -> libtorrent.session:
    return libtorrent.session(
        {
            "listen_interfaces": f"127.0.0.1:{port}",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "enable_outgoing_utp": False,
            "enable_incoming_utp": False,
            "in_enc_policy": int(libtorrent.enc_policy.pe_disabled),
            "out_enc_policy": int(libtorrent.enc_policy.pe_disabled),
            "allow_multiple_connections_per_ip": True,
            "aio_threads": 4,
            "hashing_threads": 2,
            "send_buffer_watermark": BUFFER_BYTES,
            "send_buffer_low_watermark": BUFFER_BYTES // 4,
            "send_buffer_watermark_factor": 200,
            "recv_socket_buffer_size": BUFFER_BYTES,
            "send_socket_buffer_size": BUFFER_BYTES,
            "max_out_request_queue": 2000,
            "max_allowed_in_request_queue": 4000,
            "request_queue_time": 10,
            "file_pool_size": 10,
            "alert_mask": 0,
        }
    )


def torrent_of(plan: Plan) -> libtorrent.torrent_info:
    kept = Path(f"{plan.source}.{plan.chunk_bytes}.torrent")
    if not kept.exists():
        files = libtorrent.file_storage()
        libtorrent.add_files(files, plan.source)
        made = libtorrent.create_torrent(files, plan.chunk_bytes, libtorrent.create_torrent.v1_only)
        libtorrent.set_piece_hashes(made, str(Path(plan.source).parent))
        kept.write_bytes(libtorrent.bencode(made.generate()))
    return libtorrent.torrent_info(str(kept))


@contextlib.contextmanager
def send(plan: Plan) -> Iterator[tuple[int, ...]]:
    running = session(0)
    handle = running.add_torrent(
        {
            "ti": torrent_of(plan),
            "save_path": str(Path(plan.source).parent),
            "flags": libtorrent.torrent_flags.seed_mode | libtorrent.torrent_flags.upload_mode,
        }
    )
    while not handle.status().is_seeding:
        time.sleep(POLL_S)
    yield (running.listen_port(),)


def receive(plan: Plan) -> dict[str, float]:
    target = Path(plan.target, "receiver")
    target.mkdir()
    copy = target / Path(plan.source).name
    with copy.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, plan.nbytes)
    running = session(0)
    handle = running.add_torrent({"ti": torrent_of(plan), "save_path": str(target)})
    handle.pause()
    while handle.status().state != libtorrent.torrent_status.downloading:
        time.sleep(POLL_S)
    say(ready=True)
    await_word("go")
    usage = Usage.mark()
    handle.resume()
    handle.connect_peer(("127.0.0.1", plan.ports[0]))
    while not handle.status().is_seeding:
        time.sleep(POLL_S)
    report = usage.report(chunks_wrong=0.0)
    running.remove_torrent(handle)
    shutil.rmtree(target)
    return report


if __name__ == "__main__":
    main(send, receive)
