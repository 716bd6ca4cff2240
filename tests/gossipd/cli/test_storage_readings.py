"""Storage is asked for one byte by the environment of the daemon, and each wrong answer has its reason and its cure."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.cli import storage_readings
from gossipd.cli.disk_readings import read_apart
from gossipd.cli.storage_readings import environment_for_storage, kept_manifests, read_storage
from gossipd.core.reasons import HostReason
from gossipd.diagnosis.checks import CheckVerdict, SourceReading
from gossipd.manifest.manifest import Manifest
from tests.gossipd.sources.models import KEY, sign
from tests.servers import Fault, FaultServer, Misbehaviour, S3Server, fault_server, free_port

FILES = {"large.bin": bytes(300_000), "small.json": b"{}"}
TRUSTED = [KEY.public.ed25519]


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server(dict(FILES)) as running:
        yield running


class Home:
    """A daemon's directory with the manifests that it keeps, and what it may read."""

    def __init__(self, directory: Path, *allow: str) -> None:
        self.allow = allow or ("http://127.0.0.1:*", "file:///", "s3")
        self.kept = directory / "state" / "manifests"
        self.kept.mkdir(parents=True)
        self.file = directory / "gossipd.toml"

    def keep(self, manifest: Manifest) -> None:
        (self.kept / manifest.id.hex()).write_bytes(manifest.envelope)

    def read(self, *, has_disk: bool = True) -> tuple[SourceReading, ...]:
        config = SimpleNamespace(file=self.file, sources=SimpleNamespace(allow=self.allow))
        return read_storage(cast(Any, config), TRUSTED, None, has_disk=has_disk)


def test_each_source_of_a_kept_manifest_is_read_at_its_largest_file(tmp_path: Path, server: FaultServer) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "large.bin").write_bytes(FILES["large.bin"])
    home = Home(tmp_path)
    home.keep(sign(FILES, server.url, f"file://{tmp_path}/store"))
    (home.kept / "broken").write_bytes(b"no manifest")
    os.mkfifo(home.kept / "pipe")
    assert [(one.model, one.code) for one in home.read()] == [("toy@1", "")] * 2
    assert [(seen.path, seen.range) for seen in server.gets()] == [("/large.bin", "bytes=0-0")]


@pytest.mark.parametrize(
    ("fault", "reason", "verdict"),
    [
        (Fault(Misbehaviour.STATUS, status=403), HostReason.SOURCE_AUTH, CheckVerdict.FAIL),
        (Fault(Misbehaviour.STATUS, status=404), HostReason.SOURCE_GONE, CheckVerdict.FAIL),
        (Fault(Misbehaviour.STATUS, status=503), HostReason.SOURCE_BUSY, CheckVerdict.FAIL),
        (Fault(Misbehaviour.GZIP), HostReason.SOURCE_ENCODED, CheckVerdict.FAIL),
        (Fault(Misbehaviour.WHOLE), HostReason.NO_RANGES, CheckVerdict.WARN),
        (Fault(Misbehaviour.RESET), HostReason.SOURCE_UNREACHABLE, CheckVerdict.FAIL),
    ],
)
def test_a_wrong_answer_has_the_reason_that_status_would_show(
    tmp_path: Path, server: FaultServer, fault: Fault, reason: HostReason, verdict: CheckVerdict
) -> None:
    server.always = fault
    home = Home(tmp_path)
    home.keep(sign(FILES, server.url))
    (reading,) = home.read()
    assert (reading.reason, reading.verdict) == (reason, verdict)
    assert reason.cure in reading.words and "toy@1" in reading.words


def test_a_storage_that_is_silent_holds_nobody_up(
    tmp_path: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_readings, "PATIENCE_S", 0.2)
    server.always = Fault(Misbehaviour.HANG)
    home = Home(tmp_path)
    home.keep(sign(FILES, server.url, f"http://127.0.0.1:{free_port()}"))
    hanging, refusing = home.read()
    assert (hanging.reason, refusing.reason) == (HostReason.SOURCE_UNREACHABLE, HostReason.SOURCE_UNREACHABLE)
    assert "no answer" in hanging.sentence


def test_what_only_the_configuration_names_is_asked_for_what_is_not_there(
    tmp_path: Path, server: FaultServer, s3_environment: S3Server
) -> None:
    s3_environment.make_bucket("models")
    closed = f"http://127.0.0.1:{free_port()}"
    home = Home(tmp_path, server.url, closed, "https", "http://127.0.0.1:*", "s3://models", "s3://nowhere")
    found = {one.source: one for one in home.read()}
    assert found.keys() == {server.url, closed, "s3://models", "s3://nowhere"}
    assert [one.source for one in found.values() if one.verdict is CheckVerdict.OK] == [server.url, "s3://models"]
    assert found[closed].reason is HostReason.SOURCE_UNREACHABLE
    assert found["s3://nowhere"].code == "E_SOURCE_NO_BUCKET"


def test_an_address_that_a_manifest_uses_is_not_asked_twice(tmp_path: Path, server: FaultServer) -> None:
    home = Home(tmp_path, server.url)
    home.keep(sign({"large.bin": FILES["large.bin"]}, server.url))
    assert [one.model for one in home.read()] == ["toy@1"]


def test_only_the_newest_manifests_are_looked_at(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = [sign(FILES, "file:///srv", version=number) for number in range(1, 12)]
    for number, manifest in enumerate(made):
        home.keep(manifest)
        os.utime(home.kept / manifest.id.hex(), (number, number))
    found = kept_manifests(home.kept, TRUSTED)
    assert [one.version for one in found] == list(range(11, 11 - storage_readings.MANIFESTS_MAX, -1))
    assert kept_manifests(home.kept, []) == [] == kept_manifests(tmp_path / "nothing", TRUSTED)


def test_manifests_on_a_disk_that_hangs_are_not_waited_for(
    tmp_path: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(directory: Path, trusted: Collection[bytes]) -> list[Manifest]:
        time.sleep(2)
        return kept_manifests(directory, trusted)

    home = Home(tmp_path, server.url)
    home.keep(sign(FILES, server.url))
    assert [one.model for one in home.read(has_disk=False)] == [""]
    monkeypatch.setattr(storage_readings, "read_apart", partial(read_apart, wait_s=0.1))
    monkeypatch.setattr(storage_readings, "kept_manifests", hang)
    assert [one.model for one in home.read()] == [""]


def test_our_own_credentials_are_not_those_of_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "ours")
    monkeypatch.setenv("LANG", "ours")
    told = environment_for_storage({"AWS_REGION": "theirs", "https_proxy": "theirs", "LANG": "theirs"})
    assert (told.get("AWS_PROFILE"), told["AWS_REGION"]) == (None, "theirs")
    assert (told["https_proxy"], told["LANG"]) == ("theirs", "ours")
