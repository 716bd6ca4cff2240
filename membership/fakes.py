"""The simulator's stand-ins for signatures and seals: same sizes, same refusals, a hundredth of the price."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import blake2b
from random import Random

from membership.errors import SealError
from membership.member import NodeId
from membership.seal import DATAGRAM_BYTES_MAX, HEADER_BYTES, OVERHEAD_BYTES, KeyRing, OpenedDatagram, key_tag


class FakeKeys:
    """Stand-in signatures: only the holder of the seed can make them, every node can check them."""

    def __init__(self) -> None:
        self._seeds: dict[bytes, bytes] = {}

    def make(self, rng: Random) -> bytes:
        """A new key pair; returns the public half."""
        seed = rng.randbytes(32)
        public = blake2b(seed, digest_size=32).digest()
        self._seeds[public] = seed
        return public

    def signer(self, public: bytes) -> Callable[[bytes], bytes]:
        """The function that signs for this key."""
        seed = self._seeds[public]
        return lambda message: blake2b(message, key=seed).digest()

    def verify(self, public: bytes, signature: bytes, message: bytes) -> bool:
        """Whether the signature was made with the seed of ``public``."""
        seed = self._seeds.get(public)
        return seed is not None and blake2b(message, key=seed).digest() == signature


class OpenSeal:
    """A ``Seal`` with the real one's sizes and fields, without the cipher; the tag's place holds the receiver."""

    def __init__(self, ring: KeyRing, node: NodeId, boot: int) -> None:
        self._node = node
        self._boot = boot
        self._counter = 0
        self._cluster = ring.cluster_id
        self.set_keys(ring)

    def set_keys(self, ring: KeyRing) -> None:
        if ring.cluster_id != self._cluster:
            raise SealError("a key ring of another cluster")
        tags = [key_tag(ring.cluster_id, key) for key in ring.keys]
        self._tags = frozenset(tags)
        self._head = b"\x01" + tags[0] + b"\x00" + self._node + self._boot.to_bytes(8)

    @property
    def key_tags(self) -> Collection[bytes]:
        return self._tags

    def seal(self, body: bytes, receiver: NodeId | None) -> bytes:
        self._counter += 1
        return b"".join((self._head, self._counter.to_bytes(8), receiver or bytes(16), body))

    def open(self, datagram: bytes) -> OpenedDatagram:
        receiver = datagram[HEADER_BYTES:OVERHEAD_BYTES]
        if not OVERHEAD_BYTES < len(datagram) <= DATAGRAM_BYTES_MAX or receiver not in (self._node, bytes(16)):
            raise SealError("not for us")
        if datagram[1:5] not in self._tags:
            raise SealError("unknown key or cluster")
        boot, counter = int.from_bytes(datagram[22:30]), int.from_bytes(datagram[30:38])
        return OpenedDatagram(NodeId(datagram[6:22]), boot, counter, datagram[OVERHEAD_BYTES:])
