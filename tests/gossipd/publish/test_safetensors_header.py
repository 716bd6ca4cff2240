"""Headers of safetensors files, as the real library writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gossipd.publish.safetensors_header import HeaderError, HeaderReader


def test_a_header_longer_than_the_first_read_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({f"layer.{number:04}.weight": np.zeros(number % 5, np.float32) for number in range(2000)}, path)
    body = path.read_bytes()
    reads: list[int] = []

    def read(offset: int, length: int) -> bytes:
        reads.append(length)
        return body[offset : offset + length]

    reader = HeaderReader(len(body), read)
    found = reader.header()
    assert len(found.tensors) == 2000
    assert found.tensors[-1].end == len(body)
    assert len(reads) == 2
    assert "layer.0007.weight" in reader.tensor_names()


@pytest.mark.parametrize("size", [0, 7])
def test_a_file_without_room_for_a_header_is_refused(size: int) -> None:
    with pytest.raises(HeaderError, match="too few"):
        HeaderReader(size, lambda offset, length: bytes(length)).header()
