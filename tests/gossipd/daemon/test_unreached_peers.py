"""Peers whose bulk port cannot be connected to: one line each, and an alarm while a manifest cannot be had."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest

from gossipd.audit.log import AuditLog
from gossipd.core.ids import DeploymentId
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.deployment_executor import ManifestClient
from gossipd.daemon.unreached_peers import LOG_EACH_S, PULLS_S, FailedPulls, PullWatch, UnreachedPeers
from gossipd.deployment.commands import PullManifest
from gossipd.transfer.dialer import UnreachableError
from gossipd.transfer.errors import PeerBusyError, PeerGoneError, TransferError
from membership.member import NodeId

NEAR, FAR = NodeId(b"n" * 16), NodeId(b"f" * 16)
MODEL, OTHER = DeploymentId(b"m" * 32), DeploymentId(b"o" * 32)
REFUSED = UnreachableError("cannot connect to 10.0.0.1 port 7947 (TCP): Connection refused", is_certain=True)


class Directory:
    """Two members."""

    def bulk_endpoint(self, node: NodeId) -> tuple[str, int] | None:
        return {NEAR: ("10.0.0.1", 7947), FAR: ("fd88::1", 7947)}.get(node)

    def name_of(self, node: NodeId) -> str:
        return {NEAR: "near", FAR: "far"}[node]


class Log:
    """What is logged of a failed transfer, by fields."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self._unreached = UnreachedPeers(Directory())

    def told(self, peer: NodeId, now: float, error: TransferError = REFUSED) -> list[dict[str, str]]:
        self._caplog.clear()
        self._unreached.failed(peer, MODEL, error, now, what="manifest")
        return [{"event": line.getMessage(), **line.__dict__["fields"]} for line in self._caplog.records]


def test_a_peer_that_refuses_is_logged_once_each_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    [line] = log.told(NEAR, 0.0)
    assert (line["event"], line["wanted"], line["peer"]) == ("peer not reached", "manifest", "near")
    assert (line["deployment"], line["address"]) == (MODEL.hex()[:12], "10.0.0.1:7947")
    assert "refused" in line["reason"]
    assert "net.bulk_port" in line["cure"]
    assert log.told(NEAR, LOG_EACH_S - 1.0) == []
    assert [line["address"] for line in log.told(FAR, 1.0)] == ["[fd88::1]:7947"]
    assert len(log.told(NEAR, LOG_EACH_S)) == 1


@pytest.mark.parametrize("error", [PeerBusyError("no slot", retry_after_s=1.0), PeerGoneError("reset")])
def test_a_peer_that_was_connected_to_is_not_logged(error: TransferError, caplog: pytest.LogCaptureFixture) -> None:
    assert Log(caplog).told(NEAR, 0.0, error) == []
    unreached = UnreachedPeers(Directory())
    assert unreached.failed(NEAR, MODEL, error, 0.0, what="chunks") == ""
    assert unreached.failed(NodeId(b"s" * 16), MODEL, REFUSED, 0.0, what="chunks") == "", "no member any more"


def pulls_failed(*addresses: str) -> FailedPulls:
    pulls = FailedPulls()
    for number, address in enumerate(addresses):
        pulls.failed(MODEL, address, float(number))
    return pulls


def sentence(pulls: FailedPulls, now: float, coming: Collection[DeploymentId] = (MODEL, OTHER)) -> str | None:
    return pulls.look(now, coming.__contains__)


def test_three_failed_pulls_and_ten_seconds_are_an_alarm() -> None:
    assert sentence(pulls_failed("a:1", "b:1"), 60.0) is None
    pulls = pulls_failed("a:1", "b:1", "a:1")
    assert sentence(pulls, 9.9) is None
    found = sentence(pulls, 10.0)
    assert found is not None
    assert "no connection to a:1, b:1: open `net.bulk_port` (TCP)" in found
    assert "gossipd doctor --peers" in found


def test_few_addresses_are_named_however_many_there_are() -> None:
    pulls = pulls_failed("a:1", "b:1", "c:1", "d:1")
    for number in range(3):
        pulls.failed(OTHER, f"e:{number}", 0.0)
    found = sentence(pulls, 60.0)
    assert found is not None
    assert "no connection to a:1, b:1, c:1: " in found


def test_what_has_come_or_is_looked_for_no_longer_counts_no_more() -> None:
    pulls = pulls_failed("a:1", "a:1", "a:1")
    pulls.came(MODEL)
    assert sentence(pulls, 60.0) is None
    pulls = pulls_failed("a:1", "a:1", "a:1")
    assert sentence(pulls, 60.0, coming=()) is None
    assert sentence(pulls, 60.0) is None, "it is forgotten"


def test_the_alarm_rings_once_and_ends_when_the_manifest_is_here(tmp_path: Path) -> None:
    pulls, coming = pulls_failed("a:1", "a:1", "a:1"), {MODEL}
    alarms = Alarms(AuditLog(tmp_path / "audit.jsonl"))
    watch = PullWatch(pulls, coming.__contains__, alarms)
    for now in (9.0, 10.0, 11.0):
        watch.look(now)
    assert [row.code for row in alarms.rows.values()] == ["E_MANIFEST_PULL"]
    assert alarms.begun == 1
    coming.clear()
    watch.look(12.0)
    assert alarms.rows == {}


class Bulk:
    """Asked for a manifest, it does what a test says."""

    def __init__(self) -> None:
        self.answer: bytes | TransferError = REFUSED

    def fetch_manifest(self, *_: object, timeout_s: float, answer_s: float) -> bytes:
        if isinstance(self.answer, TransferError):
            raise self.answer
        return self.answer


async def test_pulls_count_until_a_peer_gives_the_manifest() -> None:
    bulk, directory, pulls = Bulk(), cast(Any, Directory()), FailedPulls()
    client = ManifestClient(cast(Any, bulk), directory, UnreachedPeers(directory), pulls)
    for number in range(3):
        assert await client.pull(PullManifest(number, MODEL, NEAR, 100, 1.0)) is None
    found = sentence(pulls, time.monotonic() + PULLS_S)
    assert found is not None
    assert "10.0.0.1:7947" in found
    bulk.answer = b"envelope"
    assert await client.pull(PullManifest(4, MODEL, NEAR, 100, 1.0)) == b"envelope"
    assert sentence(pulls, time.monotonic() + PULLS_S) is None
