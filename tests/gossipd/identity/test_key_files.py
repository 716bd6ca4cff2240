"""Key files: made new and closed to others, refused when open to them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gossipd.identity import key_files
from gossipd.identity.cluster_key import new_key_ring
from gossipd.identity.key_files import KeyFileError
from gossipd.identity.keys import PublicKey, SecretKey

SECRET = SecretKey(b"s" * 32)
RING = new_key_ring(bytes(range(48)))


def refusal(path: Path, read: object = key_files.read_secret_key) -> str:
    assert callable(read)
    with pytest.raises(KeyFileError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return caught.value.code


def test_keys_read_back_as_they_were_written(tmp_path: Path) -> None:
    public = key_files.write_key_pair(tmp_path / "k", SECRET)
    key_files.write_key_ring(tmp_path / "c", RING)
    assert key_files.read_secret_key(tmp_path / "k") == SECRET
    assert key_files.read_public_key(public) == SECRET.public
    assert key_files.read_key_ring(tmp_path / "c") == RING


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_secrets_are_0600_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        public = key_files.write_key_pair(tmp_path / "k", SECRET)
        key_files.write_key_ring(tmp_path / "c", RING)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "k", tmp_path / "c", public)}
    assert modes == {"k": 0o600, "c": 0o600, "k.pub": 0o644}


@pytest.mark.parametrize("there", ["k", "k.pub"])
def test_neither_half_is_overwritten_and_no_half_is_left(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(KeyFileError) as caught:
        key_files.write_key_pair(tmp_path / "k", SECRET)
    assert caught.value.code == "E_KEY_EXISTS"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]


def test_a_planted_symbolic_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "k").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError):
        key_files.write_key_pair(tmp_path / "k", SECRET)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o644, 0o610])
def test_a_secret_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    key_files.write_key_pair(tmp_path / "k", SECRET)
    (tmp_path / "k").chmod(mode)
    assert refusal(tmp_path / "k") == "E_KEY_EXPOSED"


def test_a_public_key_in_place_of_the_secret_one_is_called_so(tmp_path: Path) -> None:
    public = key_files.write_key_pair(tmp_path / "k", SECRET)
    with pytest.raises(KeyFileError, match="is a public key; give the secret one, k"):
        key_files.read_secret_key(public)


def test_a_public_key_that_others_can_change_is_refused(tmp_path: Path) -> None:
    public = key_files.write_key_pair(tmp_path / "k", SECRET)
    public.chmod(0o664)
    assert refusal(public, key_files.read_public_key) == "E_KEY_EXPOSED"


def test_what_is_not_a_key_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing") == "E_KEY_MISSING"
    assert refusal(tmp_path) == "E_KEY_FILE"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert refusal(pipe) == "E_KEY_FILE"
    for name, content in (("long", b"x" * 5000), ("binary", b"\xff\xfe"), ("other", RING.cluster_id.hex().encode())):
        path = tmp_path / name
        path.write_bytes(content)
        path.chmod(0o600)
        assert refusal(path) == "E_KEY_FORMAT"


def test_a_degenerate_public_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.pub"
    key_files.write_public_key(path, PublicKey((1).to_bytes(32, "little"), b"c" * 32))
    assert refusal(path, key_files.read_public_key) == "E_KEY_FORMAT"


def test_no_error_shows_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text(SECRET.to_text() + "junk\n")
    path.chmod(0o600)
    with pytest.raises(KeyFileError) as caught:
        key_files.read_secret_key(path)
    assert SECRET.seed.hex() not in str(caught.value)


def test_a_secrets_volume_that_all_may_read_is_refused_with_the_mode_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_files.write_key_pair(tmp_path / "k", SECRET)
    status = list((tmp_path / "k").stat())
    status[0], status[4] = stat.S_IFREG | 0o644, 0  # Kubernetes' default, root's
    monkeypatch.setattr("gossipd.identity.key_files.os.fstat", lambda _: os.stat_result(status))
    monkeypatch.setattr("gossipd.identity.key_files.os.geteuid", lambda: 12_345)
    with pytest.raises(KeyFileError, match=r"defaultMode: 0440") as caught:
        key_files.read_secret_key(tmp_path / "k")
    assert caught.value.code == "E_KEY_EXPOSED"


def test_what_stands_where_a_new_cluster_key_is_written_is_named(tmp_path: Path) -> None:
    key_files.write_key_ring(tmp_path / "c", RING)
    (tmp_path / ".c.new").mkdir()
    with pytest.raises(KeyFileError, match=r"\.c\.new is in the way of the new key: .*; move it away"):
        key_files.replace_key_ring(tmp_path / "c", RING)
