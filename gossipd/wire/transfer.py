"""Heads of the bulk protocol: what two hosts say to each other around the bytes of a chunk.

What lives here: the layout and its checks. What does not: sockets, admission, and the bytes themselves.

One TCP connection carries requests one way and replies the other, strictly in order; several requests may be under way,
and the server answers them one after the other. All integers are big-endian. Under TLS a request comes first. In clear
a hello comes first and is never answered: a connection without a valid one is closed in silence.

Hello, 36 bytes::

    version u8 = 1 | kind u8 = 1 | zero u16 | token 32 bytes

Request, 44 bytes::

    version u8 = 1 | verb u8 | zero u16 | chunk u32 | length u32 | deployment 32 bytes

``CHUNK`` asks for one chunk of a deployment, with its length by the asker's manifest. ``MANIFEST`` asks for the signed
envelope (``chunk`` 0, ``length`` as gossip told it); where the server's has another length it answers ``LENGTH`` with
that one, and closes the connection (0.1.0: with length 0). ``COMPLAIN`` says that the receiver's chunk did not hash to
its digest. There is no path and no offset, so a hostile request can name nothing but a chunk of a signed manifest.

Reply, 16 bytes, then ``length`` bytes of body if the status is ``OK`` and the verb was not ``COMPLAIN``::

    version u8 = 1 | status u8 | free_slots u16 | chunk u32 | length u32 | retry_after_ms u16 | zero u16

``RELAYED`` is an OK for a chunk that is still arriving at the server: its ``length`` bytes follow in pieces, each after
a ``u32`` with its length. The last piece is sent only when the server has verified and stored the chunk. A piece of 0
bytes ends the reply: the chunk did not arrive at the server.

``free_slots`` is how many uploads the server could begin at this moment. Nothing reads it here: the planner hears free
slots in announcements, and counts its own fetches from there. ``BUSY`` names no other holder: the asker knows the
holders, and a hint would send all askers to the same one.

``NOT_A_TARGET``: the manifest does not name the asker; an older asker takes it for garbage, and never asks.

A version other than 1 is answered with ``VERSION`` and the connection is closed: the newer side must then speak 1.
Sizes are fixed, so that an unauthenticated peer's word allocates nothing. Rejected: msgpack, because a variable head
needs a length in front and a second read, and there is nothing optional to say.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from msgspec import Struct

from gossipd.core.errors import RemoteError
from gossipd.core.ids import ChunkIndex, DeploymentId

VERSION = 1
HELLO_KIND = 1
TOKEN_BYTES = 32

_HELLO = struct.Struct("!BBH32s")
_REQUEST = struct.Struct("!BBHII32s")
_REPLY = struct.Struct("!BBHIIHH")
_PIECE = struct.Struct("!I")
HELLO_BYTES = _HELLO.size
REQUEST_BYTES = _REQUEST.size
REPLY_BYTES = _REPLY.size
PIECE_HEAD_BYTES = _PIECE.size

_U16_MAX = 0xFFFF


class BulkVerb(IntEnum):
    """What is asked for."""

    CHUNK = 1
    MANIFEST = 2
    COMPLAIN = 3


class Status(IntEnum):
    """The answer to a request; all but OK, BUSY, NOT_HELD, UNKNOWN, RANGE, RELAYED and
    NOT_A_TARGET end the connection."""

    OK = 0
    BUSY = 1
    NOT_HELD = 2
    UNKNOWN = 3
    RANGE = 4
    REFUSED = 5
    LENGTH = 6
    VERSION = 7
    BAD_REQUEST = 8
    FAILED = 9
    RELAYED = 10
    NOT_A_TARGET = 11


class HeadError(RemoteError):
    """A head that is not of this protocol. Fault: the other side. State: unchanged. Retry: no."""

    code = "E_DECODE"


class HeadVersionError(HeadError):
    """A head of a version that is not spoken here. Fault: neither, one side is newer. Retry: after an upgrade."""

    code = "E_BULK_VERSION"


class Request(Struct, frozen=True):
    """One question. ``length`` is that of the asker's manifest; a server whose manifest differs refuses."""

    verb: BulkVerb
    deployment: DeploymentId
    chunk: ChunkIndex
    length: int

    def to_wire(self) -> bytes:
        """44 bytes."""
        return _REQUEST.pack(VERSION, self.verb, 0, self.chunk, self.length, self.deployment)

    @classmethod
    def from_wire(cls, wire: bytes | bytearray | memoryview) -> Request:
        """Raises HeadVersionError, HeadError."""
        _check_size(wire, REQUEST_BYTES, "request")
        version, verb, zero, chunk, length, deployment = _REQUEST.unpack(wire)
        _check_version(version)
        if zero or verb not in _VERBS:
            raise HeadError(f"request has verb {verb} and reserved field {zero}; verbs are 1 to 3, the field is 0")
        return cls(_VERBS[verb], DeploymentId(deployment), chunk, length)


class Reply(Struct, frozen=True):
    """One answer; ``length`` bytes of body follow an OK to CHUNK and MANIFEST."""

    status: Status
    chunk: ChunkIndex
    length: int
    free_slots: int
    retry_after_ms: int = 0

    def to_wire(self) -> bytes:
        """16 bytes; a value that does not fit its field is sent as the field's maximum."""
        free = min(self.free_slots, _U16_MAX)
        retry = min(self.retry_after_ms, _U16_MAX)
        return _REPLY.pack(VERSION, self.status, free, self.chunk, self.length, retry, 0)

    @classmethod
    def from_wire(cls, wire: bytes | bytearray | memoryview) -> Reply:
        """Raises HeadVersionError, HeadError."""
        _check_size(wire, REPLY_BYTES, "reply")
        version, status, free_slots, chunk, length, retry_after_ms, zero = _REPLY.unpack(wire)
        _check_version(version)
        if zero or status not in _STATUSES:
            fault = f"reply has status {status} and reserved field {zero}"
            raise HeadError(f"{fault}; statuses are 0 to {len(_STATUSES) - 1}, the field is 0")
        return cls(_STATUSES[status], chunk, length, free_slots, retry_after_ms)


def hello(token: bytes) -> bytes:
    """The first 36 bytes of a connection in clear."""
    assert len(token) == TOKEN_BYTES, "a token has 32 bytes"
    return _HELLO.pack(VERSION, HELLO_KIND, 0, token)


def token_of(wire: bytes | bytearray | memoryview) -> bytes:
    """The token in a hello. Raises HeadVersionError, HeadError."""
    _check_size(wire, HELLO_BYTES, "hello")
    version, kind, zero, token = _HELLO.unpack(wire)
    _check_version(version)
    if kind != HELLO_KIND or zero:
        raise HeadError(f"hello has kind {kind} and reserved field {zero}; need 1 and 0")
    return bytes(token)


def piece_head(length: int) -> bytes:
    """The head of ``length`` bytes of a relayed chunk; 0 gives the chunk up."""
    return _PIECE.pack(length)


def piece_length(wire: bytes | bytearray | memoryview, left: int) -> int:
    """The length of the next piece of a relayed chunk of which ``left`` bytes are to come. Raises HeadError."""
    _check_size(wire, PIECE_HEAD_BYTES, "piece head")
    length: int = _PIECE.unpack(wire)[0]
    if length > left:
        raise HeadError(f"piece of {length} bytes, only {left} of the chunk are to come")
    return length


def _check_size(wire: bytes | bytearray | memoryview, need: int, what: str) -> None:
    if len(wire) != need:
        raise HeadError(f"{what} has {len(wire)} bytes, need {need}")


def _check_version(version: int) -> None:
    if version != VERSION:
        raise HeadVersionError(f"head has version {version}, supported is {VERSION}")


_VERBS = {int(verb): verb for verb in BulkVerb}
_STATUSES = {int(status): status for status in Status}
