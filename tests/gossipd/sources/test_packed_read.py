"""A chunk of many small files: what has come of it stays, whatever happens to one of the files."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.errors import SourceBusyError, SourceNotFoundError
from gossipd.sources.location import Location
from gossipd.sources.packed_read import SegmentTurns
from tests.gossipd.sources.models import sign
from tests.gossipd.sources.test_reader import PATIENT, Seat
from tests.servers import Fault, FaultServer, Misbehaviour, fault_server

FILES = {f"{number:02}.json": Random(number).randbytes(300) for number in range(40)}
QUIET = replace(PATIENT, backoff_first_s=0.002, backoff_max_s=0.01)
BUSY = Fault(Misbehaviour.STATUS, status=503)
PLACE = Location.of(parse_source_url("http://127.0.0.1/"), "00.json")


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server(dict(FILES)) as running:
        yield running


class Counted:
    """Faults by the number of the request."""

    def __init__(self, *refused: int) -> None:
        self.refused = frozenset(refused)
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self) -> Fault | None:
        with self._lock:
            self.count += 1
            return BUSY if self.count in self.refused else None


def test_of_many_files_only_those_that_were_refused_are_asked_for_again(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "next_fault", Counted(5, 12, 13, 30))
    outcome = Seat(sign(FILES, server.url), settings=QUIET).read()
    assert (outcome.failed, outcome.errors) == ((), ())
    assert len(server.gets()) == len(FILES) + 4


def test_storage_that_refuses_one_file_for_ever_is_given_up(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "next_fault", Counted(*range(20, 10_000)))
    outcome = Seat(sign(FILES, server.url), settings=QUIET).read()
    assert [error.code for error in outcome.errors] == ["E_SOURCE_BUSY"]
    assert len(outcome.failed) == 1
    assert len(server.gets()) < 20 + 160, "what comes no more ends by the number of refusals in a row"


def test_mirrors_that_each_lack_another_file_have_the_chunk_between_them() -> None:
    with ExitStack() as stack:
        mirrors = [stack.enter_context(fault_server(dict(FILES))) for _ in range(2)]
        del mirrors[0].objects["07.json"], mirrors[1].objects["31.json"]
        outcome = Seat(sign(FILES, *(mirror.url for mirror in mirrors)), settings=QUIET).read()
        asked = Counter(seen.path for mirror in mirrors for seen in mirror.gets())
    assert outcome.failed == ()
    assert asked.total() <= len(FILES) + 2, "each file comes once"


def test_where_two_mirrors_do_not_hash_together_one_sends_all_of_it() -> None:
    with ExitStack() as stack:
        lying, *honest = (stack.enter_context(fault_server(dict(FILES))) for _ in range(3))
        del lying.objects["00.json"]
        lying.objects["31.json"] = bytes(300)
        seat = Seat(sign(FILES, lying.url, *(mirror.url for mirror in honest)), settings=QUIET)
        outcome = seat.read()
    assert outcome.failed == ()
    assert [error.code for error in outcome.errors] == ["E_SOURCE_NOT_FOUND"], "no honest mirror is held for a liar"
    assert seat.store.mismatches == 1


@pytest.mark.parametrize("connections", [1, 4])
def test_small_files_come_side_by_side_within_the_connections(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    under_way, most, both = 0, 0, threading.Event()
    handler_type: Any = server._server.RequestHandlerClass
    send = handler_type.do_GET

    def counted(handler: object) -> None:
        nonlocal under_way, most
        with server.lock:
            under_way += 1
            most = max(most, under_way)
            if under_way > 1:
                both.set()
        if connections > 1:
            both.wait(15)  # the first answer waits until two have asked
            both.set()
        with server.lock:
            under_way -= 1
        send(handler)

    monkeypatch.setattr(handler_type, "do_GET", counted)
    settings = replace(PATIENT, read_timeout_s=60.0, connections=connections)
    assert Seat(sign(FILES, server.url), settings=settings).read().failed == ()
    assert 1 < most <= 4 if connections > 1 else most == 1, "requests under way"


def test_a_lacking_file_ends_the_pass_only_where_no_other_mirror_is_left() -> None:
    for is_only, after in ((True, None), (False, 1)):
        turns = SegmentTurns(deque([0, 1, 2]), frozenset({0, 1, 2}), is_only)
        assert turns.take(is_side=False) == 0
        turns.failed(PLACE, SourceNotFoundError(PLACE.shown, "not there"))
        assert turns.take(is_side=True) == after


def test_after_a_refusal_no_further_request_begins_and_later_failures_say_nothing() -> None:
    turns = SegmentTurns(deque([0, 1, 2]), frozenset({0, 1}), is_only=False)
    assert [turns.take(is_side=True), turns.take(is_side=True), turns.take(is_side=True)] == [0, 1, None]
    turns.failed(PLACE, SourceBusyError(PLACE.shown, "the server is busy"))
    turns.failed(PLACE, SourceNotFoundError(PLACE.shown, "not there"))
    assert [missed.error.code for missed in turns.missed] == ["E_SOURCE_BUSY"]
    assert turns.take(is_side=False) is None


def test_threads_begin_beside_a_read_when_others_have_ended(server: FaultServer) -> None:
    seat = Seat(sign(FILES, server.url), settings=replace(QUIET, connections=4))
    packed, begun = seat.reader._packed, []
    packed._reads = lambda: 4 if len(server.gets()) < 5 else 1
    may_begin = packed._may_begin

    def counted() -> bool:
        begun.append(may_begin())
        return begun[-1]

    packed._may_begin = counted  # type: ignore[method-assign]
    assert seat.read().failed == ()
    assert not begun[0] and any(begun), "not at first, and then it did"
