"""Clients of buckets: when obstore begins."""

from __future__ import annotations

import threading

import pytest

from gossipd.sources.errors import SourceUnreachableError
from gossipd.sources.obstore_clients import start_runtime


def test_without_threads_the_library_is_not_begun_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        patched.setattr(
            "gossipd.sources.obstore_clients._use_once", lambda: pytest.fail("obstore would panic for good")
        )
        with pytest.raises(SourceUnreachableError, match="refuses new threads"):
            start_runtime()
    start_runtime()
