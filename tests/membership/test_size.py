"""What one member holds in memory when the cluster is large."""

from __future__ import annotations

import tracemalloc
from random import Random

from membership import wire
from membership.credentials import Credentials
from membership.fakes import FakeKeys
from membership.member import Record, node_id
from membership.record import sign_record
from membership.seal import DatagramSeal
from membership.settings import SwimSettings
from membership.swim import Swim
from membership.verified_cache import VerifiedCache
from tests.membership.simulated_cluster import FORWARDER, RING

MEMBERS = 10_000
STATE_BYTES_MAX = 64 * 1024 * 1024


def test_the_state_of_one_member_among_ten_thousand_fits_into_64_megabytes() -> None:
    keys, rng = FakeKeys(), Random(1)
    publics = [keys.make(rng) for _ in range(MEMBERS)]

    def record(number: int) -> Record:
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        return Record(
            publics[number], 5, 1, f"host-{number}.example", f"rack-{number % 250}", "zone", address, 7946, 7947,
            publics[number], 10**9, "1.0.0", b"p" * 64,
        )  # fmt: skip

    tracemalloc.start()
    swim = Swim(
        SwimSettings(), record(0),
        Credentials(keys.signer(publics[0]), RING, VerifiedCache(RING.cluster_id, keys.verify)),
        rng=rng, now=0.0,
    )  # fmt: skip
    for number in range(1, MEMBERS):
        _, data = sign_record(record(number), RING.cluster_id, keys.signer(publics[number]))
        swim._items.take([wire.item(wire.RECORD, data)], 1.0, FORWARDER)
        # Each has spoken to us too: its replay window and its sealing key are part of the state.
        seal = DatagramSeal(RING, node_id(publics[number]), 5)
        body = wire.PROBE_HEAD.pack(wire.PING, 1, 0, 0, 0)
        swim.handle_datagram(seal.seal(body, node_id(publics[0])), ("10.0.0.1", 1), 1.0)
        swim.drain()
    state_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert swim.statistics()["members_live"] == MEMBERS
    assert swim.statistics()["datagrams_in"] == MEMBERS - 1
    assert state_bytes < STATE_BYTES_MAX, f"{state_bytes / 1e6:.1f} MB"
