"""Pages of clusters of any size, as a daemon answers them: what the commands' tests draw."""

from __future__ import annotations

from typing import Any


def host(number: int, *, state: str = "complete", chunks: int = 1024, reason: str = "", subject: str = "") -> Any:
    return {
        "name": f"gpu-h100-dc1-r{number % 4}-n{number:03}", "rack": f"rack-{number % 4}", "state": state,
        "chunks_verified": chunks, "age_s": 1.0, "reason": reason, "subject": subject,
    }  # fmt: skip


def deployment(hosts: list[Any], *, name: str = "qwen", state: str = "distributing", **more: Any) -> Any:
    complete = sum(each["state"] == "complete" for each in hosts)
    verified = sum(each["chunks_verified"] for each in hosts) // max(1, len(hosts))
    return {
        "id": "00" * 32, "name": name, "version": 1, "state": state, "bytes_total": 1024 << 20, "chunks_total": 1024,
        "bytes_verified": verified << 20, "chunks_verified": verified, "hosts_total": len(hosts),
        "hosts_complete": complete, "hosts_failed": sum(each["state"] == "failed" for each in hosts),
        "source_bytes": 1024 << 20, "peer_bytes_same_rack": 0, "peer_bytes_cross_rack": 0, "duplicate_bytes": 0,
        "corrupt_chunks": 0, "rate_in_bytes_per_s": 3 << 30, "rate_out_bytes_per_s": 0, "eta_s": 130.0,
        "started_at": "2026-11-25T12:00:00Z", "completed_at": None, "hosts": hosts,
        "cluster_bytes_total": (1024 << 20) * len(hosts), "cluster_bytes_verified": verified * len(hosts) << 20,
        "priority": 5, "stall": None, "signed_by": "abc",
    } | more  # fmt: skip


def page(*deployments: Any, members: int = 200, alarms: list[Any] | None = None, **node: Any) -> Any:
    rows = [
        {
            "name": f"gpu-h100-dc1-r{n % 4}-n{n:03}", "rack": f"rack-{n % 4}", "zone": "", "id": f"{n:032x}",
            "address": f"10.0.0.{n % 250}:7946", "state": "alive", "seed": n < 4, "version": "0.2.0", "since_s": 60.0,
        }
        for n in range(members)
    ]  # fmt: skip
    own = {"name": rows[0]["name"], "rack": "rack-0", "zone": "", "id": f"{0:032x}", "address": "10.0.0.0:7946"}
    return {
        "schema_version": 1, "node": {**own, "version": "0.2.0", "uptime_s": 100.0} | node, "members": rows,
        "deployments": list(deployments), "security": {"state": "ok", "bulk_encryption": "tls", "reasons": []},
        "store": {
            "condition": "ok", "detail": "", "free_bytes": 1 << 40, "need_bytes": 0, "oldest_unchecked_s": None,
        },
        "inbox": {"accepted": 1, "refused": 0, "waiting": 0, "trouble": None},
        "audit": {"records": 1, "head": "", "trouble": None}, "alarms": alarms or [], "loop_lag_p99_s": 0.0,
    }  # fmt: skip
