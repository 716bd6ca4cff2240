"""The reader against a server that misbehaves: every kind of wrong answer has its name, and none reaches the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest
from msgspec.structs import replace

from gossipd.core.events import ChunkArriving, ChunkEnding, FailReason
from gossipd.core.reasons import Heals, HostReason, reason_of_code
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import SourceUrl
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.addresses import resolve
from gossipd.sources.assembly import Delivery
from gossipd.sources.errors import SourceError
from gossipd.sources.reader import ReadOutcome, SourceReader
from gossipd.sources.settings import SourceSettings
from tests.gossipd.sources.models import CHUNK_BYTES, MemoryStore, sign, toy_files
from tests.servers import Fault, FaultServer, Misbehaviour, fault_server

FILES = toy_files(Random(1))
# Pauses and time-outs that a test can afford; the rules are the same.
QUICK = SourceSettings(
    read_timeout_s=0.3, connect_timeout_s=0.5, rate_grace_s=0.2, backoff_first_s=0.002, backoff_max_s=0.01,
    patience_s=5.0, retry_after_max_s=0.02, touch_bytes_max=16 * 1024, whole_timeout_s=0.5,
    whole_file_bytes_max=50,
)  # fmt: skip
# Where another end than that by time is looked for: a slow machine is no fault of the server.
PATIENT = replace(
    QUICK, read_timeout_s=20.0, connect_timeout_s=20.0, rate_grace_s=20.0, whole_timeout_s=20.0, patience_s=120.0
)  # fmt: skip
ONE_FILE = {"a.bin": Random(2).randbytes(3 * CHUNK_BYTES)}


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server(dict(FILES)) as running:
        yield running


class Seat:
    """A reader, its store, and one deployment."""

    def __init__(
        self, manifest: Manifest, *, settings: SourceSettings = PATIENT, allow: list[str] | None = None,
        pool_bytes: int = 4 * 1024 * 1024, find: Callable[[SourceUrl, str], tuple[str, ...]] = resolve,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.manifest = manifest
        self.store = MemoryStore(manifest)
        self.pool = BufferPool(pool_bytes)
        self.throttle = RateLimit()
        self.listed: list[int] = []
        self.reader = SourceReader(
            Delivery(self.store, self.pool, IncomingChunks(self._post)), throttle=self.throttle,
            policy=SourcePolicy.parse(allow or ["http://127.0.0.1:*", "http://localhost:*"]),
            settings=settings, rng=Random(3), find=find, clock=clock,
        )  # fmt: skip

    def _post(self, event: ChunkArriving | ChunkEnding) -> None:
        if isinstance(event, ChunkArriving):
            self.listed.append(event.chunk)

    def read(self, *chunks: int, is_awaited: bool = False) -> ReadOutcome:
        wanted = chunks or tuple(range(self.manifest.chunk_count))
        outcome = self.reader.read_chunks(self.manifest, wanted, is_awaited=is_awaited)
        assert sorted(outcome.stored + outcome.failed) == sorted(wanted), "a chunk is stored or failed, never neither"
        assert self.pool.statistics().leased_bytes == 0, "memory was kept"
        assert self.reader.statistics().in_flight == 0
        return outcome


def one_file(server: FaultServer, settings: SourceSettings = PATIENT) -> Seat:
    server.objects.update(ONE_FILE)
    return Seat(sign(ONE_FILE, server.url), settings=settings)


def test_all_chunks_of_large_packed_and_empty_files_arrive(server: FaultServer) -> None:
    seat = Seat(sign(FILES, f"{server.url}/"))
    outcome = seat.read()
    assert outcome.failed == ()
    assert outcome.reason is None
    assert len(seat.store.chunks) == seat.manifest.chunk_count


def test_an_object_that_is_read_at_once_is_asked_for_once(server: FaultServer) -> None:
    seat = one_file(server)
    seat.read(0, 1, 2)
    assert [seen.range for seen in server.gets()] == [f"bytes=0-{3 * CHUNK_BYTES - 1}"]


def test_adjacent_chunks_of_one_file_are_one_request_after_one_look(server: FaultServer) -> None:
    seat = one_file(server)
    seat.read(0, 1)
    assert [seen.range for seen in server.gets()] == ["bytes=0-0", f"bytes=0-{2 * CHUNK_BYTES - 1}"]
    assert "if-match" not in server.gets()[1].headers, "replicas behind one name have tags of their own"


def test_a_file_that_is_seen_already_is_not_looked_at_again(server: FaultServer) -> None:
    seat = one_file(server)
    seat.read(0)
    seat.read(1)
    assert len(server.gets()) == 3


def test_small_files_cost_one_request_each(server: FaultServer) -> None:
    seat = Seat(sign(FILES, server.url), settings=SourceSettings())
    packed = range(9, seat.manifest.chunk_count)
    assert seat.read(*packed).failed == ()
    paths = [seen.path for seen in server.gets()]
    assert len(paths) == len({(seen.path, seen.range) for seen in server.gets()})
    assert set(paths) == {"/config.json", "/nested/tokenizer.json", "/vocab%20with%20space.txt"}


def test_the_manifest_may_name_its_directory_with_or_without_a_slash(server: FaultServer) -> None:
    for source in (server.url, f"{server.url}/"):
        assert Seat(sign(FILES, source)).read().failed == ()


# What one misbehaviour on the large read becomes when it goes on and on.
ALWAYS = [
    (Misbehaviour.SHORT_BODY, "E_SOURCE_SHORT", FailReason.SOURCE),
    (Misbehaviour.SHORT_LENGTH, "E_SOURCE_SHORT", FailReason.SOURCE),
    (Misbehaviour.WHOLE, "E_SOURCE_WHOLE_ONLY", FailReason.WHOLE_ONLY),
    (Misbehaviour.WRONG_RANGE, "E_SOURCE_RANGE", FailReason.SOURCE),
    (Misbehaviour.HTML, "E_SOURCE_RANGE", FailReason.SOURCE),
    (Misbehaviour.GZIP, "E_SOURCE_ENCODING", FailReason.SOURCE),
    (Misbehaviour.LYING_RANGE, "E_SOURCE_HASH", FailReason.CORRUPT),
    (Misbehaviour.FLIP, "E_SOURCE_HASH", FailReason.CORRUPT),
    (Misbehaviour.HANG, "E_SOURCE_SLOW", FailReason.SLOW),
    (Misbehaviour.HANG_BODY, "E_SOURCE_SLOW", FailReason.SLOW),
    (Misbehaviour.DRIP, "E_SOURCE_SLOW", FailReason.SLOW),
    (Misbehaviour.RESET, "E_SOURCE_UNREACHABLE", FailReason.SOURCE),
]


def against(kind: Misbehaviour) -> SourceSettings:
    """What a server that does this is read with."""
    return QUICK if kind in (Misbehaviour.HANG, Misbehaviour.HANG_BODY, Misbehaviour.DRIP) else PATIENT


@pytest.mark.parametrize(("kind", "code", "reason"), ALWAYS)
def test_a_wrong_answer_to_the_first_look_is_named_and_never_data(
    server: FaultServer, kind: Misbehaviour, code: str, reason: FailReason
) -> None:
    server.always = Fault(kind)
    seat = one_file(server, against(kind))
    outcome = seat.read(0)
    if kind in (Misbehaviour.FLIP, Misbehaviour.LYING_RANGE, Misbehaviour.SHORT_LENGTH):
        return  # one byte cannot show these; the next test does
    assert outcome.stored == ()
    assert outcome.errors[-1].code == code
    assert outcome.reason is reason


@pytest.mark.parametrize(("kind", "code", "reason"), ALWAYS)
def test_a_wrong_answer_to_a_large_read_is_named_and_never_data(
    server: FaultServer, kind: Misbehaviour, code: str, reason: FailReason
) -> None:
    seat = one_file(server, against(kind))
    assert seat.reader.probe(seat.manifest).readable
    server.always = Fault(kind)
    outcome = seat.read(1)
    assert outcome.stored == ()
    assert outcome.errors[-1].code == code
    assert outcome.reason is reason
    assert f"{server.url}/a.bin" in str(outcome.errors[-1])


def test_a_range_that_says_that_it_holds_more_is_read_as_far_as_it_is_wanted(server: FaultServer) -> None:
    server.always = Fault(Misbehaviour.LONG)
    outcome = one_file(server, PATIENT).read()
    assert (outcome.failed, outcome.errors) == ((), ())


@pytest.mark.parametrize(("kind", "code", "reason"), ALWAYS)
def test_a_wrong_answer_of_a_host_that_was_fast_is_named_and_never_data(
    server: FaultServer, kind: Misbehaviour, code: str, reason: FailReason
) -> None:
    files = {"a.bin": Random(9).randbytes(8 * CHUNK_BYTES)}
    server.objects.update(files)
    seat = Seat(sign(files, server.url), settings=replace(against(kind), whole_rate_bytes_min=1))
    assert seat.read(0, 1, 2, 3).failed == ()
    assert seat.reader.reads_whole(seat.manifest)
    server.always = Fault(kind)
    outcome = seat.read(5)
    assert outcome.stored == ()
    assert outcome.errors[-1].code == code
    assert outcome.reason is reason
    assert not seat.reader.reads_whole(seat.manifest), "it has to show again that it is fast"


def test_a_fast_host_is_read_in_pieces_when_others_wait_for_the_chunk(server: FaultServer) -> None:
    chunk_bytes = 2 * 1024 * 1024  # several of obstore's pieces
    files = {"a.bin": Random(10).randbytes(3 * chunk_bytes)}
    server.objects.update(files)
    manifest = sign(files, server.url, chunk_bytes=chunk_bytes)
    seat = Seat(manifest, settings=replace(PATIENT, whole_rate_bytes_min=1), pool_bytes=16 * 1024 * 1024)
    assert seat.read(0).failed == ()
    assert seat.reader.reads_whole(seat.manifest)
    seat.listed.clear()
    assert seat.read(1).failed == ()
    assert seat.listed == [], "a whole range can be relayed when all of it is here"
    assert seat.read(2, is_awaited=True).failed == ()
    assert seat.listed == [2]


def test_a_fast_host_is_read_in_pieces_when_there_is_a_limit(server: FaultServer) -> None:
    server.objects.update(ONE_FILE)
    seat = Seat(sign(ONE_FILE, server.url), settings=replace(PATIENT, whole_rate_bytes_min=1))
    seat.read()
    assert seat.reader.reads_whole(seat.manifest)
    seat.throttle.set_rate(1e9)
    assert not seat.reader.reads_whole(seat.manifest)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(kind, code) for kind, code, _ in ALWAYS if kind is not Misbehaviour.WHOLE],
)
def test_a_wrong_answer_to_a_small_read_is_named_and_never_data(
    server: FaultServer, kind: Misbehaviour, code: str
) -> None:
    server.objects["small"] = Random(4).randbytes(5000)
    seat = Seat(sign({"small": server.objects["small"]}, server.url), settings=against(kind))
    server.always = Fault(kind)
    outcome = seat.read(0)
    assert outcome.stored == ()
    assert outcome.errors[-1].code == code


@pytest.mark.parametrize(
    ("status", "code", "requests_max"),
    [
        (401, "E_SOURCE_AUTH", 1), (403, "E_SOURCE_AUTH", 1), (404, "E_SOURCE_NOT_FOUND", 1),
        (410, "E_SOURCE_NOT_FOUND", 1), (412, "E_SOURCE", 1), (416, "E_SOURCE_TRUNCATED", 1),
        (400, "E_SOURCE", 1), (301, "E_SOURCE_REDIRECT", 1), (302, "E_SOURCE_REDIRECT", 1),
        (307, "E_SOURCE_REDIRECT", 1), (500, "E_SOURCE_UNREACHABLE", 4), (503, "E_SOURCE_BUSY", 9),
        (429, "E_SOURCE_BUSY", 9),
    ],
)  # fmt: skip
def test_a_status_that_stays_is_named_and_asked_a_bounded_number_of_times(
    server: FaultServer, status: int, code: str, requests_max: int
) -> None:
    server.always = Fault(Misbehaviour.STATUS, status=status, headers={"Location": f"{server.url}/b.safetensors"})
    seat = one_file(server)
    outcome = seat.read()
    assert outcome.stored == ()
    assert outcome.errors[-1].code == code
    assert len(server.gets()) <= requests_max
    assert {seen.path for seen in server.gets()} == {"/a.bin"}


def test_a_refusal_is_remembered_so_that_the_planner_cannot_make_a_storm(server: FaultServer) -> None:
    seat = Seat(sign(FILES, f"{server.url}/nowhere"))
    for _ in range(20):
        for chunk in range(seat.manifest.chunk_count):
            assert seat.read(chunk).errors[-1].code == "E_SOURCE_NOT_FOUND"
    assert len(server.gets()) <= 3


def test_a_probe_asks_again_after_a_refusal(server: FaultServer) -> None:
    seat = one_file(server)
    server.faults.append(Fault(Misbehaviour.STATUS, status=404))
    assert seat.read(0).reason is FailReason.SOURCE
    assert seat.read(0).stored == ()
    assert seat.reader.probe(seat.manifest).readable
    assert seat.read(0).stored == (0,)


@pytest.mark.parametrize("kind", [Misbehaviour.SHORT_BODY, Misbehaviour.FLIP, Misbehaviour.RESET, Misbehaviour.HANG])
def test_one_passing_fault_is_repaired_and_costs_one_repeat(server: FaultServer, kind: Misbehaviour) -> None:
    read_timeout_s = 1.0 if kind is Misbehaviour.HANG else 20.0  # a slow machine is no second fault
    seat = one_file(server, replace(QUICK, read_timeout_s=read_timeout_s, rate_grace_s=20.0))
    seat.reader.probe(seat.manifest)
    seat.reader._requests._web.close()  # a kept connection that breaks is no fault
    server.faults.append(Fault(kind))
    outcome = seat.read()
    assert outcome.failed == ()
    statistics = seat.reader.statistics()
    assert statistics.retries == 1
    assert sum(count for (_, result), count in statistics.results.items() if result != "ok") == 1


def test_what_had_come_before_a_connection_broke_is_not_asked_for_again(server: FaultServer) -> None:
    seat = one_file(server)
    seat.reader.probe(seat.manifest)
    server.faults.append(Fault(Misbehaviour.SHORT_BODY))
    assert seat.read().failed == ()
    whole = 3 * CHUNK_BYTES
    assert server.gets()[-1].range == f"bytes={whole // 2}-{whole - 1}"


def test_a_wrong_chunk_does_not_hold_up_the_others(server: FaultServer) -> None:
    bad = bytearray(ONE_FILE["a.bin"])
    bad[CHUNK_BYTES + 5] ^= 1
    seat = one_file(server)
    server.objects["a.bin"] = bytes(bad)
    outcome = seat.read()
    assert outcome.stored == (0, 2)
    assert outcome.failed == (1,)
    assert outcome.reason is FailReason.CORRUPT
    assert seat.store.mismatches == 2


@pytest.mark.parametrize("status", [500, 503])
def test_a_burst_of_refusals_is_waited_out_with_one_scout(server: FaultServer, status: int) -> None:
    seat = one_file(server)
    seat.reader.probe(seat.manifest)
    for _ in range(3):
        server.faults.append(Fault(Misbehaviour.STATUS, status=status))
    assert seat.read().failed == ()
    # the one that failed, two touches that failed and one that did not, and the read
    ranges = [seen.range for seen in server.gets()[1:]]
    assert ranges[1:4] == ["bytes=0-0"] * 3
    assert len(ranges) == 5


def test_many_reads_in_a_burst_cost_few_requests_more_than_the_least(server: FaultServer) -> None:
    files = {"big.bin": Random(5).randbytes(40 * CHUNK_BYTES)}
    server.objects.update(files)
    seat = Seat(sign(files, server.url))
    seat.reader.probe(seat.manifest)
    for _ in range(6):
        server.faults.append(Fault(Misbehaviour.STATUS, status=503, headers={"Retry-After": "1"}))
    outcomes: list[ReadOutcome] = []
    threads = [
        threading.Thread(target=lambda at=at: outcomes.append(seat.reader.read_chunks(seat.manifest, [at])))
        for at in range(40)
    ]
    for begun in range(0, 40, 4):
        for thread in threads[begun : begun + 4]:
            thread.start()
        for thread in threads[begun : begun + 4]:
            thread.join()
    assert all(outcome.failed == () for outcome in outcomes)
    refused = 6
    assert len(server.gets()) - refused <= 1.2 * (40 + 1)


def test_retry_after_is_read_and_obeyed(server: FaultServer) -> None:
    seat = Seat(sign(ONE_FILE, server.url), settings=SourceSettings(backoff_first_s=0.001, patience_s=5.0))
    server.objects.update(ONE_FILE)
    server.faults.append(Fault(Misbehaviour.STATUS, status=503, headers={"Retry-After": "30"}))
    outcome = seat.read()
    assert outcome.errors[-1].code == "E_SOURCE_BUSY", "half a minute is more than a read waits; it was not cut short"
    assert len(server.gets()) == 1


def test_an_object_whose_tag_changes_is_read_on_while_its_bytes_are_right(server: FaultServer) -> None:
    seat = one_file(server)
    for chunk in range(3):
        server.etags["a.bin"] = f'"replica-{chunk}"'
        outcome = seat.read(chunk)
        assert (outcome.stored, outcome.errors) == ((chunk,), ())


@pytest.mark.parametrize(
    ("fault", "body", "code"),
    [
        (Fault(Misbehaviour.GZIP), ONE_FILE["a.bin"], "E_SOURCE_ENCODING"),
        (Fault(Misbehaviour.HTML), ONE_FILE["a.bin"], "E_SOURCE_RANGE"),
        (Fault(Misbehaviour.STATUS, status=302, headers={"Location": "/b"}), ONE_FILE["a.bin"], "E_SOURCE_REDIRECT"),
        (Fault(Misbehaviour.STATUS, status=404), ONE_FILE["a.bin"], "E_SOURCE_NOT_FOUND"),
        (None, ONE_FILE["a.bin"][:-9], "E_SOURCE_TRUNCATED"),
        (None, ONE_FILE["a.bin"] + b"x", "E_SOURCE_LONG"),
        (None, bytes(len(ONE_FILE["a.bin"])), "E_SOURCE_HASH"),
    ],
)
def test_whatever_is_wrong_with_an_object_it_is_read_soon_after_its_cure(
    server: FaultServer, fault: Fault | None, body: bytes, code: str
) -> None:
    later_s = 0.0
    server.objects["a.bin"], server.always = body, fault
    seat = Seat(sign(ONE_FILE, server.url), clock=lambda: time.monotonic() + later_s)
    outcome = seat.read()
    assert outcome.stored == () and outcome.errors[-1].code == code
    server.objects["a.bin"], server.always = ONE_FILE["a.bin"], None
    later_s = PATIENT.refusal_remembered_s + 1.0
    assert seat.read().failed == ()
    reason = reason_of_code(code, HostReason.OTHER)
    assert reason.is_of_storage and reason.heals is Heals.BY_ITSELF, "what a host says of it"


def test_a_storage_too_slow_for_two_is_read_by_one_that_moves(server: FaultServer) -> None:
    server.always = Fault(Misbehaviour.DRIP, rate=200_000)
    seat = one_file(server, replace(PATIENT, rate_grace_s=0.2, rate_bytes_min=1 << 20, rate_alone_bytes_min=1000))
    assert seat.read().failed == ()
    assert seat.reader.statistics().results["http", "E_SOURCE_SLOW"] == 2, "and no further one is thrown away"


def test_a_replaced_object_is_reported_when_its_bytes_are_wrong_and_both_tags_are_named(server: FaultServer) -> None:
    seat = one_file(server)
    assert seat.read(0).stored == (0,)
    old = server.etag("a.bin")
    server.etags["a.bin"] = '"v2"'
    server.objects["a.bin"] = bytes(len(ONE_FILE["a.bin"]))
    outcome = seat.read(1, 2)
    error = outcome.errors[-1]
    assert isinstance(error, SourceError)
    assert (error.code, error.is_permanent, outcome.reason) == ("E_SOURCE_CHANGED", True, FailReason.CORRUPT)
    assert f'{server.url}/a.bin: the object has changed: first seen as {old}, now "v2"; cure: put' in str(error)
    asked = len(server.gets())
    assert seat.read(1).errors[-1].code == "E_SOURCE_CHANGED"
    assert len(server.gets()) == asked, "left alone for a while"


@pytest.mark.parametrize(("change", "code"), [(-10, "E_SOURCE_TRUNCATED"), (10, "E_SOURCE_LONG")])
def test_an_object_of_another_length_is_not_the_published_one(server: FaultServer, change: int, code: str) -> None:
    seat = one_file(server)
    body = ONE_FILE["a.bin"]
    server.objects["a.bin"] = body[:change] if change < 0 else body + bytes(change)
    assert seat.read(0).errors[-1].code == code


def test_mirrors_are_tried_in_order_for_what_is_still_missing(server: FaultServer) -> None:
    server.objects.update(ONE_FILE)
    with fault_server({"a.bin": ONE_FILE["a.bin"][:-5] + b"wrong"}) as half_bad:
        seat = Seat(sign(ONE_FILE, f"{server.url}/nowhere", half_bad.url, server.url))
        outcome = seat.read()
        assert outcome.failed == ()
        assert outcome.reason is None
        assert [error.code for error in outcome.errors] == ["E_SOURCE_NOT_FOUND", "E_SOURCE_HASH"]
        assert server.gets()[-1].range == f"bytes={2 * CHUNK_BYTES}-{3 * CHUNK_BYTES - 1}"


def test_a_source_that_policy_does_not_list_is_never_connected_to(server: FaultServer) -> None:
    seat = Seat(sign(FILES, server.url), allow=["https", "s3"])
    outcome = seat.read()
    assert outcome.errors[-1].code == "E_SOURCE_FORBIDDEN"
    assert server.seen == []


def test_a_name_that_resolves_to_a_forbidden_address_is_never_connected_to(server: FaultServer) -> None:
    url = f"http://storage.example:{server.port}"
    seat = Seat(
        sign(ONE_FILE, url), allow=["http://*.example:*", "http://storage.example:*"], find=lambda *_: ("127.0.0.1",)
    )
    assert seat.read(0).errors[-1].code == "E_SOURCE_FORBIDDEN"
    assert server.seen == []


def test_an_admitted_source_is_asked_no_more_when_the_policy_or_its_address_changes(server: FaultServer) -> None:
    server.objects.update(ONE_FILE)
    url, found, later_s = f"http://storage.example:{server.port}", ["127.0.0.1"], [0.0]
    allow = [f"http://127.0.0.1:{server.port}", url]
    brief = replace(PATIENT, patience_s=1.0)
    seat = Seat(
        sign(ONE_FILE, url), settings=brief, allow=allow, find=lambda *_: tuple(found),
        clock=lambda: time.monotonic() + later_s[0],
    )  # fmt: skip
    assert not seat.read(0).failed
    seat.reader.set_policy(SourcePolicy.parse(["https"]))
    assert seat.read(1).errors[-1].code == "E_SOURCE_FORBIDDEN"
    seat.reader.set_policy(SourcePolicy.parse(allow))
    seat.reader.look_again()
    assert not seat.read(1).failed
    found[0] = "127.0.0.2"
    later_s[0] = PATIENT.admission_s
    for _ in range(2):  # its first look has left the address among those that are known
        assert seat.read(2).errors[-1].code == "E_SOURCE_FORBIDDEN"
        seat.reader.look_again()


def test_a_redirect_is_not_followed_even_when_it_comes_late(server: FaultServer) -> None:
    with fault_server(dict(ONE_FILE)) as elsewhere:
        seat = one_file(server)
        server.always = Fault(Misbehaviour.STATUS, status=302, headers={"Location": f"{elsewhere.url}/a.bin"})
        assert seat.read().errors[-1].code == "E_SOURCE_REDIRECT"
        assert elsewhere.seen == []


def test_errors_never_quote_what_the_server_sent(server: FaultServer) -> None:
    server.always = Fault(Misbehaviour.STATUS, status=403)
    seat = one_file(server)
    assert "<html>" not in "".join(str(error) for error in seat.read().errors)


def test_a_host_name_that_does_not_resolve_is_unreachable() -> None:
    seat = Seat(sign(ONE_FILE, "http://nowhere.invalid/x"), allow=["http"])
    assert not seat.reader.probe(seat.manifest).readable
    outcome = seat.read(0)
    assert outcome.errors[-1].code == "E_SOURCE_UNREACHABLE"
    assert "nowhere.invalid" in str(outcome.errors[-1])


def test_a_port_where_nobody_listens_is_unreachable_and_shown_as_trouble(server: FaultServer) -> None:
    server.stop()
    seat = one_file(server)
    assert seat.read(0).errors[-1].code == "E_SOURCE_UNREACHABLE"
    assert list(seat.reader.statistics().troubles) == [server.url.replace("http://127", "http://127")]


def test_a_full_disk_stops_the_read_at_once_and_blames_nobody(server: FaultServer) -> None:
    seat = one_file(server)
    seat.store.full = True
    outcome = seat.read()
    assert outcome.stored == ()
    assert outcome.reason is FailReason.DISK
    assert outcome.errors[-1].code == "E_NO_SPACE"
    assert seat.reader.statistics().troubles == {}


@pytest.mark.parametrize("end", ["close", "cancel", "forget"])
def test_a_read_that_is_stopped_says_so_and_returns_its_memory(server: FaultServer, end: str) -> None:
    files = {"a.bin": Random(6).randbytes(8 * CHUNK_BYTES)}
    server.objects.update(files)
    seat = Seat(sign(files, server.url), settings=SourceSettings())
    seat.reader.probe(seat.manifest)
    server.always = Fault(Misbehaviour.DRIP, rate=1_000_000)
    outcomes: list[ReadOutcome] = []
    begun = threading.Event()
    put = seat.store.put

    def first_put(*args: object) -> None:
        put(*args)  # type: ignore[arg-type]
        begun.set()

    seat.store.put = first_put  # type: ignore[method-assign, assignment]
    thread = threading.Thread(target=lambda: outcomes.append(seat.read()))
    thread.start()
    assert begun.wait(120)
    if end == "close":
        seat.reader.close()
    else:
        getattr(seat.reader, end)(seat.manifest.id)
    thread.join(120)
    assert outcomes[0].reason is FailReason.CANCELLED
    assert outcomes[0].failed != ()


def test_after_close_a_read_ends_at_once(server: FaultServer) -> None:
    seat = one_file(server)
    seat.reader.close()
    assert seat.read().reason is FailReason.CANCELLED
    assert server.seen == []


def test_what_is_asked_and_answered_is_counted(server: FaultServer) -> None:
    seat = one_file(server)
    server.faults.append(Fault(Misbehaviour.STATUS, status=503))
    seat.read()
    counted = seat.reader.statistics()
    assert counted.results == {("http", "E_SOURCE_BUSY"): 1, ("http", "ok"): 1}
    assert (counted.requests, len(server.gets())) == (2, 3), "a host that has failed is asked for one byte first"
    assert counted.bytes == 3 * CHUNK_BYTES
    assert counted.troubles == {}
