"""A path at which something else than a file stands is refused, and nobody waits."""

from __future__ import annotations

import os
import socket
from contextlib import chdir
from pathlib import Path

import pytest

from gossipd.runtime.regular_file import open_regular, read_regular


def test_a_file_is_read_up_to_what_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("f")
    assert read_regular(tmp_path / "link", bytes_max=4) == b"0123"
    with open_regular(tmp_path / "f") as file:
        assert file.read() == b"0123456789"


@pytest.mark.parametrize("kind", ["pipe", "directory", "socket", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one, chdir(tmp_path):
            one.bind(path.name)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(OSError, match=r"is not a file|No such device or address"):
        read_regular(path, bytes_max=4)
