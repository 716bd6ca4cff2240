"""A thread has its name in the system's lists."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gossipd.runtime import named_thread
from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.system_refusals import REFUSALS, NoThreadError


def _shown(thread_name: str) -> str:
    seen: list[str] = []

    def look() -> None:
        seen.append(Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().rstrip("\n"))

    thread = NamedThread(target=look, name=thread_name)
    thread.start()
    thread.join()
    return seen[0]


@pytest.mark.parametrize(("name", "shown"), [("bulk-serve", "bulk-serve"), ("a-name-of-more-bytes", "a-name-of-more-")])
def test_the_system_shows_the_name_of_a_thread(name: str, shown: str) -> None:
    assert _shown(name) == shown


def test_a_thread_runs_where_its_name_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_thread, "_prctl", None)
    assert _shown("bulk-serve") != "bulk-serve"


def test_a_refused_thread_is_a_typed_error_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = REFUSALS.threads
    with pytest.raises(NoThreadError, match=r"ulimit -u, TasksMax, pids.max"):
        NamedThread(target=print, name="x").start()
    assert REFUSALS.threads == before + 1
