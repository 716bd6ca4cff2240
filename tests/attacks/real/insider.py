"""A member that is not gossipd: a brain of membership on a socket, and whatever else its keys let it say.

What lives here: joining and answering as a member does, and sending what it is told to. What does not: what it says
(``builders``).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from gossipd.identity.keys import SecretKey
from gossipd.swarm.capabilities import NodeCapabilities
from membership.credentials import Credentials
from membership.events import SendDatagram
from membership.member import Address, NodeId, Record
from membership.runtime import open_udp_socket
from membership.seal import DATAGRAM_BYTES_MAX, DatagramSeal, KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim

_LOOK_S = 0.02


class Insider:
    """One identity with the cluster's key. It lives only while ``live`` is called."""

    def __init__(self, ring: KeyRing, secret: SecretKey, port: int, *, name: str = "insider") -> None:
        self.secret = secret
        self.ring = ring
        self._socket = open_udp_socket("127.0.0.1", port)
        self._other = open_udp_socket("127.0.0.1", 0)
        record = Record(
            secret.public.ed25519, int(time.time()), 1, name, f"rack-of-{name}", "", "127.0.0.1", port, port + 1,
            secret.public.curve25519, 125_000_000, "0.0.0", NodeCapabilities(signs_progress=True).to_bytes(),
        )  # fmt: skip
        credentials = Credentials(secret.sign, ring, make_seal=self._make_seal)
        self.swim = Swim(SwimSettings(), record, credentials, rng=Random(1), now=time.monotonic())

    def _make_seal(self, ring: KeyRing, node: NodeId, boot: int) -> DatagramSeal:
        self._seal = DatagramSeal(ring, node, boot)
        return self._seal

    @property
    def record(self) -> Record:
        """As it is in force."""
        return self.swim.self_record()

    def seal(self, body: bytes, receiver: NodeId | None) -> bytes:
        """With our own key and next counter."""
        return self._seal.seal(body, receiver)

    def join(self, contacts: Sequence[Address]) -> None:
        """Ask to be admitted; the answers come while we live."""
        self.swim.join(contacts, time.monotonic())

    def leave(self) -> None:
        """Say goodbye."""
        self.swim.leave(time.monotonic())
        self._send()

    def send(self, datagram: bytes, to: Address, *, from_elsewhere: bool = False) -> None:
        """From our address, or from one that no member has."""
        (self._other if from_elsewhere else self._socket).sendto(datagram, to)

    def live(self, seconds: float, until: Callable[[], object] | None = None) -> bool:
        """Answer as a member does for so long, or until the condition holds; whether it did."""
        deadline = time.monotonic() + seconds
        while True:
            self._turn()
            if until is not None and until():
                return True
            if time.monotonic() >= deadline:
                return False

    def close(self) -> None:
        """Be silent from now on."""
        self._socket.close()
        self._other.close()

    def _turn(self) -> None:
        select.select([self._socket], [], [], _LOOK_S)
        while True:
            try:
                datagram, sender = self._socket.recvfrom(DATAGRAM_BYTES_MAX + 1)
            except BlockingIOError:
                break
            self.swim.handle_datagram(datagram, (sender[0], sender[1]), time.monotonic())
        self.swim.handle_timer(time.monotonic())
        self._send()

    def _send(self) -> None:
        for output in self.swim.drain():
            if isinstance(output, SendDatagram):
                with suppress(OSError):  # an address that another liar made up
                    self._socket.sendto(output.datagram, output.address)
