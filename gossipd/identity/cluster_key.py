"""The cluster key: the secret that all hosts of one cluster share, as text, and its rotation.

What lives here: values and their text form. What does not: reading and writing the file (``identity.key_files``), and
what the keys seal (``membership.seal``).

Every holder of the cluster key may join. Text form, one field a line, first line names format and version; an unknown
version is refused::

    gossipd-cluster-key 1
    cluster <32 hex digits>      16 random bytes that name the cluster, the same across rotations
    key <64 hex digits>          the first key sends ...
    key <64 hex digits>          ... and all of them are accepted: the overlap while a rotation goes round

Rotation takes three rounds over all hosts: add the new key as the last line (accepted everywhere), move it to the first
(it sends), drop the old one. A running daemon reads the file again on SIGHUP.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossipd.core.errors import ExitCode, LocalError
from membership.seal import KeyRing

CLUSTER_ID_BYTES = 16
CLUSTER_KEY_BYTES = 32
KEYS_MAX = 4  # old, new and one for a second rotation; every further one costs a decryption a datagram
_HEADER = "gossipd-cluster-key 1"


class ClusterKeyError(LocalError):
    """A text that is not a cluster key. Fault: the caller that gave the file. Retry: with the right file."""

    code = "E_KEY_FORMAT"
    exit_code = ExitCode.TRUST


def new_key_ring(random_bytes: bytes) -> KeyRing:
    """A new cluster from 48 bytes of the system's randomness."""
    assert len(random_bytes) == CLUSTER_ID_BYTES + CLUSTER_KEY_BYTES
    return KeyRing(random_bytes[:CLUSTER_ID_BYTES], (random_bytes[CLUSTER_ID_BYTES:],))


def add_key(ring: KeyRing, random_bytes: bytes) -> KeyRing:
    """First round of a rotation: the new key is accepted, the old one still sends."""
    assert len(random_bytes) == CLUSTER_KEY_BYTES
    if len(ring.keys) >= KEYS_MAX:
        raise ClusterKeyError(f"the cluster key has {KEYS_MAX} key lines already; drop the oldest first")
    return KeyRing(ring.cluster_id, (*ring.keys, random_bytes))


def send_with_newest(ring: KeyRing) -> KeyRing:
    """Second round: the key added last sends; the others are still accepted."""
    return KeyRing(ring.cluster_id, (ring.keys[-1], *ring.keys[:-1]))


def keep_first(ring: KeyRing) -> KeyRing:
    """Third round: only the key that sends is left."""
    return KeyRing(ring.cluster_id, ring.keys[:1])


def format_key_ring(ring: KeyRing) -> str:
    """The content of a cluster key file; the file must be 0600."""
    return "".join([f"{_HEADER}\n", f"cluster {ring.cluster_id.hex()}\n", *(f"key {key.hex()}\n" for key in ring.keys)])


def parse_key_ring(text: str) -> KeyRing:
    """The key ring in ``text``. Raises ClusterKeyError: another format; the sentence names the line, never the key."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or lines[0] != _HEADER:
        raise ClusterKeyError(f"the first line must be '{_HEADER}'")
    cluster_ids: list[bytes] = []
    keys: list[bytes] = []
    for line in lines[1:]:
        name, _, value = line.partition(" ")
        if name == "cluster":
            cluster_ids.append(_hex(name, value, CLUSTER_ID_BYTES))
        elif name == "key":
            keys.append(_hex(name, value, CLUSTER_KEY_BYTES))
        else:
            raise ClusterKeyError("unexpected line; expected 'cluster' and 'key' lines")
    if len(cluster_ids) != 1:
        raise ClusterKeyError(f"there must be one 'cluster' line, not {len(cluster_ids)}")
    _check_keys(keys)
    return KeyRing(cluster_ids[0], tuple(keys))


def _check_keys(keys: Sequence[bytes]) -> None:
    if not 1 <= len(keys) <= KEYS_MAX:
        raise ClusterKeyError(f"there must be 1 to {KEYS_MAX} 'key' lines, not {len(keys)}")
    if len(set(keys)) != len(keys):
        raise ClusterKeyError("a 'key' line comes twice")
    if any(not any(key) for key in keys):
        raise ClusterKeyError("a key of zeros is no secret")


def _hex(name: str, value: str, size: int) -> bytes:
    try:
        found = bytes.fromhex(value)
    except ValueError:
        found = b""
    if len(found) != size:
        raise ClusterKeyError(f"'{name}' must be followed by {size * 2} hex digits")
    return found
