"""Clients of buckets: when obstore begins, and when another one is made."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.errors import SourceUnreachableError
from gossipd.sources.location import Location
from gossipd.sources.obstore_clients import Clients, start_runtime
from gossipd.sources.settings import SourceSettings


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


def test_another_file_of_google_s_keys_makes_another_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key, location = tmp_path / "key.json", Location.of(parse_source_url("gs://models/llama"), "a.bin")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    user = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
    key.write_text(json.dumps(user))
    clients = Clients(SourceSettings())
    first = clients.open(location, whole=False)
    assert clients.open(location, whole=False) is first
    (tmp_path / "next").write_text(json.dumps(user | {"refresh_token": "d"}))
    (tmp_path / "next").rename(key)
    assert clients.open(location, whole=False) is not first
