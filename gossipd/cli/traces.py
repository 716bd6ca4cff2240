"""``gossipd traces``: a trace of each deployment and host, sent by OpenTelemetry (extra ``gossipd[otel]``).

What lives here: following the daemon's events, and courses as spans. What does not: joining events
(``diagnosis.host_courses``); where traces go and how (OpenTelemetry's exporter, by its own variables).

It is a process of its own, so that the daemon needs no HTTP client and no library that it could wait for.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gossipd.api.client import DaemonUnreachableError, StatusClient
from gossipd.cli.events import RETRY_S, WAIT_S
from gossipd.cli.options import daemon_options, examples
from gossipd.core.errors import UsageError
from gossipd.diagnosis.host_courses import FAILED, HostCourse, HostCourses

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer


@click.command(
    epilog=examples("OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 gossipd traces", "gossipd traces --json")
)
@click.option("--everywhere", is_flag=True, help="Of all hosts, as this daemon hears of them; else of its own.")
@daemon_options
def traces(*, everywhere: bool, client: StatusClient, as_json: bool) -> None:
    """Send a trace of each deployment that ends on this host: how long it was in each state, and why.

    Until Ctrl-C or SIGTERM; waits for a daemon. Where to is OpenTelemetry's OTEL_EXPORTER_OTLP_ENDPOINT, by HTTP. With
    --json nothing is sent: each trace is one line.
    """
    provider = None if as_json else otlp_provider()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for one in ended_courses(client, is_everywhere=everywhere):
            if provider is None:
                click.echo(json.dumps({"schema_version": 1, **asdict(one)}))
            else:
                send(provider.get_tracer("gossipd"), one)
    finally:
        if provider is not None:
            provider.shutdown()


def ended_courses(client: StatusClient, *, is_everywhere: bool) -> Iterator[HostCourse]:
    """Those that end from now on, without end. What is under way was begun by events that the daemon still has."""
    found, position, own, is_past = HostCourses(), None, "", True
    while True:
        try:
            own = own or client.status()["node"]["name"]
            answer = client.events(position, wait_s=0 if is_past else WAIT_S)
        except DaemonUnreachableError:
            time.sleep(RETRY_S)
            continue
        for row in answer["events"]:
            position = f"{row['boot']}:{row['id']}"
            ended = found.heard(row)
            if ended is not None and not is_past and (is_everywhere or ended.host == own):
                yield ended
        is_past = is_past and bool(answer["events"])


def otlp_provider() -> TracerProvider:
    """The library's own queue and exporter: what the collector does not take is dropped. Raises UsageError."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise UsageError("traces are sent by OpenTelemetry: pip install 'gossipd[otel]', or give --json") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "gossipd"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def send(tracer: Tracer, course: HostCourse) -> None:
    """A span of the whole, and one below it for each phase."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Status, StatusCode, set_span_in_context

    begins, ends = _ns(course.phases[0][2]), _ns(course.phases[-1][3])
    told = {"host.name": course.host, "gossipd.deployment": course.deployment, "gossipd.state": course.state}
    whole = tracer.start_span(f"deliver {course.deployment}", Context(), start_time=begins, attributes=told)
    if course.state in FAILED:
        whole.set_status(Status(StatusCode.ERROR, course.reason))
    for state, reason, begins_s, ends_s in course.phases:
        below = tracer.start_span(state, set_span_in_context(whole, Context()), start_time=_ns(begins_s))
        if reason:
            below.set_attribute("gossipd.reason", reason)
        below.end(_ns(ends_s))
    whole.end(ends)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
