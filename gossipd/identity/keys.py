"""Key pairs of publishers, clients and nodes: one file format, one seed, two uses.

What lives here: values and their text form. What does not: reading and writing files (``identity.key_files``).

A secret key is one 32-byte Ed25519 seed. It signs (manifests, statements, member records), and the X25519 key that
ZeroMQ's CURVE needs is derived from it with HKDF-SHA256, so that a person keeps one file. Rejected: converting Ed25519
keys to X25519 directly, as libsodium can, because the two keys would not be independent.

Text form, one field a line, first line names format and version; unknown versions are refused::

    gossipd-secret-key 1            gossipd-public-key 1
    ed25519-seed <64 hex>           ed25519 <64 hex>
                                    curve25519 <64 hex>
"""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from gossipd.core.errors import ExitCode, LocalError
from gossipd.core.hiding_struct import HidingStruct
from membership.verified_cache import verify_ed25519

KEY_BYTES = 32
_SECRET_HEADER = "gossipd-secret-key 1"
_PUBLIC_HEADER = "gossipd-public-key 1"


class KeyFormatError(LocalError):
    """A text that is not a key of the expected kind. Fault: the caller's file. Retry: with the right file."""

    code = "E_KEY_FORMAT"
    exit_code = ExitCode.TRUST


class PublicKey(Struct, frozen=True):
    """The public half: ``ed25519`` checks signatures, ``curve25519`` opens ZeroMQ connections; 32 bytes each."""

    ed25519: bytes
    curve25519: bytes

    def to_text(self) -> str:
        """The content of a ``.pub`` file."""
        return f"{_PUBLIC_HEADER}\ned25519 {self.ed25519.hex()}\ncurve25519 {self.curve25519.hex()}\n"

    @classmethod
    def from_text(cls, text: str) -> PublicKey:
        """Raises KeyFormatError when ``text`` is not a public key."""
        fields = _fields(text, _PUBLIC_HEADER, ("ed25519", "curve25519"))
        return cls(fields["ed25519"], fields["curve25519"])


class SecretKey(HidingStruct, frozen=True):
    """One seed, kept out of ``repr`` so that it cannot reach a log."""

    seed: bytes

    hidden = ("seed",)

    @property
    def curve_secret(self) -> bytes:
        """The X25519 private key, 32 bytes, for CURVE."""
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=b"gossipd curve25519 1").derive(self.seed)

    @property
    def public(self) -> PublicKey:
        """The public half."""
        signing = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        curve = X25519PrivateKey.from_private_bytes(self.curve_secret).public_key().public_bytes_raw()
        return PublicKey(signing, curve)

    def sign(self, message: bytes) -> bytes:
        """A 64-byte Ed25519 signature. Never used as an identifier: signatures are not unique."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)

    def to_text(self) -> str:
        """The content of a secret key file; the file must be 0600."""
        return f"{_SECRET_HEADER}\ned25519-seed {self.seed.hex()}\n"

    @classmethod
    def from_text(cls, text: str) -> SecretKey:
        """Raises KeyFormatError when ``text`` is not a secret key."""
        return cls(_fields(text, _SECRET_HEADER, ("ed25519-seed",))["ed25519-seed"])


verify = verify_ed25519  # (public key, signature, message): whether the holder of the key signed the message


def _fields(text: str, header: str, names: tuple[str, ...]) -> dict[str, bytes]:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or lines[0] != header:
        raise KeyFormatError(f"the first line must be '{header}'")
    found: dict[str, bytes] = {}
    for line in lines[1:]:
        name, _, value = line.partition(" ")
        if name not in names or name in found:
            raise KeyFormatError(f"unexpected line '{name}'; expected {', '.join(names)}")
        try:
            found[name] = bytes.fromhex(value)
        except ValueError:
            found[name] = b""
        if len(found[name]) != KEY_BYTES:
            raise KeyFormatError(f"{name} must be {KEY_BYTES * 2} hex digits")
    if missing := [name for name in names if name not in found]:
        raise KeyFormatError(f"{missing[0]} is missing")
    return found
