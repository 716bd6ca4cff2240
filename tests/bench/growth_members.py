"""Members of a large cluster in one process: ``python -m tests.bench.growth_members KEY_FILE COUNT PROBE_S``.

Each is the daemon's own brain of membership with keys of its own, on a datagram socket of its own, at an address of
loopback of its own. They know each other when time begins; the daemon joins through any of them. There are no other
ports: links to them fail. Prints ``ready``; ends with stdin.

They probe each other every PROBE_S instead of every half second, as all of them share one interpreter; what the daemon
itself sends and answers is by its own settings. For the same reason they pass on no word of the deployments: what
gossip would bring, each tells the daemon itself.

Each line of stdin is an order: ``RECORDS_PER_S ID ...``. Every member then tells the daemon, signed, that it is
complete with each of these deployments; ``told`` is printed when all have. Of a few deployments all tell before any
tells of the next few, as a host refuses what one member tells at once of many. Then they tell it again, at the rate of
the whole cluster, until the next order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from pathlib import Path
from random import Random

import trio

from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import REFRESH_HOSTS_PER_S, HostState, Progress, progress_key
from gossipd.deployment.signed_progress import ProgressKey, sign_progress
from gossipd.identity.key_files import read_key_ring
from gossipd.identity.keys import SecretKey
from gossipd.swarm.capabilities import NodeCapabilities
from membership import wire
from membership.credentials import Credentials
from membership.events import Event, PayloadKind
from membership.host_rules import LenientRules, Verdict
from membership.member import Record
from membership.runtime import SwimRuntime, open_udp_socket
from membership.seal import KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim

PORT = 17946
RACK_HOSTS = 20
PROGRESS = 2  # its number on the wire
RECORDS_PER_DATAGRAM = 6


class _NothingPassedOn(LenientRules):
    """No event is kept."""

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        return Verdict(key, is_over=True)


def address_of(number: int) -> str:
    """Of the member with this number, from 0."""
    return f"127.77.{1 + number // 250}.{1 + number % 250}"


def key_of(number: int) -> SecretKey:
    """Of the member with this number."""
    return SecretKey(blake2b(f"member {number}".encode(), digest_size=32).digest())


def member(ring: KeyRing, number: int, probe_s: float) -> Swim:
    """A brain that knows nobody."""
    key = key_of(number)
    record = Record(
        key.public.ed25519, int(time.time()), 1, f"member-{number}",
        f"rack-{number // RACK_HOSTS}", "", address_of(number), PORT, PORT + 1,
        blake2b(f"transport {number}".encode(), digest_size=32).digest(), software="0.2.0",
        payload=NodeCapabilities(can_read_sources=False, signs_progress=True).to_bytes(),
    )  # fmt: skip
    settings = SwimSettings(probe_interval_s=probe_s, probe_timeout_s=min(1.0, probe_s / 3))
    now, rng = trio.current_time(), Random(number)
    return Swim(settings, record, Credentials(key.sign, ring), rng=rng, now=now, rules=_NothingPassedOn())


def ignore(event: Event) -> None:
    """Nobody acts on what stand-ins believe."""


class Speakers:
    """All members; each tells the daemon of itself."""

    def __init__(self, runtimes: Sequence[tuple[Swim, SwimRuntime]]) -> None:
        self._runtimes = runtimes
        self._own = {brain.self_record().node for brain, _ in runtimes}

    async def obey(self, line: str) -> None:
        """One order; never returns, ends with the next one."""
        rate, *ids = line.split()
        deployments = [DeploymentId(bytes.fromhex(one)) for one in ids]
        daemon = next(one.record for one in self._runtimes[0][0].members() if one.record.node not in self._own)
        for turn in count():
            records_per_s = float(rate) if turn == 0 else REFRESH_HOSTS_PER_S
            for begin in range(0, len(deployments), RECORDS_PER_DATAGRAM):
                some = deployments[begin : begin + RECORDS_PER_DATAGRAM]
                for number, (brain, runtime) in enumerate(self._runtimes):
                    body = bytes((wire.GOSSIP,)) + b"".join(_record(number, brain, one) for one in some)
                    brain._node.send_to_address(daemon.address, body, daemon.node)
                    runtime.wake()
                    await trio.sleep(len(some) / records_per_s)
            if turn == 0:
                print("told", flush=True)


def _record(number: int, brain: Swim, deployment: DeploymentId) -> bytes:
    node, version = brain.self_record().node, int(time.time() * 1000)
    key = ProgressKey(node, progress_key(deployment), is_signed=True)
    progress = Progress(
        state=HostState.COMPLETE, chunks_verified=1, peer_bytes_same_rack=1 << 18, started_s=version // 1000 - 9,
        elapsed_s=8, current=1,
    )  # fmt: skip
    return wire.event(PROGRESS, node, version, key.encode(), sign_progress(key_of(number), key, version, progress))


async def main(key_file: Path, members: int, probe_s: float) -> None:
    """Until stdin closes."""
    ring = read_key_ring(key_file)
    brains = [member(ring, number, probe_s) for number in range(members)]
    brains[0].adopt_view(brains)
    for brain in brains[1:]:
        brain.adopt_view(brains[:1])
    async with trio.open_nursery() as nursery:
        runtimes = []
        for number, brain in enumerate(brains):
            runtime = SwimRuntime(brain, open_udp_socket(address_of(number), PORT), on_event=ignore)
            runtimes.append((brain, runtime))
            nursery.start_soon(runtime.run)
        print("ready", flush=True)
        speakers, order = Speakers(runtimes), trio.CancelScope()
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            order.cancel()
            order = trio.CancelScope()
            nursery.start_soon(_within, order, speakers, line)
        nursery.cancel_scope.cancel()


async def _within(scope: trio.CancelScope, speakers: Speakers, line: str) -> None:
    with scope:
        await speakers.obey(line)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
