"""Orders of processes that end, with real processes and a real state directory."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import trio

from gossipd.api.calling_process import CallingProcess
from gossipd.daemon.process_end import process_name
from gossipd.daemon.state_dir import StateDirectory
from gossipd.daemon.want_orders import WantOrders
from gossipd.deployment.events import WantsChanged
from gossipd.parts.want import Want, parse_want
from gossipd.parts.want_orders import orders_to_bytes, unite

THREE = parse_want(["ep:3/16"])


class _Daemon:
    """All that orders ask of a daemon; ``told``: the wants that were put into force."""

    def __init__(self, place: Path) -> None:
        self.ordered_wants: dict[str, Want] = {}
        self.records: list[tuple[str, str | None, str]] = []
        self.send_told, self.told = trio.open_memory_channel[dict[str, str]](10)
        everything: Any = self
        self.state = StateDirectory(place / "state")
        self.lifecycle = self
        self.orders = WantOrders(
            live=everything, state=self.state, driver=everything, progress=everything, audit=everything
        )  # fmt: skip

    def wants(self, ordered: dict[str, Want] | None = None) -> dict[str, Want]:
        return unite({}, self.ordered_wants if ordered is None else ordered)

    def find(self, name: str) -> tuple[()]:
        return ()

    def post(self, event: WantsChanged) -> None:
        self.send_told.send_nowait({name: want.text for name, want in event.wants.items()})

    def tell_due(self, now: float) -> None:
        """Nobody listens."""

    def record(self, event: str, *, subject: str | None = None, want: str) -> None:
        self.records.append((event, subject, want))


async def test_a_killed_job_leaves_no_order_behind_and_takes_no_other_s_away(tmp_path: Path) -> None:
    daemon = _Daemon(tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as job, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.orders.run)
            by = CallingProcess(job.pid)
            await daemon.orders.order("m", ["ep:5/16"], clear=False, free=False)
            await daemon.orders.order("m", ["ep:3/16"], clear=False, free=False, holder="r3", process=by)
            assert [await daemon.told.receive() for _ in range(2)][-1] == {"m": "ep:3/16\nep:5/16"}
            job.kill()
            assert await daemon.told.receive() == {"m": "ep:5/16"}
            nursery.cancel_scope.cancel()
    assert daemon.state.wants() == daemon.ordered_wants == {"m": parse_want(["ep:5/16"])}
    assert daemon.records[-1] == ("want ended", "m", "ep:5/16")


async def test_an_order_whose_process_ended_while_no_daemon_ran_ends_at_the_start(tmp_path: Path) -> None:
    daemon = _Daemon(tmp_path)
    with subprocess.Popen(["true"]) as job:
        name = process_name(job.pid)
    daemon.ordered_wants = {f"m r3 {name}": THREE, "other": THREE}
    daemon.state.keep_wants(orders_to_bytes(daemon.ordered_wants))
    async with trio.open_nursery() as nursery:
        with trio.fail_after(30):
            nursery.start_soon(daemon.orders.run)
            assert await daemon.told.receive() == {"other": "ep:3/16"}
        nursery.cancel_scope.cancel()
    assert daemon.state.wants() == {"other": THREE}


async def test_an_order_out_of_sight_ends_too_and_what_was_taken_away_is_watched_no_longer(tmp_path: Path) -> None:
    daemon = _Daemon(tmp_path)
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as job, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.orders.run)
            lasting, by = CallingProcess(0, ours), _Ending(child=job.pid)
            await daemon.orders.order("m", ["ep:3/16"], clear=False, free=False, holder="r3", process=lasting)
            await daemon.orders.order("m", ["ep:5/16"], clear=False, free=False, holder="r5", process=by)
            await daemon.orders.order("m", [], clear=True, free=False, holder="r3", process=lasting)
            assert [await daemon.told.receive() for _ in range(3)][-1] == {"m": "ep:5/16"}
            job.kill()
            assert await daemon.told.receive() == {}
            nursery.cancel_scope.cancel()
    assert daemon.state.wants() == {}
    assert not daemon.orders._awaited and not daemon.orders._descriptors


class _Ending(CallingProcess, frozen=True):
    """A child as if it were out of sight."""

    child: int = 0

    def open_descriptor(self) -> int | None:
        return os.pidfd_open(self.child)
