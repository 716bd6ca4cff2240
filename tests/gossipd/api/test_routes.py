"""The status socket as its clients see it: every page, every order, and everything that is not a request."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient, find_sockets
from gossipd.api.events import AlarmEvent
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.job_commands import JobCommands
from gossipd.api.local_socket import SocketPathError, bind_metrics, bind_unix
from gossipd.api.request_guard import WAIT_PATHS, RequestGuard
from gossipd.api.routes import health_app, read_app, status_app
from gossipd.api.schema import AlarmRow, DeploymentRow
from gossipd.api.unix_connection import UnixConnection
from gossipd.core.errors import ExitCode, UsageError
from gossipd.deployment.statement import Verb
from gossipd.runtime.system_refusals import REFUSALS
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row


@asynccontextmanager
async def serving(path: Path, daemon: FakeDaemon, **limits: float) -> AsyncIterator[RequestGuard]:
    guard = RequestGuard(status_app(daemon, daemon, daemon, daemon.ring), **limits)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guard.serve, bind_unix(path))
        yield guard
        nursery.cancel_scope.cancel()


async def ask(path: Path, request: bytes, *, half_close: bool = False) -> tuple[int, dict[str, Any]]:
    """Send bytes as they are; the status (0: none) and the JSON of the answer."""
    stream = await trio.open_unix_socket(path)
    async with stream:
        await stream.send_all(request)
        if half_close:
            await stream.send_eof()
        answer = b"".join([part async for part in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, json.loads(body) if body else {}


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: d\r\n\r\n".encode()


def post(target: str, body: str) -> bytes:
    return f"POST {target} HTTP/1.1\r\nHost: d\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()


async def test_the_status_page_has_every_promised_field(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()):
        page = await trio.to_thread.run_sync(StatusClient(path).status)
    assert page["schema_version"] == 1
    assert {"name", "rack", "address", "version", "uptime_s"} <= page["node"].keys()
    assert {"name", "rack", "address", "state", "seed"} <= page["members"][0].keys()
    row = page["deployments"][0]
    assert {
        "id", "name", "version", "state", "bytes_total", "bytes_verified", "chunks_total", "chunks_verified",
        "hosts_total", "hosts_complete", "hosts_failed", "source_bytes", "peer_bytes_same_rack",
        "peer_bytes_cross_rack", "duplicate_bytes", "corrupt_chunks", "rate_in_bytes_per_s", "rate_out_bytes_per_s",
        "eta_s", "started_at", "completed_at", "hosts",
    } <= row.keys()  # fmt: skip
    assert {"name", "rack", "state", "chunks_verified", "age_s", "reason"} <= row["hosts"][0].keys()
    assert page["security"]["bulk_encryption"] == "tls"
    assert page["store"]["condition"] == "ok"


async def test_a_name_that_no_encoding_holds_hides_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s"
    odd = "step\udcff-5"
    daemon = FakeDaemon(alarms=[AlarmRow(code="E_STEPS", sentence=odd, since="2026-11-25T12:00:00Z")])
    daemon.ring.append(AlarmEvent(code=odd, state="begun"), "2026-11-25T12:00:00Z")
    daemon.trouble = odd
    async with serving(path, daemon):
        client = StatusClient(path)
        page = await trio.to_thread.run_sync(client.status)
        assert [row["sentence"] for row in page["alarms"]] == [r"step\udcff-5"]
        told = await trio.to_thread.run_sync(lambda: client.events(None, wait_s=0)["events"])
        assert told[0]["body"]["code"] == r"step\udcff-5"
        assert (await trio.to_thread.run_sync(client.models))["models"][1]["trouble"] == r"step\udcff-5"


async def test_a_deployment_row_adds_up(tmp_path: Path) -> None:
    row = toy_row(complete=2)
    assert (row.hosts_total, row.hosts_complete) == (4, 2)
    assert row.chunks_verified == (2 * 1024 + 512) // 4
    assert row.cluster_bytes_verified == 2 * row.bytes_total + row.bytes_total // 2
    assert row.state == "distributing"
    assert row.eta_s == pytest.approx((row.cluster_bytes_total - row.cluster_bytes_verified) / (64 << 20), abs=0.1)
    assert [(host.state, host.reason) for host in row.hosts] == [
        ("complete", ""),
        ("complete", ""),
        ("downloading", "all_busy"),
        ("init", "dead"),
    ]
    assert row.hosts[2].age_s == 2.0


async def test_a_cancelled_deployment_has_no_eta_and_says_so_for_hosts_not_heard(tmp_path: Path) -> None:
    row = toy_row(verb=Verb.CANCEL)
    assert (row.state, row.eta_s, row.hosts[3].state) == ("cancelled", None, "cancelled")


async def test_the_page_can_be_narrowed_by_name_and_version(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()):
        assert (await ask(path, get("/v1/status?name=org/toy&version=3")))[0] == 200
        code, answer = await ask(path, get("/v1/status?name=org/toy&version=4"))
        assert (code, answer["error"]["code"], answer["error"]["exit_code"]) == (404, "E_NOT_FOUND", 3)
        assert (await ask(path, get("/v1/status?name=org/toy&version=-1")))[1]["error"]["code"] == "E_USAGE"
        assert (await ask(path, get("/v1/status?hosts_max=few")))[1]["error"]["code"] == "E_USAGE"
        (few,) = (await ask(path, get("/v1/status?hosts_max=3")))[1]["deployments"]
        assert [host["name"] for host in few["hosts"]] == ["node-3", "node-4"]
        assert [(group["rack"], group["hosts"]) for group in few["left_out"]] == [("r1", 1), ("r0", 1)]
        (alone,) = (await ask(path, get("/v1/status?host=node-2")))[1]["deployments"]
        assert [host["name"] for host in alone["hosts"]] == ["node-2"]
        assert (await ask(path, get("/v1/status?host=other")))[1]["deployments"] == []
        assert (await ask(path, get("/v1/status?host=other&name=org/toy")))[1]["deployments"] == []
        assert (await ask(path, get("/v1/status?host=node-2&name=org/other")))[0] == 404
        assert (await ask(path, get("/v1/deployments/org/toy/3")))[1]["deployment"]["name"] == "org/toy"
        assert (await ask(path, get("/v1/deployments/toy/3")))[0] == 404
        assert [m["version"] for m in (await ask(path, get("/v1/models?name=org/toy")))[1]["models"]] == [3, 2]
        assert (await ask(path, get("/v1/models?name=x")))[1]["models"] == []


async def test_a_sketch_is_of_all_known_hosts_or_of_one(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()):
        code, answer = await ask(path, get("/v1/sketch?name=org/toy"))
        assert (code, answer["version"], answer["chunks_total"], answer["hosts_total"]) == (200, 3, 1024, 4)
        assert [row["name"] for row in answer["hosts"]] == ["node-1", "node-3"]
        _, answer = await ask(path, get("/v1/sketch?name=org/toy&version=3&host=node-3"))
        assert [row["name"] for row in answer["hosts"]] == ["node-3"]
        _, answer = await ask(path, get("/v1/sketch?name=org/toy&host=node-4"))
        assert answer["hosts"] == []  # a target of which nothing is known
        assert (await ask(path, get("/v1/sketch?name=org/toy&host=node-9")))[0] == 404
        assert (await ask(path, get("/v1/sketch?name=org/toy&version=4")))[0] == 404
        assert (await ask(path, get("/v1/sketch")))[0] == 400


async def test_a_fine_sketch_is_of_one_host_and_says_what_became_of_asking(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()):
        _, answer = await ask(path, get("/v1/sketch?name=org/toy&host=node-1&bins=256"))
        (row,) = answer["hosts"]
        assert (answer["asked"], row["known_by"], len(b64decode(row["shares"]))) == ("answered", "answer", 256)
        _, answer = await ask(path, get("/v1/sketch?name=org/toy&host=node-3&bins=256"))
        assert (answer["asked"], [row["known_by"] for row in answer["hosts"]]) == ("silent", ["announcements"])
        assert (await ask(path, get("/v1/sketch?name=org/toy&bins=256")))[0] == 400
        assert (await ask(path, get("/v1/sketch?name=org/toy&host=node-1&bins=64")))[0] == 400


async def test_orders_reach_the_daemon_and_refusals_come_back_whole(tmp_path: Path) -> None:
    path, daemon = tmp_path / "s", FakeDaemon()

    def give_orders() -> None:
        client = StatusClient(path)
        assert client.order("cancel", name="org/toy", version=3)["changed"]
        client.order("rm", name="org/toy", version=2, dry_run=True)
        client.order("rollback", name="org/toy")
        client.order("pin", name="org/toy")
        client.order("unpin", name="org/toy", version=3)
        client.order("warm", name="org/toy")
        wanted = client.want("org/toy", ["ep:3/16", "files:*"], clear=True, free=False, holder="rank-3")
        assert wanted["want"] == "ep:3/16\nfiles:*"
        assert client.wants()["wants"][0]["ordered"] == "ep:3/16"
        with pytest.raises(RefusedByDaemonError, match="give 'want'"):
            client.want("org/toy", [], clear=False, free=False)
        with pytest.raises(UsageError, match="several orders"):
            client.want("org/toy", ["files:" + "x" * 3000], clear=False, free=False)
        assert client.order("prune", dry_run=True)["kept"][0]["kept"] == "pinned"
        client.order("forget", node="node-4")
        with pytest.raises(RefusedByDaemonError, match="node-1 is alive") as refusal:
            client.order("forget", node="node-1")
        assert refusal.value.code == "E_ALIVE"
        with pytest.raises(RefusedByDaemonError) as refusal:
            client.order("cancel", name="nothing", version=1)
        assert refusal.value.code_of_exit == ExitCode.NOT_FOUND

    async with serving(path, daemon):
        await trio.to_thread.run_sync(give_orders)
    assert daemon.orders == [
        ("cancel", "org/toy", 3),
        ("rm", "org/toy", 2, True),
        ("rollback", "org/toy"),
        ("pin", "org/toy", None),
        ("unpin", "org/toy", 3),
        ("warm", "org/toy", None),
        ("want", "org/toy", ["ep:3/16", "files:*"], True, False, "rank-3", os.getpid()),
        ("prune", "", True),
        ("forget", "node-4"),
    ]


async def test_verification_comes_line_by_line_and_an_unknown_name_is_a_404(tmp_path: Path) -> None:
    path, daemon = tmp_path / "s", FakeDaemon(bad_chunks=3)
    async with serving(path, daemon):
        steps = await trio.to_thread.run_sync(lambda: list(StatusClient(path).verify("org/toy", 3)))
        assert [step["done"] for step in steps] == [False, True]
        assert len(steps[1]["bad_chunks"]) == steps[1]["bad_count"] == 3
        code, answer = await ask(path, post("/v1/verify", '{"name":"nothing","version":1}'))
        assert (code, answer["error"]["code"]) == (404, "E_NOT_FOUND")
        await trio.testing.wait_all_tasks_blocked()
    assert daemon.steps_closed == 1


@pytest.mark.parametrize(
    ("target", "body", "words"),
    [
        ("/v1/deploy", '{"manifest":"/m","budget":""}', "'budget' is empty"),
        ("/v1/rm", '{"name":"m","version":1,"everywhere":""}', "'everywhere' is empty"),
        ("/v1/prune", '{"dry_run":"yes"}', "dry_run must be true or false"),
        ("/v1/untrust", '{"name":"m","version":1,"undo":"1"}', "undo must be true or false"),
    ],
)
async def test_an_order_whose_option_is_empty_or_misspelt_is_none(
    target: str, body: str, words: str, tmp_path: Path
) -> None:
    path, daemon = tmp_path / "s", FakeDaemon()
    async with serving(path, daemon):
        code, answer = await ask(path, post(target, body))
        assert (code, daemon.orders) == (400, [])
        assert words in answer["error"]["message"]


BAD_REQUESTS = {
    "garbage": b"\x00\xff\xfe garbage\r\n\r\n",
    "a line that is not HTTP": b"status please\n\n",
    "TLS hello": bytes.fromhex("16030100a5010000a10303") + b"x" * 200 + b"\r\n\r\n",
    "1 MB line": b"GET /" + b"a" * 1_000_000,
    "a head above 4 KiB": b"GET / HTTP/1.1\r\nHost: d\r\nX: " + b"a" * 5000 + b"\r\n\r\n",
    "a body above 4 KiB": b"POST /v1/rm HTTP/1.1\r\nHost: d\r\nContent-Length: 5000\r\n\r\n" + b"a" * 5000,
    "a length that is no number": b"POST /v1/rm HTTP/1.1\r\nHost: d\r\nContent-Length: -1\r\n\r\n",
    "no host": b"GET /v1/status HTTP/1.1\r\n\r\n",
    "a websocket": b"GET /v1/status HTTP/1.1\r\nHost: d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "a path without a root": b"GET status HTTP/1.1\r\nHost: d\r\n\r\n",
    "a path in disguise": b"GET /v1/%73tatus%ff HTTP/1.1\r\nHost: d\r\n\r\n",
    "HTTP/2 by upgrade": b"GET / HTTP/1.1\r\nHost: d\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
async def test_what_is_no_request_gets_one_json_sentence_and_is_closed(tmp_path: Path, request_bytes: bytes) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()) as guard:
        stream = await trio.open_unix_socket(path)
        async with stream:
            answer = b""
            try:
                await stream.send_all(request_bytes)
                async for part in stream:
                    answer += part
            except trio.BrokenResourceError:
                answer += await _rest(stream)  # it hung up on the megabyte, after saying why
        error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert error["code"] == "E_STATUS_REQUEST"
        assert "Traceback" not in error["message"]
        assert guard.refused == 1
        assert (await ask(path, get("/livez")))[0] == 200


async def _rest(stream: trio.SocketStream) -> bytes:
    try:
        return await stream.receive_some(4096)
    except trio.BrokenResourceError:
        return b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/v1/nothing"), 404),
        (get("/v1/cancel"), 405),
        (post("/v1/status", ""), 405),
        (post("/v1/cancel", "{"), 400),
        (post("/v1/cancel", "[1]"), 400),
        (b'POST /v1/cancel HTTP/1.1\r\nHost: d\r\nContent-Length: 5\r\n\r\n{"\xb1"}', 400),
        (post("/v1/cancel", "[" * 2000), 400),
        (post("/v1/cancel", '{"name":"a"}'), 400),
        (post("/v1/cancel", '{"name":"a","version":1,"now":true}'), 400),
        (post("/v1/cancel", '{"name":["a"],"version":1}'), 400),
        (post("/v1/publish", '{"name":"a","directory":"/d\\u0000"}'), 400),
        (post("/v1/cancel", '{"name":"a","version":"../1"}'), 400),
        (post("/v1/cancel", '{"name":"a","version":' + "9" * 400 + "}"), 400),
    ],
)
async def test_a_wrong_page_or_field_is_named(tmp_path: Path, request_bytes: bytes, status: int) -> None:
    path, daemon = tmp_path / "s", FakeDaemon()
    async with serving(path, daemon):
        code, answer = await ask(path, request_bytes)
    assert code == status
    assert answer["error"]["code"] in ("E_STATUS_REQUEST", "E_USAGE")
    assert answer["schema_version"] == 1
    assert daemon.orders == []


async def test_half_a_request_is_closed_and_half_a_connection_still_gets_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()):
        assert await ask(path, b"", half_close=True) == (0, {})
        code, answer = await ask(path, b"GET /v1/status HT", half_close=True)
        assert (code, answer["error"]["code"]) == (400, "E_STATUS_REQUEST")
        assert (await ask(path, get("/v1/status"), half_close=True))[0] == 200


async def test_a_client_that_says_nothing_is_dropped_after_two_seconds(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()):
        began = trio.current_time()
        code, answer = await ask(path, b"GET /v1/st")
        assert (code, answer["error"]["code"]) == (408, "E_STATUS_REQUEST")
        assert trio.current_time() - began == pytest.approx(2.0)


async def test_a_client_that_stops_reading_is_dropped_and_nobody_else_notices(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, daemon = tmp_path / "s", FakeDaemon(rows=[toy_row(hosts=9)] * 3000)  # 10 MB of answer
    async with serving(path, daemon) as guard:
        stuck = await trio.open_unix_socket(path)
        began = trio.current_time()
        await stuck.send_all(get("/v1/status"))
        assert (await ask(path, get("/livez")))[0] == 200
        while guard.clients:
            await trio.sleep(0.1)
        assert trio.current_time() - began < 3.0
        received = b""
        with pytest.raises(trio.BrokenResourceError):  # what was sent is there, the rest never comes
            while part := await stuck.receive_some(1 << 16):
                received += part
            raise trio.BrokenResourceError
        assert len(received) < 5_000_000
        await stuck.aclose()


async def test_the_daemon_can_stop_while_a_client_is_not_reading(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, daemon = tmp_path / "s", FakeDaemon(rows=[toy_row(hosts=9)] * 3000)
    stuck = None
    began = trio.current_time()
    async with serving(path, daemon):
        stuck = await trio.open_unix_socket(path)
        await stuck.send_all(get("/v1/status"))
        await trio.sleep(0.5)
    assert trio.current_time() - began < 4.0
    await stuck.aclose()


async def test_silent_clients_take_no_place_until_the_bound_of_connections(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon(), clients_max=32, deadline_s=120.0) as guard:
        idle = [await trio.open_unix_socket(path) for _ in range(23)]
        assert (await ask(path, get("/livez")))[0] == 200
        idle.append(await trio.open_unix_socket(path))
        code, answer = await ask(path, b"")
        assert (code, answer["error"]["code"]) == (503, "E_STATUS_REQUEST")
        assert "one user may have 24 connections at the socket" in answer["error"]["message"]
        for stream in idle:
            await stream.aclose()
        while guard.clients:
            await trio.lowlevel.checkpoint()
        assert (await ask(path, get("/livez")))[0] == 200


def follow(since: str) -> bytes:
    return get(f"/v1/events?since={since}&wait_s=60")


def stream_events() -> bytes:
    return b"GET /v1/events HTTP/1.1\r\nHost: d\r\nAccept: text/event-stream\r\n\r\n"


async def test_who_follows_events_or_waits_keeps_nobody_from_asking(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "s"
    daemon = FakeDaemon(rows=[toy_row(0)])
    async with serving(path, daemon) as guard, AsyncExitStack() as stack:
        for request in (follow(f"{daemon.ring.boot}:0"), stream_events(), get("/v1/wait?name=org/toy")) * 32:
            stream = await stack.enter_async_context(await trio.open_unix_socket(path))
            await stream.send_all(request)
        await trio.testing.wait_all_tasks_blocked()
        assert (guard.followers, guard.waits) == (64, 32)
        assert (await ask(path, get("/livez")))[0] == 200
        assert (await ask(path, get("/v1/events?wait_s=0")))[0] == 200
        began = trio.current_time()
        code, answer = await ask(path, follow(f"{daemon.ring.boot}:0"))
        assert (code, round(trio.current_time() - began)) == (503, 2)
        assert "one user may have 64 followers of events at the socket" in answer["error"]["message"]
        assert guard.refused == 1


async def test_ranks_that_ask_together_are_answered_in_turn(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, counts = tmp_path / "s", Counter[int]()
    now = []

    async def app(request: HttpRequest) -> Response:
        now.append(request)
        assert len(now) <= 12, "of one user"
        await trio.sleep(0.1)
        now.remove(request)
        return Response(b"{}")

    async def rank() -> None:
        counts[(await ask(path, get("/v1/models")))[0]] += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(app).serve, bind_unix(path))
        async with trio.open_nursery() as ranks:
            for _ in range(64):
                ranks.start_soon(rank)
        nursery.cancel_scope.cancel()
    assert counts == {200: 64}


async def test_who_gets_no_turn_within_two_seconds_is_told_of_the_limit(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, end = tmp_path / "s", trio.Event()

    async def app(request: HttpRequest) -> Response:
        await end.wait()
        return Response(b"{}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(app).serve, bind_unix(path))
        async with trio.open_nursery() as ranks:
            for _ in range(12):
                ranks.start_soon(ask, path, get("/v1/models"))
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            code, answer = await ask(path, get("/v1/models"))
            assert (code, round(trio.current_time() - began)) == (503, 2)
            assert "one user may have 12 short requests at the socket" in answer["error"]["message"]
            end.set()
        nursery.cancel_scope.cancel()


async def test_who_closes_a_connection_gives_the_place_back(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, daemon = tmp_path / "s", FakeDaemon(rows=[toy_row(0)])
    began = trio.current_time()
    async with serving(path, daemon) as guard:
        for request in (follow(f"{daemon.ring.boot}:0"), stream_events(), get("/v1/wait?name=org/toy")):
            for said_after in (b"", b"more"):
                stream = await trio.open_unix_socket(path)
                await stream.send_all(request)
                await trio.testing.wait_all_tasks_blocked()
                assert guard.followers + guard.waits == 1
                await stream.send_all(said_after)
                await trio.testing.wait_all_tasks_blocked()
                await stream.aclose()
                while guard.clients:
                    await trio.sleep(0.1)
    assert trio.current_time() - began < 6 * 1.2


async def test_who_closes_only_the_sending_half_waits_for_the_answer(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, daemon = tmp_path / "s", FakeDaemon()
    async with serving(path, daemon), trio.open_nursery() as nursery:

        async def happen_later() -> None:
            await trio.sleep(5)
            daemon.ring.append(AlarmEvent(code="E_ALONE", state="begun"), "2026-11-25T12:00:00Z")

        nursery.start_soon(happen_later)
        began = trio.current_time()
        code, answer = await ask(path, follow(f"{daemon.ring.boot}:0"), half_close=True)
        assert (code, len(answer["events"]), round(trio.current_time() - began)) == (200, 1, 5)


async def test_a_publication_goes_on_without_its_client(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    path, ended = tmp_path / "s", trio.Event()

    async def app(request: HttpRequest) -> Response:
        await trio.sleep(10)
        ended.set()
        return Response(b"{}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(app).serve, bind_unix(path))
        async with await trio.open_unix_socket(path) as stream:
            await stream.send_all(post("/v1/publish", "{}"))
        with trio.fail_after(20):
            await ended.wait()
        nursery.cancel_scope.cancel()


async def test_clients_that_are_turned_away_and_reset_do_not_end_the_server(tmp_path: Path) -> None:
    listener = bind_metrics("127.0.0.1", 0)
    port = listener.socket.getsockname()[1]
    guard = RequestGuard(health_app(FakeDaemon()), clients_max=1)
    async with trio.open_nursery() as nursery:
        idle = await trio.open_tcp_stream("127.0.0.1", port)
        for _ in range(20):  # they reset before they are accepted: every write to them fails
            client = socket.create_connection(("127.0.0.1", port))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        nursery.start_soon(guard.serve, listener)
        with trio.fail_after(120):
            while guard.refused < 20:
                await trio.lowlevel.checkpoint()
            await idle.send_all(get("/livez"))
            assert b"200" in await idle.receive_some(100)
        nursery.cancel_scope.cancel()
    await idle.aclose()


async def test_health_says_why_not_and_life_goes_on(tmp_path: Path) -> None:
    path, daemon = tmp_path / "s", FakeDaemon()
    async with serving(path, daemon):
        assert (await ask(path, get("/healthz")))[0] == 200
        daemon.ready = False
        code, answer = await ask(path, get("/readyz"))
        assert (code, answer["ready"], answer["reasons"]) == (503, False, ["the store is full"])
        assert (await ask(path, get("/livez")))[0] == 200


async def test_a_bug_in_an_answer_is_one_sentence_and_a_logged_traceback_and_the_server_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, daemon = tmp_path / "s", FakeDaemon(rows=[None])  # type: ignore[list-item]
    async with serving(path, daemon):
        code, answer = await ask(path, get("/v1/status?name=toy"))
        assert (code, answer["error"]["code"]) == (500, "E_INTERNAL")
        assert (await ask(path, get("/livez")))[0] == 200
    assert "AttributeError" in caplog.text


VALID = get("/v1/status?name=org/toy&version=3") + post("/v1/verify", '{"name":"org/toy","version":3}')


async def test_hundreds_of_mutated_requests_get_an_answer_or_a_sentence(tmp_path: Path) -> None:
    rng = Random(34)
    path, daemon = tmp_path / "s", FakeDaemon()
    async with serving(path, daemon, deadline_s=0.05) as guard:
        for _ in range(500):
            request = bytearray(rng.choice((VALID, get("/metrics"), post("/v1/rollback", '{"name":"nothing"}'))))
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(request))
                match rng.randrange(4):
                    case 0:
                        request[at] = rng.randrange(256)
                    case 1:
                        del request[at : at + rng.randrange(40)]
                    case 2:
                        request[at:at] = rng.randbytes(rng.randrange(30))
                    case _:
                        request[at:at] = request[: rng.randrange(200)]
                request = request or bytearray(b"\n")
            stream = await trio.open_unix_socket(path)
            async with stream:
                await stream.send_all(bytes(request))
                await stream.send_eof()
                answer = b"".join([part async for part in stream])
            assert answer, request
            status = int(answer.split()[1])
            assert status in (200, 400, 404, 405, 408), request
            assert status == 200 or b'"code"' in answer, request
        while guard.clients:
            await trio.lowlevel.checkpoint()


async def test_alarms_are_on_the_page(tmp_path: Path) -> None:
    path = tmp_path / "s"
    alarm = AlarmRow(code="E_EQUIVOCATION", sentence="two hashes for toy@3", since="2027-01-15T08:00:00Z")
    async with serving(path, FakeDaemon(alarms=[alarm])):
        assert (await ask(path, get("/v1/status")))[1]["alarms"][0]["code"] == "E_EQUIVOCATION"


async def test_the_loopback_port_has_metrics_and_health_and_no_orders() -> None:
    daemon = FakeDaemon()
    listener = bind_metrics("127.0.0.1", 0)
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(health_app(daemon)).serve, listener)
        answers = {}
        for request in (get("/metrics"), get("/healthz"), get("/v1/status"), post("/v1/rollback", '{"name":"toy"}')):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                await stream.send_all(request)
                answer = b"".join([part async for part in stream])
            answers[request.split()[1]] = int(answer.split()[1])
        nursery.cancel_scope.cancel()
    assert answers == {b"/metrics": 200, b"/healthz": 200, b"/v1/status": 404, b"/v1/rollback": 404}
    assert daemon.orders == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "example.org"])
async def test_the_port_is_open_at_one_address_that_is_named(address: str) -> None:
    with pytest.raises(SocketPathError) as refusal:
        bind_metrics(address, 0)
    assert (refusal.value.code, refusal.value.exit_code) == ("E_STATUS_SOCKET", ExitCode.USAGE)


async def test_what_time_cures_of_a_socket_is_no_wrong_configuration(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SocketPathError) as refusal:
        bind_metrics("127.0.0.1", taken.getsockname()[1])
    assert refusal.value.exit_code is ExitCode.OTHER, "after 2 a service file leaves it down for good"
    async with bind_unix(tmp_path / "s"):
        with pytest.raises(SocketPathError) as refusal:
            bind_unix(tmp_path / "s")
    assert refusal.value.exit_code is ExitCode.OTHER
    with pytest.raises(SocketPathError, match=r"No such file or directory; see \[status\]") as refusal:
        bind_unix(tmp_path / "gone" / "s")
    assert refusal.value.exit_code is ExitCode.USAGE


async def test_only_the_owner_can_open_the_socket_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    async with bind_unix(tmp_path / "s"):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        assert [entry.name for entry in tmp_path.iterdir()] == ["s"]


async def test_a_socket_left_by_a_killed_daemon_is_replaced_but_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with bind_unix(path):
        with pytest.raises(SocketPathError, match="already answers"):
            bind_unix(path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SocketPathError, match="not a socket"):
        bind_unix(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


async def test_a_path_longer_than_the_kernel_takes_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    daemon = FakeDaemon()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(status_app(daemon, daemon, daemon, daemon.ring)).serve, bind_unix(deep / "s"))
        page = await trio.to_thread.run_sync(StatusClient(deep / "s").status)
        nursery.cancel_scope.cancel()
    assert page["node"]["name"] == "node-1"


def test_a_user_that_may_not_ask_is_told_who_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:  # what connect(2) says to all but root
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(UnixConnection, "connect", refuse)
    with pytest.raises(DaemonUnreachableError, match=r"status.readers says who may ask"):
        StatusClient(tmp_path / "s").status()


async def test_the_client_says_who_does_not_answer(tmp_path: Path) -> None:
    def reason(path: Path, timeout_s: float = 10.0) -> str:
        with pytest.raises(DaemonUnreachableError) as error:
            StatusClient(path, timeout_s=timeout_s).status()
        assert error.value.exit_code is ExitCode.DAEMON_UNREACHABLE
        return str(error.value)

    assert "no daemon answers" in reason(tmp_path / "none")
    path = tmp_path / "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    assert "did not answer within 0.05 s" in reason(path, timeout_s=0.05)

    def impostor() -> None:
        listener.accept()[0].close()  # the one that gave up above
        peer, _ = listener.accept()
        peer.recv(4096)
        peer.sendall(b"220 mail ready\r\n")
        peer.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, impostor)
        words = await trio.to_thread.run_sync(reason, path)
    assert "is not gossipd" in words
    listener.close()


async def test_out_of_descriptors_the_socket_waits_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path, FakeDaemon()):
        client = await trio.open_unix_socket(path)
        taken = []
        limit = len(os.listdir("/proc/self/fd")) + 20
        import resource

        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            os.close(taken.pop())
            late = await trio.open_unix_socket(path)  # connected, but cannot be accepted
            await trio.sleep(0.02)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        await client.send_all(get("/livez"))
        assert b"200" in await client.receive_some(100)
        await late.send_all(get("/livez"))
        assert b"200" in await late.receive_some(100)
        await client.aclose()
        await late.aclose()


async def test_the_socket_of_questions_answers_them_and_takes_no_order(tmp_path: Path) -> None:
    path, daemon = tmp_path / "read", FakeDaemon()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(read_app(daemon, daemon, daemon.ring)).serve, bind_unix(path, mode=0o666))
        client = StatusClient(path)
        page = await trio.to_thread.run_sync(client.status)
        refusals = []
        for verb in ("cancel", "rm", "pin", "prune", "rollback", "forget", "verify", "anything"):
            with pytest.raises(RefusedByDaemonError) as refused:
                await trio.to_thread.run_sync(partial(client.order, verb, name="toy", version=1))
            refusals.append((refused.value.code, refused.value.code_of_exit))
        with pytest.raises(RefusedByDaemonError) as log_refused:
            await trio.to_thread.run_sync(client.log)
        nursery.cancel_scope.cancel()
    assert log_refused.value.code == "E_STATUS_REQUEST", "the log is for the daemon's own user"
    assert page["node"]["name"] == "node-1"
    assert set(refusals) == {("E_READ_SOCKET", 4)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_a_configuration_names_both_sockets_and_a_path_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "gossipd.toml").write_bytes(b'\xef\xbb\xbf[status]\r\nsocket = "a"\nread_socket = "b"\n')
    assert find_sockets(None, str(tmp_path)) == (tmp_path / "a", tmp_path / "b")
    assert find_sockets("/run/x.sock", str(tmp_path)) == (Path("/run/x.sock"), Path("/run/gossipd-read.sock"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe: is not a file; move it away"):
        find_sockets(None, str(tmp_path / "pipe"))


async def test_publishing_is_for_the_user_that_the_kernel_names(tmp_path: Path) -> None:
    daemon, path = FakeDaemon(), tmp_path / "s"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(read_app(daemon, daemon, daemon.ring)).serve, bind_unix(path, mode=0o666))
        client = StatusClient(path)
        lines = await trio.to_thread.run_sync(lambda: list(client.publish(directory="/d", name="m", step=7)))
        assert [line["done"] for line in lines] == [False, True]
        await trio.to_thread.run_sync(
            lambda: list(client.publish(directory="/d", name="m", step=8, keep_last=3, keep_every=100))
        )
        assert daemon.orders == [
            ("publish", "m", os.getuid(), "/d", None, 7, "copy"),
            ("publish", "m", os.getuid(), "/d", None, 8, "copy", 3, 100),
        ]
        status, answer = await ask(path, post("/v1/publish", '{"directory": "/d", "name": "m", "keep_every": 5}'))
        assert (status, answer["error"]["code"]) == (400, "E_USAGE")
        status, answer = await ask(path, post("/v1/adopt", '{"directory": "/d", "manifest": "/m"}'))
        assert (status, answer["error"]["code"]) == (403, "E_READ_SOCKET")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"directory": "/d", "name": "m", "how": "hardlink"}', "hard links would change"),
        ('{"directory": "/d", "name": "m", "version": 1, "step": 1}', "a version or a step, not both"),
        ('{"directory": "/d", "name": "m", "step": -1}', "non-negative"),
        ('{"name": "m"}', "'directory' is missing"),
    ],
)
async def test_publishing_refuses_what_it_cannot_mean(tmp_path: Path, body: str, words: str) -> None:
    daemon = FakeDaemon()
    async with serving(tmp_path / "s", daemon):
        status, answer = await ask(tmp_path / "s", post("/v1/publish", body))
    assert status == 400
    assert words in answer["error"]["message"]
    assert not daemon.orders


class _CountedRows(FakeDaemon):
    """Notes how often another task had had its turn when each row was made."""

    def __init__(self) -> None:
        super().__init__(rows=[toy_row()] * 5)
        self.made: list[int] = []
        self.turns = 0

    def deployments(
        self, name: str | None = None, version: int | None = None, *, hosts_max: int | None = None,
        host: str | None = None,
    ) -> Iterator[DeploymentRow]:  # fmt: skip
        for row in super().deployments(name, version, hosts_max=hosts_max, host=host):
            self.made.append(self.turns)
            yield row

    async def another_task(self) -> None:
        while True:
            self.turns += 1
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("target", ["/v1/status", "/v1/latest?name=org/toy", "/metrics"])
async def test_others_have_the_loop_between_the_rows_of_two_deployments(tmp_path: Path, target: str) -> None:
    path, daemon = tmp_path / "s", _CountedRows()
    async with serving(path, daemon), trio.open_nursery() as nursery:
        nursery.start_soon(daemon.another_task)
        stream = await trio.open_unix_socket(path)
        async with stream:
            await stream.send_all(get(target))
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 ")
        nursery.cancel_scope.cancel()
    assert len(daemon.made) == 5
    assert len(set(daemon.made)) >= 3, "of two tasks each is now first and now second, so two rows may stand together"


@pytest.mark.parametrize(
    ("target", "rows"),
    [
        ("/v1/members", 0), ("/v1/status?name=other", 0), ("/v1/deployments/org/toy/3", 1),
        ("/v1/wait?name=org/toy&hosts=1", 1),
    ],
)  # fmt: skip
async def test_no_question_makes_more_rows_than_it_shows(tmp_path: Path, target: str, rows: int) -> None:
    path, daemon = tmp_path / "s", _CountedRows()
    async with serving(path, daemon):
        await ask(path, get(target))
    assert len(daemon.made) == rows


def test_what_a_job_orders_takes_none_of_the_few_places_for_minutes() -> None:
    names = [name for name in vars(JobCommands) if not name.startswith("_")]
    assert {f"/v1/{name.replace('_', '-')}" for name in names} <= set(WAIT_PATHS)


async def test_a_lack_of_descriptors_is_one_line_and_the_next_client_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gossipd.api.request_guard.EXHAUSTED_PAUSE_S", 0.0)
    listener, before, left = bind_unix(tmp_path / "s"), REFUSALS.descriptors, [errno.EMFILE] * 3
    accept = listener.accept

    async def accept_late() -> trio.SocketStream:
        if left:
            raise OSError(left[0], os.strerror(left.pop()))
        return await accept()

    monkeypatch.setattr(listener, "accept", accept_late)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RequestGuard(health_app(FakeDaemon())).serve, listener)
        with trio.fail_after(120):
            assert (await ask(tmp_path / "s", get("/livez")))[0] == 200
        nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == ["no connection is accepted for now"]
    assert not caplog.records[0].exc_info
    assert REFUSALS.descriptors == before + 3, "for the alarm"
