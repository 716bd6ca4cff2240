"""A daemon's read socket that says what a test has written, byte for byte, and remembers what it was asked."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from gossipd.web.forwarding import Forwarder
from gossipd.web.server import PageServer, Protection


def answers_about(status: dict[str, Any]) -> dict[str, Any]:
    """By target: what a daemon with this status says of all deployments, of each with all its hosts, and of each host
    alone."""
    rows = status["deployments"]
    answers = {"/v1/status?hosts_max=0": status | {"deployments": [without_complete(row) for row in rows]}}
    for row in rows:
        answers[f"/v1/status?name={row['name']}&version={row['version']}"] = status | {"deployments": [row]}
    for name in {host["name"] for row in rows for host in row["hosts"]}:
        alone = [row | {"hosts": [host for host in row["hosts"] if host["name"] == name]} for row in rows]
        answers[f"/v1/status?host={name}"] = status | {"deployments": [row for row in alone if row["hosts"]]}
    return answers


def without_complete(row: dict[str, Any]) -> dict[str, Any]:
    """The deployment with its complete hosts left out, in groups of one."""
    left_out = [{"rack": host["rack"], "state": "complete"} for host in row["hosts"] if host["state"] == "complete"]
    return row | {"hosts": [host for host in row["hosts"] if host["state"] != "complete"], "left_out": left_out}


class UnixDaemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """``answers``: JSON by target; all else is 404. ``refused``: targets that are answered with 503."""

    daemon_threads = True

    def __init__(self, path: Path, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.refused: set[str] = set()
        super().__init__(str(path), _Said)


class _Said(BaseHTTPRequestHandler):
    server: UnixDaemon

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = self.server.answers.get(self.path)
        body = json.dumps(found if found is not None else {"error": {"code": "E_NOT_FOUND", "message": "no"}}).encode()
        status = 200 if found is not None else 404
        self.send_response(503 if self.path in self.server.refused else status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def address_string(self) -> str:
        return "unix"


@contextmanager
def unix_daemon(path: Path, answers: dict[str, Any]) -> Iterator[UnixDaemon]:
    with UnixDaemon(path, answers) as daemon, serving(daemon):
        yield daemon


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def page_server(
    read_socket: Path, protection: Protection | None = None, *, kept_s: float = 0.0, **limits: Any
) -> Iterator[PageServer]:
    forwarder = Forwarder(read_socket, kept_s=kept_s)
    with PageServer(("127.0.0.1", 0), forwarder, protection or Protection(), **limits) as server, serving(server):
        yield server


def status_of(hosts: int, racks: int) -> dict[str, Any]:
    """A status as a daemon of that many hosts gives it: random ids, ages and uptimes; a third of the hosts complete."""
    from random import Random

    random = Random(7)
    members: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for number in range(hosts):
        name, rack = f"gpu-{number:04d}", f"rack-{number * racks // hosts + 1:02d}"
        members.append({
            "name": name, "rack": rack, "zone": "", "id": random.randbytes(16).hex(),
            "address": f"10.{number // 250}.{number % 250}.17:7946", "state": "dead" if number == 7 else "alive",
            "seed": number % 250 == 0, "version": "0.2.0", "since_s": round(random.uniform(10, 90_000), 1),
        })  # fmt: skip
        done = random.random() < 0.33
        rows.append({
            "name": name, "rack": rack, "state": "complete" if done else "downloading",
            "chunks_verified": 8000 if done else random.randrange(8000), "age_s": round(random.uniform(0, 20), 1),
            "reason": "dead" if number == 7 else "", "subject": "",
        })  # fmt: skip
    complete = sum(row["state"] == "complete" for row in rows)
    verified = sum(row["chunks_verified"] for row in rows) * 62_500_000
    deployment = {
        "id": "ab" * 32, "name": "org/llama", "version": 3, "version_label": "3", "lineage": "",
        "state": "distributing", "bytes_total": 500_000_000_000, "bytes_verified": verified // hosts,
        "chunks_total": 8000, "chunks_verified": verified // hosts // 62_500_000,
        "hosts_total": hosts, "hosts_complete": complete, "hosts_failed": 0, "source_bytes": 500_100_000_000,
        "peer_bytes_same_rack": verified * 9 // 10, "peer_bytes_cross_rack": verified // 10, "duplicate_bytes": 0,
        "corrupt_chunks": 0, "rate_in_bytes_per_s": 10**11, "rate_out_bytes_per_s": 10**11, "eta_s": 300.5,
        "started_at": "2026-01-01T00:00:00Z", "completed_at": None, "hosts": rows, "priority": 5, "stall": None,
        "cluster_bytes_total": 500_000_000_000 * hosts, "cluster_bytes_verified": verified, "signed_by": "aa" * 16,
    }  # fmt: skip
    return {
        "schema_version": 1,
        "node": {"name": "gpu-0000", "rack": "rack-01", "zone": "", "id": members[0]["id"], "address": "10.0.0.17:7946",
                 "version": "0.2.0", "uptime_s": 100.0},
        "members": members, "deployments": [deployment],
        "security": {"state": "ok", "bulk_encryption": "tls", "reasons": []},
        "store": {"condition": "ok", "detail": "", "free_bytes": 10**12, "need_bytes": 0, "oldest_unchecked_s": None},
        "inbox": {"accepted": 1, "refused": 0, "waiting": 0, "trouble": None},
        "audit": {"records": 3, "head": "", "trouble": None}, "alarms": [], "loop_lag_p99_s": 0.001,
    }  # fmt: skip
