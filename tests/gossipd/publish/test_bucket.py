"""Publishing from object storage: the same manifest as from the directory, and never a mixture of versions."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest

from gossipd.core.errors import ExitCode, GossipdError
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.source_url import parse_source_url
from gossipd.publish import bucket as bucket_module
from gossipd.publish.bucket import StoredObjects, find_objects, open_storage
from gossipd.publish.errors import StorageAuthError, StorageError, TreeChangedError
from gossipd.publish.extents import runs
from gossipd.publish.selection import DEFAULT_EXCLUDES, Selection
from tests import servers
from tests.gossipd.publish.trees import CHUNK, TREE, check_against, make_tree, published
from tests.gossipd.sources.test_obstore_errors import answering

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult


def code_of(source: str, out: Path) -> str:
    with pytest.raises(GossipdError) as caught:
        published(source, out)
    return caught.value.code


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "model.manifest"


def test_a_prefix_in_s3_gives_the_manifest_that_the_directory_gives(
    tree: Path, out: Path, s3_environment: servers.S3Server
) -> None:
    s3_environment.upload("publish-prefix", tree, prefix="models/m 1/")
    result, manifest = published("s3://publish-prefix/models/m%201", out)
    assert result.sources == ("s3://publish-prefix/models/m%201/",)
    assert manifest.root == published(tree, out)[1].root
    check_against(manifest, tree)
    some = published("s3://publish-prefix/models/m%201/", out, selection=Selection(("tokenizer/*",)))
    assert [entry.path for entry in some[1].files] == [path for path in sorted(TREE) if path.startswith("tokenizer/")]


def test_a_single_object_is_published_from_its_prefix(tree: Path, out: Path, s3_environment: servers.S3Server) -> None:
    s3_environment.upload("publish-object", tree, prefix="m/")
    result, manifest = published("s3://publish-object/m/config.json", out)
    assert (result.sources, manifest.files[0].path) == (("s3://publish-object/m/",), "config.json")
    assert manifest.root == published(tree / "config.json", out)[1].root


def test_a_directory_s_marker_is_no_file(tree: Path, out: Path, s3_environment: servers.S3Server) -> None:
    s3_environment.upload("publish-marker", tree)
    store = open_storage(parse_source_url("s3://publish-marker/"))
    obstore.put(store, "tokenizer/", b"")
    assert published("s3://publish-marker/", out)[1].root == published(tree, out)[1].root


def test_a_prefix_of_more_objects_than_one_page_of_a_listing_is_found_whole(
    out: Path, s3_environment: servers.S3Server
) -> None:
    s3_environment.make_bucket("publish-pages")
    store = open_storage(parse_source_url("s3://publish-pages/"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: obstore.put(store, f"m/{number:04}", b"x"), range(1_001)))
    assert len(published("s3://publish-pages/m/", out)[1].files) == 1_001


def test_what_storage_has_not_got_is_said_plainly(out: Path, s3_environment: servers.S3Server) -> None:
    s3_environment.make_bucket("publish-empty")
    for address, code in (("s3://publish-empty/nothing", "E_EMPTY"), ("s3://publish-missing/", "E_SOURCE_NO_BUCKET")):
        with pytest.raises(GossipdError) as refused:
            published(address, out)
        assert (refused.value.code, refused.value.exit_code) == (code, ExitCode.NOT_FOUND)


@pytest.mark.parametrize("key", ["m/dir//x.bin", "m/../up.bin", "m/./dot.bin"])
def test_an_object_that_no_file_can_be_is_named_and_can_be_left_out(
    key: str, tree: Path, out: Path, s3_environment: servers.S3Server
) -> None:
    bucket = f"publish-key-{sum(key.encode())}"
    s3_environment.upload(bucket, tree, prefix="m/")
    put(s3_environment, f"/{bucket}/{key}")
    with pytest.raises(GossipdError, match=rf"^object '{key.removeprefix('m/')}': no file can have this") as caught:
        published(f"s3://{bucket}/m/", out)
    assert caught.value.code == "E_PATH_COMPONENT"
    if key == "m/dir//x.bin":
        put(s3_environment, f"/{bucket}/m/dir/good.bin")
        _, manifest = published(f"s3://{bucket}/m/", out, selection=Selection(exclude=("dir/",), defaults=(".git/",)))
        assert manifest.root == published(tree, out)[1].root


def test_what_looks_wrong_in_storage_is_found_as_in_a_directory(
    tmp_path: Path, out: Path, s3_environment: servers.S3Server
) -> None:
    tree = make_tree(tmp_path / "odd", {"a-00001-of-00002.bin": 70_000, ".git/config": 3, "b.safetensors": 5000})
    (tree / "c.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    s3_environment.upload("publish-odd", tree)
    chosen = Selection(defaults=DEFAULT_EXCLUDES)
    there = published("s3://publish-odd/", out, selection=chosen)[0]
    here = published(tree, out, selection=chosen)[0]
    assert (there.findings, there.left_out) == (here.findings, here.left_out)
    assert [one.kind for one in there.findings] == ["safetensors_header", "lfs_pointer", "shard_count"]
    assert there.left_out == {".git/": 1}


def put(server: servers.S3Server, target: str) -> None:
    """An object with this key, whatever obstore thinks of it."""
    connection = http.client.HTTPConnection(server.endpoint.removeprefix("http://"))
    connection.request("PUT", target, b"x")
    assert connection.getresponse().status == 200
    connection.close()


def test_a_refusal_is_told_as_a_seed_would_tell_it(
    out: Path, s3_environment: servers.S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with answering(301, "", x_amz_bucket_region="eu-west-3") as url:
        monkeypatch.setenv("AWS_ENDPOINT", url)
        with pytest.raises(StorageAuthError, match=r"^s3://models: .* set AWS_REGION=eu-west-3"):
            published("s3://models/m/", out)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StorageAuthError, match=r"looked in .*~/\.aws/credentials") as caught:
        published("s3://models/m/", out)
    assert (caught.value.code, caught.value.exit_code) == ("E_SOURCE_NO_CREDENTIALS", 10)


def test_an_object_replaced_meanwhile_is_refused(tree: Path, out: Path, s3_environment: servers.S3Server) -> None:
    s3_environment.upload("publish-swap", tree)
    store = open_storage(parse_source_url("s3://publish-swap/"))
    url = parse_source_url("s3://publish-swap/")
    found = find_objects(store, url, Selection())
    reader = StoredObjects(store, url, found)
    layout = Layout([one.size for one in found], CHUNK)
    run = next(runs(layout))
    reader.hash_extent(run)
    path = found[run.segments[0].file_index].path
    obstore.put(store, path, bytes(found[run.segments[0].file_index].size))
    with pytest.raises(TreeChangedError):
        reader.hash_extent(run)


class _Breaking:
    """An obstore whose bodies break off some times before they come whole."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.asked = 0

    def get(self, store: object, path: str, *, options: GetOptions) -> object:
        self.asked += 1
        result = obstore.get(store, path, options=options)  # type: ignore[arg-type]
        if self.asked > self.breaks:
            return result
        return _Cut(result)


class _Cut:
    def __init__(self, result: GetResult) -> None:
        self.range, self.meta = result.range, result.meta
        self._body = bytes(result.bytes())

    def stream(self, *, min_chunk_size: int) -> Iterator[bytes]:
        yield self._body[: len(self._body) // 2]


@pytest.mark.parametrize("breaks", [0, 1, 3, 4])
def test_a_body_that_breaks_off_is_asked_for_again_a_few_times(
    breaks: int, tree: Path, monkeypatch: pytest.MonkeyPatch, s3_environment: servers.S3Server
) -> None:
    bucket = f"publish-breaks-{breaks}"
    s3_environment.upload(bucket, tree)
    url = parse_source_url(f"s3://{bucket}/")
    store = open_storage(url)
    found = find_objects(store, url, Selection())
    run = next(runs(Layout([one.size for one in found], CHUNK)))
    whole = StoredObjects(store, url, found).hash_extent(run)
    breaking = _Breaking(breaks)
    slept: list[float] = []
    monkeypatch.setattr(bucket_module, "obstore", breaking)
    reader = StoredObjects(store, url, found, sleep=slept.append)
    if breaks < bucket_module.ATTEMPTS:
        assert reader.hash_extent(run) == whole
    else:
        with pytest.raises(StorageError) as caught:
            reader.hash_extent(run)
        assert caught.value.code == "E_SOURCE_SHORT"
    assert len(slept) == min(breaks, bucket_module.ATTEMPTS - 1)
    assert breaking.asked == len(slept) + 1
    assert all(0.25 * 2**at <= pause <= 0.75 * 2**at for at, pause in enumerate(slept))
