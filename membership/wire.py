"""The content of a sealed datagram as bytes: kinds, heads and items.

A body is one type byte, the type's fixed part, and then *items* to its end. An item is kind (1 B), length (2 B),
content. Their author makes them once, and they are relayed byte for byte: a relay needs no encoder, and a receiver that
has seen the bytes needs no decoder. All integers are big-endian.

=========  ====  =====================================================================================
body       type  fixed part
=========  ====  =====================================================================================
PING       1     sequence 4 B, view digest 8 B, worry 4 B (sum of the suspected), flags 1 B
ACK        2     the same; the sequence is the ping's
PING_REQ   3     sequence 4 B, subject handle 8 B
NACK       4     sequence 4 B; an item may carry the helper's own accusation
GOSSIP     5     -
JOIN       6     flags 1 B; the first item is the joiner's record
WELCOME    7     view digest 8 B, flags 1 B
REFUSAL    8     reason 1 B; the item is the record of the member that bears the name
SYNC_ASK   9     sequence 4 B, 256 bucket hashes of 4 B each; an item may carry the asker's record
SYNC_LIST  10    sequence 4 B; then per bucket: bucket 1 B, flags 1 B, count 1 B, count rows of (id 8 B, marks 8 B)
SYNC_WANT  11    sequence 4 B; then rows of (id 8 B, what 1 B)
BUSY       12    sequence 4 B
ITEMS      13    -; like GOSSIP, but asked for, and so not to be passed on
WORRIES    14    handles (8 B each) of members that the sender suspects or has just declared dead
WORRY_WANT 15    handles whose accusations the receiver of WORRIES has missed, or of the gone: are they forgotten?
=========  ====  =====================================================================================

=========  ====  =====================================================================================
item       kind  content
=========  ====  =====================================================================================
RECORD     1     a signed record (``record``): "I live, as this"
ALIVE      2     handle 8 B, boot 8 B, incarnation 4 B, signature: contradicts accusations up to incarnation - 1
ACCUSE     3     accuser handle 8 B, subject handle 8 B, subject boot 8 B, incarnation 4 B, accuser's signature
LEAVE      4     like ALIVE: goodbye
NOTICE     5     state 1 B, handle 8 B, boot 8 B, incarnation 4 B: tells the receiver what is believed of itself
FORGET     6     issuer handle 8 B, subject handle 8 B, subject boot 8 B, issuer's signature
EVENT      7     class 1 B, version 8 B, key length 1 B, key, payload; then the origin's node id (16 B), unless the
                 class has bit 7 set, which says that the key begins with it
ROSTER     8     state 1 B, incarnation 4 B, a signed record: on the roster, but not alive
PADDING    9     any: makes a JOIN as long as its answer
=========  ====  =====================================================================================

The first byte of a sealed datagram is the version of this format. A receiver drops and counts what it does not know.
"""

from __future__ import annotations

import struct

from membership.errors import WireError
from membership.member import HANDLE_BYTES, NODE_ID_BYTES, Handle, NodeId
from membership.record import SIGNATURE_BYTES
from membership.seal import BODY_BYTES_MAX

PING, ACK, PING_REQ, NACK, GOSSIP, JOIN, WELCOME, REFUSAL = range(1, 9)
SYNC_ASK, SYNC_LIST, SYNC_WANT, BUSY, ITEMS, WORRIES, WORRY_WANT = range(9, 16)
RECORD, ALIVE, ACCUSE, LEAVE, NOTICE, FORGET, EVENT, ROSTER, PADDING = range(1, 10)

FLAG_SETTLED = 1  # the sender's view has not changed for a while
FLAG_WHO = 2  # the sender does not know the receiver: please send your record
FLAG_AGAIN = 4  # WELCOME: more members than fit here; please synchronise

WANT_RECORD, WANT_LIVENESS = 1, 2
STATE_SUSPECT, STATE_DEAD, STATE_LEFT = 1, 2, 3
REFUSED_NAME = 1
INCARNATION_MAX = 2**32 - 2

PROBE_HEAD = struct.Struct(">BIQIB")
REQUEST_HEAD = struct.Struct(">BI8s")
SEQUENCE_HEAD = struct.Struct(">BI")
WELCOME_HEAD = struct.Struct(">BQB")
BYTE_HEAD = struct.Struct(">BB")
ITEM_HEAD = struct.Struct(">BH")
ITEM_HEAD_BYTES = ITEM_HEAD.size

_CLAIM = struct.Struct(">8sQI")
_ACCUSATION = struct.Struct(">8s8sQI")
_NOTICE = struct.Struct(">B8sQI")
_FORGET = struct.Struct(">8s8sQ")
_EVENT = struct.Struct(">BQB")
_ORIGIN_IN_KEY = 0x80
_ROSTER = struct.Struct(">BI")

# What an item says, still without its signature.
claim_part = _CLAIM.pack  # ALIVE and LEAVE: handle, boot, incarnation
accusation_part = _ACCUSATION.pack  # ACCUSE: accuser, subject, the subject's boot, incarnation
forget_part = _FORGET.pack  # FORGET: issuer, subject, the subject's boot


def item(kind: int, content: bytes) -> bytes:
    """One item with its head."""
    return ITEM_HEAD.pack(kind, len(content)) + content


def padding(length: int) -> bytes:
    """An item of so many bytes that says nothing; none where it has no room."""
    return item(PADDING, bytes(length - ITEM_HEAD_BYTES)) if length >= ITEM_HEAD_BYTES else b""


def split_items(body: bytes, at: int) -> list[bytes]:
    """The items from ``at`` to the end, heads included. Raises WireError when they do not add up."""
    items: list[bytes] = []
    end = len(body)
    if end > BODY_BYTES_MAX:
        raise WireError("body too long")
    while at < end:
        if at + ITEM_HEAD_BYTES > end:
            raise WireError("cut short")
        stop = at + ITEM_HEAD_BYTES + (body[at + 1] << 8 | body[at + 2])
        if stop > end:
            raise WireError("cut short")
        items.append(body[at:stop])
        at = stop
    return items


def notice(state: int, handle: Handle, boot: int, incarnation: int) -> bytes:
    """A NOTICE item."""
    return item(NOTICE, _NOTICE.pack(state, handle, boot, incarnation))


def event(class_number: int, origin: NodeId, version: int, key: bytes, payload: bytes) -> bytes:
    """An EVENT item."""
    if key.startswith(origin):
        return item(EVENT, _EVENT.pack(class_number | _ORIGIN_IN_KEY, version, len(key)) + key + payload)
    return item(EVENT, _EVENT.pack(class_number, version, len(key)) + key + payload + origin)


def roster(state: int, incarnation: int, record: bytes) -> bytes:
    """A ROSTER item."""
    return item(ROSTER, _ROSTER.pack(state, incarnation) + record)


def parse_handles(body: bytes) -> list[Handle]:
    """The handles of WORRIES or WORRY_WANT. Raises WireError."""
    if len(body) % HANDLE_BYTES != 1:
        raise WireError("handles cut short")
    return [body[at : at + HANDLE_BYTES] for at in range(1, len(body), HANDLE_BYTES)]


def parse_claim(data: bytes) -> tuple[Handle, int, int, bytes, bytes]:
    """ALIVE or LEAVE item: handle, boot, incarnation, unsigned part, signature."""
    _exactly(data, _CLAIM.size + SIGNATURE_BYTES)
    handle, boot, incarnation = _CLAIM.unpack_from(data, ITEM_HEAD_BYTES)
    return handle, boot, incarnation, data[ITEM_HEAD_BYTES:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]


def parse_accusation(data: bytes) -> tuple[Handle, Handle, int, int]:
    """ACCUSE item: accuser, subject, subject's boot, incarnation."""
    _exactly(data, _ACCUSATION.size + SIGNATURE_BYTES)
    return _ACCUSATION.unpack_from(data, ITEM_HEAD_BYTES)


def signed_parts(data: bytes) -> tuple[bytes, bytes]:
    """Unsigned content and signature of an item that ends with a signature."""
    return data[ITEM_HEAD_BYTES:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]


def parse_notice(data: bytes) -> tuple[int, Handle, int, int]:
    """NOTICE item: state, handle, boot, incarnation."""
    _exactly(data, _NOTICE.size)
    return _NOTICE.unpack_from(data, ITEM_HEAD_BYTES)


def parse_forget(data: bytes) -> tuple[Handle, Handle, int]:
    """FORGET item: issuer, subject, subject's boot."""
    _exactly(data, _FORGET.size + SIGNATURE_BYTES)
    return _FORGET.unpack_from(data, ITEM_HEAD_BYTES)


def parse_event(data: bytes) -> tuple[int, NodeId, int, bytes, bytes]:
    """EVENT item: class, origin, version, key, payload."""
    at = ITEM_HEAD_BYTES + _EVENT.size
    if len(data) < at:
        raise WireError("cut short")
    class_number, version, key_bytes = _EVENT.unpack_from(data, ITEM_HEAD_BYTES)
    key, rest = data[at : at + key_bytes], data[at + key_bytes :]
    if class_number & _ORIGIN_IN_KEY:
        origin, payload = key[:NODE_ID_BYTES], rest
    else:
        origin, payload = rest[-NODE_ID_BYTES:], rest[:-NODE_ID_BYTES]
    if len(key) < key_bytes or len(origin) < NODE_ID_BYTES:
        raise WireError("cut short")
    return class_number & ~_ORIGIN_IN_KEY, NodeId(origin), version, key, payload


def parse_roster(data: bytes) -> tuple[int, int, bytes]:
    """ROSTER item: state, incarnation, record bytes."""
    at = ITEM_HEAD_BYTES + _ROSTER.size
    if len(data) <= at:
        raise WireError("cut short")
    state, incarnation = _ROSTER.unpack_from(data, ITEM_HEAD_BYTES)
    if state not in (STATE_DEAD, STATE_LEFT):
        raise WireError("a roster item of a living member")
    return state, incarnation, data[at:]


def _exactly(data: bytes, content_bytes: int) -> None:
    if len(data) != ITEM_HEAD_BYTES + content_bytes:
        raise WireError("an item of the wrong size")
