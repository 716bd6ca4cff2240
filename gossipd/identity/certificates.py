"""Certificates of the bulk path: an authority that every holder of the cluster key derives, and one leaf per node.

What lives here: making and reading them, as values. What does not: TLS contexts (``transfer.credentials``) and
membership (the caller compares the leaf's key with the member's record).

Python's TLS server shows a client certificate only if it can verify a chain to it. So the cluster key is stretched with
HKDF-SHA256 into the Ed25519 key of an authority, the same on every host, and with it each node signs a leaf for its own
identity key. The chain proves that the peer holds the cluster key; the handshake proves that it holds the node key in
the leaf; whether that node is a member is checked afterwards. After a rotation of the cluster key there are two
authorities until the old key is dropped.

Everything is a function of the two keys: same key, same bytes (Ed25519 signatures are deterministic, the serial number
is a hash). The dates of a certificate mean nothing; they run from 1970 to the "no expiry" date of RFC 5280 section
4.1.2.5. Admission ends when the cluster key is rotated or the member is forgotten, whatever a host's wall clock says.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gossipd.core.errors import RemoteError
from gossipd.identity.keys import KEY_BYTES, SecretKey
from membership.member import node_id

_NOT_BEFORE = datetime(1970, 1, 1)  # noqa: DTZ001 - a fixed date, read as UTC by x509
_NOT_AFTER = datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001 - RFC 5280, 4.1.2.5
_SERIAL_BYTES = 16  # RFC 5280 allows 20; two certificates never share one unless they are the same


class CertificateError(RemoteError):
    """A peer's certificate that cannot be parsed, or is not for an Ed25519 key. Fault: the peer. Retry: no."""

    code = "E_CERTIFICATE"


def authority_pem(cluster_keys: Sequence[bytes]) -> str:
    """The authorities' certificates, one per cluster key that is accepted, for verifying peers."""
    return "".join(_authority(key)[1].public_bytes(Encoding.PEM).decode() for key in cluster_keys)


def node_pem(secret: SecretKey, cluster_key: bytes) -> str:
    """This node's certificate and its private key, as a TLS library loads them. Secret: never log it."""
    signing, authority = _authority(cluster_key)
    private = Ed25519PrivateKey.from_private_bytes(secret.seed)
    public = private.public_key()
    name = _name(f"gossipd node {node_id(public.public_bytes_raw()).hex()}")
    certificate = (
        _builder(name, authority.subject, public, signing.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signature=True), critical=True)
        .sign(signing, None)
    )
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM).decode() + key.decode()


def public_key_of(der: bytes) -> bytes:
    """The Ed25519 public key (32 bytes) in a peer's certificate. Raises CertificateError."""
    try:
        key = x509.load_der_x509_certificate(der).public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise CertificateError("the peer's certificate cannot be parsed") from None
    if not isinstance(key, Ed25519PublicKey):
        raise CertificateError("the peer's certificate is not for an Ed25519 key")
    return key.public_bytes_raw()


def _authority(cluster_key: bytes) -> tuple[Ed25519PrivateKey, x509.Certificate]:
    assert len(cluster_key) == KEY_BYTES, "a cluster key has 32 bytes"
    seed = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=b"gossipd bulk authority 1").derive(cluster_key)
    signing = Ed25519PrivateKey.from_private_bytes(seed)
    public = signing.public_key()
    name = _name(f"gossipd cluster {blake2b(public.public_bytes_raw(), digest_size=16).hexdigest()}")
    certificate = (
        _builder(name, name, public, public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signing=True), critical=True)
        .sign(signing, None)
    )
    return signing, certificate


def _name(common: str) -> x509.Name:
    # RFC 5280 bounds a common name to 64 characters: ids fit, keys in hex would not.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: Ed25519PublicKey, issuer_public: Ed25519PublicKey
) -> x509.CertificateBuilder:
    serial = blake2b(public.public_bytes_raw() + issuer_public.public_bytes_raw(), digest_size=_SERIAL_BYTES).digest()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(int.from_bytes(serial, "big") >> 1 | 1)
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
    )


def _usage(*, signature: bool = False, signing: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signature, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signing, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
