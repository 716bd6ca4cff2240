"""A model published from and read out of Azurite, fake-gcs-server and Swift's S3 API, and what each of them refuses."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gossipd.publish.errors import GivenWrongError, StorageAuthError, StorageNotFoundError
from gossipd.publish.selection import Selection
from gossipd.sources.errors import SourceError
from tests import cloud_servers
from tests.cloud_servers import CloudServer
from tests.gossipd.publish.trees import published
from tests.gossipd.sources.models import sign, toy_files, write_tree
from tests.gossipd.sources.test_obstore_errors import VARIABLES
from tests.gossipd.sources.test_reader import Seat
from tests.gossipd.sources.test_real_storage import odd_files

FILES = toy_files(Random(31))


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with cloud_servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with cloud_servers.google(tmp_path_factory.mktemp("google")) as server:
        yield server


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with cloud_servers.swift(tmp_path_factory.mktemp("swift")) as server:
        yield server


def enter(server: CloudServer, monkeypatch: pytest.MonkeyPatch, **changed: str) -> None:
    for name, value in (server.environment | changed).items():
        monkeypatch.setenv(name, value)


def publish_and_read(server: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The manifest is that of the directory, and every chunk comes right."""
    enter(server, monkeypatch)
    files = FILES | odd_files() if server.scheme != "gs" else FILES | {"deep/er/x.bin": bytes(90_000)}
    if server.scheme == "gs":
        del files["vocab with space.txt"]
    write_tree(files, tmp_path / "tree")
    address = server.upload(tmp_path / "tree", "org/m-1")
    result, manifest = published(address, tmp_path / "cloud.manifest")
    assert result.sources == (address,)
    assert manifest.root == published(tmp_path / "tree", tmp_path / "local.manifest")[1].root
    seat = Seat(manifest, allow=[server.scheme])
    assert seat.reader.probe(manifest).readable
    outcome = seat.read()
    assert outcome.failed == (), [error.sentence for error in outcome.errors]
    assert len(seat.store.chunks) == manifest.chunk_count


def refusal(server: CloudServer, path: str = "org/m") -> SourceError:
    seat = Seat(sign(FILES, f"{server.scheme}://{path}"), allow=[server.scheme])
    error = seat.read(0).errors[-1]
    assert isinstance(error, SourceError)
    assert "canary" not in error.sentence
    return error


@pytest.mark.needs("azurite-blob")
def test_azure_gives_what_was_published_from_it(
    azurite: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish_and_read(azurite, monkeypatch, tmp_path)


@pytest.mark.needs("azurite-blob")
def test_azure_s_refusals_are_told_apart(azurite: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enter(azurite, monkeypatch)
    assert refusal(azurite, "nowhere/m").sentence.startswith("E_SOURCE_NO_BUCKET: az://nowhere: ")
    assert refusal(azurite, "models/none").code == "E_SOURCE_NOT_FOUND"
    enter(azurite, monkeypatch, AZURE_STORAGE_ACCOUNT_KEY=base64.b64encode(b"canary" * 8).decode())
    assert refusal(azurite, "models/none").code == "E_SOURCE_KEY"
    with pytest.raises(StorageAuthError) as caught:
        published("az://models/org/", tmp_path / "out")
    assert caught.value.code == "E_SOURCE_KEY"


@pytest.mark.needs("azurite-blob")
def test_azure_s_keys_that_no_file_can_have_are_named_with_what_helps(
    azurite: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    enter(azurite, monkeypatch)
    for at, key in enumerate(("dir//x.bin", "things/")):
        cloud_servers.put_blob(azurite, f"odd{at}/a.bin", b"a")
        cloud_servers.put_blob(azurite, f"odd{at}/{key}", b"b")
    with pytest.raises(GivenWrongError, match=r"^object 'dir//x\.bin': no file can have this name"):
        published("az://models/odd0/", tmp_path / "out")
    with pytest.raises(GivenWrongError, match=r"publish a copy on disk with --source 'az://models/odd0/'"):
        published("az://models/odd0/", tmp_path / "out", selection=Selection(exclude=("dir//*",)))
    with pytest.raises(StorageNotFoundError, match=r"ends in '/'.*--exclude 'things'"):
        published("az://models/odd1/", tmp_path / "out")


def test_google_gives_what_was_published_from_it(
    google: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish_and_read(google, monkeypatch, tmp_path)


def test_google_s_keys_for_s3_read_the_same_objects(
    google: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HMAC keys: the S3 API of Google's storage, at its own endpoint."""
    enter(google, monkeypatch)
    write_tree({"a.bin": b"a" * 200_000, "b.txt": b"b"}, tmp_path / "tree")
    google.upload(tmp_path / "tree", "interop")
    for name, value in {"AWS_ACCESS_KEY_ID": "GOOG1E", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "auto"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT", google.environment["GOOGLE_BASE_URL"])
    manifest = published("s3://models/interop/", tmp_path / "m.manifest")[1]
    assert manifest.root == published(tmp_path / "tree", tmp_path / "local.manifest")[1].root
    assert Seat(manifest, allow=["s3"]).read().failed == ()


def test_google_s_storage_without_the_object_says_so(google: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(google, monkeypatch)
    assert refusal(google, "models/none").code == "E_SOURCE_NOT_FOUND"


@pytest.mark.needs("swift-proxy-server")
def test_swift_gives_what_was_published_from_it(
    swift: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish_and_read(swift, monkeypatch, tmp_path)


@pytest.mark.needs("swift-proxy-server")
def test_swift_s_refusals_are_told_apart(swift: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enter(swift, monkeypatch)
    write_tree({"a.safetensors": b"x" * 1000}, tmp_path / "tree")
    swift.upload(tmp_path / "tree", "mine")
    assert refusal(swift, "nowhere/m").sentence.startswith("E_SOURCE_NO_BUCKET: s3://nowhere: ")
    assert refusal(swift, "models/none").code == "E_SOURCE_NOT_FOUND"
    enter(swift, monkeypatch, AWS_SECRET_ACCESS_KEY="canary-other")
    assert refusal(swift, "models/mine").code == "E_SOURCE_KEY"
    enter(swift, monkeypatch, AWS_ACCESS_KEY_ID="test:reader", AWS_SECRET_ACCESS_KEY="reading")
    assert refusal(swift, "models/mine").code == "E_SOURCE_AUTH"
    enter(swift, monkeypatch, AWS_REGION="us-east-1")
    assert "set AWS_REGION=region-one" in refusal(swift, "models/mine").sentence
