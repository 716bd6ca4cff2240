"""OpenSSF Model Signing, with its own tool and library, over what gossipd publishes and delivers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from gossipd.cli.main import main
from gossipd.client import Client
from tests.e2e.cluster import publishing_cluster, same_tree

PRIVATE = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
PUBLIC = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """``ec.pem``, ``ec.pub``, ``other.pub``, ``ed.pem``, and the publisher's ``p.key``."""
    for name in ("ec", "other"):
        key = ec.generate_private_key(ec.SECP256R1())
        (tmp_path / f"{name}.pem").write_bytes(key.private_bytes(*PRIVATE))
        (tmp_path / f"{name}.pub").write_bytes(key.public_key().public_bytes(*PUBLIC))
    (tmp_path / "ed.pem").write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*PRIVATE))
    assert main(["keygen", str(tmp_path / "p.key")]) == 0
    return tmp_path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "weights").mkdir(parents=True)
    (model / "weights" / "w.bin").write_bytes(bytes(range(256)) * 3000)
    (model / "config.json").write_text("{}")
    (model / "empty").write_bytes(b"")
    (model / ".gitattributes").write_text("*.bin filter=lfs")
    return model


def tool(*arguments: str | Path, cwd: Path | None = None) -> int:
    command = [sys.executable, "-m", "model_signing", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, timeout=120, cwd=cwd).returncode


def sign(keys: Path, tree: Path) -> Path:
    assert tool("sign", "key", "--private_key", keys / "ec.pem", "--signature", tree / "model.sig", tree) == 0
    return tree / "model.sig"


def verify(keys: Path, signature: Path, tree: Path, key: str = "ec.pub") -> int:
    return tool("verify", "key", "--public_key", keys / key, "--signature", signature, tree)


def publish(keys: Path, tree: Path, *more: str | Path) -> int:
    given = ["--name", "m", "--version", "1", "--key", keys / "p.key", "--out", keys / "m.manifest", *more]
    return main(["publish", str(tree), *map(str, given)])


def refused(keys: Path, tree: Path, capsys: pytest.CaptureFixture[str], *more: str | Path) -> str:
    """The sentence with which the required signature is refused."""
    (keys / "m.manifest").unlink(missing_ok=True)
    assert publish(keys, tree, "--require-model-signature", keys / "ec.pub", *more) == 6
    assert not (keys / "m.manifest").exists()
    said = capsys.readouterr().err
    assert "E_MODEL_SIGNATURE: " in said
    return said


def test_a_delivered_signature_verifies_on_another_host_with_the_stock_tool(keys: Path, tree: Path) -> None:
    signature = sign(keys, tree)
    with publishing_cluster(keys / "c") as cluster:
        cluster.start(hosts=2, racks=1)
        first, second = (Client(cluster.daemons[name].home / "gossipd.sock") for name in ("node-1", "node-2"))
        made = first.publish(tree, name="m", version=1)
        second.wait("m", made.version, timeout=60)
        delivered = second.path("m", made.version)
        assert same_tree(tree, delivered)
        as_in_the_manual = ("--public_key", keys / "ec.pub", "--signature", signature.name, ".")
        assert tool("verify", "key", *as_in_the_manual, cwd=delivered) == 0
        assert verify(keys, delivered / signature.name, delivered, "other.pub") != 0


def test_a_required_signature_that_is_right_lets_the_tree_be_published(keys: Path, tree: Path) -> None:
    sign(keys, tree)
    assert publish(keys, tree, "--require-model-signature", keys / "ec.pub") == 0
    assert (keys / "m.manifest").exists()


def test_a_required_signature_stops_a_flipped_byte_a_strange_key_and_a_missing_file(
    keys: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is not there" in refused(keys, tree, capsys)
    signature = sign(keys, tree)
    weights = tree / "weights" / "w.bin"
    content = weights.read_bytes()
    weights.write_bytes(content[:1000] + b"x" + content[1001:])
    assert "weights/w.bin" in refused(keys, tree, capsys)
    weights.write_bytes(content)
    assert "left out" in refused(keys, tree, capsys, "--exclude", "empty")
    assert "model.sig is required and left out" in refused(keys, tree, capsys, "--exclude", "model.sig")
    (tree / "more").write_text("not signed")
    assert "more" in refused(keys, tree, capsys)
    (tree / "more").unlink()
    sign_of_ours = signature.read_text()
    for text in (
        "",
        "{}",
        "[]",
        '{"verificationMaterial": {}}',
        "[" * 100_000,
        sign_of_ours.replace("MEU", "MEV")[:-40],
    ):
        signature.write_text(text)
        assert refused(keys, tree, capsys)
    signature.write_text(sign_of_ours)
    (keys / "ec.pub").write_bytes((keys / "other.pub").read_bytes())
    assert "Key mismatch" in refused(keys, tree, capsys)
    (keys / "ec.pub").write_bytes((keys / "ed.pem").read_bytes())
    assert "is no public key of P-256" in refused(keys, tree, capsys)


def test_our_signature_of_what_is_published_passes_the_stock_tool(
    keys: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signature = keys / "out.sig"
    assert (
        publish(keys, tree, "--model-sig", keys / "ec.pem", "--model-sig-out", signature, "--chunk-size", "64KiB") == 0
    )
    assert verify(keys, signature, tree) == 0
    (tree / "config.json").write_text("[]")
    assert verify(keys, signature, tree) != 0
    assert publish(keys, tree, "--model-sig", keys / "ed.pem", "--model-sig-out", keys / "ed.sig") == 6
    assert "is no secret key of P-256" in capsys.readouterr().err
    assert not (keys / "ed.sig").exists()


def test_an_exported_statement_is_one_by_the_rules_of_in_toto(
    keys: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = {"run": "r7", "metrics": {"loss": 1.5}}
    (keys / "about.json").write_text(json.dumps(about))
    assert publish(keys, tree, "--about", keys / "about.json") == 0
    capsys.readouterr()
    assert main(["export", str(keys / "m.manifest"), "--in-toto"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["predicate"] == about
    Statement.copy_from_pb(json_format.ParseDict(said, statement_pb2.Statement())).validate()  # and no field is unknown
