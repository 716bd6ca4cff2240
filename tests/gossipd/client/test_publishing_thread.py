"""A client in the children of a job: after a fork, also in the middle of things, and by a pickle."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from gossipd.client import Client, Publication
from gossipd.client.aio import AsyncClient
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row
from tests.gossipd.cli.daemons import guarded

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of newer Pythons beside threads


def _in_child(task: Callable[[], object]) -> bool:
    """Whether it has ended well within a minute."""
    child = os.fork()
    if not child:
        try:
            task()
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def test_a_child_publishes_in_a_thread_of_its_own(tmp_path: Path) -> None:
    with guarded(tmp_path / "s", FakeDaemon()):
        client = Client(tmp_path / "s")
        client.publish_async(tmp_path, name="m", step=1).result(60)
        assert _in_child(lambda: client.publish_async(tmp_path, name="m", step=2).result(50))
        assert client.publish_async(tmp_path, name="m", step=3).result(60).version == 1


def test_a_fork_while_another_thread_orders_leaves_the_child_a_free_lock(tmp_path: Path) -> None:
    with guarded(tmp_path / "s", FakeDaemon()):
        client = Client(tmp_path / "s")
        holding, free = threading.Event(), threading.Event()

        def hold() -> None:
            with client._publisher._lock:
                holding.set()
                free.wait(120)

        other = threading.Thread(target=hold)
        other.start()
        holding.wait(120)
        try:
            assert _in_child(lambda: client.publish_async(tmp_path, name="m", step=2).result(50))
        finally:
            free.set()
            other.join()


def test_what_the_parent_has_ordered_is_not_made_twice(tmp_path: Path) -> None:
    daemon = FakeDaemon()
    with guarded(tmp_path / "s", daemon):
        client = Client(tmp_path / "s")
        begun, go_on = threading.Event(), threading.Event()

        def slow() -> None:
            begun.set()
            go_on.wait(120)

        client._publisher.submit("slow", slow)
        begun.wait(120)
        waits: Future[Publication] = client.publish_async(tmp_path, name="m", step=1)
        try:
            assert _in_child(lambda: client.publish_async(tmp_path, name="m", step=2).result(50))
            assert not waits.cancelled()
        finally:
            go_on.set()
        waits.result(60)
    assert [order[5] for order in daemon.orders] == [2, 1]


def test_a_client_goes_to_a_spawned_process_as_a_pickle(tmp_path: Path) -> None:
    with guarded(tmp_path / "s", FakeDaemon(rows=[toy_row(1)])):
        for client in (Client(tmp_path / "s"), AsyncClient(tmp_path / "s")._client):
            sent = pickle.loads(pickle.dumps(client))
            assert sent.wait("org/toy", 3, timeout=60).version == 3
            assert sent.publish_async(tmp_path, name="m").result(60).version == 1
