"""Headers that list only what is there: a thousand random files, read by the real library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipd.manifest.errors import ManifestError
from gossipd.manifest.tensor_index import Tensor
from gossipd.parts.masked_header import fits, masked_header, masked_weight_map
from tests.gossipd.parts.models_of_tensors import filled, rows_of, shard

SIZES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda name: name != "__metadata__"),
    st.integers(0, 40),
    min_size=1,
    max_size=12,
)


def masked(body: bytes, rows: list[Tensor], present: set[str]) -> bytes:
    """The file as users see it: a masked header, and a hole wherever no tensor is."""
    head = masked_header(body[: rows[0].begin], rows, present)
    shown = bytearray(len(body))
    shown[: len(head)] = head
    for row in rows:
        if row.name in present:
            shown[row.begin : row.end] = body[row.begin : row.end]
    return bytes(shown)


@settings(max_examples=1000, deadline=None)
@given(SIZES, st.randoms(use_true_random=False), st.booleans())
def test_the_library_reads_what_is_there_and_refuses_what_is_not(
    sizes: dict[str, int], rng: Any, has_metadata: bool
) -> None:
    tensors = {name: filled(name, size) for name, size in sizes.items()}
    body = shard(tensors, metadata={"format": "pt"} if has_metadata else None)
    rows = rows_of({"a.safetensors": body})
    present = {name for name in tensors if rng.random() < 0.5}
    if not fits(rows, present) or any(name.startswith("absent.") for name in tensors):
        return
    shown = safetensors.deserialize(masked(body, rows, present))  # type: ignore[no-untyped-call]
    found = {name: entry["data"] for name, entry in shown}
    for name, tensor in tensors.items():
        if name in present:
            assert bytes(found[name]) == tensor.tobytes()
        else:
            assert name not in found
    assert all(name in present or name.startswith("absent.") for name in found)


def test_a_file_on_a_disk_refuses_an_absent_tensor_by_name(tmp_path: Any) -> None:
    tensors = {f"layers.{number}.weight": filled(str(number), 1000) for number in range(8)}
    body = shard(tensors, metadata={"format": "pt"})
    rows = rows_of({"a.safetensors": body})
    path = tmp_path / "a.safetensors"
    path.write_bytes(masked(body, rows, {"layers.3.weight", "layers.5.weight"}))
    with safetensors.safe_open(path, "numpy") as reader:
        assert reader.metadata() == {"format": "pt"}
        assert np.array_equal(reader.get_tensor("layers.3.weight"), tensors["layers.3.weight"])
        for number in (0, 1, 2, 4, 6, 7):
            with pytest.raises(safetensors.SafetensorError, match="does not contain tensor"):
                reader.get_tensor(f"layers.{number}.weight")


def test_an_index_that_differs_from_the_header_shows_nothing() -> None:
    body = shard({"a": filled("a", 100), "b": filled("b", 50)})
    rows = rows_of({"a.safetensors": body})
    first, second = rows
    lies = [
        [first],
        [first, Tensor(0, "c", second.dtype, second.shape, second.begin, second.end)],
        [first, Tensor(0, second.name, "I8", second.shape, second.begin, second.end)],
        [
            Tensor(0, second.name, "U8", (100,), first.begin, first.end),
            Tensor(0, first.name, "U8", (50,), first.end, second.end),
        ],
        [first, second, second],
    ]  # fmt: skip
    for lie in lies:
        with pytest.raises(ManifestError) as refused:
            masked_header(body[: first.begin], lie, {"a"})
        assert refused.value.code == "E_INDEX"
    for signed in (body[: first.begin - 1], body[: first.begin + 1], b"\x02" + bytes(7) + b"[]", b""):
        with pytest.raises(ManifestError, match="index"):
            masked_header(signed, rows, {"a"})


def test_the_list_of_shards_names_only_tensors_that_are_there() -> None:
    signed = json.dumps({"metadata": {"total_size": 5}, "weight_map": {"a": "1.st", "b": "1.st", "c": "2.st"}}).encode()
    shown = masked_weight_map(signed, "sub/", {"sub/1.st": {"a"}, "2.st": None})
    assert len(shown) == len(signed) and json.loads(shown)["weight_map"] == {"a": "1.st"}
    assert json.loads(masked_weight_map(signed, "", {"2.st": None}))["weight_map"] == {"c": "2.st"}


@pytest.mark.parametrize("signed", [b"", b"not json", b"[]", b'{"weight_map": []}', b'{"weight_map": {"a": 1}}'])
def test_what_is_no_list_of_shards_stays_as_it_is(signed: bytes) -> None:
    assert masked_weight_map(signed, "", {}) == signed
