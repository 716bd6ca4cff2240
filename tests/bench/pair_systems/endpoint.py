"""What both ends of every system share: the plan, the signals of the parent, and a process's own costs."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from blake3 import blake3

from gossipd.identity.keys import SecretKey
from gossipd.transfer.credentials import TlsCredentials, tls_credentials

CLUSTER_KEY = b"\x05" * 32
SENDER_KEY = SecretKey(b"\x01" * 32)
RECEIVER_KEY = SecretKey(b"\x02" * 32)


@dataclass(frozen=True)
class Plan:
    """One run: a file of ``nbytes`` in ``source``, to be copied beneath ``target`` in chunks."""

    source: str
    target: str
    nbytes: int
    chunk_bytes: int
    encryption: str
    connections: int
    ports: tuple[int, ...] = ()
    fetches: int = 4

    @property
    def chunk_count(self) -> int:
        return -(-self.nbytes // self.chunk_bytes)

    def length(self, chunk: int) -> int:
        return min(self.chunk_bytes, self.nbytes - chunk * self.chunk_bytes)

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Plan:
        fields = json.loads(text)
        return cls(**{**fields, "ports": tuple(fields["ports"])})


@dataclass
class Usage:
    """What this process has used since ``mark``."""

    cpu_s: float = 0.0
    started_s: float = 0.0

    @classmethod
    def mark(cls) -> Usage:
        return cls(_cpu_s(), time.monotonic())

    def report(self, **more: float) -> dict[str, float]:
        return {
            "seconds": time.monotonic() - self.started_s,
            "cpu_s": _cpu_s() - self.cpu_s,
            "rss_max_bytes": peak_rss_bytes(),
            **more,
        }


def credentials(is_sender: bool) -> TlsCredentials:
    return tls_credentials(SENDER_KEY if is_sender else RECEIVER_KEY, [CLUSTER_KEY])


def peak_rss_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM in /proc/self/status")


def digests(plan: Plan) -> list[bytes]:
    """Of every chunk; cached beside the source, as a manifest would be."""
    kept = Path(f"{plan.source}.{plan.chunk_bytes}.digests")
    if not kept.exists():
        with open(plan.source, "rb") as file:
            kept.write_bytes(b"".join(blake3(file.read(plan.chunk_bytes)).digest() for _ in range(plan.chunk_count)))
    raw = kept.read_bytes()
    return [raw[at : at + 32] for at in range(0, len(raw), 32)]


def say(**words: object) -> None:
    """One line to the parent."""
    print(json.dumps(words), flush=True)


def await_word(word: str) -> None:
    """Wait for the parent to say ``word``."""
    line = sys.stdin.readline().strip()
    assert line == word, f"expected {word}, got {line!r}"


def main(
    send: Callable[[Plan], AbstractContextManager[tuple[int, ...]]], receive: Callable[[Plan], dict[str, float]]
) -> None:
    """``send`` yields its ports once it serves; ``receive`` is timed by itself from the parent's ``go``."""
    role, plan = sys.argv[1], Plan.from_text(sys.argv[2])
    if role == "receive":
        say(**receive(plan))
        return
    with send(plan) as ports:
        say(ports=ports)
        usage = Usage.mark()
        await_word("stop")
        say(**usage.report())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
