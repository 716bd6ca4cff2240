"""``gossipd sign``: another signature, the same deployment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gossipd.cli.main import main
from gossipd.identity.key_files import read_public_key
from gossipd.manifest.manifest import open_manifest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("old", "new", "other"):
        assert main(["keygen", str(tmp_path / f"{name}.key")]) == 0
    (tmp_path / "model").write_bytes(b"weights" * 1000)
    words = ["publish", str(tmp_path / "model"), "--name", "m", "--version", "3", "--out", str(tmp_path / "m.manifest")]
    assert main([*words, "--key", str(tmp_path / "old.key")]) == 0
    (tmp_path / "model").unlink()
    return tmp_path


def words(place: Path, *more: str, trust: str = "old") -> list[str]:
    given = ["sign", str(place / "m.manifest"), "--key", str(place / "new.key")]
    return [*given, "--trust", str(place / f"{trust}.key.pub"), *more]


def test_the_model_is_not_read_and_the_deployment_stays_the_same(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {name: read_public_key(place / f"{name}.key.pub").ed25519 for name in ("old", "new")}
    before = open_manifest((place / "m.manifest").read_bytes(), [keys["old"]])
    capsys.readouterr()
    assert main(words(place, "--out", str(place / "again.manifest"), "--json")) == 0
    after = open_manifest((place / "again.manifest").read_bytes(), [keys["new"]])
    assert after.id == before.id
    assert (before.signer, after.signer) == (keys["old"], keys["new"])
    assert json.loads(capsys.readouterr().out)["id"] == before.id.hex()


def test_a_step_is_named_as_status_names_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "model").write_bytes(b"weights" * 1000)
    step = ["publish", str(place / "model"), "--name", "m", "--step", "300", "--attempt", "2", "--key"]
    assert main([*step, str(place / "old.key"), "--out", str(place / "step.manifest")]) == 0
    capsys.readouterr()
    given = ["sign", str(place / "step.manifest"), "--key", str(place / "new.key")]
    assert main([*given, "--trust", str(place / "old.key.pub")]) == 0
    assert capsys.readouterr().out.startswith("m@300.2 signed by key ")


def test_what_another_key_has_signed_is_not_vouched_for(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (place / "m.manifest").read_bytes()
    assert main(words(place, trust="other")) == 7
    assert "E_KEY_UNKNOWN" in capsys.readouterr().err
    (place / "m.manifest").write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    assert main(words(place)) == 7
    assert "E_SIG_INVALID" in capsys.readouterr().err
