"""Waiting for the end of real processes."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest
import trio

from gossipd.api.calling_process import CallingProcess
from gossipd.daemon.process_end import process_name, wait_process_end


async def test_the_end_of_a_process_is_told_and_not_before() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child, trio.fail_after(30):
        name = process_name(child.pid)
        with trio.move_on_after(0) as waiting:
            await wait_process_end(name)
        assert waiting.cancelled_caught, "it lives"
        child.kill()
        await wait_process_end(name)
    await wait_process_end(name)  # it is gone for good


async def test_a_process_of_an_earlier_boot_has_ended_though_another_has_its_number() -> None:
    with trio.fail_after(30):
        await wait_process_end(f"{os.getpid()}.0ther")


async def test_a_number_that_no_kernel_has_has_ended() -> None:
    boot = process_name(os.getpid()).partition(".")[2]
    with trio.fail_after(30):
        await wait_process_end(f"9999999999.{boot}")


async def test_where_the_kernel_cannot_tell_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with trio.move_on_after(0) as waiting:
        await wait_process_end(process_name(os.getpid()))
    assert waiting.cancelled_caught


async def test_a_process_out_of_sight_is_known_by_its_descriptor_alone() -> None:
    name = process_name(0)
    assert name != process_name(0)
    ours, theirs = socket.socketpair()
    with ours, theirs, trio.fail_after(30):
        descriptor = CallingProcess(0, ours).open_descriptor()  # this process's: it made the pair
        assert descriptor is not None
        with trio.move_on_after(0) as waiting:
            await wait_process_end(name, descriptor)
        assert waiting.cancelled_caught
    with trio.move_on_after(0) as waiting:
        await wait_process_end(name)
    assert waiting.cancelled_caught, "after a restart nobody knows"
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_without_a_connection_or_the_kernel_s_help_there_is_no_descriptor() -> None:
    assert CallingProcess(0).open_descriptor() is None
    with socket.socket(socket.AF_INET) as other:
        assert CallingProcess(0, other).open_descriptor() is None
