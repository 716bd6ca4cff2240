"""The reader against real storage: nginx, an S3 API, and directories; names with every kind of character."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from gossipd.sources.reader import ReadOutcome
from tests.gossipd.publish.trees import published
from tests.gossipd.sources.models import sign, toy_files, write_tree
from tests.gossipd.sources.test_reader import Seat
from tests.servers import Nginx, S3Server, nginx

FILES = toy_files(Random(7))
ODD_NAMES = [
    "sp ace.bin", "per%41cent.bin", "ha#sh.bin", "ümlaut.bin", "pl+us.bin", "deep/er/x.bin",
    "a~b'c(d).bin", "brackets[1].bin", "a&b=c;d,e@f!g$h.bin", "^x`{z}.bin",
]  # fmt: skip


def same(seat: Seat, outcome: ReadOutcome) -> bool:
    return outcome.failed == () and len(seat.store.chunks) == seat.manifest.chunk_count


def odd_files() -> dict[str, bytes]:
    """Some are small enough for the first look alone, some are not. Manifests refuse a few characters."""
    rng = Random(8)
    return {name: rng.randbytes(20_000 if at % 2 else 2_000) for at, name in enumerate(ODD_NAMES)}


@pytest.mark.needs("nginx")
def test_nginx_gives_every_chunk_and_sends_each_byte_once(nginx_server: Nginx, tmp_path: Path) -> None:
    write_tree(FILES, tmp_path / "www" / "m")
    seat = Seat(sign(FILES, f"{nginx_server.url}/m/"))
    assert seat.reader.probe(seat.manifest).readable
    assert same(seat, seat.read())
    nginx_server.stop()  # the log is complete when it has ended
    looks = sum(access.body_bytes == 1 for access in nginx_server.accesses())
    assert nginx_server.body_bytes() == seat.manifest.bytes_total + looks
    assert looks <= 1 + len(FILES)


@pytest.mark.needs("nginx")
def test_nginx_that_alters_what_it_sends_is_not_asked_for_it_again_and_again(tmp_path: Path) -> None:
    """It has no ranges then: each wrong chunk was looked for from the beginning of the object."""
    files = {"big.bin": b"".join(b"%07d " % number for number in range(200_000))}
    write_tree(files, tmp_path / "www")
    extra = "sub_filter_types *; sub_filter_once off; sub_filter '9000 ' '9111 ';"
    with nginx(tmp_path / "www", tmp_path / "nginx", extra=extra) as server:
        seat = Seat(sign(files, server.url))
        assert seat.reader.probe(seat.manifest).is_whole_only
        outcome = seat.reader.read_chunks(seat.manifest, range(seat.manifest.chunk_count), from_start=True)
        seat.reader.close()
    assert len(outcome.stored) >= 1 and outcome.failed
    assert outcome.errors[-1].code == "E_SOURCE_HASH"
    assert server.body_bytes() < 4 * seat.manifest.bytes_total, "looks, which are ended, and two passes"


@pytest.mark.needs("nginx")
def test_nginx_finds_files_with_odd_names(nginx_server: Nginx, tmp_path: Path) -> None:
    files = odd_files()
    write_tree(files, tmp_path / "www")
    seat = Seat(sign(files, nginx_server.url))
    outcome = seat.read()
    assert same(seat, outcome), [str(error) for error in outcome.errors]


@pytest.mark.needs("nginx")
def test_nginx_with_a_file_that_was_replaced_meanwhile_is_refused_for_its_bytes(
    nginx_server: Nginx, tmp_path: Path
) -> None:
    write_tree(FILES, tmp_path / "www")
    seat = Seat(sign(FILES, nginx_server.url))
    assert seat.read(0).failed == ()
    path = tmp_path / "www" / "a.safetensors"
    path.unlink()
    path.write_bytes(FILES["a.safetensors"][:-1] + b"!")
    os.utime(path, (1, 1))
    outcome = seat.read(*range(1, 6))
    assert (outcome.stored, outcome.failed) == ((1, 2, 3, 4), (5,)), "what is as published is read on"
    assert outcome.errors[-1].code == "E_SOURCE_CHANGED"


def s3_seat(s3: S3Server, tmp_path: Path, files: dict[str, bytes], bucket: str, source: str) -> Seat:
    write_tree(files, tmp_path / "tree")
    s3.upload(bucket, tmp_path / "tree", prefix="models/v1/")
    return Seat(sign(files, source), allow=["s3"])


@pytest.mark.parametrize("slash", ["", "/"])
def test_s3_gives_every_chunk(s3_environment: S3Server, tmp_path: Path, slash: str) -> None:
    bucket = f"whole{len(slash)}-bucket"
    seat = s3_seat(s3_environment, tmp_path, FILES, bucket, f"s3://{bucket}/models/v1{slash}")
    assert seat.reader.probe(seat.manifest).readable
    assert same(seat, seat.read())


def test_s3_finds_files_with_odd_names(s3_environment: S3Server, tmp_path: Path) -> None:
    seat = s3_seat(s3_environment, tmp_path, odd_files(), "odd-bucket", "s3://odd-bucket/models/v1/")
    outcome = seat.read()
    assert same(seat, outcome), [str(error) for error in outcome.errors]


def test_s3_refuses_an_object_that_was_replaced_meanwhile(s3_environment: S3Server, tmp_path: Path) -> None:
    seat = s3_seat(s3_environment, tmp_path, FILES, "changing-bucket", "s3://changing-bucket/models/v1")
    assert seat.read(0).failed == ()
    changed = FILES | {"a.safetensors": FILES["a.safetensors"][:-1] + b"!"}
    write_tree(changed, tmp_path / "tree")
    s3_environment.upload("changing-bucket", tmp_path / "tree", prefix="models/v1/")
    outcome = seat.read(1, 5)
    assert (outcome.stored, outcome.errors[-1].code) == ((1,), "E_SOURCE_CHANGED")


def test_s3_without_the_object_or_bucket_is_not_found(s3_environment: S3Server) -> None:
    seat = Seat(sign(FILES, "s3://no-such-bucket/models"), allow=["s3"])
    probe = seat.reader.probe(seat.manifest)
    assert not probe.readable
    assert probe.errors[-1].sentence.startswith("E_SOURCE_NO_BUCKET: s3://no-such-bucket: ")


def test_secrets_of_the_environment_are_in_no_error(s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary-id")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    seat = Seat(sign(FILES, "s3://some-bucket/models"), allow=["s3"])
    outcome = seat.read(0)
    assert outcome.errors[-1].code == "E_SOURCE_UNREACHABLE"
    assert "canary" not in "".join(str(error) + repr(error) for error in outcome.errors)
    assert "canary" not in repr(seat.reader.statistics())


def test_a_directory_gives_every_chunk(tmp_path: Path) -> None:
    write_tree(FILES | odd_files(), tmp_path / "tree")
    seat = Seat(sign(FILES | odd_files(), f"file://{tmp_path}/tree"), allow=[f"file://{tmp_path}"])
    outcome = seat.read()
    assert same(seat, outcome), [str(error) for error in outcome.errors]


def test_a_snapshot_of_the_hub_s_cache_is_published_and_read_as_it_lies(tmp_path: Path) -> None:
    root = tmp_path / "models--org--name"
    files = FILES | {"again.safetensors": FILES["a.safetensors"]}
    write_tree({f"b{at}": body for at, body in enumerate(FILES.values())}, root / "blobs")
    for path, body in files.items():
        link = root / "snapshots" / "rev" / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"{'../' * (path.count('/') + 2)}blobs/b{list(FILES.values()).index(body)}")
    _, manifest = published(root / "snapshots" / "rev", tmp_path / "m.manifest")
    assert [entry.path for entry in manifest.files] == sorted(files)
    seat = Seat(manifest, allow=[f"file://{tmp_path}"])
    outcome = seat.read()
    assert same(seat, outcome), [str(error) for error in outcome.errors]


def test_a_directory_that_is_not_listed_is_not_read(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path / "tree")
    seat = Seat(sign(FILES, f"file://{tmp_path}/tree"), allow=[f"file://{tmp_path}/other"])
    assert seat.read(0).errors[-1].code == "E_SOURCE_FORBIDDEN"


@pytest.mark.parametrize("missing", ["tree", "tree/a.safetensors"])
def test_a_missing_directory_or_file_is_not_found(tmp_path: Path, missing: str) -> None:
    write_tree(FILES, tmp_path / "tree")
    (tmp_path / missing).rename(tmp_path / "moved")
    seat = Seat(sign(FILES, f"file://{tmp_path}/tree"), allow=[f"file://{tmp_path}"])
    assert seat.read(0).errors[-1].code == "E_SOURCE_NOT_FOUND"


@pytest.mark.parametrize("change", ["replaced", "cut"])
def test_a_file_that_changes_is_found_out(tmp_path: Path, change: str) -> None:
    write_tree(FILES, tmp_path / "tree")
    seat = Seat(sign(FILES, f"file://{tmp_path}/tree"), allow=[f"file://{tmp_path}"])
    assert seat.read(0).failed == ()
    path = tmp_path / "tree" / "a.safetensors"
    if change == "replaced":
        path.unlink()
        path.write_bytes(bytes(len(FILES["a.safetensors"])))
    else:
        with path.open("r+b") as file:
            file.truncate(1000)
    assert seat.read(1).errors[-1].code == {"replaced": "E_SOURCE_CHANGED", "cut": "E_SOURCE_TRUNCATED"}[change]


def test_wrong_bytes_of_packed_files_are_told_with_how_many_there_are(tmp_path: Path) -> None:
    write_tree(FILES | {"config.json": bytes(700)}, tmp_path)
    url = f"file://{tmp_path}"
    seat = Seat(sign(FILES, url), allow=[url])
    error = seat.read().errors[-1]
    assert error.code == "E_SOURCE_HASH"
    assert f"{url}/config.json: chunk 9, which holds " in str(error)
