"""How far one host is with one deployment: the record that travels by gossip.

What lives here: the record, its states and reasons, and its 32-byte form. What does not: the table of all hosts'
records and the totals over them (``progress_table``).

Gossip carries one such record for each host and deployment. Its key is the first 8 bytes of the deployment's id
(``progress_key``), so key and record together are 40 bytes; its version is the time of writing in milliseconds since
1970, never lower than the last one (``next_version``), so that a host's latest record wins though it lost its state.

Format, big-endian, one record:

===== ======================================================================
bytes what
===== ======================================================================
1     format version, 1; a record with another version is left unread
1     state (3 bits) and reason (5 bits)
3     chunks held and verified, exact
4     bytes from external storage        ┐
4     bytes from peers in the same rack  │ floored to 27 significant bits
4     bytes from peers in other racks    ┘
3     duplicate bytes                    floored to 19 significant bits
3     corrupt chunks, exact, saturating
3     rates in and out, bytes a second   floored to 7 significant bits each
4     when this host began, seconds since 1970
2     seconds from then to the end       floored to 11 significant bits; 0: not ended
===== ======================================================================

Byte counts are sums of chunk lengths, and a chunk is a power of two of at least 256 KiB: 27 significant bits are exact
to 2**45 bytes (the limit of a model is 2**44) but for the short last chunks, where the error is below 1 in 10**8.
Flooring keeps the order, so the record of a counter never falls. Verified bytes follow from the verified chunks.

Integers are not of variable length, which is longer for large models. Counters are not sent as differences: one lost
record would make every total wrong for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gossipd.core.errors import RemoteError
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import FORMAT_1_LAST, HostReason, reason_of_number

VERSION = 1
RECORD_BYTES = 32
KEY_BYTES = 8  # 2**32 deployments before two share a key by chance; a collision only mixes two rows of a status page
EXPONENT_BITS = 5
REFRESH_FLOOR_S = 1.0  # the interval that the status page promises for small clusters
REFRESH_HOSTS_PER_S = 50.0  # 1,000 hosts: one record each per 20 s, 50 records a second in the whole cluster


class HostState(Enum):
    """The state of a deployment on one host. The order is the wire code."""

    INIT = "init"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


_STATES = tuple(HostState)
_FIELDS = (  # after version, state and reason: name, bits, and whether only the leading bits and a shift are kept
    ("chunks_verified", 24, False),
    ("source_bytes", 32, True),
    ("peer_bytes_same_rack", 32, True),
    ("peer_bytes_cross_rack", 32, True),
    ("duplicate_bytes", 24, True),
    ("corrupt_chunks", 24, False),
    ("rate_in_bytes_per_s", 12, True),
    ("rate_out_bytes_per_s", 12, True),
    ("started_s", 32, False),
    ("elapsed_s", 16, True),
)


class ProgressFormatError(RemoteError):
    """Not a record of this version. Fault: the sender, or the sender is newer. State: unchanged. Retry: no."""

    code = "E_PROGRESS_FORMAT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One host's report on one deployment. Counters include everything since the deployment was first heard of."""

    state: HostState
    reason: HostReason = HostReason.NONE
    chunks_verified: int = 0
    source_bytes: int = 0
    peer_bytes_same_rack: int = 0
    peer_bytes_cross_rack: int = 0
    duplicate_bytes: int = 0
    corrupt_chunks: int = 0
    rate_in_bytes_per_s: int = 0
    rate_out_bytes_per_s: int = 0
    started_s: int = 0
    elapsed_s: int = 0
    """Seconds from ``started_s`` until the final state was reached; 0 while the state is not final."""

    def to_bytes(self) -> bytes:
        """The 32-byte record."""
        packed = _STATES.index(self.state) << 5 | self.reason.number_in_format_1
        for name, bits, is_squeezed in _FIELDS:
            value = getattr(self, name)
            whole = min(max(value, 0), (1 << bits) - 1)
            packed = packed << bits | (_squeeze(value, bits - EXPONENT_BITS) if is_squeezed else whole)
        return bytes([VERSION]) + packed.to_bytes(RECORD_BYTES - 1, "big")

    @classmethod
    def from_bytes(cls, record: bytes) -> Progress:
        """Raises ProgressFormatError, and nothing else, for any bytes."""
        if len(record) != RECORD_BYTES:
            raise ProgressFormatError(f"a progress record has {len(record)} bytes, expected {RECORD_BYTES}")
        if record[0] != VERSION:
            raise ProgressFormatError(f"progress record version {record[0]}, supported {VERSION}")
        state, reason = record[1] >> 5, record[1] & 31
        if state >= len(_STATES):
            raise ProgressFormatError(f"state {state} is unknown")
        packed, values = int.from_bytes(record[2:], "big"), {}
        for name, bits, is_squeezed in reversed(_FIELDS):
            value, packed = packed & (1 << bits) - 1, packed >> bits
            values[name] = _expand(value, bits - EXPONENT_BITS) if is_squeezed else value
        known_reason = reason_of_number(reason) if reason <= FORMAT_1_LAST else HostReason.OTHER
        return cls(state=_STATES[state], reason=known_reason, **values)


def progress_key(deployment: DeploymentId) -> bytes:
    """The key under which gossip carries the records of ``deployment``."""
    return deployment[:KEY_BYTES]


def next_version(last: int, wall_s: float) -> int:
    """The version of the next record: the time in milliseconds, but always above ``last``."""
    return max(last + 1, int(wall_s * 1000))


def refresh_interval_s(hosts: int) -> float:
    """Seconds after which a host renews its record when only numbers have changed."""
    return max(REFRESH_FLOOR_S, hosts / REFRESH_HOSTS_PER_S)


def _squeeze(value: int, mantissa_bits: int) -> int:
    """The largest number of this form that is not above ``value``: a shift of 5 bits, then the leading bits."""
    value = max(value, 0)
    shift = max(0, value.bit_length() - mantissa_bits)
    if shift >= 1 << EXPONENT_BITS:
        return (1 << EXPONENT_BITS + mantissa_bits) - 1
    return shift << mantissa_bits | value >> shift


def _expand(squeezed: int, mantissa_bits: int) -> int:
    return (squeezed & (1 << mantissa_bits) - 1) << (squeezed >> mantissa_bits)
