"""The library for jobs, over a real socket: from plain threads, from asyncio, and in a process of its own."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossipd.api import question_pages
from gossipd.api.client import (
    TIMEOUT_S,
    DaemonSilentError,
    DaemonUnreachableError,
    RefusedByDaemonError,
    StatusClient,
)
from gossipd.api.events import AlarmEvent, DeploymentEvent
from gossipd.api.manifest_row import manifest_row
from gossipd.api.request_guard import SHORT_MAX
from gossipd.client import Client, EndedError, NotThereError, NotTrustedError, TimedOutError, patience
from gossipd.client.aio import AsyncClient
from gossipd.client.arguments import ABOUT_BYTES_MAX
from gossipd.client.errors import typed_refusals
from gossipd.client.holding import held
from gossipd.core.errors import ExitCode, UsageError
from gossipd.deployment.statement import Verb
from gossipd.manifest.annotations import pack_about
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row
from tests.gossipd.cli.daemons import guarded
from tests.gossipd.manifest.making import manifest


def test_importing_it_needs_few_modules_and_none_of_the_daemons_libraries() -> None:
    code = "import sys; before = set(sys.modules); import gossipd.client; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"trio", "zmq", "msgspec", "anyio", "asyncio", "starlette", "ssl", "concurrent.futures"}
    assert len(loaded) <= 50, "some 30 ms, told without a clock"


def test_a_want_is_ordered_and_what_is_in_force_comes_back(tmp_path: Path) -> None:
    daemon = FakeDaemon()
    with guarded(tmp_path / "s", daemon):
        assert Client(tmp_path / "s").want("org/toy", "ep:3/16", "files:*.json") == ("ep:3/16", "files:*.json")
        both = AsyncClient(tmp_path / "s").want("org/toy", "ep:4/16", clear=True, free=True)
        assert asyncio.run(both) == ("ep:4/16",)
    assert daemon.orders == [
        ("want", "org/toy", ["ep:3/16", "files:*.json"], False, False, ""),
        ("want", "org/toy", ["ep:4/16"], True, True, ""),
    ]


def test_a_wait_ends_within_50_ms_of_the_change(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(0)])
    took = []
    with guarded(tmp_path / "s", daemon):
        for _ in range(50):  # one is enough: on a busy machine a thread may wait for the CPU
            daemon.rows, changed = [toy_row(0)], []

            def change() -> None:
                changed.append(time.monotonic())  # noqa: B023 - the thread ends within the turn
                daemon.rows = [toy_row(1)]

            timer = threading.Timer(0.2, change)
            timer.start()
            found = Client(tmp_path / "s").wait("org/toy", 3, timeout=120)
            took.append(time.monotonic() - changed[0])
            timer.join()
            assert (found.name, found.version, found.hosts_complete) == ("org/toy", 3, 1)
            if took[-1] < 0.05:
                break
    assert min(took) < 0.05, took


def test_a_version_that_nobody_knows_yet_is_waited_for(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[])
    with guarded(tmp_path / "s", daemon):
        timer = threading.Timer(0.1, lambda: daemon.rows.append(toy_row(2)))
        timer.start()
        assert Client(tmp_path / "s").wait("org/toy", hosts=2, timeout=120).version == 3
        timer.join()


def test_a_wait_that_takes_too_long_says_who_is_behind(tmp_path: Path) -> None:
    with guarded(tmp_path / "s", FakeDaemon()):
        with pytest.raises(TimedOutError, match=r"after 0.05 s .* on 2 of 4 hosts; furthest behind: node-4"):
            Client(tmp_path / "s").wait("org/toy", 3, hosts="100%", timeout=0.05)
        with pytest.raises(TimedOutError, match="no deployment nothing is known"):
            Client(tmp_path / "s").wait("nothing", timeout=0.05)


def test_what_was_cancelled_ends_a_wait_at_once(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(1, verb=Verb.CANCEL)])
    with guarded(tmp_path / "s", daemon), pytest.raises(EndedError) as caught:
        Client(tmp_path / "s").wait("org/toy", 3, hosts="100%")
    assert caught.value.code == "E_CANCELLED"
    assert caught.value.code_of_exit == ExitCode.PARTIAL


def test_many_who_wait_leave_room_for_those_who_ask(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(0)])
    with guarded(tmp_path / "s", daemon) as guard, ExitStack() as stack:
        client = Client(tmp_path / "s")
        waiters = [
            threading.Thread(target=client.wait, args=("org/toy", 3), kwargs={"timeout": 30})
            for _ in range(2 * SHORT_MAX)
        ]
        for waiter in waiters:
            stack.callback(waiter.join)
        stack.callback(lambda: daemon.rows.__setitem__(0, toy_row(1)))
        for waiter in waiters:
            waiter.start()
        _until(lambda: guard.waits == len(waiters))
        with pytest.raises(EndedError):
            client.latest("org/toy")


def test_latest_names_the_version_or_what_is_missing(tmp_path: Path) -> None:
    older = msgspec.structs.replace(toy_row(3), version=2, lineage="run r, step 2")
    with guarded(tmp_path / "s", FakeDaemon(rows=[toy_row(2), older])):
        client = Client(tmp_path / "s")
        assert client.latest("org/toy", "here").version == 3
        assert client.latest("org/toy", ["node-1", "node-2"]).version == 3
        assert client.latest("org/toy").version == 2
        assert client.latest("org/toy").lineage == "run r, step 2"
        assert client.latest("org/toy", "anywhere", before=3).version == 2
        with pytest.raises(EndedError, match=r"lacks node-4 \(init 0 % dead\)") as caught:
            client.latest("org/toy", ["node-4"])
        assert caught.value.code == "E_NOT_READY"
        with pytest.raises(NotThereError):
            client.latest("nothing")
        with pytest.raises(UsageError, match="where names no host"):
            client.latest("org/toy", [])


def test_wrong_words_are_no_lack_of_rights_and_are_named() -> None:
    for code in ("E_NAME", "E_SHARDS", "E_MAY_NOT_PUBLISH"):
        with pytest.raises(RefusedByDaemonError) as caught, typed_refusals():
            raise RefusedByDaemonError(code, "no", ExitCode.TRUST)
        assert isinstance(caught.value, NotTrustedError) == (code == "E_MAY_NOT_PUBLISH")


def test_a_host_that_has_just_started_never_says_that_there_is_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = FakeDaemon(rows=[], newcomer_words="this host is up for 0 s only")
    with guarded(tmp_path / "s", daemon):
        client = Client(tmp_path / "s")
        threading.Timer(0.2, setattr, (daemon, "rows", [toy_row(1)])).start()
        assert client.latest("org/toy", "here").version == 3
        monkeypatch.setattr(question_pages, "NEWCOMER_WAIT_S", 0.1)
        with pytest.raises(EndedError, match="up for 0 s only, and may not have heard of it"):
            client.latest("nothing")
        daemon.newcomer_words = ""
        with pytest.raises(NotThereError):
            client.latest("nothing")


def test_a_host_that_has_just_started_names_no_older_version_that_others_have_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = (msgspec.structs.replace(toy_row(1), version=version) for version in (3, 4))
    daemon = FakeDaemon(rows=[older], settling_words="this host has found no other member yet")
    with guarded(tmp_path / "s", daemon):
        client = Client(tmp_path / "s")
        assert client.latest("org/toy", "here").version == 3, "its own disk"
        threading.Timer(0.2, setattr, (daemon, "rows", [older, newer])).start()
        threading.Timer(0.4, setattr, (daemon, "settling_words", "")).start()
        assert client.latest("org/toy", "anywhere").version == 4
        daemon.settling_words = "this host has found no other member yet"
        monkeypatch.setattr(question_pages, "NEWCOMER_WAIT_S", 0.1)
        assert client.latest("org/toy", "anywhere").version == 4, "nobody may be there"


def test_no_daemon_at_all_is_an_error_when_the_time_is_up(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError):
        Client(tmp_path / "s").wait("org/toy", timeout=0.05)
    with pytest.raises(DaemonUnreachableError):
        Client(tmp_path / "s").latest("org/toy")


def test_a_daemon_that_hangs_does_not_hold_a_wait_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.api.client.LATE_S", 0.05)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(tmp_path / "s"))
        stopped.listen()
        begun = time.monotonic()
        with pytest.raises(DaemonSilentError):
            Client(tmp_path / "s").wait("org/toy", timeout=0.05)
        assert time.monotonic() - begun < TIMEOUT_S / 2


def test_a_daemon_that_never_answers_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "START_S", 0.05)
    with pytest.raises(DaemonUnreachableError):
        Client(tmp_path / "s").wait("org/toy")
    with pytest.raises(DaemonUnreachableError):
        next(Client(tmp_path / "s").events())


def test_a_daemon_that_starts_later_is_waited_for(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(1)])
    daemon.ring.append(AlarmEvent(code="E_ALONE", state="begun"), "2026-11-25T12:00:00Z")
    client = Client(tmp_path / "s")
    with ThreadPoolExecutor(2) as jobs:
        waiting = jobs.submit(client.wait, "org/toy", 3, timeout=120)
        told = jobs.submit(lambda: next(client.events()))
        time.sleep(0.1)
        with guarded(tmp_path / "s", daemon):
            assert waiting.result(120).hosts_complete == 1
            assert told.result(120).type == "alarm"


def test_a_daemon_that_is_restarted_in_the_first_round_is_waited_for(tmp_path: Path) -> None:
    client = Client(tmp_path / "s")
    with ThreadPoolExecutor(2) as jobs:
        with guarded(tmp_path / "s", FakeDaemon(rows=[toy_row(0)])) as guard:
            waiting = jobs.submit(client.wait, "org/toy", 3, timeout=120)
            told = jobs.submit(lambda: next(client.events()))
            _until(lambda: guard.waits == 1)
        daemon = FakeDaemon(rows=[toy_row(1)])
        daemon.ring.append(AlarmEvent(code="E_ALONE", state="begun"), "2026-11-25T12:00:00Z")
        with guarded(tmp_path / "s", daemon):
            assert waiting.result(120).hosts_complete == 1
            assert told.result(120).type == "alarm"


def test_a_client_older_than_its_daemon_finds_the_socket_for_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path / "gossipd.sock")
    monkeypatch.setattr("gossipd.api.client._may_open", lambda path: not path.exists())  # as another user than root
    (tmp_path / "gossipd.sock").touch()
    with guarded(tmp_path / "gossipd-read.sock", FakeDaemon(rows=[toy_row(1)])):
        assert client.wait("org/toy", 3, timeout=120).version == 3


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e300, 10**400, True, "3", b"3", []])
def test_a_time_that_is_none_is_refused_by_name(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"timeout is .* a number of seconds, at most 1000000000, or None"):
        Client(tmp_path / "s").wait("org/toy", timeout=wrong)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1, 3.0, 2**53, 10**400, True, "3", b"3", []])
def test_a_number_that_is_none_is_refused_by_name(tmp_path: Path, wrong: Any) -> None:
    client = Client(tmp_path / "s")
    calls: dict[str, list[Callable[[], Any]]] = {
        "version": [
            lambda: client.wait("m", wrong), lambda: client.path("m", wrong), lambda: client.lineage("m", wrong),
            lambda: client.publish(tmp_path, name="m", version=wrong), lambda: client.part("m", wrong),
        ],
        "before": [lambda: client.latest("m", before=wrong)],
        "step": [lambda: client.publish(tmp_path, name="m", step=wrong)],
        "keep_last": [lambda: client.publish(tmp_path, name="m", keep_last=wrong)],
        "keep_every": [lambda: client.publish(tmp_path, name="m", keep_last=1, keep_every=wrong)],
    }  # fmt: skip
    for argument, asked in calls.items():
        for call in asked:
            with pytest.raises(UsageError, match=rf"{argument} is .* a whole number from 0 to 9007199254740991"):
                call()


def test_a_number_of_too_many_digits_is_refused_without_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="timeout is a number of thousands of digits; it must be"):
        Client(tmp_path / "s").wait("org/toy", timeout=10**5000)


def test_a_deadline_that_is_over_is_a_time_that_is_up(tmp_path: Path) -> None:
    with guarded(tmp_path / "s", FakeDaemon(rows=[toy_row(0)])), pytest.raises(TimedOutError):
        Client(tmp_path / "s").wait("org/toy", 3, timeout=-0.1)


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _locked(directory: Path) -> bool:
    """Whether eviction would leave the directory alone."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_publishing_beside_a_loop_costs_it_20_ms_at_most(tmp_path: Path) -> None:
    client = Client(tmp_path / "no daemon")
    began_s = time.thread_time()
    made = client.publish_async(tmp_path, name="run", step=1)
    assert time.thread_time() - began_s < 0.02
    with pytest.raises(DaemonUnreachableError):
        made.result(60)


def test_a_version_is_held_for_the_block_and_its_path_is_its_own(tmp_path: Path) -> None:
    daemon = FakeDaemon(path=str(tmp_path / "m"))
    (tmp_path / "m").mkdir()
    with guarded(tmp_path / "s", daemon):
        client = Client(tmp_path / "s")
        assert client.path("org/toy") == tmp_path / "m"
        with client.hold("org/toy"), client.hold("org/toy", 2) as path:
            assert path == tmp_path / "m"
            assert _locked(path)
        assert not _locked(tmp_path / "m")
        with pytest.raises(NotThereError, match="org/toy@3 is not complete on this host, it is downloading"):
            client.path("org/toy", 3)
        (tmp_path / "m").rmdir()
        with pytest.raises(NotThereError, match="not on this host any more"), client.hold("org/toy"):
            pass


def test_a_hold_ends_with_the_process_that_has_it(tmp_path: Path) -> None:
    code = f"""
from gossipd.client.holding import held
from pathlib import Path
with held(Path({str(tmp_path)!r})):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert _locked(tmp_path)
        process.kill()
    assert not _locked(tmp_path)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_hold_ends_with_the_block_of_the_process_that_has_it(tmp_path: Path) -> None:
    lock = held(tmp_path)
    with lock:
        ends = os.fork()
        if not ends:
            lock.__exit__(None, None, None)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(ends, 0)[1]) == 0
        assert _locked(tmp_path), "the end of a child's is not this one's"
        stays, pipe = os.pipe()
        child = os.fork()
        if not child:
            os.close(pipe)
            os.read(stays, 1)
            os._exit(0)
        os.close(stays)
    assert not _locked(tmp_path), "a child that goes on has nothing to do with it"
    os.close(pipe)
    os.waitpid(child, 0)


def test_the_async_twin_runs_beside_other_coroutines_on_asyncio(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(0)])

    async def job() -> int:
        client = AsyncClient(tmp_path / "s")
        waiting = asyncio.create_task(client.wait("org/toy", 3, timeout=120))
        await asyncio.sleep(0.05)
        daemon.rows = [toy_row(1)]
        return (await waiting).hosts_complete + (await client.latest("org/toy", "here")).version

    with guarded(tmp_path / "s", daemon):
        assert asyncio.run(job()) == 4


async def asked_when_cancelled(call: Coroutine[Any, Any, object], asked: list[Any]) -> int:
    """How often the daemon is asked within half a second after a call was cancelled that had asked."""
    task = asyncio.create_task(call)
    while not asked:
        await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    before = len(asked)
    await asyncio.sleep(0.5)
    return len(asked) - before


def test_a_wait_that_is_cancelled_asks_no_more_than_its_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = StatusClient.wait_round

    def counted(self: StatusClient, *given: Any, left_s: float | None = None) -> dict[str, Any]:
        asked.append(given)
        return real(self, *given, left_s=left_s)

    monkeypatch.setattr("gossipd.client.client.ROUND_S", 0.05)
    monkeypatch.setattr(StatusClient, "wait_round", counted)

    with guarded(tmp_path / "s", FakeDaemon(rows=[toy_row(0)])):
        assert asyncio.run(asked_when_cancelled(AsyncClient(tmp_path / "s").wait("org/toy", 3), asked)) <= 1


def test_events_that_are_left_ask_no_more_than_their_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = StatusClient.events

    def counted(self: StatusClient, since: str | None, *, wait_s: int) -> dict[str, Any]:
        asked.append(since)
        if len(asked) > 20:
            raise RefusedByDaemonError("E_TOO_MANY", "the thread goes on, and the process would not end", 1)
        time.sleep(0.05)  # a round
        return real(self, since, wait_s=0)

    monkeypatch.setattr(StatusClient, "events", counted)

    async def follow() -> None:
        async for _ in AsyncClient(tmp_path / "s").events("quiet"):
            pass

    with guarded(tmp_path / "s", FakeDaemon()):
        assert asyncio.run(asked_when_cancelled(follow(), asked)) <= 1


def test_those_who_wait_leave_threads_for_those_who_ask(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(0)])

    async def job() -> list[int]:
        client = AsyncClient(tmp_path / "s")
        waits = [asyncio.create_task(client.wait("org/toy", 3, timeout=60)) for _ in range(60)]
        await asyncio.sleep(0.2)
        assert await asyncio.wait_for(client.last_version("org/toy"), 30) == 3
        daemon.rows = [toy_row(1)]
        return [(await wait).version for wait in waits]

    with guarded(tmp_path / "s", daemon):
        assert asyncio.run(job()) == [3] * 60


@pytest.mark.parametrize("wrong", [None, "", 7, "a\ud800"])
def test_a_name_or_path_that_is_none_is_refused_before_the_daemon_is_asked(tmp_path: Path, wrong: Any) -> None:
    client = Client(tmp_path / "no socket is there")
    calls: list[Callable[[], Any]] = [
        lambda: client.path(wrong), lambda: client.part(wrong), lambda: client.hold(wrong).__enter__(),
        lambda: client.latest(wrong), lambda: client.last_version(wrong), lambda: client.wait(wrong, timeout=0),
        lambda: client.lineage(wrong), lambda: client.want(wrong, "all"), lambda: client.publish(tmp_path, name=wrong),
        lambda: client.latest("m", wrong), *([] if wrong == "a\ud800" else [lambda: client.publish(wrong, name="m")]),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(UsageError, match=r"^(name|path|where) "):
            call()


def test_the_async_twin_has_every_method_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        found = vars(kind).items()
        return {name: list(signature(one).parameters) for name, one in found if callable(one) and name[0] != "_"}

    sync = methods(Client)
    del (
        sync["publish_async"],
        sync["wait_until_over"],
        sync["events_until_over"],
    )  # which a task is, and what cancelling it is
    assert methods(AsyncClient) == sync


def test_events_are_told_in_order_and_those_of_a_name_alone(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(1)])
    daemon.ring.append(AlarmEvent(code="E_ALONE", state="begun"), "2026-11-25T12:00:00Z")
    daemon.ring.append(DeploymentEvent(what="published", deployment="org/toy@3"), "2026-11-25T12:00:01Z")
    daemon.ring.append(DeploymentEvent(what="published", deployment="org/toy-2@3"), "2026-11-25T12:00:02Z")
    with guarded(tmp_path / "s", daemon):
        client = Client(tmp_path / "s")
        told = list(client.events(follow=False))
        assert [event.type for event in told] == ["alarm", "deployment", "deployment"]
        [one] = client.events("org/toy", follow=False)
        assert (one.at, one.fields["what"]) == ("2026-11-25T12:00:01Z", "published")
        assert list(client.events(since=told[1].position, follow=False)) == told[2:]
        following = client.events(since=told[2].position)
        threading.Timer(0.2, daemon.ring.append, (AlarmEvent(code="E_ALONE", state="ended"), "later")).start()
        assert next(following).fields["state"] == "ended"
        [gap, *_] = client.events("org/toy", since="1:1", follow=False)
        assert gap.type == "gap", "of another life of the daemon"


def test_the_async_twin_tells_events_and_lineage_too(tmp_path: Path) -> None:
    daemon = FakeDaemon(rows=[toy_row(1)])
    base = manifest(name="base")
    child = manifest(name="run", about=pack_about({"parents": [base.id.hex(), "0" * 64], "run": "r7"}))
    daemon.manifests = [manifest_row(base), manifest_row(child)]
    daemon.ring.append(AlarmEvent(code="E_ALONE", state="begun"), "2026-11-25T12:00:00Z")

    async def job() -> None:
        client = AsyncClient(tmp_path / "s")
        assert [event.type async for event in client.events(follow=False)] == ["alarm"]
        first, known, unknown = await client.lineage("run")
        assert (first.name, first.version, first.generation, first.about["run"]) == ("run", 1, 0, "r7")
        assert (known.id, known.name, known.generation) == (base.id.hex(), "base", 1)
        assert (unknown.name, unknown.version, unknown.about) == ("", None, {})
        with pytest.raises(NotThereError):
            await client.lineage("other")

    with guarded(tmp_path / "s", daemon):
        asyncio.run(job())


def test_lineage_goes_with_a_publication_and_is_refused_where_it_is_too_long(tmp_path: Path) -> None:
    daemon = FakeDaemon()
    with guarded(tmp_path / "s", daemon):
        client = Client(tmp_path / "s")
        about = {"run": "r7", "wandb": {"run": "acme/llm/3xy7"}, "notes": "\u00fc" * 200}
        client.publish(tmp_path, name="m", about=about)
        assert json.loads(str(daemon.orders[-1][-1])) == about
        for letter, count in (("x", 1), ("\u00fc", 2), ("\n", 2), ('"', 2), ("\u20ac", 3)):  # bytes as JSON
            longest = {"notes": letter * ((ABOUT_BYTES_MAX - 12) // count)}
            client.publish(tmp_path, name="m", about=longest)
            assert json.loads(str(daemon.orders[-1][-1])) == longest
        with pytest.raises(UsageError, match="about has 16396 bytes as JSON, at most 16384"):
            client.publish(tmp_path, name="m", about={"notes": "x" * ABOUT_BYTES_MAX})
        for wrong in (object(), float("nan"), "\ud800"):
            with pytest.raises(UsageError, match="about is no JSON object"):
                client.publish(tmp_path, name="m", about={"notes": wrong})


@pytest.mark.parametrize("wrong", [7, b"*.pt", ["*.pt", ""], ["a\nb"], [None]])
def test_a_pattern_that_is_none_is_refused_before_the_daemon_is_asked(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"^exclude is "):
        Client(tmp_path / "no socket is there").publish(tmp_path, name="m", exclude=wrong)
