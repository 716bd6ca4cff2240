"""Waiting for the end of real processes."""

from __future__ import annotations

import os
import subprocess

import pytest
import trio

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


async def test_a_process_of_an_earlier_boot_has_ended_whoever_has_its_number_now() -> None:
    with trio.fail_after(30):
        await wait_process_end(f"{os.getpid()}.0ther")


async def test_where_the_kernel_cannot_tell_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with trio.move_on_after(0) as waiting:
        await wait_process_end(process_name(os.getpid()))
    assert waiting.cancelled_caught


def test_a_process_that_is_out_of_sight_has_no_name() -> None:
    assert process_name(0) == ""
