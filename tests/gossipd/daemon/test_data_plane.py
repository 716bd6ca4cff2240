"""Limits that are changed reach what moves already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gossipd.config.keys import Keys
from gossipd.config.load import parse_config
from gossipd.config.sections import Config
from gossipd.control.requests import PeerSilentError, PeerUnreachableError, RequestRefusedError
from gossipd.core.events import FailReason
from gossipd.core.ids import DeploymentId
from gossipd.core.targets import Targets
from gossipd.daemon import settings_mapping
from gossipd.daemon.alarms import NOT_A_TARGET
from gossipd.daemon.chunk_access import ChunkAccess
from gossipd.daemon.control_delegate import BulkTokens
from gossipd.daemon.data_plane import TOKEN_WAIT_S, DataPlane, open_store
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.identity.keys import SecretKey
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.reader import ReadOutcome
from gossipd.transfer.errors import TransferError
from gossipd.transfer.tokens import ReceivedTokens
from membership.member import NodeId
from membership.seal import KeyRing
from tests.gossipd.daemon.test_state_dir import record
from tests.gossipd.sources.models import CHUNK_BYTES, sign

WAIT_S = 120.0
MODEL, OUTSIDER = DeploymentId(b"m" * 32), NodeId(b"x" * 16)


def config_with(directory: Path, **limits: int) -> Config:
    lines = "".join(f"{name}_bytes_per_s = {rate}\n" for name, rate in limits.items())
    text = f'[node]\nname = "a"\nrack = "r"\n[net]\nbind = "127.0.0.1"\n[sources]\nallow = ["file://{directory}/storage"]\n[limits]\n{lines}'
    return parse_config(text, directory / "gossipd.toml", {})


@contextmanager
def data_plane_with(config: Config) -> Iterator[tuple[DataPlane, LiveSettings]]:
    keys = Keys(SecretKey(b"s" * 32), KeyRing(b"c" * 16, (b"k" * 32,)), (), ())
    live, nothing = LiveSettings(config, keys), cast(Any, SimpleNamespace(post=lambda event: None, clock_ahead_s=0.0))
    store = open_store(config, cast(Any, SimpleNamespace(reported=lambda event: None, before_evict=lambda event: None)))
    audit = SimpleNamespace(record=lambda *_, **__: None)
    reports = cast(Any, SimpleNamespace(bugs=nothing, audit=audit))
    data_plane = DataPlane(
        live, chunk_access=ChunkAccess(store, nothing, nothing, nothing), tokens=BulkTokens(None, ReceivedTokens()),
        directory=nothing, driver=nothing, plane=nothing, reports=reports,
    )  # fmt: skip
    try:
        yield data_plane, live
    finally:
        data_plane.stop_moving()
        data_plane.close()


def change(live: LiveSettings, data_plane: DataPlane, config: Config) -> None:
    live.config = config
    data_plane.settings_changed()


def test_a_reload_says_that_storage_may_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with data_plane_with(config_with(tmp_path)) as (data_plane, live):
        looked: list[bool] = []
        monkeypatch.setattr(data_plane.reader, "look_again", lambda: looked.append(True))
        change(live, data_plane, live.config)
        assert looked == [True]


def test_each_limit_is_changed_and_taken_away(tmp_path: Path) -> None:
    with data_plane_with(config_with(tmp_path, upload=1_000)) as (data_plane, live):

        def rates() -> tuple[float | None, ...]:
            return data_plane.upload.rate, data_plane.download.rate, data_plane.external.rate

        assert rates() == (1_000, None, None)
        change(live, data_plane, config_with(tmp_path, upload=2_000, download=3_000, source=5_000))
        assert rates() == (2_000, 3_000, 3_000), "what is read from storage is downloaded, too"
        change(live, data_plane, config_with(tmp_path, download=6_000, source=5_000))
        assert rates() == (None, 6_000, 5_000)
        change(live, data_plane, config_with(tmp_path))
        assert rates() == (None, None, None)


def test_the_share_of_a_link_bounds_every_way_and_is_told(tmp_path: Path) -> None:
    with data_plane_with(config_with(tmp_path, upload=1_000, source=8_000)) as (data_plane, _):
        assert data_plane.limits_row().shared_bytes_per_s == 0
        data_plane.sharing.upload.set_rate(500.0)
        data_plane.sharing.download.set_rate(600.0)
        assert (data_plane.upload.rate, data_plane.download.rate, data_plane.external.rate) == (500, 600, 600)
        row = data_plane.limits_row()
        assert (row.shared_bytes_per_s, row.upload_bytes_per_s, row.source_bytes_per_s) == (600, 1_000, 8_000)


@pytest.mark.parametrize("limit", ["download", "source"])
def test_a_read_from_storage_that_waits_for_its_limit_goes_on_when_that_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    files = {"a.bin": Random(1).randbytes(3 * CHUNK_BYTES)}
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "a.bin").write_bytes(files["a.bin"])
    manifest = sign(files, f"file://{tmp_path}/storage/")
    asked = threading.Event()
    take = RateLimit.take

    def watched(throttle: RateLimit, nbytes: int) -> None:
        asked.set()
        take(throttle, nbytes)

    monkeypatch.setattr(RateLimit, "take", watched)
    outcomes: list[ReadOutcome] = []
    with data_plane_with(config_with(tmp_path, **{limit: 1})) as (data_plane, live):
        data_plane.store.open(manifest)
        reading = threading.Thread(target=lambda: outcomes.append(data_plane.reader.read_chunks(manifest, (0, 1, 2))))
        reading.start()
        assert asked.wait(WAIT_S)
        assert not outcomes, "the first page alone takes an hour"
        change(live, data_plane, config_with(tmp_path, **{limit: 1 << 30}))
        reading.join(WAIT_S)
        assert not reading.is_alive()
    assert outcomes[0].stored == (0, 1, 2)


def test_chunks_are_for_the_targets_of_a_manifest_and_others_are_written_down(tmp_path: Path) -> None:
    manifest = SimpleNamespace(targets=Targets(names=("gpu-*",)))
    directory = MemberDirectory(OUTSIDER)
    directory.begin(replace(record(1), name="gpu-1"), [replace(record(2), name="cpu-1")])
    written: list[tuple[str, dict[str, str]]] = []
    with data_plane_with(config_with(tmp_path)) as (data_plane, _live):
        data_plane.chunk_access = cast(
            Any, SimpleNamespace(lifecycle=SimpleNamespace(manifest_of={MODEL: manifest}.get))
        )
        data_plane._directory = directory
        data_plane._reports = cast(Any, SimpleNamespace(audit=SimpleNamespace(
            record=lambda event, **fields: written.append((event, fields)))))  # fmt: skip
        assert data_plane.may_have(record(1).node, MODEL)
        assert written == []
        assert not data_plane.may_have(record(2).node, MODEL)
        assert not data_plane.may_have(OUTSIDER, MODEL)
        assert data_plane.may_have(record(2).node, DeploymentId(b"o" * 32)), "the reader says that it is not here"
    assert written[0] == (NOT_A_TARGET, {"subject": "cpu-1", "by": record(2).node.hex(), "deployment": MODEL.hex()})


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (PeerUnreachableError("its link failed"), FailReason.GONE, "E_GONE"),
        (PeerSilentError("busy"), FailReason.SLOW, "E_SLOW"),
        (RequestRefusedError("too often", code="E_QUOTA"), FailReason.REFUSED, "E_QUOTA"),
    ],
    ids=["unreachable", "busy", "refused"],
)
def test_a_peer_that_gives_no_token_is_blamed_for_what_it_did(
    tmp_path: Path, error: Exception, reason: FailReason, code: str
) -> None:
    def request(*_: object) -> None:
        raise error

    with data_plane_with(config_with(tmp_path)) as (data_plane, live):
        data_plane._plane = cast(Any, SimpleNamespace(request_from_thread=request))
        with pytest.raises(TransferError) as caught:
            data_plane._token_of(OUTSIDER)
        assert (caught.value.reason, caught.value.code) == (reason, code)
        assert settings_mapping.bulk_settings(live.config).handshake_s > TOKEN_WAIT_S, "the peer waits for it, too"


def test_an_origin_s_chunks_leave_once_before_any_leaves_twice(tmp_path: Path) -> None:
    node = record(1).node
    with data_plane_with(config_with(tmp_path)) as (data_plane, _live):
        data_plane.chunk_access = cast(Any, SimpleNamespace(sent=lambda *_: None))
        data_plane.prefer_first_copies(MODEL, 4)
        assert all(data_plane.may_send(MODEL, chunk) for chunk in (0, 1, 2))
        data_plane.chunk_sent(node, MODEL, 0, 100)
        data_plane.upload_ended(MODEL, 0)
        assert not data_plane.may_send(MODEL, 0)
        data_plane.upload_ended(MODEL, 1)
        assert data_plane.may_send(MODEL, 1), "its upload ended without its last byte"
        assert data_plane.may_send(DeploymentId(b"o" * 32), 0)
