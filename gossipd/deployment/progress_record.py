"""How far one host is with one deployment: the record that travels by gossip.

What lives here: the record, its states, and its two forms as bytes. What does not: signing the second form
(``signed_progress``), the table of all hosts' records and the totals over them (``progress_table``), reasons
(``core.reasons``).

Gossip carries one such record for each host and deployment. Its version is the time of writing in milliseconds since
1970, never lower than the last one (``next_record_version``): a host's latest record wins even if the host has lost its
state.

Numbers, 30 bytes, big-endian, in both forms:

===== ======================================================================
bytes what
===== ======================================================================
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

Form 1, 32 bytes, of 0.1.0: a byte 1, state (3 bits) and reason (5 bits), the numbers. It is also what the saved table
holds. Form 2: a byte of state, a byte of reason, the numbers, then fields of a byte of kind, a byte of length and so
many bytes, by rising kind; a kind that is not known is skipped:

==== ===== ==================================================================
kind bytes what
==== ===== ==================================================================
1    8     subject: the head of the id of the host or key that the reason is about
2    8     the version that ``current`` of its name leads to on this host, which has it complete
3          kept for a sketch of the chunks held
4          kept for prints of what this host is configured with
5    9-49  how many chunks the host wants (3), how many bytes they have (6), and its want; without a want it is too
           long to be told; missing: everything
6    14    a budget for reads of storage that was ordered on this host: when, in milliseconds since 1970 (8), and how
           many bytes (6), 0 for no limit
7    96    who ordered that budget, where it was not this host: an Ed25519 key, and its signature (``signed_budget``)
8    8     bytes that came for nothing, floored to 27 significant bits each: in damaged chunks, in chunks that did not
           come whole; missing: none
9    8     who deployed it, where the host knows that first hand: the head of an Ed25519 key; zeros for more than one
           (``deployer``)
==== ===== ==================================================================

Byte counts are sums of chunk lengths, and a chunk is a power of two of at least 256 KiB: 27 significant bits are exact
to 2**45 bytes (the limit of a model is 2**44) but for the short last chunks, where the error is below 1 in 10**8.
Flooring keeps the order, so the record of a counter never falls. Verified bytes follow from the verified chunks.

Integers are not of variable length, which is longer for large models. Counters are not sent as differences: one lost
record would make every total wrong for ever.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from struct import Struct
from typing import Any

import msgspec
from msgspec.structs import replace

from gossipd.core.errors import RemoteError
from gossipd.core.hiding_struct import HidingStruct
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import FORMAT_1_LAST, HostReason, reason_of_number
from gossipd.deployment.deployer import HEAD_BYTES

VERSION = 1
RECORD_BYTES = 32
NUMBERS_BYTES = 30
FIELDS_BYTES_MAX = 256  # those above and a sketch of 32 bytes, with its head and some more
SUBJECT_BYTES = 8
WANT_TOLD_BYTES_MAX = 40  # a preset, or two joined; nobody relies on a host whose want is longer
BUDGET_BYTES_MAX = 2**48 - 1
_CHUNKS_WANTED_BYTES, _BYTES_WANTED_BYTES = 3, 6
_WANTED_BYTES = _CHUNKS_WANTED_BYTES + _BYTES_WANTED_BYTES
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
    REMOVED = "removed"
    PAUSED = "paused"
    EVICTED = "evicted"


# Hosts that have deleted it for good: nobody waits for them.
DELETED = frozenset({HostState.REMOVED, HostState.EVICTED})
MANIFEST_REFUSED = frozenset({HostState.FAILED, HostState.EXPIRED})
"""A host in any other state has the manifest."""
# The last three have no number: older hosts read what stands in their place, and their reason tells them from it.
_STATES = tuple(HostState)[:7]
_IN_PLACE_OF = {
    HostState.REMOVED: HostState.CANCELLED,
    HostState.EVICTED: HostState.CANCELLED,
    HostState.PAUSED: HostState.DOWNLOADING,
}
_BY_REASON = {
    (HostState.CANCELLED, HostReason.REMOVED): HostState.REMOVED,
    (HostState.CANCELLED, HostReason.EVICTED): HostState.EVICTED,
    (HostState.REMOVED, HostReason.EVICTED): HostState.EVICTED,  # form 1 has the nearest reason that it knows
    (HostState.DOWNLOADING, HostReason.PAUSED): HostState.PAUSED,
}
_SUBJECT, _CURRENT = 1, 2
_WANT, _BUDGET, _BUDGET_SIGNER, _WASTE, _DEPLOYER = 5, 6, 7, 8, 9
_ORDERED_BYTES, _LIMIT_BYTES = 8, 6
_WASTE_FORM, _WASTE_BITS = Struct(">2I"), 27
BUDGET_NUMBERS_BYTES = _ORDERED_BYTES + _LIMIT_BYTES
_SIGNER_BYTES, _BUDGET_SIGNER_BYTES = 32, 96
CURRENT_BYTES = 8
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
    """Not a record of a known form. Fault: the sender, or the sender is newer. State: unchanged. Retry: no."""

    code = "E_PROGRESS_FORMAT"


class Budget(HidingStruct, frozen=True):
    """What all hosts together may read of a deployment from storage, by an order. ``ordered_ms``: since 1970, by the
    clock of whom gave it; the later one counts. ``bytes_max``: 0 for no limit. ``signer``: who ordered it, where that
    is not the host that tells it."""

    ordered_ms: int
    bytes_max: int
    signer: bytes = b""
    signature: bytes = b""

    hidden = ("signature",)

    def to_bytes(self) -> bytes:
        """The two numbers."""
        return self.ordered_ms.to_bytes(_ORDERED_BYTES, "big") + self.bytes_max.to_bytes(_LIMIT_BYTES, "big")

    @classmethod
    def from_bytes(cls, numbers: bytes) -> Budget:
        """``numbers``: ``BUDGET_NUMBERS_BYTES`` of them."""
        return cls(int.from_bytes(numbers[:_ORDERED_BYTES], "big"), int.from_bytes(numbers[_ORDERED_BYTES:], "big"))


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One host's report on one deployment. Counters include everything since the deployment was first heard of."""

    state: HostState
    reason: HostReason = HostReason.NONE
    chunks_verified: int = 0
    source_bytes: int = 0
    peer_bytes_same_rack: int = 0
    peer_bytes_cross_rack: int = 0
    duplicate_bytes: int = 0
    corrupt_chunks: int = 0
    corrupt_bytes: int = 0
    """Not in form 1."""
    cancelled_bytes: int = 0
    """Not in form 1."""
    rate_in_bytes_per_s: int = 0
    rate_out_bytes_per_s: int = 0
    started_s: int = 0
    elapsed_s: int = 0
    """Seconds from ``started_s`` until the final state was reached; 0 while the state is not final."""

    subject: bytes = b""
    """Whom the reason is about, 8 bytes, or nothing. Not in form 1."""
    current: int | None = None
    """The version that ``current`` of its name leads to, where it is complete; None: not told. Not in form 1."""

    want: str = ""
    """What the host wants of the model; empty: everything, or what cannot be told. Not in form 1."""
    chunks_wanted: int = 0
    """How many chunks that is; 0: all. Not in form 1."""
    bytes_wanted: int = 0
    """How many bytes these have, where they are not all. Not in form 1."""

    budget: Budget | None = None
    """That was ordered on this host. Not in form 1."""
    deployer: bytes = b""
    """Who deployed it (``Deployer.told``). Not in form 1."""

    def to_bytes(self) -> bytes:
        """Form 1."""
        head = _number(self.state) << 5 | self.reason.number_in_format_1
        return bytes([VERSION, head]) + self._numbers()

    def to_body(self) -> bytes:
        """Form 2, without the signature."""
        assert len(self.subject) in (0, SUBJECT_BYTES)
        fields = bytes([_SUBJECT, SUBJECT_BYTES]) + self.subject if self.subject else b""
        if self.current is not None:
            fields += bytes([_CURRENT, CURRENT_BYTES]) + self.current.to_bytes(CURRENT_BYTES, "big")
        if self.chunks_wanted:
            told = self.want.encode() if len(self.want.encode()) <= WANT_TOLD_BYTES_MAX else b""
            counts = self.chunks_wanted.to_bytes(_CHUNKS_WANTED_BYTES, "big")
            counts += self.bytes_wanted.to_bytes(_BYTES_WANTED_BYTES, "big")
            fields += bytes([_WANT, len(counts) + len(told)]) + counts + told
        if self.budget is not None:
            fields += bytes([_BUDGET, BUDGET_NUMBERS_BYTES]) + self.budget.to_bytes()
            if self.budget.signer:
                signed = self.budget.signer + self.budget.signature
                fields += bytes([_BUDGET_SIGNER, _BUDGET_SIGNER_BYTES]) + signed
        if self.corrupt_bytes or self.cancelled_bytes:
            wasted = (_squeeze(one, _WASTE_BITS) for one in (self.corrupt_bytes, self.cancelled_bytes))
            fields += bytes([_WASTE, _WASTE_FORM.size]) + _WASTE_FORM.pack(*wasted)
        if self.deployer:
            fields += bytes([_DEPLOYER, HEAD_BYTES]) + self.deployer
        return bytes([_number(self.state), self.reason.number]) + self._numbers() + fields

    def _numbers(self) -> bytes:
        packed = 0
        for name, bits, is_squeezed in _FIELDS:
            value = getattr(self, name)
            whole = min(max(value, 0), (1 << bits) - 1)
            packed = packed << bits | (_squeeze(value, bits - EXPONENT_BITS) if is_squeezed else whole)
        return packed.to_bytes(NUMBERS_BYTES, "big")

    @classmethod
    def from_bytes(cls, record: bytes) -> Progress:
        """Raises ProgressFormatError, and nothing else, for any bytes."""
        if len(record) != RECORD_BYTES:
            raise ProgressFormatError(f"a progress record has {len(record)} bytes, expected {RECORD_BYTES}")
        if record[0] != VERSION:
            raise ProgressFormatError(f"progress record version {record[0]}, supported {VERSION}")
        number = record[1] & 31
        reason = reason_of_number(number) if number <= FORMAT_1_LAST else HostReason.OTHER
        return cls(state=_state(record[1] >> 5, reason), reason=reason, **_values(record[2:]))

    @classmethod
    def from_body(cls, body: bytes) -> Progress:
        """The record in form 2. Raises ProgressFormatError, and nothing else, for any bytes."""
        return _of_body(body)

    @classmethod
    def _from_body(cls, body: bytes) -> Progress:
        numbers, fields = body[2 : 2 + NUMBERS_BYTES], body[2 + NUMBERS_BYTES :]
        if len(numbers) != NUMBERS_BYTES or len(fields) > FIELDS_BYTES_MAX:
            raise ProgressFormatError(f"the body of a progress record has {len(body)} bytes")
        told = _fields(fields)
        subject, current = told.get(_SUBJECT, b""), told.get(_CURRENT)
        if current is not None and len(current) != CURRENT_BYTES:
            raise ProgressFormatError(f"a version has {len(current)} bytes, expected {CURRENT_BYTES}")
        if len(subject) not in (0, SUBJECT_BYTES):
            raise ProgressFormatError(f"the subject of a reason has {len(subject)} bytes, expected {SUBJECT_BYTES}")
        deployer = told.get(_DEPLOYER, b"")
        if len(deployer) not in (0, HEAD_BYTES):
            raise ProgressFormatError(f"the head of a deployer's key has {len(deployer)} bytes, expected {HEAD_BYTES}")
        reason = reason_of_number(body[1])
        number = None if current is None else int.from_bytes(current, "big")
        want, chunks_wanted, bytes_wanted = _want(told.get(_WANT, bytes(_WANTED_BYTES)))
        wasted = told.get(_WASTE, bytes(_WASTE_FORM.size))
        if len(wasted) != _WASTE_FORM.size:
            raise ProgressFormatError(f"bytes that came for nothing have {len(wasted)} bytes")
        corrupt_bytes, cancelled_bytes = (_expand(one, _WASTE_BITS) for one in _WASTE_FORM.unpack(wasted))
        return cls(
            state=_state(body[0], reason), reason=reason, subject=subject, current=number, want=want,
            chunks_wanted=chunks_wanted, bytes_wanted=bytes_wanted, budget=_budget(told),
            corrupt_bytes=corrupt_bytes, cancelled_bytes=cancelled_bytes, deployer=deployer, **_values(numbers),
        )  # fmt: skip


@lru_cache(maxsize=64)  # each is read when it is judged and, a moment later, when it is taken
def _of_body(body: bytes) -> Progress:
    return Progress._from_body(body)


def progress_key(deployment: DeploymentId) -> bytes:
    """The key under which gossip carries the records of ``deployment``."""
    return deployment[:KEY_BYTES]


def next_record_version(last: int, wall_s: float) -> int:
    """The version of the next record: the time in milliseconds, but always above ``last``."""
    return max(last + 1, int(wall_s * 1000))


def refresh_interval_s(hosts: int) -> float:
    """Seconds after which a host renews its record when only numbers have changed."""
    return max(REFRESH_FLOOR_S, hosts / REFRESH_HOSTS_PER_S)


def state_with(state: HostState, reason: HostReason) -> HostState:
    """The state of a host that has told this number of a state, and this reason."""
    return _BY_REASON.get((state, reason), state)


def _number(state: HostState) -> int:
    return _STATES.index(_IN_PLACE_OF.get(state, state))


def _state(number: int, reason: HostReason) -> HostState:
    if number >= len(_STATES):
        raise ProgressFormatError(f"state {number} is unknown")
    return state_with(_STATES[number], reason)


def _values(numbers: bytes) -> dict[str, Any]:
    packed, values = int.from_bytes(numbers, "big"), {}
    for name, bits, is_squeezed in reversed(_FIELDS):
        value, packed = packed & (1 << bits) - 1, packed >> bits
        values[name] = _expand(value, bits - EXPONENT_BITS) if is_squeezed else value
    return values


def _want(told: bytes) -> tuple[str, int, int]:
    if not _WANTED_BYTES <= len(told) <= _WANTED_BYTES + WANT_TOLD_BYTES_MAX:
        raise ProgressFormatError(f"a want has {len(told)} bytes")
    try:
        text = told[_WANTED_BYTES:].decode()
    except UnicodeDecodeError:
        raise ProgressFormatError("a want is not UTF-8") from None
    if not text.replace("\n", "").isprintable():
        text = ""  # as one that is too long: it is shown where hosts are
    chunks, count = told[:_CHUNKS_WANTED_BYTES], told[_CHUNKS_WANTED_BYTES:_WANTED_BYTES]
    return text, int.from_bytes(chunks, "big"), int.from_bytes(count, "big")


def _budget(told: dict[int, bytes]) -> Budget | None:
    numbers, signed = told.get(_BUDGET), told.get(_BUDGET_SIGNER, b"")
    if len(signed) not in (0, _BUDGET_SIGNER_BYTES):
        raise ProgressFormatError(f"the signature of a budget has {len(signed)} bytes")
    if numbers is None:
        return None
    if len(numbers) != BUDGET_NUMBERS_BYTES:
        raise ProgressFormatError(f"a budget has {len(numbers)} bytes")
    return replace(Budget.from_bytes(numbers), signer=signed[:_SIGNER_BYTES], signature=signed[_SIGNER_BYTES:])


def _fields(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = last = 0
    while at < len(data):
        kind, body = data[at], data[at + 2 : at + 2 + data[at + 1]] if at + 1 < len(data) else b""
        if kind <= last or at + 1 >= len(data) or len(body) != data[at + 1]:
            raise ProgressFormatError("the fields of a progress record are cut short or not in order")
        found[kind] = body
        last, at = kind, at + 2 + len(body)
    return found


def _squeeze(value: int, mantissa_bits: int) -> int:
    """The largest number of this form that is not above ``value``: a shift of 5 bits, then the leading bits."""
    value = max(value, 0)
    shift = max(0, value.bit_length() - mantissa_bits)
    if shift >= 1 << EXPONENT_BITS:
        return (1 << EXPONENT_BITS + mantissa_bits) - 1
    return shift << mantissa_bits | value >> shift


def _expand(squeezed: int, mantissa_bits: int) -> int:
    return (squeezed & (1 << mantissa_bits) - 1) << (squeezed >> mantissa_bits)
