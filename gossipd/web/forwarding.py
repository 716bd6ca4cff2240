"""Questions of browsers, passed on to one daemon.

What lives here: which questions are passed on, the answers kept for a second, and the status in the form that the page
asks for: of all deployments without their complete hosts, and of the one that is looked at whole. What does not: HTTP
towards browsers (``server``).

One question is asked at a time, and its answer serves all who ask the same within a second: any number of browsers
costs the daemon as much as one. Only the socket of questions is used, which takes no order: a fault here can change
nothing.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossipd.api.client import DaemonUnreachableError, StatusClient
from gossipd.diagnosis.fluid_bound import fluid_bound
from gossipd.diagnosis.report import summarise

KEPT_S = 0.9  # the page asks each second
BOUND_LASTS = 5  # times as long: what limits a deployment changes slowly, and is made of a whole report
KEPT_MAX = 32  # different questions; a page asks three
ASK_S_MAX = 5.0
PAGE_STATUS, PAGE_REPORT, PAGE_BOUND = "/page/status", "/page/report", "/page/bound"
# What a model may be named is a rule of manifests; here only what cannot leave the route: no %, no dot in front.
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_NAME = rf"{_PART}(?:/{_PART})?"
_HOST = "[A-Za-z0-9._-]{1,64}"
_QUESTION = re.compile(
    rf"{PAGE_STATUS}(?:\?host={_HOST}|\?name={_NAME}&version=[0-9]{{1,16}})?|{PAGE_REPORT}\?name={_NAME}&version=[0-9]{{1,16}}"
    rf"|{PAGE_BOUND}\?name={_NAME}&version=[0-9]{{1,16}}(?:&host={_HOST})?"
    rf"|/v1/sketch\?name={_NAME}&version=[0-9]{{1,16}}(?:&host={_HOST}(?:&bins=256)?)?|/v1/(?:members|peers|status(?:\?name={_NAME}(?:&version=[0-9]{{1,16}})?)?|models(?:\?name={_NAME})?"
    rf"|deployments/{_NAME}/[0-9]{{1,16}})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """One answer in JSON, as it is and compressed. ``status`` is that of HTTP."""

    status: int
    body: bytes
    packed: bytes


def is_question(target: str) -> bool:
    """Whether the target of a GET is passed on: a path, and where the route has one its query."""
    return _QUESTION.fullmatch(target) is not None


def answer(status: int, body: bytes) -> PageAnswer:
    """The answer with its compressed form."""
    return PageAnswer(status, body, gzip.compress(body, compresslevel=6, mtime=0))


class Forwarder:
    """Asks the daemon behind ``read_socket``. Used by any number of threads."""

    def __init__(self, read_socket: Path, *, kept_s: float = KEPT_S) -> None:
        self._client = StatusClient(read_socket, timeout_s=ASK_S_MAX)
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, PageAnswer]] = OrderedDict()
        self._all: tuple[float, tuple[int, bytes]] | None = None
        """The latest answer about all deployments, which most pages are made of."""

    def ask(self, target: str) -> PageAnswer:
        """The answer to a target for which ``is_question``; without a daemon a refusal with its sentence (502)."""
        assert is_question(target), target
        with self._lock:
            kept = self._kept.get(target)
            if kept is not None and time.monotonic() - kept[0] < self._lasts_s(target, kept[1]):
                return kept[1]
            try:
                found = self._answer_to(target)
            except DaemonUnreachableError as error:
                found = answer(502, refusal(error.code, str(error)))
            self._kept[target] = (time.monotonic(), found)
            self._kept.move_to_end(target)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
            return found

    def _lasts_s(self, target: str, kept: PageAnswer) -> float:
        return self._kept_s * (BOUND_LASTS if target.startswith(PAGE_BOUND) and kept.status == 200 else 1)

    def _status(self, narrowed: str) -> PageAnswer:
        """Of all deployments, but of complete hosts only counts, which a look at a thousand hosts of a hundred models
        needs no rows of; of the deployment that is ``narrowed`` to, all hosts; or of one host its rows as well."""
        status, body = self._of_all()
        if status != 200:
            return answer(status, body)
        status, more = self._client.answer_to(f"/v1/status?{narrowed}") if narrowed else (404, b"")
        if status not in (200, 404):
            return answer(status, more)  # without them the page would have hosts missing
        return answer(200, _page_of(body, more if status == 200 else None, is_of_host=narrowed.startswith("host=")))

    def _of_all(self) -> tuple[int, bytes]:
        if self._all is None or time.monotonic() - self._all[0] >= self._kept_s:
            found = self._client.answer_to("/v1/status?hosts_max=0")
            self._all = (time.monotonic(), found)
        return self._all[1]

    def _answer_to(self, target: str) -> PageAnswer:
        if target.startswith(PAGE_STATUS):
            return self._status(target.partition("?")[2])
        if target.startswith((PAGE_REPORT, PAGE_BOUND)):
            which, _, host = target[target.index("?") :].partition("&host=")
            status, body = self._client.answer_to(f"/v1/report{which}")
            if status != 200:
                return answer(status, body)
            return answer(status, _summed_up(body) if target.startswith(PAGE_REPORT) else _bound(body, host))
        return answer(*self._client.answer_to(target))


def _page_of(body: bytes, more: bytes | None, *, is_of_host: bool) -> bytes:
    """A status without the ids of members: random, so that they would be half of what is sent, and shown nowhere.
    ``more``: another status, whose deployments are shown as they are there; of one host's its rows are added."""
    try:
        status = json.loads(body)
        for member in status["members"]:
            member.pop("id", None)
        told = {} if more is None else {row["id"]: row for row in json.loads(more)["deployments"]}
        rows = [(row, told.get(row["id"])) for row in status["deployments"]]
        status["deployments"] = [
            row if found is None else _with_hosts_of(row, found) if is_of_host else found for row, found in rows
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DaemonUnreachableError("the answer is not a status of gossipd") from None
    return json.dumps(status, separators=(",", ":")).encode()


def _with_hosts_of(row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    names = {host["name"] for host in other["hosts"]}
    return row | {"hosts": [host for host in row["hosts"] if host["name"] not in names] + other["hosts"]}


def _summed_up(body: bytes) -> bytes:
    """A report with its summary, as ``gossipd report --json`` prints them."""
    return _of_report(body, lambda told: {"summary": asdict(summarise(told)), "report": told})


def _bound(body: bytes, host: str) -> bytes:
    """What limits a deployment so far, and the price of external bytes, as its report says it; of ``host``, where it is
    given, the reasons over time."""

    def shown(told: dict[str, Any]) -> dict[str, Any]:
        found, row = fluid_bound(told), told["deployment"]
        shown = {"name": row["name"], "version": row["version"], "bound": None if found is None else asdict(found)}
        shown["money_per_gb"] = told.get("money_per_gb", 0.0)
        return shown | ({"reasons": ((told["timeline"] or {}).get("reasons") or {}).get(host, [])} if host else {})

    return _of_report(body, shown)


def _of_report(body: bytes, show: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    try:
        shown = {"schema_version": 1} | show(json.loads(body)["report"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError):
        raise DaemonUnreachableError("the answer is not a report of gossipd") from None
    return json.dumps(shown, separators=(",", ":")).encode()


def refusal(code: str, sentence: str) -> bytes:
    """The form of every refusal, as the daemon's own."""
    return json.dumps({"schema_version": 1, "error": {"code": code, "message": sentence}}).encode() + b"\n"
