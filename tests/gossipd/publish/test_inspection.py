"""What looks wrong in a tree, and that a good tree has no findings."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from gossipd.publish.inspection import Finding, inspect
from gossipd.publish.safetensors_header import HeaderError, HeaderReader
from gossipd.publish.selection import DEFAULT_EXCLUDES, Selection

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 9911\n"


@dataclass(frozen=True)
class Listed:
    path: str
    size: int


def look(files: dict[str, bytes], left_out: dict[str, int] | None = None) -> list[Finding]:
    listed = [Listed(path, len(body)) for path, body in files.items()]
    bodies = list(files.values())

    def read(index: int, offset: int, length: int) -> bytes:
        assert offset + length <= len(bodies[index]), "a read beyond the end"
        return bodies[index][offset : offset + length]

    return list(inspect(listed, left_out or {}, read))


def kinds(files: dict[str, bytes], left_out: dict[str, int] | None = None) -> list[tuple[str, str]]:
    return [(one.kind, one.path) for one in look(files, left_out)]


def shard(*names: str, rows: int = 300) -> bytes:
    return bytes(safetensors.numpy.save({name: np.zeros((rows, 2), np.float16) for name in names}))


def index(**tensors: str) -> bytes:
    return json.dumps({"metadata": {"total_size": 1}, "weight_map": tensors}).encode()


GOOD = {
    "config.json": b"{}",
    ".gitattributes": b"*.bin filter=lfs",
    "model-00001-of-00002.safetensors": shard("a", "b"),
    "model-00002-of-00002.safetensors": shard("c"),
    "model.safetensors.index.json": index(
        a="model-00001-of-00002.safetensors", b="model-00001-of-00002.safetensors", c="model-00002-of-00002.safetensors"
    ),
    "tokenizer.json": b'"%s"' % (b"x" * 200),
    "commented.json": b"// of a person\n{}",
    "number.json": b"17",
    "model.gguf": b"GGUF" + bytes(4000),
    "raw/embeddings.bin": bytes(4000),
    "dcp/__0_0.distcp": b"PK\x03\x04" + bytes(3000),
    "dcp/.metadata": b"\x80\x04" + bytes(3000),
    "data.dvc": b"outs:\n- path: data\n",
    "data/part.json": b"[]",
    "tokenizer_config.json": b"{}",
    "empty.txt": b"",
    "experts/e-00000-of-00002.bin": b"\x80\x02" + bytes(2000),
    "experts/e-00001-of-00002.bin": b"PK\x03\x04" + bytes(2000),
    "keys/id_rsa.pub": b"ssh-rsa",
    "odd.safetensors": shard("x", rows=0),
}


def test_a_good_tree_has_no_findings() -> None:
    assert look(GOOD, {".git/": 40, "__MACOSX/": 2}) == []


@pytest.mark.parametrize("path", ["model.safetensors", "pytorch_model.bin", "tokenizer.json", "sub/spiece.model"])
def test_a_pointer_in_place_of_a_file_is_found(path: str) -> None:
    assert kinds({path: POINTER, "other.bin": b"\x80" * 5000}) == [("lfs_pointer", path)]
    assert "git lfs pull" in look({path: POINTER})[0].says


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"version https://hawser.github.com/spec/v1\noid sha256:4d\nsize 9\n", "lfs_pointer"),
        (b"/annex/objects/SHA256E-s123--4d4d.bin\n", "annex_pointer"),
        (b"# xet version 0\nfilesize = 99\nhash = '4d'\n", "xet_pointer"),
        (b"../../blobs/" + b"4d" * 32, "text_weights"),  # a link that Git or a copy wrote as a file
        (b"Entry not found", "text_weights"),
        (b"Access to model org/model is restricted.", "text_weights"),
        (b"\xef\xbb\xbf<!DOCTYPE html>" + b" " * 3000, "error_page"),
        (b'{ "detail": "Not Found"}', "error_page"),
    ],
)
def test_what_stands_for_weights_is_found_whatever_wrote_it(body: bytes, kind: str) -> None:
    assert kinds({"pytorch_model.bin": body}) == [(kind, "pytorch_model.bin")]


@pytest.mark.parametrize(
    "body", [b"Entry not found", b"<!DOCTYPE html><p>\xc3\xa9", b'{"error":"Repository not found"}']
)
def test_a_message_in_place_of_a_small_json_is_found(body: bytes) -> None:
    assert kinds({"config.json": body}) == [("error_page", "config.json")]


@pytest.mark.parametrize("path", ["m.gguf", "m.npy", "m.npz", "m.pt", "m.onnx", "pytorch_model.bin"])
def test_weights_that_were_only_preallocated_are_found(path: str) -> None:
    assert kinds({path: bytes(4000)}) == [("wrong_format", path)]


def test_a_file_that_another_says_is_there_is_missed() -> None:
    assert kinds({"m.bin.dvc": b"outs:\n- path: m.bin\n"}) == [("dvc_pointer", "m.bin.dvc")]
    assert kinds({"step/__0_0.distcp": b"PK" + bytes(3000)}) == [("metadata_missing", "step/.metadata")]


def test_a_shard_that_torchs_metadata_names_is_missed() -> None:
    names = [f"__{rank}_0.distcp" for rank in (0, 2, 11)]
    metadata = pickle.dumps({"storage_data": [Path("x"), names, {"a": "see __7_0.distcp"}]}, protocol=4)
    files = {"step/.metadata": metadata, **{f"step/{name}": b"PK" + bytes(3000) for name in names}}
    assert look(files) == []
    del files["step/__2_0.distcp"]
    (found,) = look(files)
    assert found == Finding("shard_missing", "step/.metadata", "names shards that are not there: '__2_0.distcp'")


def test_a_page_in_place_of_weights_is_found() -> None:
    for page in (
        b"<!DOCTYPE html><html>Sign in",
        b'\n{"error":"Repository not found"}',
        b"<?xml version='1.0'?><Error>",
    ):
        assert kinds({"m.bin": page + b" " * 3000}) == [("error_page", "m.bin")]
    assert kinds({"readme.html": b"<!DOCTYPE html>"}) == []


def test_empty_weights_are_found_and_empty_texts_are_none() -> None:
    assert kinds({"a.safetensors": b"", "sub/b.GGUF": b"", "__init__.py": b"", "merges.txt": b""}) == [
        ("empty_weights", "a.safetensors"), ("empty_weights", "sub/b.GGUF"),
    ]  # fmt: skip


def test_a_shard_that_the_index_names_and_nobody_has_is_found() -> None:
    files = {path: body for path, body in GOOD.items() if path != "model-00002-of-00002.safetensors"}
    found = look(files)
    assert [one.kind for one in found] == ["shard_count", "shard_missing"]
    assert "'model-00002-of-00002.safetensors'" in found[1].says
    assert "1 of 2" in found[0].says


def test_an_index_that_disagrees_with_its_shards_is_found() -> None:
    files = GOOD | {"model.safetensors.index.json": index(a="model-00002-of-00002.safetensors")}
    assert kinds(files) == [("shard_differs", "model-00002-of-00002.safetensors")]
    whole = b"not json" * 200, b"[]" + b" " * 2000, b'{"weight_map": {"a": 1}}' + b" " * 2000, b"[" * 100_000
    small = b"", b"{}", b"[]", b"null", b'{"weight_map":', b'{"weight_map":[]}', b'{"weight_map":{"a":5}}', b"\xff\xfe"
    for broken in (*whole, *small):
        assert kinds({"model.safetensors.index.json": broken}) == [("index_broken", "model.safetensors.index.json")]


def test_an_index_in_a_directory_names_files_beside_it() -> None:
    files = {f"text_encoder/{path}": body for path, body in GOOD.items()}
    assert look(files) == []
    assert kinds({"a/model.safetensors.index.fp16.json": index(x="m.safetensors"), "m.safetensors": shard("x")}) == [
        ("shard_missing", "a/model.safetensors.index.fp16.json")
    ]


@pytest.mark.parametrize(
    "path",
    [".netrc", "sub/.netrc", "token", ".env", ".env.local", "id_ed25519", "keys/id_rsa", "server.pem", "publisher.key",
     ".ssh/config", ".aws/credentials", "client_secret_7.json", "service-account-x.json", ".Git-Credentials",
     "hf_token", "HF-TOKEN.txt", "kaggle.json", ".azure/accessTokens.json", "secrets.yaml", "prod.env", "x.keytab",
     "openai-api-key.txt", ".config/gcloud/credentials.db"],
)  # fmt: skip
def test_a_file_that_holds_credentials_by_its_name_is_found(path: str) -> None:
    assert kinds({path: b'"s3cr3t"'}) == [("credentials", path)]
    assert "s3cr3t" not in look({path: b'"s3cr3t"'})[0].sentence


def test_remains_that_were_taken_in_are_found_one_by_one() -> None:
    assert kinds({".git/config": b"x", ".DS_Store": b"x", "m.bin.aria2": b"x", "x/__MACOSX/a": b"x"}) == [
        ("git_directory", ".git/config"), ("credentials", ".git/config"), ("tool_remains", ".DS_Store"),
        ("tool_remains", "m.bin.aria2"), ("tool_remains", "x/__MACOSX/a"),
    ]  # fmt: skip


def test_an_unfinished_download_is_told_though_its_remains_are_left_out() -> None:
    assert kinds({}, {"*.incomplete": 1, ".DS_Store": 3, "*.aria2": 2}) == [
        ("unfinished_download", "*.incomplete"), ("unfinished_download", "*.aria2"),
    ]  # fmt: skip


def test_a_tree_of_nothing_but_faults_has_a_bounded_list() -> None:
    assert len(look({f"{at}.safetensors": b"" for at in range(3000)})) == 1000


# ---- safetensors


def header(entries: object, body: int = 0) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + bytes(body)


def tensor(begin: int, end: int, dtype: str = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": [end - begin], "data_offsets": [begin, end]}


BROKEN = {
    "longer than the file": (10_000).to_bytes(8, "little") + bytes(2000),
    "huge": (1 << 62).to_bytes(8, "little") + bytes(2000),
    "preallocated": bytes(5000),
    "too few": b"abc",
    "not JSON": (2000).to_bytes(8, "little") + b"x" * 2000,
    "deep": (9000).to_bytes(8, "little") + b"[" * 9000,
    "a list": header([1]),
    "overlap": header({"a": tensor(0, 10), "b": tensor(5, 15)}, 15),
    "gap": header({"a": tensor(0, 10), "b": tensor(12, 15)}, 15),
    "starts late": header({"a": tensor(1, 10)}, 10),
    "cut": header({"a": tensor(0, 5000)}, 4999),
    "too long": header({"a": tensor(0, 10)}, 11),
    "backwards": header({"a": tensor(10, 0)}, 10),
    "shape": header({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 10]}}, 10),
    "no offsets": header({"a": {"dtype": "F32", "shape": [3]}}, 12),
    "no entry": header({"a": 7}),
    "control": header({"a\x1b[31m": 7}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_header_that_its_file_contradicts_is_found_as_the_library_would(name: str) -> None:
    body = BROKEN[name]
    found = look({"m.safetensors": body})
    assert [one.kind for one in found] == ["safetensors_header"]
    assert "\x1b" not in found[0].sentence
    with pytest.raises(safetensors.SafetensorError):
        safetensors.numpy.load(body)


@given(st.dictionaries(st.text(max_size=8), st.lists(st.integers(0, 40), max_size=3), max_size=6))
def test_whatever_the_library_writes_is_right(shapes: dict[str, list[int]]) -> None:
    body = safetensors.numpy.save({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    names = HeaderReader(len(body), lambda offset, length: body[offset : offset + length]).tensor_names()
    assert names == set(shapes)


@given(st.binary(max_size=300))
def test_no_file_breaks_the_reader(body: bytes) -> None:
    try:
        HeaderReader(len(body), lambda offset, length: body[offset : offset + length]).tensor_names()
    except HeaderError:
        return
    safetensors.numpy.load(body)


def test_a_long_header_is_read_in_two_pieces(tmp_path: Path) -> None:
    body = shard(*(f"layers.{at}.{'x' * 100}" for at in range(1000)), rows=1)
    reads: list[int] = []

    def read(offset: int, length: int) -> bytes:
        reads.append(length)
        return body[offset : offset + length]

    assert len(HeaderReader(len(body), read).tensor_names()) == 1000
    assert len(reads) == 2


@pytest.mark.parametrize("path", ["x/.model.safetensors.Ab3dEf", "model-00001-of-00002.bin.8F3a11cD"])
def test_a_copy_that_has_not_ended_is_found_by_its_name(path: str) -> None:
    assert kinds({path: b"x" * 2000}) == [("unfinished_download", path)]


@pytest.mark.parametrize("path", ["model.fp16.safetensors", ".model.config.abcdef", "weights.bin.config", "a.20240101"])
def test_a_name_that_only_looks_a_little_like_it_is_none(path: str) -> None:
    assert ("unfinished_download", path) not in kinds({path: b"x" * 2000})


@pytest.mark.parametrize("path", [".s3cfg", "conf/rclone.conf", ".vault-token", "putty.ppk", ".streamlit/secrets.toml"])
def test_credentials_of_other_tools_are_found(path: str) -> None:
    assert ("credentials", path) in kinds({path: b"x"})


@pytest.mark.parametrize(
    "path",
    ["rootkey.csv", "us_accessKeys.csv", "credentials.toml", "my-project-1a2b3c4d5e6f.json", "openai_key.txt",
     "sa-key.json", ".dockerconfigjson", "terraform.tfstate", "cookies.txt", ".bash_history", ".config/gh/hosts.yml",
     ".modelscope/credentials/session", ".vault_pass", "passwords.csv", "passwd", ".my.cnf"],
)  # fmt: skip
def test_credentials_by_the_names_that_tools_give_are_found(path: str) -> None:
    assert ("credentials", path) in kinds({path: b"x"})


@pytest.mark.parametrize(
    "path", ["m.bin.1", "m.bin.bak", "m.bin.lock", "m (1).bin", "m(2).bin", "m - Copy.bin", "m copy.bin"]
)
def test_a_second_copy_beside_weights_is_found(path: str) -> None:
    assert ("tool_remains", path) in kinds({path: b"\x80" * 2000, "m.bin": b"\x80" * 2000})
    assert kinds({path: b"\x80" * 2000}) == [], "a part of a file that was split"


@pytest.mark.parametrize(
    "path",
    ["config.json", "tokenizer_config.json", "model-00001-of-00001.safetensors.md5", "key.txt", "monkey.json",
     "model-fp16.json", "passkey.md", "history.json"],
)  # fmt: skip
def test_usual_names_are_no_credentials_and_no_remains(path: str) -> None:
    assert kinds({path: b"[]"}) == []
    assert Selection(defaults=DEFAULT_EXCLUDES).admits(path)


@pytest.mark.parametrize("path", ["added_tokens.json", "tokenizer.json", "tokens.txt", "special_tokens_map.json"])
def test_a_tokenizer_holds_no_credentials(path: str) -> None:
    assert kinds({path: b"{}" if path.endswith("json") else b"a b"}) == []


def test_what_storage_systems_and_modelscope_leave_is_left_out() -> None:
    chosen = Selection(defaults=DEFAULT_EXCLUDES)
    for path in (
        ".git", "sub/.git", ".dvc/config", ".Trash-1000/files/a.bin", "m.bin.part.minio", "m.bin_.gstmp", "CVS/Root",
        ".azDownload-7-m.bin", "sha256-4d-partial", "wget-log.1", ".no_exist/a", ".idea/x.iml", "#recycle/a.bin",
    ):  # fmt: skip
        assert not chosen.admits(path), path
    for path in (
        "m.safetensors.tmp", ".metadata.tmp", "checkpoint-7.tmp/m.bin", "tmp-checkpoint-7/m.bin", "_temporary/0/part",
        "m.bin.opdownload", ".m.bin.crc", "_SUCCESS", "_darcs/x", ".minio.sys/x", ".snapshots/1/m.bin", ".stversions/m",
        "m.bin:Zone.Identifier", ".localized", ".#a.txt", "a.pyo", ".tox/x", "nohup.out", "slurm-7.out", ".mv",
        "a/d_$folder$",
    ):  # fmt: skip
        assert not chosen.admits(path), path
    assert chosen.leaves_out_below(".Trash-1000") and not chosen.leaves_out_below("Trash-1000")
    for path in ("@eaDir/a.bin", ".snapshot/hourly/a.bin", "._____temp/model.safetensors", ".msc", "x/.~lock.a.odt#"):
        assert not chosen.admits(path), path
    for path in ("a.mdl", "snapshot/a.bin", ".gitattributes", "trash/a.bin", "partial.bin", "m.bin.dvc"):
        assert chosen.admits(path), path
