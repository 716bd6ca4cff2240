"""An authority of the tests' own, and certificates that it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def issue(directory: Path, *names: str, ended_ago: timedelta | None = None) -> tuple[Path, Path, Path]:
    """Files of the authority, a certificate for ``names`` (addresses among them), and its key. ``ended_ago``: how long
    it has been too old; None: it is not."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    authority_certificate = (
        _begun(authority, authority, authority_key, -timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    alternatives: list[x509.GeneralName] = [
        x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
    ]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "storage of the tests")])
    certificate = (
        _begun(subject, authority, key, ended_ago or -timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    files = directory / "ca.pem", directory / "cert.pem", directory / "key.pem"
    encoding = serialization.Encoding.PEM
    files[0].write_bytes(authority_certificate.public_bytes(encoding))
    files[1].write_bytes(certificate.public_bytes(encoding))
    files[2].write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return files


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ended_ago: timedelta
) -> x509.CertificateBuilder:
    end = datetime.now(UTC) - ended_ago
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(hours=2))
        .not_valid_after(end)
    )
