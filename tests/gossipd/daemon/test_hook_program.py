"""A hook's process with real programs: how it ends, and that nothing that it does holds up the daemon."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from gossipd.daemon import hook_program
from gossipd.daemon.hook_program import ABANDONED_MAX, SAID_BYTES_MAX, HookPrograms, ProgramEnd

SOON_S = 10.0  # on a loaded machine; what is awaited takes a second at most


async def shell(script: str, timeout_s: float = SOON_S) -> ProgramEnd:
    return await HookPrograms().run(("/bin/sh", "-c", script), b'{"event": "complete"}\n', timeout_s)


async def test_the_fact_is_read_and_the_last_words_are_kept(tmp_path: Path) -> None:
    ended = await shell(f"cat > {tmp_path / 'fact'}; echo first >&2; echo forbidden >&2; exit 3")
    assert ended == ProgramEnd("/bin/sh ended with 3", "first\nforbidden")
    assert (tmp_path / "fact").read_text() == '{"event": "complete"}\n'
    assert await shell("exec true") == ProgramEnd(None)


async def test_a_program_that_lost_its_execute_right_has_not_begun(tmp_path: Path) -> None:
    program = tmp_path / "hook"
    program.write_text("#!/bin/sh\n")
    for mode, trouble in ((0o755, None), (0o644, f"{program}: Permission denied")):
        program.chmod(mode)
        assert (await HookPrograms().run((str(program),), b"", SOON_S)).trouble == trouble
    program.unlink()
    assert (await HookPrograms().run((str(program),), b"", SOON_S)).trouble == f"{program}: No such file or directory"


async def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    ended = await shell(f"sleep 100 & echo $! > {tmp_path / 'child'}; sleep 100", timeout_s=0.5)
    assert ended.trouble == "/bin/sh did not end within 0.5 s and was killed"
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    with trio.fail_after(SOON_S):
        while child.exists() and child.read_text().split()[2] != "Z":
            await trio.sleep(0.02)


async def test_a_child_that_holds_the_pipe_holds_up_nothing(tmp_path: Path) -> None:
    with trio.fail_after(SOON_S):
        ended = await shell(f"echo done >&2; sleep 100 & echo $! > {tmp_path / 'child'}")
    assert ended == ProgramEnd(None, "done")
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)  # it may go on


async def test_words_without_end_are_bounded_and_cost_little() -> None:
    before = time.process_time()
    ended = await shell("yes >&2", timeout_s=1.0)
    assert ended.trouble is not None
    assert len(ended.said) <= SAID_BYTES_MAX
    assert time.process_time() - before < 0.5


@pytest.fixture
async def immortal(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HookPrograms]:
    """Runs programs that cannot be killed, as one that has become another user's, by sudo."""
    programs = HookPrograms()
    with monkeypatch.context() as patch:

        def refuse(group: int, number: int) -> None:
            raise PermissionError(1, f"Operation not permitted: {group} {number}")

        patch.setattr(os, "killpg", refuse)
        patch.setattr(hook_program, "KILL_S", 0.1)
        yield programs
    for process in programs.abandoned:
        process.kill()
        await process.wait()


async def test_a_program_that_cannot_be_killed_is_left_alone(immortal: HookPrograms) -> None:
    command = ("/bin/sleep", "100")
    with trio.fail_after(SOON_S):
        for _ in range(ABANDONED_MAX):
            ended = await immortal.run(command, b"", 0.1)
            assert ended.trouble == "/bin/sleep did not end within 0.1 s and cannot be killed"
        refused = await immortal.run(command, b"", 0.1)
        assert refused.trouble is not None
        assert "was not started: earlier programs cannot be killed" in refused.trouble
        immortal.abandoned[0].kill()
        await immortal.abandoned[0].wait()
        assert (await immortal.run(("/bin/true",), b"", SOON_S)).trouble is None


async def test_the_end_of_the_daemon_waits_for_no_program(immortal: HookPrograms) -> None:
    with trio.fail_after(SOON_S), trio.move_on_after(0.2):
        await immortal.run(("/bin/sleep", "100"), b"", 60)
    assert len(immortal.abandoned) == 1
