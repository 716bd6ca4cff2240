"""Seals one datagram for one cluster, and opens it again.

Format (all integers big-endian)::

    version 1 B | key tag 4 B | flags 1 B | sender node id 16 B | sender boot 8 B | counter 8 B | ciphertext | tag 16 B

ChaCha20-Poly1305 under a subkey of the cluster key, derived with BLAKE2b (keyed; cluster id, node id and boot number
as input), so that no two senders and no two lives of one sender share a key; the counter is the nonce and is never
used twice within a boot. The header is authenticated together with the cluster id and, unless the flag says that the
receiver was known by its address only (a first hello), the receiver's node id: a captured datagram cannot be sent to
another node. The key tag (a hash of cluster id and key) finds the key in the ring without trying each.

The seal proves that the sender holds the cluster key. Signatures on records and accusations prove which member it is.
Rejected: AES-GCM under one shared key with random nonces, because a fleet may then send only 2**32 datagrams.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Collection
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import Struct

from membership.errors import SealError
from membership.member import NodeId

CLUSTER_ID_BYTES = 16
KEY_BYTES = 32
DATAGRAM_BYTES_MAX = 1400
"""Fits every Ethernet path with tunnels in between; memberlist's packet size too."""

VERSION = 1
_HEADER = struct.Struct(">B4sB16sQQ")
HEADER_BYTES = _HEADER.size
TAG_BYTES = 16
OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
BODY_BYTES_MAX = DATAGRAM_BYTES_MAX - OVERHEAD_BYTES
_TO_NODE, _TO_ADDRESS = 0, 1
_OPENERS_MAX = 32768  # subkeys kept; one costs about 250 B


class KeyRing(Struct, frozen=True):
    """One cluster's secrets. The first key seals; all of them open, which is how keys are rotated."""

    cluster_id: bytes
    keys: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"KeyRing(cluster_id={self.cluster_id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("cluster_id", self.cluster_id)]

    def __post_init__(self) -> None:
        if len(self.cluster_id) != CLUSTER_ID_BYTES:
            raise SealError("the cluster id must have 16 bytes")
        if not self.keys or any(len(key) != KEY_BYTES for key in self.keys):
            raise SealError("a key ring needs at least one key, of 32 bytes each")


class OpenedDatagram(NamedTuple):
    """What an authentic datagram says of itself."""

    node: NodeId
    boot: int
    counter: int
    body: bytes


class Seal(Protocol):
    """What the brain needs of a seal; a simulator may leave the cipher out and keep the sizes."""

    def seal(self, body: bytes, receiver: NodeId | None) -> bytes:
        """Sealed bytes for one receiver; None when only its address is known."""
        ...

    def open(self, datagram: bytes) -> OpenedDatagram:
        """Raises SealError when the datagram is not authentic or for another node."""
        ...

    def set_keys(self, ring: KeyRing) -> None:
        """Use these keys from now. Raises SealError when they are another cluster's."""
        ...

    @property
    def key_tags(self) -> Collection[bytes]:
        """The tags of the keys that open; each authentic datagram bears one of them in clear."""
        ...


def key_tag(cluster_id: bytes, key: bytes) -> bytes:
    """Names a key without revealing it."""
    return blake2b(cluster_id, digest_size=4, key=key, person=b"gossip key tag").digest()


def subkey(cluster_id: bytes, key: bytes, node: bytes, boot: int) -> bytes:
    """The key with which one life of one node seals."""
    return blake2b(cluster_id + node + boot.to_bytes(8), digest_size=32, key=key, person=b"gossip subkey 1").digest()


class DatagramSeal:
    """The ``Seal`` of one node in one life."""

    def __init__(self, ring: KeyRing, node: NodeId, boot: int) -> None:
        self._cluster = ring.cluster_id
        self._node = node
        self._boot = boot
        self._counter = 0
        self._openers: OrderedDict[tuple[bytes, bytes, int], ChaCha20Poly1305] = OrderedDict()
        self.set_keys(ring)

    def set_keys(self, ring: KeyRing) -> None:
        """The counter goes on: a key that comes back must not meet its nonces again."""
        if ring.cluster_id != self._cluster:
            raise SealError("a key ring of another cluster")
        self._keys = {key_tag(ring.cluster_id, key): key for key in ring.keys}
        self._tag = key_tag(ring.cluster_id, ring.keys[0])
        self._cipher = ChaCha20Poly1305(subkey(ring.cluster_id, ring.keys[0], self._node, self._boot))
        for known in [known for known in self._openers if known[0] not in self._keys]:
            del self._openers[known]

    @property
    def key_tags(self) -> Collection[bytes]:
        return self._keys

    def seal(self, body: bytes, receiver: NodeId | None) -> bytes:
        self._counter += 1
        flags = _TO_ADDRESS if receiver is None else _TO_NODE
        header = _HEADER.pack(VERSION, self._tag, flags, self._node, self._boot, self._counter)
        bound = header + self._cluster + (receiver or b"")
        return header + self._cipher.encrypt(self._counter.to_bytes(12), body, bound)

    def open(self, datagram: bytes) -> OpenedDatagram:
        if not OVERHEAD_BYTES < len(datagram) <= DATAGRAM_BYTES_MAX:
            raise SealError("size")
        version, tag, flags, node, boot, counter = _HEADER.unpack_from(datagram)
        if version != VERSION or flags > _TO_ADDRESS:
            raise SealError("version")
        key = self._keys.get(tag)
        if key is None:
            raise SealError("unknown key or cluster")
        bound = datagram[:HEADER_BYTES] + self._cluster + (self._node if flags == _TO_NODE else b"")
        known = self._openers.get((tag, node, boot))
        opener = known or ChaCha20Poly1305(subkey(self._cluster, key, node, boot))
        try:
            body = opener.decrypt(counter.to_bytes(12), datagram[HEADER_BYTES:], bound)
        except InvalidTag:
            raise SealError("not authentic") from None
        if known is None:  # only authentic senders get a place, so an outsider cannot fill the table
            self._openers[(tag, node, boot)] = opener
            if len(self._openers) > _OPENERS_MAX:
                self._openers.popitem(last=False)
        return OpenedDatagram(NodeId(node), boot, counter, body)
