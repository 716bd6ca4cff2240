"""Limits and windows follow what the share says of real counters, and are the ones that transfers wait for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from gossipd.daemon import link_sharing
from gossipd.daemon.link_sharing import WINDOW_BYTES_MIN, WINDOW_S, LinkSharing
from gossipd.runtime.bulk_sockets import BulkSockets, WindowLimit, WireBytes
from gossipd.runtime.network_interface import InterfaceBytes


class Sockets(BulkSockets):
    """What this daemon has moved is what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = WireBytes()
        self.windows: list[WindowLimit | None] = []

    def look(self) -> WireBytes:
        return self.moved

    def limit_windows(self, limit: WindowLimit | None) -> None:
        self.windows.append(limit)


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
        return self.sharing.look("eth0", self.now, self.now)


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
    up, down = bench.sharing.upload.rate, bench.sharing.download.rate
    assert up is not None and down is not None
    assert bench.sockets.windows[-1] == WindowLimit(WINDOW_BYTES_MIN, down, WINDOW_S)
    for _ in range(10):
        bench.look()
    assert [bench.sharing.upload.rate, bench.sharing.download.rate, *bench.sockets.windows[-1:]] == [None] * 3


def test_looks_are_quick_only_while_model_bytes_move(bench: Bench) -> None:
    assert not bench.look()
    bench.sockets.moved = WireBytes(1000, 0, 0)
    assert bench.look()
    assert not bench.look()


def test_an_interface_that_has_gone_ends_the_limit_and_comes_back_as_new(bench: Bench) -> None:
    for _ in range(5):
        bench.look(others=1_000_000)
    carried, bench.carried = bench.carried, None
    bench.look()
    assert bench.sharing.download.rate is None
    bench.carried = carried
    assert [(bench.look(others=1_000_000) and None) or bench.sharing.download.rate for _ in range(2)][-1] is not None


def test_each_direction_is_held_to_its_own_rate(bench: Bench) -> None:
    bench.sharing._share.sending._capacity = 80_000_000.0
    for _ in range(5):
        bench.look(others=1_000_000)
    assert (bench.sharing.upload.rate or 0) > 3 * (bench.sharing.download.rate or 0) > 0


def test_reads_that_are_not_counted_end_the_limit_while_they_last(bench: Bench) -> None:
    for _ in range(5):
        bench.look(others=1_000_000)
    with bench.sockets.unlisted():
        bench.look(others=1_000_000)
        assert bench.sharing.download.rate is None
    rates = [bench.look(others=1_000_000) or bench.sharing.download.rate for _ in range(4)]
    assert rates[0] is None and rates[-1] is not None


async def test_a_running_daemon_looks_at_the_interface_of_its_address(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    found: list[str | None] = [None, None, "eth7"]  # the address comes some seconds after the start
    looked_at: list[str] = []

    def carried(name: str) -> InterfaceBytes | None:
        looked_at.append(name)
        return bench.carried

    monkeypatch.setattr(link_sharing, "interface_of", lambda address: found.pop(0) if len(found) > 1 else found[0])
    monkeypatch.setattr(link_sharing, "bytes_of", carried)
    with trio.move_on_after(10):
        await bench.sharing.run("192.0.2.1")
    assert looked_at[-1] == "eth7" and 5 <= len(looked_at) <= 15


async def test_a_daemon_on_loopback_never_holds_its_own_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    looked_at: set[str] = set()
    warnings: list[str] = []

    def carried(name: str) -> InterfaceBytes | None:
        looked_at.add(name)
        return None

    def warning(text: str, **_: str) -> None:
        warnings.append(text)

    monkeypatch.setattr(link_sharing, "bytes_of", carried)
    monkeypatch.setattr(link_sharing, "log", SimpleNamespace(warning=warning))
    with trio.move_on_after(10):
        await bench.sharing.run("127.0.0.7")
    assert looked_at == {""} and bench.sharing.download.rate is None
    assert warnings == ["net.background does nothing on a loopback address"]


async def test_an_interface_that_moves_is_found_while_bytes_move(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    start_s = trio.current_time()
    looked_at: list[str] = []

    def carried(name: str) -> InterfaceBytes | None:
        looked_at.append(name)
        bench.sockets.moved = WireBytes(1000 * len(looked_at), 0, 0)
        return bench.carried

    monkeypatch.setattr(link_sharing, "interface_of", lambda _: "eth0" if trio.current_time() < start_s + 2 else "eth7")
    monkeypatch.setattr(link_sharing, "bytes_of", carried)
    with trio.move_on_after(4):
        await bench.sharing.run("192.0.2.1")
    assert looked_at[0] == "eth0" and looked_at[-1] == "eth7"
