"""A signed envelope: exact bytes of one type, and the signatures over them.

What lives here: the format, sealing and opening. What does not: what the payload means (``manifest``).

Format, after DSSE's idea that the signature covers type and exact bytes, and is checked before they are parsed::

    u8      version of this format, 1; any other is refused as E_SCHEMA_VERSION
    u8      length of the type, then the type in ASCII, e.g. "gossipd-manifest"
    u8      number of signatures, at most 8, then for each
              16 bytes  id of the key that signed
              64 bytes  Ed25519 signature over PAE(type, payload)
    ...     the payload: everything that is left

    PAE(type, payload) = "gossipd-pae-1 " + len(type) + " " + type + " " + len(payload) + " " + payload

The lengths inside the PAE (decimal, ASCII) make it injective: no type and payload can be read as another pair.
The head has fixed widths, so that no parser runs on bytes that no trusted key has signed. Rejected: JSON with base64 as
in DSSE itself, because it is larger and parsed before the check; signing a hash of the payload: it gains nothing.

A signature is never an identifier (Ed25519 signatures are not unique); the payload's hash is.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from gossipd.identity.keys import SecretKey, verify
from gossipd.identity.trust import KEY_ID_BYTES, key_id, keys_by_id
from gossipd.manifest.errors import ManifestError

ENVELOPE_VERSION = 1
SIGNATURE_BYTES = 64
SIGNATURES_MAX = 8  # endless signature lists were a denial of service elsewhere (CVE-2023-46737)
ENVELOPE_BYTES_MAX = 50 * 1024 * 1024  # 1,000,000 chunk hashes are 32 MB; 16 MiB are for the list of files


class OpenedEnvelope(Struct, frozen=True):
    """A payload that ``signer`` (an Ed25519 public key, 32 bytes) has signed."""

    payload: memoryview
    signer: bytes


def seal(kind: str, payload: bytes, secrets: Collection[SecretKey]) -> bytes:
    """The envelope's bytes, signed by every one of ``secrets``."""
    assert 0 < len(secrets) <= SIGNATURES_MAX
    message = _pae(kind.encode("ascii"), payload)
    parts = [bytes([ENVELOPE_VERSION, len(kind)]), kind.encode("ascii"), bytes([len(secrets)])]
    for secret in secrets:
        parts += [key_id(secret.public.ed25519), secret.sign(message)]
    return b"".join([*parts, payload])


def open_envelope(kind: str, envelope: bytes, trusted: Collection[bytes]) -> OpenedEnvelope:
    """The payload, not parsed yet, if a trusted key has signed it as ``kind``.

    Unknown keys' signatures are ignored when a known one is good; a bad signature by a known key is refused.

    Raises:
        ManifestError: ``E_LIMIT``, ``E_SCHEMA_VERSION``, ``E_DECODE``, ``E_SIG_MISSING``, ``E_SIG_THRESHOLD``,
            ``E_KEY_UNKNOWN`` or ``E_SIG_INVALID``.
    """
    if len(envelope) > ENVELOPE_BYTES_MAX:
        raise ManifestError(f"envelope has {len(envelope)} bytes, at most {ENVELOPE_BYTES_MAX}", code="E_LIMIT")
    payload, signatures = _split(kind, envelope)
    keys = keys_by_id(trusted)
    known = [(keys[signed_by], signature) for signed_by, signature in signatures if signed_by in keys]
    if not known:
        named = ", ".join(signed_by.hex()[:12] for signed_by, _ in signatures)
        raise ManifestError(
            f"signed by key={named}, which is not among the {len(keys)} trusted keys", code="E_KEY_UNKNOWN",
            subject=bytes(signatures[0][0]),
        )  # fmt: skip
    message = _pae(kind.encode("ascii"), payload)  # the only copy of the payload, gone when this returns
    for key, signature in known:
        if not verify(key, signature, message):
            raise ManifestError(
                f"the signature by key={key_id(key).hex()[:12]} does not match the content, which was changed or is "
                "incomplete",
                code="E_SIG_INVALID",
            )
    return OpenedEnvelope(payload, known[0][0])


def payload_of(kind: str, envelope: bytes) -> memoryview:
    """The payload without any check of its signatures: only to compute its hash, never to be parsed."""
    return _split(kind, envelope)[0]


def _split(kind: str, envelope: bytes) -> tuple[memoryview, list[tuple[bytes, bytes]]]:
    if not envelope:
        raise ManifestError("the envelope is empty")
    if envelope[0] != ENVELOPE_VERSION:
        raise ManifestError(
            f"no {kind}, or one of a newer gossipd: it begins with byte {envelope[0]}, format {ENVELOPE_VERSION} with "
            f"byte {ENVELOPE_VERSION}",
            code="E_SCHEMA_VERSION",
        )
    type_end = 2 + (envelope[1] if len(envelope) > 1 else 0)
    if len(envelope) < type_end + 1:
        raise ManifestError("the envelope ends within its head")
    if envelope[2:type_end] != kind.encode("ascii"):
        raise ManifestError(f"the envelope does not hold a {kind}", code="E_SCHEMA_VERSION")
    count = envelope[type_end]
    if count == 0:
        raise ManifestError("the envelope carries no signature", code="E_SIG_MISSING")
    if count > SIGNATURES_MAX:
        raise ManifestError(f"the envelope has {count} signatures, at most {SIGNATURES_MAX}", code="E_LIMIT")
    width = KEY_ID_BYTES + SIGNATURE_BYTES
    payload_at = type_end + 1 + count * width
    if len(envelope) < payload_at:
        raise ManifestError("the envelope ends within its signatures")
    signatures = [
        (envelope[at : at + KEY_ID_BYTES], envelope[at + KEY_ID_BYTES : at + width])
        for at in range(type_end + 1, payload_at, width)
    ]
    distinct = len({signed_by for signed_by, _ in signatures})
    if distinct != count:
        raise ManifestError(f"{distinct} of {count} signatures are by distinct keys", code="E_SIG_THRESHOLD")
    return memoryview(envelope)[payload_at:], signatures


def _pae(kind: bytes, payload: bytes | memoryview) -> bytes:
    # Joined and not formatted: formatting a view goes byte by byte, and no other thread runs meanwhile.
    return b"".join([b"gossipd-pae-1 %d %s %d " % (len(kind), kind, len(payload)), payload])
