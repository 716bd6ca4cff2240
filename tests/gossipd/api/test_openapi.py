"""The OpenAPI document says what is served: every route is in it, and every real answer validates against it."""

from __future__ import annotations

import copy
import json
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gossipd.api.client import StatusClient
from gossipd.api.manifest_row import manifest_row
from gossipd.api.openapi import OPERATIONS, ManifestAnswer, document
from gossipd.api.routes import status_app
from gossipd.api.schema import AlarmRow
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running
from tests.gossipd.manifest.making import manifest

NAMES = {
    "name": "org/toy", "version": 3, "node": "node-4", "dry_run": True, "undo": False, "force": True,
    "directory": "/saved", "manifest": "/manifest", "how": "copy",
}  # fmt: skip
QUESTIONS = [one for one in OPERATIONS if one.method == "get"]
ORDERS = [one for one in OPERATIONS if one.method == "post"]


def closed(schema: Any) -> Any:
    """The same schema, but no object may have a field that it does not name."""
    if isinstance(schema, dict):
        found = {key: closed(value) for key, value in schema.items()}
        return {**found, "additionalProperties": False} if "properties" in found else found
    return [closed(one) for one in schema] if isinstance(schema, list) else schema


def check(answer: object, content: dict[str, Any]) -> None:
    whole = closed(copy.deepcopy(document()))
    jsonschema.Draft202012Validator({**content["schema"], "components": whole["components"]}).validate(answer)


def ask(path: Path, method: str, target: str, body: dict[str, Any] | None) -> tuple[int, str, bytes]:
    """Status, media type and body, through the client's own connection."""
    from gossipd.api.unix_connection import UnixConnection

    connection = UnixConnection(path, 10.0)
    connection.request(method.upper(), target, None if body is None else json.dumps(body).encode())
    answer: HTTPResponse = connection.getresponse()
    found = answer.status, (answer.getheader("content-type") or "").partition(";")[0], answer.read()
    connection.close()
    return found


def test_every_route_that_is_served_is_described_and_no_other() -> None:
    daemon = FakeDaemon()
    served = set()
    for route in status_app(daemon, daemon, daemon, daemon.ring).routes:
        path = route.path.replace(":path}", "}").replace(":int}", "}")
        served |= {(method.lower(), path) for method in route.methods if method != "HEAD"}
    assert served == {(one.method, one.path) for one in OPERATIONS}


def test_the_document_is_whole() -> None:
    whole = document()
    assert whole["openapi"] == "3.1.0"
    references = set(json.dumps(whole).split('"#/components/schemas/')[1:])
    assert {one.partition('"')[0] for one in references} <= set(whole["components"]["schemas"])
    ids = [one["operationId"] for path in whole["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids)) == len(OPERATIONS)
    for schema in whole["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("one", [*QUESTIONS, *ORDERS], ids=lambda one: f"{one.method} {one.path}")
def test_every_real_answer_validates(one: Any, tmp_path: Path) -> None:
    alarm = AlarmRow(code="E_RELOAD", sentence="wrong", since="2026-11-25T00:00:00Z")
    target, said = one.path.format(**NAMES), [manifest_row(manifest())]
    if one.answer is ManifestAnswer:
        target += "?name=org/model"
    elif one.needs:
        target += "?name=org/toy" + ("&round_s=0" if "round_s" in one.query else "")
    body = {name: NAMES[name] for name in (*one.body, *one.optional) if name in NAMES} if one.method == "post" else None
    responses = document()["paths"][one.path][one.method]["responses"]
    for ready in (True, False):
        with running(tmp_path / f"s{ready}", FakeDaemon(alarms=[alarm], ready=ready, manifests=said)):
            status, media, answer = ask(tmp_path / f"s{ready}", one.method, target, body)
        content = responses.get(str(status), responses["default"])["content"][media]
        for line in answer.splitlines() if media == "application/x-ndjson" else [answer]:
            check(line.decode() if media == "text/plain" else json.loads(line), content)


@pytest.mark.parametrize("one", ORDERS, ids=lambda one: one.path)
def test_every_refusal_validates(one: Any, tmp_path: Path) -> None:
    with running(tmp_path / "s", FakeDaemon(problems=["net.port"])):
        status, media, answer = ask(
            tmp_path / "s", "post", one.path, {"loud": True} if one.body or one.optional else None
        )
    assert status >= 400
    check(json.loads(answer), document()["paths"][one.path]["post"]["responses"]["default"]["content"][media])


def test_the_client_reads_what_the_document_promises(tmp_path: Path) -> None:
    with running(tmp_path / "s", FakeDaemon()):
        check(StatusClient(tmp_path / "s").status(), document()["paths"]["/v1/status"]["get"]["responses"]["200"][
            "content"]["application/json"])  # fmt: skip
