"""Keys that no file can have: named, left out when the operator says so, and never the end of a listing."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

from gossipd.core.errors import GossipdError
from gossipd.manifest.source_url import parse_source_url
from gossipd.publish.odd_keys import no_file_can_have, odd_key
from gossipd.publish.selection import Selection
from tests import servers
from tests.gossipd.publish.trees import published

URL = parse_source_url("s3://bucket/p")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('Encountered object with invalid path: ... path: "p/dir//x.bin",', "dir//x.bin"),
        ('invalid path InvalidPath { source: BadSegment { path: "p/x\\u{1}\\"y\\\\", source: ...', 'x\x01"y\\'),
        ('Generic S3 error ... path: "p/x"', None),
        ("invalid path without more", None),
    ],
)
def test_the_key_is_found_in_the_words_of_obstore(text: str, wanted: str | None) -> None:
    assert odd_key(text, URL) == wanted


@pytest.mark.parametrize(
    ("path", "is_odd"),
    [("a/b", False), ("a b", False), ("a//b", True), ("/a", True), ("a/", True), ("a/../b", True), (".", True),
     ("a\0b", True), ("a\x7f", True), ("..a", False)],
)  # fmt: skip
def test_what_no_file_can_have(path: str, is_odd: bool) -> None:
    assert no_file_can_have(path) == is_odd


def bucket_with(server: servers.S3Server, name: str, *keys: str, body: bytes = b"right") -> None:
    client = boto3.client("s3", endpoint_url=server.endpoint)
    client.create_bucket(Bucket=name)
    for key in ("p/a.bin", "p/dir/b.bin", *keys):
        client.put_object(Bucket=name, Key=key, Body=body, ACL="public-read")
    client.close()


def refused(source: str, out: Path, *exclude: str) -> GossipdError:
    with pytest.raises(GossipdError) as caught:
        published(source, out, selection=Selection(exclude=exclude))
    assert not out.is_file()
    return caught.value


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        ("dir//x.bin", "dir//x.bin"), ("dir//x.bin", "dir//*"), ("../x.bin", "..*"), ("./x.bin", "./*"),
        ("x\x01y", "x*"), ("/x.bin", "/*"), ("n" * 256, "nnn*"), ("dir/" + "\u00e9" * 128, "dir/\u00e9*"),
    ],
)  # fmt: skip
def test_a_key_that_no_file_can_have_is_named_and_can_be_left_out(
    s3_environment: servers.S3Server, tmp_path: Path, key: str, pattern: str, request: pytest.FixtureRequest
) -> None:
    name = f"odd{abs(hash(request.node.name)) % 10**9}"
    bucket_with(s3_environment, name, f"p/{key}")
    out = tmp_path / "out"
    error = refused(f"s3://{name}/p/", out)
    assert error.code in ("E_PATH_COMPONENT", "E_PATH_LENGTH")
    _, manifest = published(f"s3://{name}/p/", out, selection=Selection(exclude=(pattern,)))
    assert [entry.path for entry in manifest.files] == ["a.bin", "dir/b.bin"]


@pytest.mark.parametrize("key", ["dir//x[1].bin", "x\x01\\y.bin", "cafe\u0301.bin", "things/"])
def test_the_message_names_the_key_and_a_pattern_that_leaves_it_out(
    s3_environment: servers.S3Server, tmp_path: Path, key: str
) -> None:
    name = f"odd-message-{sum(key.encode())}"
    bucket_with(s3_environment, name, f"p/{key}", "p/more.bin")
    error = refused(f"s3://{name}/p", tmp_path / "out")
    assert ascii(key.rstrip("/")) in error.sentence
    pattern = error.sentence.partition("--exclude ")[2].strip("'")
    _, manifest = published(f"s3://{name}/p", tmp_path / "out", selection=Selection(exclude=(pattern,)))
    assert len(manifest.files) == 3


def test_listing_past_a_key_obeys_the_environment_as_every_read_does(
    s3_environment: servers.S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS' client takes no network in NO_PROXY, and asks for credentials where obstore is told that none are needed."""
    bucket_with(s3_environment, "odd-environment", "p/dir//x.bin")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.0/8"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    _, manifest = published("s3://odd-environment/p/", tmp_path / "out", selection=Selection(exclude=("dir//*",)))
    assert len(manifest.files) == 2


def test_a_second_key_that_no_file_can_have_is_named_after_the_first_is_left_out(
    s3_environment: servers.S3Server, tmp_path: Path
) -> None:
    bucket_with(s3_environment, "odd-second", "p/dir//x.bin", "p/z//y.bin")
    assert "'z//y.bin'" in refused("s3://odd-second/p", tmp_path / "out", "dir//*").sentence


def test_a_key_with_content_that_ends_in_a_slash_is_told_when_it_cannot_be_read(
    s3_environment: servers.S3Server, tmp_path: Path
) -> None:
    bucket_with(s3_environment, "odd-slash", "p/things/")
    out = tmp_path / "out"
    error = refused("s3://odd-slash/p", out)
    assert error.code == "E_SOURCE_NOT_FOUND"
    assert "'things'" in error.sentence
    assert "--exclude 'things'" in error.sentence
    published("s3://odd-slash/p", out, selection=Selection(exclude=("things",)))


def test_a_key_that_begins_with_a_slash_is_told_when_it_cannot_be_read(
    s3_environment: servers.S3Server, tmp_path: Path
) -> None:
    bucket_with(s3_environment, "odd-first", "/x.bin")
    assert "its key begins or ends in '/'" in refused("s3://odd-first", tmp_path / "out").sentence
