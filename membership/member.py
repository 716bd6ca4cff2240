"""Names of members: the identity of a node, what it says of itself, and what this node believes of its state.

What lives here: values. What does not: their encoding (``record``, ``wire``) and their table (``roster``).

Identity is (node key, boot number, incarnation). The key names the node. The boot number, which must grow with every
start of the process, names the life. The incarnation counts how often that life had to contradict a rumour of its
death. Name and address are attributes and may change. Rejected: identity by name or by address, as in memberlist,
because a restart with a new address is refused for minutes (memberlist #157, consul #733).
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import NewType, TypeAlias

from msgspec import Struct

NodeId = NewType("NodeId", bytes)
"""First 16 bytes of BLAKE2b over the node's Ed25519 public key: the node, whatever its name or address."""

NODE_ID_BYTES = 16

Handle: TypeAlias = bytes
"""First 8 bytes of a NodeId: names a member inside datagrams and tables. Two members of one cluster whose handles
collide (2**-64 each pair) cannot both join; the first one known stays."""

HANDLE_BYTES = 8

Address: TypeAlias = tuple[str, int]
"""Host and UDP port, as given to sendto."""


@lru_cache(maxsize=32_768)  # asked for at every look at a record; 20,000 members are the most
def node_id(public_key: bytes) -> NodeId:
    """The id of the node that holds the private half of ``public_key`` (32 bytes, Ed25519)."""
    return NodeId(blake2b(public_key, digest_size=NODE_ID_BYTES).digest())


class MemberState(Enum):
    """What the cluster, as far as this node has heard, believes of a member."""

    ALIVE = "alive"
    SUSPECT = "suspect"  # another member could not reach it; it has some seconds to contradict
    DEAD = "dead"  # stays on the roster and is probed for ever at a low rate
    LEFT = "left"  # said goodbye


def contact_of(host: str, port: int) -> str:
    """``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Record(Struct, frozen=True):
    """What a member says of itself, signed by itself. ``version`` orders records of one ``boot``. ``port`` serves UDP
    (membership) and TCP (the host's control plane); ``payload`` is the application's, at most 64 bytes; ``capacity`` is
    in bytes per second, 0 when unknown; ``signature`` is empty until the record is signed."""

    public_key: bytes
    boot: int
    version: int
    name: str
    rack: str
    zone: str
    host: str
    port: int
    bulk_port: int
    transport_key: bytes
    capacity: int = 0
    software: str = ""
    payload: bytes = b""
    signature: bytes = b""

    @property
    def node(self) -> NodeId:
        """The node that the record describes."""
        return node_id(self.public_key)

    @property
    def address(self) -> Address:
        """The address for its membership datagrams."""
        return (self.host, self.port)

    @property
    def contact(self) -> str:
        """The same as text, as ``net.join`` takes it."""
        return contact_of(self.host, self.port)


class Member(Struct, frozen=True):
    """One row of the view. ``since_s`` is when its state last changed here, on the clock that the host passes in."""

    record: Record
    state: MemberState
    incarnation: int
    since_s: float

    @property
    def node(self) -> NodeId:
        """The node's id."""
        return self.record.node
