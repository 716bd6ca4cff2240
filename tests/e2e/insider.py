"""A member that keeps no rule: it has the cluster's key and a socket, and says what it is told to say.

What lives here: joining real daemons over UDP, telling statements, hearing what daemons tell. What does not: daemons
(``cluster``), and what must come of it (``test_insider``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import trio
from msgspec.structs import replace

from gossipd.deployment.statement import Statement
from gossipd.identity.key_files import read_key_ring
from gossipd.identity.keys import SecretKey
from membership import wire
from membership.credentials import Credentials
from membership.events import Event, PayloadHeard, PayloadKind
from membership.member import MemberState, Record
from membership.record import sign_record
from membership.runtime import SwimRuntime, open_udp_socket
from membership.settings import SwimSettings
from membership.swim import Swim
from tests.e2e.cluster import PATIENCE_S, Daemon, free_port_pair


class Insider:
    """One identity. ``heard``: the last statement on each deployment that daemons have told it. ``made_up``: so many
    members that do not exist it tells of, a rack each, at addresses where nobody is."""

    def __init__(self, name: str, secret: SecretKey, beside: Daemon, *, made_up: int = 0) -> None:
        self.secret = secret
        self._made_up = made_up
        self.heard: dict[bytes, Statement] = {}
        self.is_over = False
        """Set it from another thread to end ``live``."""
        self._contact = ("127.0.0.1", beside.port)
        port = free_port_pair()
        keys = secret.public
        record = Record(
            keys.ed25519, time.time_ns() // 1_000_000_000, 1, name, "rack-1", "", "127.0.0.1", port, port + 1,
            keys.curve25519,
        )  # fmt: skip
        self._port = port
        self._credentials = Credentials(secret.sign, read_key_ring(beside.home / "cluster.key"))
        self._record = record

    def live(self, words: Sequence[Statement], *, members: int, seconds: float, hears: int = 0) -> None:
        """Join, wait for as many members, tell these statements, and be there for ``seconds`` more, or until that many
        statements were heard."""
        trio.run(self._live, words, members, seconds, hears)

    async def _live(self, words: Sequence[Statement], members: int, seconds: float, hears: int) -> None:
        now = trio.current_time()
        swim = Swim(SwimSettings(), self._record, self._credentials, rng=Random(1), now=now)
        with open_udp_socket("127.0.0.1", self._port) as udp:
            async with trio.open_nursery() as nursery:
                runtime: SwimRuntime = await nursery.start(SwimRuntime(swim, udp, on_event=self._hear).run)
                swim.join([self._contact], now)
                runtime.wake()
                with trio.fail_after(PATIENCE_S):
                    while sum(one.state is MemberState.ALIVE for one in swim.members()) < members:
                        await trio.sleep(0.05)
                swim._items.take(
                    [self._nobody(number) for number in range(self._made_up)], trio.current_time(), self._record.node
                )
                for one in words:
                    swim.publish(
                        PayloadKind.STATEMENT, one.deployment, one.rank, one.encode(), trio.current_time()
                    )  # fmt: skip
                runtime.wake()
                with trio.move_on_after(seconds):
                    while not self.is_over and (not hears or len(self.heard) < hears):
                        await trio.sleep(0.05)
                nursery.cancel_scope.cancel()

    def _nobody(self, number: int) -> bytes:
        secret = SecretKey(bytes((number // 256, number % 256)) * 16)
        record = replace(
            self._record, public_key=secret.public.ed25519, name=f"nobody-{number}", rack=f"rack-of-nobody-{number}",
            host=f"127.9.{number // 256}.{number % 256}", transport_key=secret.public.curve25519,
        )  # fmt: skip
        signed = sign_record(record, self._credentials.keyring.cluster_id, secret.sign)[1]
        return wire.item(wire.RECORD, signed)

    def _hear(self, event: Event) -> None:
        if isinstance(event, PayloadHeard) and event.kind is PayloadKind.STATEMENT:
            self.heard[event.key] = Statement.decode(event.payload)
