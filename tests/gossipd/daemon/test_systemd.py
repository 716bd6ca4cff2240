"""Messages to systemd, read at the other end of a real socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import trio
from trio.testing import MockClock

from gossipd.daemon.systemd import Notifier


def listener(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(address)
    receiver.setblocking(False)
    return receiver


async def test_systemd_hears_ready_with_its_words_reloading_and_stopping(tmp_path: Path) -> None:
    with listener(str(tmp_path / "n")) as receiver:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
        notifier.ready("2 deployments\nnot a second line")
        notifier.reloading(17)
        notifier.stopping()
        heard = [receiver.recv(1000) for _ in range(3)]
    assert heard == [
        b"READY=1\nSTATUS=2 deployments",
        b"RELOADING=1\nMONOTONIC_USEC=17",
        b"STOPPING=1",
    ]


async def test_an_abstract_socket_is_reached_too() -> None:
    name = f"gossipd-test-{os.getpid()}"
    with listener(f"\0{name}") as receiver:
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert receiver.recv(1000) == b"READY=1"


async def test_the_watchdog_is_fed_twice_in_each_interval(tmp_path: Path, autojump_clock: MockClock) -> None:
    with listener(str(tmp_path / "n")) as receiver:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "20000000"})
        with trio.move_on_after(35):
            await notifier.run_watchdog()
        heard = [receiver.recv(1000) for _ in range(4)]
    assert heard == [b"WATCHDOG=1"] * 4


async def test_without_systemd_nothing_is_sent_and_the_watchdog_task_ends() -> None:
    for environment in ({}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}):
        notifier = Notifier(environment)
        notifier.ready()
        await notifier.run_watchdog()


async def test_a_service_manager_that_is_gone_does_not_matter(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
