"""Publishing real safetensors files: borders, index, edits that leave chunks as they were, and headers that lie."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gossipd.manifest.equal_chunks import equal_chunks
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.payload import FileEntry
from gossipd.publish.tensor_borders import ChunkBorders, plan_borders
from tests.gossipd.publish.trees import CHUNK, check_against, published

COLUMNS = 256


def tensors_of(rows: int = 400, *, seed: int = 1, prefix: str = "") -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    found = {f"{prefix}embed": random.integers(0, 255, (rows, COLUMNS), dtype=np.uint8)}
    for layer in range(4):
        body = np.random.default_rng(100 + layer)
        found[f"{prefix}layer.{layer}.norm"] = body.integers(0, 255, (COLUMNS,), dtype=np.uint8)
        found[f"{prefix}layer.{layer}.weight"] = body.integers(0, 255, (700, COLUMNS), dtype=np.uint8)
    return found


def tree_of(root: Path, tensors: dict[str, np.ndarray], *, metadata: dict[str, str] | None = None) -> Path:
    root.mkdir()
    save_file(tensors, root / "model.safetensors", metadata=metadata)
    (root / "config.json").write_text("{}")
    return root


def of(root: Path, out: Path, **options: object) -> Manifest:
    return published(root, out, **options)[1]


def digests(manifest: Manifest) -> dict[bytes, int]:
    return {manifest.digest(chunk): manifest.chunk_length(chunk) for chunk in range(manifest.chunk_count)}


def share_of_new(old: Manifest, new: Manifest) -> float:
    held = digests(old)
    return sum(size for digest, size in digests(new).items() if digest not in held) / new.bytes_total


def test_each_tensor_begins_a_chunk_and_every_chunk_is_hashed_right(tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "tree", tensors_of())
    manifest = of(tree, tmp_path / "out")
    check_against(manifest, tree)
    assert manifest.schema == 2
    begins = {manifest.segments(chunk)[0].offset for chunk in range(manifest.layout.packed_chunk)}
    large = [one for one in manifest.tensors() if one.end - one.begin >= CHUNK // 16]
    assert len(large) == 5
    for one in large:
        assert any(0 <= one.begin - begin < CHUNK // 16 for begin in begins)


def test_the_index_says_what_the_header_says(tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "tree", tensors_of())
    raw = (tree / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    found = {one.name: one for one in of(tree, tmp_path / "out").tensors()}
    assert found.keys() == header.keys()
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert (found[name].dtype, list(found[name].shape)) == (entry["dtype"], entry["shape"])
        assert (found[name].begin, found[name].end) == (8 + length + begin, 8 + length + end)


@pytest.mark.parametrize("edit", ["metadata", "rows", "names"])
def test_an_edit_leaves_the_chunks_of_other_tensors_as_they_were(tmp_path: Path, edit: str) -> None:
    old = of(tree_of(tmp_path / "old", tensors_of()), tmp_path / "1")
    changed = {
        "metadata": lambda root: tree_of(root, tensors_of(), metadata={"step": "1"}),
        "rows": lambda root: tree_of(root, tensors_of(408)),
        "names": lambda root: tree_of(root, tensors_of(prefix="model.")),
    }[edit](tmp_path / "new")
    new = of(changed, tmp_path / "2", version=2)
    embed = 408 * COLUMNS if edit == "rows" else 0
    assert share_of_new(old, new) * new.bytes_total <= 2_000 + embed
    plain = [of(tree, tmp_path / "3", borders=ChunkBorders.PLAIN) for tree in (tmp_path / "old", changed)]
    assert share_of_new(*plain) > 0.9


def test_a_plain_grid_is_written_in_schema_1(tmp_path: Path) -> None:
    manifest = of(tree_of(tmp_path / "tree", tensors_of()), tmp_path / "out", borders=ChunkBorders.PLAIN)
    assert (manifest.schema, manifest.index) == (1, None)


def test_one_file_under_two_names_has_the_chunks_of_each_name(tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "tree", tensors_of())
    (tree / "blob.bin").hardlink_to(tree / "model.safetensors")
    (tree / "model-copy.safetensors").symlink_to("model.safetensors")
    manifest = of(tree, tmp_path / "out")
    check_against(manifest, tree)
    plain, copy, original = (manifest.layout.chunks_of(index) for index in (0, 2, 3))
    assert len(plain) != len(copy) == len(original)
    equal = equal_chunks(manifest)
    assert all({one, other} <= {*equal[one]} for one, other in zip(copy, original, strict=True))
    for group in equal.values():
        assert len({manifest.chunk_length(chunk) for chunk in group}) == 1


def test_a_model_without_large_safetensors_stays_in_schema_1(tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "tree", {"w": np.zeros(100, np.uint8)})
    (tree / "weights.bin").write_bytes(bytes(3 * CHUNK))
    assert of(tree, tmp_path / "out").schema == 1


def plan(body: bytes, path: str = "m.safetensors", chunk_bytes: int = CHUNK) -> tuple[bool, tuple[str, ...]]:
    entry = FileEntry(path, len(body), 0o644)
    found = plan_borders([entry], chunk_bytes, lambda index, offset, length: body[offset : offset + length])
    return found.cuts is not None, found.notices


def file_with(header: object, body: int = 2 * CHUNK) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(body)


def tensor(begin: int, end: int, **changes: object) -> dict[str, object]:
    return {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end], **changes}


def test_a_good_header_gives_cuts_without_a_notice() -> None:
    assert plan(file_with({"a": tensor(0, CHUNK), "b": tensor(CHUNK, 2 * CHUNK), "__metadata__": {"x": "y"}})) == (
        True,
        (),
    )
    assert plan(file_with({"a": tensor(0, 2 * CHUNK)}), "other.bin") == (False, ())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (bytes(2 * CHUNK), "which is none"),
        (b"\xff" * 2 * CHUNK, "in a file of"),
        (file_with(b"[]"), "names no tensors"),
        (file_with(b"{{"), "not JSON"),
        (file_with(b"[" * 5000), "not JSON"),
        (file_with({"a": tensor(0, CHUNK)}), "in a body of"),
        (file_with({"a": tensor(0, CHUNK), "b": tensor(CHUNK - 1, 2 * CHUNK)}), "overlaps"),
        (file_with({"a": tensor(0, CHUNK), "b": tensor(CHUNK + 1, 2 * CHUNK)}), "gap of 1"),
        (file_with({"a": tensor(0, 2 * CHUNK, shape=[1])}), "does not fit"),
        (file_with({"a": tensor(0, 2 * CHUNK, shape=None)}), "does not fit"),
        (file_with({"a": tensor(0, 2 * CHUNK, data_offsets=[0, True])}), "does not fit"),
        (file_with({"a": tensor(0, 2 * CHUNK, dtype=7)}), "does not fit"),
        (file_with({"a": 7}), "does not fit"),
    ],
)
def test_a_header_that_lies_costs_the_borders_and_is_said(body: bytes, says: str) -> None:
    has_cuts, notices = plan(body)
    assert not has_cuts
    assert len(notices) == 1
    assert says in notices[0]


def test_chunks_that_would_be_too_long_give_a_plain_grid() -> None:
    size = 64 * 1024 * 1024
    header = json.dumps({"a": tensor(0, size + 5)}).encode()
    head = len(header).to_bytes(8, "little") + header

    def read(index: int, offset: int, length: int) -> bytes:
        return (head + bytes(length))[offset : offset + length]

    found = plan_borders([FileEntry("m.safetensors", len(head) + size + 5, 0o644)], size, read)
    assert found.cuts is None
    assert "smaller chunk" in found.notices[0]


def test_a_file_that_lies_is_published_all_the_same(tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "tree", tensors_of())
    (tree / "broken.safetensors").write_bytes(b"x" * 3 * CHUNK)
    result, manifest = published(tree, tmp_path / "out")
    check_against(manifest, tree)
    assert manifest.schema == 2
    assert len(result.notices) == 1


def test_empty_directories_are_listed_unless_they_are_excluded(tmp_path: Path) -> None:
    from gossipd.publish.selection import Selection

    tree = tree_of(tmp_path / "tree", {"w": np.zeros(2 * CHUNK, np.uint8)})
    for path in ("logs", "runs/1/empty", "cache/x", "full"):
        (tree / path).mkdir(parents=True)
    (tree / "full" / "a.bin").write_bytes(b"x")
    chosen = Selection((), ("cache/", "full/"))
    assert of(tree, tmp_path / "out", selection=chosen).directories == ("logs", "runs/1/empty")
    assert of(tree, tmp_path / "out2", selection=Selection(("*.safetensors",))).directories == ()
