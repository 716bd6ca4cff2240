"""One real member as a process: ``python -m tests.bench.membership_agent NAME RACK HOST PORT [CONTACT]``.

Prints ``up NAME`` and ``down NAME`` lines, like a serf agent's log does; runs until it is killed. The brain, the seal
and the runtime are the daemon's, with its defaults; there is no control channel: fallback probes stay unanswered.
"""

from __future__ import annotations

import sys
import time
from hashlib import blake2b
from random import Random

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from membership.credentials import Credentials
from membership.events import Event, MemberDown, MemberUp
from membership.member import Record
from membership.runtime import SwimRuntime, open_udp_socket
from membership.seal import KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim

RING = KeyRing(b"membership bench", (b"k" * 32,))


def tell(event: Event) -> None:
    """One line per verdict."""
    if isinstance(event, MemberUp):
        print("up", event.member.record.name, flush=True)
    elif isinstance(event, MemberDown):
        print("down", event.member.record.name, flush=True)


async def main(name: str, rack: str, host: str, port: int, contact: str | None) -> None:
    """Run until killed."""
    key = Ed25519PrivateKey.from_private_bytes(blake2b(name.encode(), digest_size=32).digest())
    record = Record(
        key.public_key().public_bytes_raw(),
        time.time_ns() // 1_000_000,
        1,
        name,
        rack,
        "",
        host,
        port,
        port + 1,
        bytes(32),
    )
    swim = Swim(SwimSettings(), record, Credentials(key.sign, RING), rng=Random(), now=trio.current_time())
    async with trio.open_nursery() as nursery:
        runtime: SwimRuntime = await nursery.start(_serve, swim, host, port)
        if contact:
            swim.join([(contact, port)], trio.current_time())
            runtime.wake()


async def _serve(swim: Swim, host: str, port: int, *, task_status: trio.TaskStatus[SwimRuntime]) -> None:
    await SwimRuntime(swim, open_udp_socket(host, port), on_event=tell).run(task_status=task_status)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] if len(sys.argv) > 5 else None)
