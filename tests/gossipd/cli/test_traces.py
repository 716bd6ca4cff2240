"""Traces of courses: from a daemon's events to the spans that a collector gets."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from gossipd.api.client import StatusClient
from gossipd.api.events import HostStateEvent
from gossipd.cli import traces as module
from gossipd.cli.main import main
from gossipd.cli.traces import ended_courses, send
from gossipd.core.errors import ExitCode
from gossipd.diagnosis.host_courses import HostCourse
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running

DONE = HostCourse("node-1", "toy@1", "complete", "", (("init", "", 1.0, 2.0), ("downloading", "no_space", 2.0, 4.0)))
FAILED = HostCourse("node-2", "toy@1", "failed", "refused_key", (("init", "", 1.0, 2.0),))


def spans_of(*told: HostCourse) -> list[ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for one in told:
        send(provider.get_tracer("gossipd"), one)
    return list(exporter.get_finished_spans())


def test_a_delivery_is_one_trace_with_a_span_for_each_state() -> None:
    init, downloading, whole = spans_of(DONE)
    assert [one.name for one in (whole, init, downloading)] == ["deliver toy@1", "init", "downloading"]
    assert (whole.start_time, whole.end_time, downloading.start_time) == (10**9, 4 * 10**9, 2 * 10**9)
    assert whole.parent is None
    assert {one.parent.span_id for one in (init, downloading) if one.parent} == {whole.context.span_id}
    assert dict(whole.attributes or {}) == {
        "host.name": "node-1", "gossipd.deployment": "toy@1", "gossipd.state": "complete",
    }  # fmt: skip
    assert dict(downloading.attributes or {}) == {"gossipd.reason": "no_space"}


def test_each_host_has_a_trace_of_its_own_and_a_failure_is_an_error_with_its_reason() -> None:
    found = [one for one in spans_of(DONE, FAILED) if one.parent is None]
    assert len({one.context.trace_id for one in found}) == 2
    assert [one.status.status_code for one in found] == [StatusCode.UNSET, StatusCode.ERROR]
    assert found[1].status.description == "refused_key"


@pytest.mark.parametrize(("is_everywhere", "hosts"), [(False, ["node-1"]), (True, ["node-2", "node-1"])])
def test_only_what_ends_from_now_on_is_told(tmp_path: Path, is_everywhere: bool, hosts: list[str]) -> None:
    daemon = FakeDaemon()

    def tell(host: str, version: int, *states: str) -> None:
        for state in states:
            body = HostStateEvent(host=host, deployment=f"toy@{version}", state=state)
            daemon.ring.append(body, "2026-01-01T00:00:00Z")

    tell("node-1", 1, "init", "complete")
    tell("node-1", 2, "downloading")  # under way when the command begins
    with running(tmp_path / "s", daemon):
        client = StatusClient(tmp_path / "s")
        asked = client.events

        def events(since: str | None, *, wait_s: int = 0) -> dict[str, object]:
            if wait_s and len(daemon.ring.since(None, 0, 9)) == 3:  # all that was before is told
                tell("node-2", 2, "init", "complete")
                tell("node-1", 2, "complete")
            return asked(since, wait_s=wait_s)

        client.events = events  # type: ignore[method-assign]
        found = list(islice(ended_courses(client, is_everywhere=is_everywhere), len(hosts)))
    assert [(one.host, one.deployment) for one in found] == [(host, "toy@2") for host in hosts]


def told_once(*_: object, **__: object) -> Iterator[HostCourse]:
    yield DONE


def test_as_json_each_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ended_courses", told_once)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main(["traces", "--json", "--socket", str(tmp_path / "s")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema_version"], told["host"], told["phases"][0]) == (1, "node-1", ["init", "", 1.0, 2.0])


def test_a_collector_gets_it_by_the_librarys_own_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setattr(module, "ended_courses", told_once)
        monkeypatch.setattr("signal.signal", lambda *_: None)
        assert main(["traces", "--socket", str(tmp_path / "s")]) == 0
        server.shutdown()
    [(path, body)] = got
    assert path == "/v1/traces"
    assert b"deliver toy@1" in body and b"no_space" in body


def test_without_the_library_the_cure_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert main(["traces", "--socket", str(tmp_path / "s")]) == ExitCode.USAGE
    assert "pip install 'gossipd[otel]', or give --json" in capsys.readouterr().err
