"""Every limit and time of the bulk path, with its source.

What does not live here: the pool's size and the rate limits, which are shared with sources.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB
MANIFEST_BYTES_MAX = 64 * MIB  # larger ones are refused before they are read


class Encryption(Enum):
    """How a connection is protected. With ``none`` one-time tokens authenticate peers, but bytes are readable."""

    TLS = "tls"
    NONE = "none"


class BulkSettings(Struct, frozen=True):
    """Defaults for 10 Gbit/s with chunks of 16 MiB as well as 100 Mbit/s with 256 KiB. Times are in seconds. The kernel
    sizes socket buffers that are None.
    """

    encryption: Encryption = Encryption.TLS

    slots: int = 8
    """Uploads at once. Few, so that each is quick: 4 to 8 lost least time in simulation."""
    slots_per_peer: int = 4
    """Slots that one peer may hold, so that a slow or hostile member cannot take all."""
    manifest_slots: int = 8
    """Manifests are small and all hosts want a new one at once, so they do not compete with chunks."""

    manifests_burst: int = 256
    manifests_per_s: float = 8.0
    """Manifests that one peer may ask for. It needs each once; a host that returns asks for all at once."""

    connections_in_max: int = 256
    """One thread each, some 60 KiB. Several times a node's 50 neighbours; also bounded by the file limit."""
    connections_in_per_peer_max: int = 12
    """Above what our own client opens. The next one takes the place of the peer's oldest idle one, so that old
    connections of a restarted peer do not shut it out."""
    pending_max: int = 128
    """Connections before authentication; each lives at most ``handshake_s``. Half are for members' addresses."""
    pending_per_address_max: int = 64
    """Large, because on one machine and behind address translation many hosts share an address."""
    descriptors_reserved: int = 192
    """Descriptors that accepting leaves to the store, the status socket and the control plane's new connections."""

    connections_out_max: int = 160
    connections_per_peer: int = 4
    """One cannot fill 10 Gbit/s from a thread that also hashes; more than 4 are no faster."""

    connect_s: float = 0.9
    """Tells a refused or silent host from a live one within a second."""
    handshake_s: float = 2.0
    """From accepting a connection to its authentication (T2 of the threat table)."""
    handshake_crowded_s: float = 0.5
    """The same for an address of no member, while strangers use half of their places."""
    first_request_s: float = 5.0
    """From authentication to the first request."""
    idle_out_s: float = 60.0
    idle_in_s: float = 90.0
    """Above ``idle_out_s``, so that the client closes first and no request meets a closing connection."""

    stall_s: float = 3.0
    """A transfer that moves no byte for this long is cut."""
    grace_s: float = 5.0
    rate_min: float = 64 * KIB
    """Bytes per second that a transfer must average after ``grace_s``, or it is cut (T2: slow drip)."""
    silence_s: float = 0.5
    """A fetch that receives nothing for this long triggers a probe of the host."""
    probe_s: float = 1.2
    """Time for the probe's answer: above the kernel's first retransmission of a lost SYN, after 1 s."""

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    """Bandwidth x delay x 2 when set; bounds the bytes in flight on a connection, and so the queues that it fills."""
    congestion_control: str | None = None
    """A name that the kernel offers, such as ``bbr``; None keeps the host's default."""
    dscp: int = 0
    """Mark of every packet, 0 to 63; 0 is none."""
    unsent_bytes_min: int = 64 * KIB
    unsent_bytes_max: int = 4 * MIB
    """Half of a chunk, within these bounds, may wait unsent in the kernel (TCP_NOTSENT_LOWAT). More would free a
    slot long before its bytes are gone; less would cost a wake-up per 16 KiB.
    """
    tls_piece_bytes: int = 256 * KIB
    """File bytes encrypted in one call: 16 TLS records."""

    def unsent_bytes(self, length: int) -> int:
        """The part of a body of ``length`` bytes that may wait unsent in the kernel."""
        return min(max(length // 2, self.unsent_bytes_min), self.unsent_bytes_max)
