"""Members of a large cluster in one process: ``python -m tests.bench.growth_members KEY_FILE COUNT PROBE_S``.

Each is the daemon's own brain of membership with keys of its own, on a datagram socket of its own, at an address of
loopback of its own. They know each other when time begins; the daemon joins through any of them. There are no other
ports: links to them fail. Prints ``ready``; ends with stdin.

They probe each other every PROBE_S instead of every half second, as all of them share one interpreter; what the daemon
itself sends and answers is by its own settings.
"""

from __future__ import annotations

import sys
import time
from hashlib import blake2b
from pathlib import Path
from random import Random

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gossipd.identity.key_files import read_key_ring
from gossipd.swarm.capabilities import NodeCapabilities
from membership.credentials import Credentials
from membership.events import Event
from membership.member import Record
from membership.runtime import SwimRuntime, open_udp_socket
from membership.seal import KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim

PORT = 17946
RACK_HOSTS = 20


def address_of(number: int) -> str:
    """Of the member with this number, from 0."""
    return f"127.77.{1 + number // 250}.{1 + number % 250}"


def member(ring: KeyRing, number: int, probe_s: float) -> Swim:
    """A brain that knows nobody."""
    key = Ed25519PrivateKey.from_private_bytes(blake2b(f"member {number}".encode(), digest_size=32).digest())
    record = Record(
        key.public_key().public_bytes_raw(), int(time.time()), 1, f"member-{number}",
        f"rack-{number // RACK_HOSTS}", "", address_of(number), PORT, PORT + 1,
        blake2b(f"transport {number}".encode(), digest_size=32).digest(), software="0.2.0",
        payload=NodeCapabilities(can_read_sources=True, signs_progress=True).to_bytes(),
    )  # fmt: skip
    settings = SwimSettings(probe_interval_s=probe_s, probe_timeout_s=min(1.0, probe_s / 3))
    return Swim(settings, record, Credentials(key.sign, ring), rng=Random(number), now=trio.current_time())


def ignore(event: Event) -> None:
    """Nobody acts on what stand-ins believe."""


async def main(key_file: Path, count: int, probe_s: float) -> None:
    """Until stdin closes."""
    ring = read_key_ring(key_file)
    brains = [member(ring, number, probe_s) for number in range(count)]
    brains[0].adopt_view(brains)
    for brain in brains[1:]:
        brain.adopt_view(brains[:1])
    async with trio.open_nursery() as nursery:
        for number, brain in enumerate(brains):
            runtime = SwimRuntime(brain, open_udp_socket(address_of(number), PORT), on_event=ignore)
            nursery.start_soon(runtime.run)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
