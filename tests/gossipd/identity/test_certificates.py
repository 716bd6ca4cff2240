"""Certificates are functions of the keys, chain to the cluster's authority and to no other, and never expire."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from gossipd.identity.certificates import CertificateError, authority_pem, node_pem, public_key_of
from gossipd.identity.keys import SecretKey
from membership.member import node_id

CLUSTER, OTHER = b"\x01" * 32, b"\x02" * 32
NODE = SecretKey(b"\x03" * 32)


def leaf_of(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_the_same_keys_give_the_same_bytes() -> None:
    assert authority_pem([CLUSTER]) == authority_pem([CLUSTER])
    assert node_pem(NODE, CLUSTER) == node_pem(NODE, CLUSTER)
    assert authority_pem([CLUSTER]) != authority_pem([OTHER])


def test_the_leaf_holds_the_nodes_key_and_its_id() -> None:
    leaf = leaf_of(node_pem(NODE, CLUSTER))
    assert public_key_of(leaf.public_bytes(Encoding.DER)) == NODE.public.ed25519
    assert node_id(NODE.public.ed25519).hex() in leaf.subject.rfc4514_string()


def test_the_leaf_is_signed_by_the_clusters_authority_and_by_no_other() -> None:
    leaf = leaf_of(node_pem(NODE, CLUSTER))
    leaf.verify_directly_issued_by(leaf_of(authority_pem([CLUSTER])))
    with pytest.raises(ValueError, match="does not match"):
        leaf.verify_directly_issued_by(leaf_of(authority_pem([OTHER])))


def test_a_ring_of_keys_gives_an_authority_each() -> None:
    found = x509.load_pem_x509_certificates(authority_pem([CLUSTER, OTHER]).encode())
    assert len({certificate.subject for certificate in found}) == 2


def test_only_the_authority_may_sign() -> None:
    leaf, authority = leaf_of(node_pem(NODE, CLUSTER)), leaf_of(authority_pem([CLUSTER]))
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not leaf.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_no_wall_clock_makes_a_certificate_invalid() -> None:
    for certificate in (leaf_of(node_pem(NODE, CLUSTER)), leaf_of(authority_pem([CLUSTER]))):
        assert certificate.not_valid_before_utc.year == 1970
        assert certificate.not_valid_after_utc.year == 9999


def test_the_authoritys_key_is_not_the_cluster_key() -> None:
    key = leaf_of(authority_pem([CLUSTER])).public_key()
    assert isinstance(key, Ed25519PublicKey)
    assert key.public_bytes_raw() != SecretKey(CLUSTER).public.ed25519


def test_noise_and_other_kinds_of_keys_are_refused() -> None:
    with pytest.raises(CertificateError):
        public_key_of(b"noise")
    key = generate_private_key(SECP256R1())
    leaf = leaf_of(node_pem(NODE, CLUSTER))
    foreign = (
        x509.CertificateBuilder()
        .subject_name(leaf.subject)
        .issuer_name(leaf.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(leaf.not_valid_before_utc)
        .not_valid_after(leaf.not_valid_after_utc)
        .sign(key, SHA256())
    )
    with pytest.raises(CertificateError):
        public_key_of(foreign.public_bytes(Encoding.DER))


def test_kinds_of_keys_and_versions_that_no_library_knows_are_refused_too() -> None:
    der = leaf_of(node_pem(NODE, CLUSTER)).public_bytes(Encoding.DER)
    ed25519, version = bytes.fromhex("06032b6570"), bytes.fromhex("a003020102")
    assert ed25519 in der and version in der
    for changed in (der.replace(ed25519, bytes.fromhex("06032b6771")), der.replace(version, version[:-1] + b"\x12")):
        with pytest.raises(CertificateError):
            public_key_of(changed)
