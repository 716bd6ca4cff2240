"""Every limit and time of the bulk path, with its source.

What lives here: values. What does not: the pool's size and the rate limits, which are shared with sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

KIB = 1024
MIB = 1024 * KIB
MANIFEST_BYTES_MAX = 64 * MIB  # what a manifest may have at most; anything larger is refused before it is read


class Encryption(Enum):
    """How a bulk connection is protected. ``none`` keeps strangers out by one-time tokens, but not eyes."""

    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class BulkSettings:
    """Defaults fit hosts with 10 Gbit/s and chunks of 16 MiB as well as 100 Mbit/s and 256 KiB.

    Times are in seconds. Where a socket buffer is None the kernel sizes it by itself.
    """

    encryption: Encryption = Encryption.TLS

    slots: int = 8
    """Uploads at once. Few, so that each is quick: 4 to 8 lost least in simulation (simulated)."""
    slots_per_peer: int = 4
    """How many of them one peer may hold: a slow or hostile member cannot take all."""
    manifest_slots: int = 8
    """Manifests are small and everybody wants a new one at once, so they do not compete with chunks."""

    connections_in_max: int = 256
    """One thread each, some 60 KiB. Four times the 50 neighbours a node keeps; also bounded by the file limit."""
    connections_in_per_peer_max: int = 12
    """Above what our own client opens, so that a restarted peer's old connections do not shut it out."""
    pending_max: int = 128
    """Connections that have not said who they are; each lives at most ``handshake_s``."""
    pending_per_address_max: int = 64
    """Not smaller: on one machine, and behind address translation, many hosts share an address."""
    descriptors_reserved: int = 64
    """File handles that accepting never takes: the store and the status socket must go on working."""

    connections_out_max: int = 160
    connections_per_peer: int = 4
    """One cannot fill 10 Gbit/s from one thread that also hashes; with 4, measured rates no longer grow."""

    connect_s: float = 0.9
    """A refused or silent host is told from a live one within a second."""
    handshake_s: float = 2.0
    """Between accepting a connection and knowing who it is (T2 of the threat table)."""
    first_request_s: float = 5.0
    """Between knowing who it is and its first request."""
    idle_out_s: float = 60.0
    idle_in_s: float = 90.0
    """Longer than ``idle_out_s``, so that the asking side closes first and no request meets a closing connection."""

    stall_s: float = 3.0
    """A transfer that moves no byte for this long is cut."""
    grace_s: float = 5.0
    rate_min: float = 64 * KIB
    """Bytes per second that a transfer must average after ``grace_s``, or it is cut (T2: slow drip)."""
    silence_s: float = 0.5
    """A fetch that hears nothing for this long makes us probe whether the host is there at all."""
    probe_s: float = 1.2
    """Time for the answer: longer than the kernel's first retransmission of a lost SYN, which comes after 1 s."""

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    """Bandwidth x delay x 2 when set; bounds what is in flight on one connection, and with it the queues it fills."""
    congestion_control: str | None = None
    """A name the kernel offers, such as ``bbr``; None keeps the host's default."""
    unsent_bytes_min: int = 64 * KIB
    unsent_bytes_max: int = 4 * MIB
    """A quarter of a chunk within these bounds may wait unsent in the kernel (TCP_NOTSENT_LOWAT): a slot must not
    become free long before its bytes are gone, and a wake-up per 16 KiB would cost more than the bytes."""
    tls_piece_bytes: int = 256 * KIB
    """File bytes encrypted in one call: one crossing into OpenSSL for 16 records."""

    def validate(self) -> None:
        """Raises ValueError with every wrong field in one sentence."""
        wrong = [
            f"{name} is {getattr(self, name)}, must be positive"
            for name in self.__dataclass_fields__
            if isinstance(getattr(self, name), int | float) and getattr(self, name) <= 0
        ]
        if self.slots_per_peer > self.slots:
            wrong.append(f"slots_per_peer is {self.slots_per_peer}, must be at most slots, {self.slots}")
        if self.idle_in_s <= self.idle_out_s:
            wrong.append(f"idle_in_s is {self.idle_in_s}, must be above idle_out_s, {self.idle_out_s}")
        if self.unsent_bytes_min > self.unsent_bytes_max:
            wrong.append("unsent_bytes_min must be at most unsent_bytes_max")
        if wrong:
            raise ValueError("; ".join(wrong))

    def unsent_bytes(self, length: int) -> int:
        """How much of a body of ``length`` bytes may wait unsent in the kernel."""
        return min(max(length // 4, self.unsent_bytes_min), self.unsent_bytes_max)
