"""Limits and windows follow what the share says of real counters, and are the ones that transfers wait for."""

from __future__ import annotations

import pytest

from gossipd.daemon import link_sharing
from gossipd.daemon.link_sharing import WINDOW_BYTES_MIN, LinkSharing
from gossipd.runtime.bulk_sockets import BulkSockets, WireBytes
from gossipd.runtime.network_interface import InterfaceBytes


class Sockets(BulkSockets):
    """What this daemon has moved is what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = WireBytes()
        self.windows: list[int | None] = []

    def look(self) -> WireBytes:
        return self.moved

    def limit_windows(self, nbytes: int | None) -> None:
        self.windows.append(nbytes)


class Bench:
    """A host whose interface carries what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sockets = Sockets()
        self.sharing = LinkSharing(self.sockets)
        self.carried: InterfaceBytes | None = InterfaceBytes(0, 0)
        self.now = 0.0
        monkeypatch.setattr(link_sharing, "bytes_of", lambda name: self.carried)

    def look(self, *, others: int = 0) -> bool:
        """A second later."""
        self.now += 1.0
        if self.carried is not None:
            self.carried = InterfaceBytes(self.carried.received + others, self.carried.sent)
        return self.sharing.look("eth0", self.now)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_nothing_is_limited_while_nobody_else_uses_the_link(bench: Bench) -> None:
    for _ in range(10):
        bench.look()
    assert bench.sharing.upload.rate is bench.sharing.download.rate is None
    assert set(bench.sockets.windows) == {None}


def test_others_limit_both_directions_and_the_windows(bench: Bench) -> None:
    for _ in range(10):
        bench.look(others=1_000_000)
    assert bench.sharing.upload.rate is not None and bench.sharing.download.rate is not None
    assert bench.sockets.windows[-1] == WINDOW_BYTES_MIN
    for _ in range(10):
        bench.look()
    assert bench.sharing.upload.rate is bench.sharing.download.rate is bench.sockets.windows[-1] is None


def test_looks_are_quick_only_while_model_bytes_move(bench: Bench) -> None:
    assert not bench.look()
    bench.sockets.moved = WireBytes(1000, 0, 0)
    assert bench.look()
    assert not bench.look()


def test_an_interface_that_has_gone_changes_nothing(bench: Bench) -> None:
    for _ in range(5):
        bench.look(others=1_000_000)
    rate, bench.carried = bench.sharing.download.rate, None
    bench.look()
    assert bench.sharing.download.rate == rate is not None
