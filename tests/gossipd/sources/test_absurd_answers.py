"""The reader against answers that no web server gives by accident: each ends as an outcome, none as an exception."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import obstore
import pytest
from obstore.store import from_url

from gossipd.sources import first_request, web_stream
from gossipd.sources.errors import SourceError
from gossipd.sources.obstore_errors import in_our_words
from gossipd.sources.reader import ProbeOutcome
from tests.gossipd.sources.models import CHUNK_BYTES, sign
from tests.gossipd.sources.raw import Answer, partial, raw_server
from tests.gossipd.sources.test_reader import PATIENT, QUICK, Seat

BODY = Random(11).randbytes(2 * CHUNK_BYTES)
DATED = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT"
TAGGED = 'ETag: "v1"'


def seat_at(url: str) -> Seat:
    return Seat(sign({"a.bin": BODY}, url))


@pytest.mark.parametrize(
    "tail", [b"", b"9\r\nand more.\r\n0\r\n\r\n", b"no chunk length\r\n"], ids=["cut", "more", "garbage"]
)
def test_what_goes_wrong_after_the_last_wanted_byte_costs_no_chunk(tail: bytes) -> None:
    def answer(start: int, stop: int) -> bytes:
        if stop - start == 1:
            return partial(BODY, start, stop, TAGGED, DATED)
        head = partial(BODY, start, stop, TAGGED, DATED, "Transfer-Encoding: chunked").partition(b"\r\n\r\n")[0]
        return head + b"\r\n\r\n%x\r\n%b\r\n" % (stop - start, BODY[start:stop]) + tail

    with raw_server(answer) as url:
        outcome = seat_at(url).read()
    assert outcome.stored == (0, 1)
    assert outcome.failed == ()


ABSURD_HEADERS = [
    "Last-Modified: Mon, 01 Jan 2024 00:00:00 +9999999999999",  # OverflowError from the standard library
    "Last-Modified: Mon, 01 Jan 99999999999999999999999999 00:00:00 GMT",
    "Last-Modified: Sat, 01 Jan 10000 00:00:00 GMT",  # ValueError when obstore's date becomes one of Python's
    "Last-Modified: Mon, 01 Jan 0001 00:00:00 +2359",
    f'{DATED}\r\nETag: "a\x01b"',  # sent back, it would make obstore panic
    f'{DATED}\r\nETag: "\x7f"',
    f"{DATED}\r\nETag: \x00",
    f'{DATED}\r\nETag: "\xe9"',
    f'{DATED}\r\nETag: W/"\x01"',
    f"{DATED}\r\nContent-Type: multipart/byteranges; boundary*=x; boundary*0=y",  # TypeError from the email package
    f"{DATED}\r\nContent-Type: multipart/byteranges; boundary*{'1' * 5000}=x",  # ValueError
]


@pytest.mark.parametrize("header", ABSURD_HEADERS, ids=lambda header: ascii(header)[:80])
@pytest.mark.parametrize("from_the_first", [True, False], ids=["first look", "later"])
def test_an_absurd_header_is_no_end_of_the_daemon(header: str, from_the_first: bool) -> None:
    def answer(start: int, stop: int) -> bytes:
        is_proper = stop - start == 1 and not from_the_first
        return partial(BODY, start, stop, DATED if is_proper else header)

    with raw_server(answer) as url:
        seat = seat_at(url)
        probed, outcome = seat.reader.probe(seat.manifest), seat.read()
    assert probed.readable or isinstance(probed.errors[-1], SourceError)
    assert outcome.failed == () or isinstance(outcome.errors[-1], SourceError)


def refused_head(error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of a read during which the head's check raises that."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(web_stream, "check_head", refuse)
    with raw_server(lambda start, stop: partial(BODY, start, stop)) as url:
        outcome = seat_at(url).read()
    assert outcome.stored == ()
    return outcome.errors[-1].sentence


@pytest.mark.parametrize("kind", [TypeError, ValueError, KeyError, AttributeError, RuntimeError])
def test_what_a_library_cannot_take_of_an_answer_is_the_source_s_failure(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused_head(kind("what no library should raise"), monkeypatch)
    assert said.endswith(f"its answer cannot be read ({kind.__name__})")


@pytest.mark.parametrize("kind", [ImportError, MemoryError])
def test_what_the_host_itself_lacks_is_no_end_of_the_daemon(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused_head(kind("too many open files"), monkeypatch)
    assert "this host cannot read it now (too many open files)" in said


@pytest.mark.parametrize("header", [one for one in ABSURD_HEADERS if "boundary" not in one], ids=ascii)
def test_a_small_file_is_read_whatever_its_date_and_tag_look_like(header: str) -> None:
    body = BODY[:5000]
    with raw_server(lambda start, stop: partial(body, start, stop, header)) as url:
        assert Seat(sign({"small": body}, url)).read().failed == ()


def test_a_head_that_drips_and_never_ends_holds_no_thread() -> None:
    def answer(_start: int, _stop: int) -> Iterator[bytes]:
        yield b"HTTP/1.1 206 Partial\r\nX: "
        while True:  # until the reader hangs up
            threading.Event().wait(QUICK.read_timeout_s / 10)
            yield b"."

    with raw_server(answer) as url:
        outcome = Seat(sign({"a.bin": BODY}, url), settings=QUICK).read()
    assert outcome.stored == ()
    assert {error.code for error in outcome.errors} == {"E_SOURCE_SLOW"}


@pytest.mark.parametrize("headers", [(), (DATED,), (TAGGED,)], ids=["nothing", "date only", "tag only"])
def test_a_large_file_is_read_from_a_server_that_says_little_about_its_version(headers: tuple[str, ...]) -> None:
    with raw_server(lambda start, stop: partial(BODY, start, stop, *headers)) as url:
        outcome = seat_at(url).read()
    assert (outcome.stored, outcome.errors) == ((0, 1), ())


@pytest.mark.parametrize(
    "header", ["Content-Encoding: gzip", "Content-Encoding: x-gzip", "Content-Encoding: aws-chunked", "X: y"]
)
@pytest.mark.parametrize("total", [str(len(BODY)), "*"])
def test_a_range_of_the_published_bytes_is_read_whatever_its_label_says(header: str, total: str) -> None:
    def answer(start: int, stop: int) -> bytes:
        right = partial(BODY, start, stop, header)
        return right.replace(b"/%d" % len(BODY), b"/" + total.encode()).replace(b"bytes ", b"Bytes ")

    with raw_server(answer) as url:
        outcome = seat_at(url).read()
    assert (outcome.stored, outcome.errors) == ((0, 1), ())


@pytest.mark.parametrize("size", [len(BODY), 5000], ids=["large", "small"])
@pytest.mark.parametrize(
    "label", ["bytes={}-{}/{}", "bytes: {}-{}/{}", "{}-{}/{}", "bytes {} - {} / {}", "bytes {}-{}", "BYTES\t{}-{}/{}"]
)
def test_a_range_is_read_however_its_place_is_written(label: str, size: int) -> None:
    body = BODY[:size]

    def answer(start: int, stop: int) -> bytes:
        place = label.format(start, stop - 1, size)
        return partial(body, start, stop).replace(b"bytes %d-%d/%d" % (start, stop - 1, size), place.encode())

    with raw_server(answer) as url:
        outcome = Seat(sign({"a.bin": body}, url)).read()
    assert (outcome.failed, outcome.errors) == ((), ())


def _aligned(body: bytes, start: int, stop: int, step: int) -> bytes:
    """Whole segments, as a cache that keeps them so."""
    return partial(body, start // step * step, min(len(body), -(-stop // step) * step))


@pytest.mark.parametrize("size", [len(BODY), 5000], ids=["large", "small"])
@pytest.mark.parametrize("step", [1000, 100_000, 1 << 20])
def test_a_range_that_begins_before_and_ends_after_what_was_asked_for_is_read(step: int, size: int) -> None:
    body = BODY[:size]
    with raw_server(lambda start, stop: _aligned(body, start, stop, step)) as url:
        seat = Seat(sign({"a.bin": body}, url))
        assert seat.reader.probe(seat.manifest).readable
        for chunk in range(seat.manifest.chunk_count):
            assert seat.read(chunk).errors == ()


@pytest.mark.parametrize("most", [64 * 1024, 100_000])
def test_a_server_that_gives_less_than_it_is_asked_for_is_asked_for_the_rest(most: int) -> None:
    asked: list[int] = []

    def answer(start: int, stop: int) -> bytes:
        asked.append(start)
        return partial(BODY, start, min(stop, start + most))

    with raw_server(answer) as url:
        outcome = seat_at(url).read()
    assert (outcome.failed, outcome.errors) == ((), ())
    assert asked == list(range(0, len(BODY), most)), "each byte is asked for once"


def test_a_server_that_gives_next_to_nothing_is_told_as_that() -> None:
    with raw_server(lambda start, stop: partial(BODY, start, min(stop, start + 1000))) as url:
        error = seat_at(url).read().errors[-1]
    assert error.code == "E_SOURCE_SHORT"
    assert "the server sent 1000 bytes of the" in str(error)


def test_a_part_that_is_the_whole_object_is_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_request, "MORE_BYTES_MAX", len(BODY) - 1)
    with raw_server(lambda start, stop: partial(BODY, 0, len(BODY))) as url:
        seat = seat_at(url)
        assert seat.reader.probe(seat.manifest).is_whole_only
        outcome = seat.reader.read_chunks(seat.manifest, list(range(seat.manifest.chunk_count)), from_start=True)
    assert (outcome.failed, outcome.errors) == ((), ())


def test_a_part_that_lies_elsewhere_is_refused_with_both_places() -> None:
    with raw_server(lambda start, stop: partial(BODY, start + 1, stop + 1)) as url:
        error = seat_at(url).read().errors[-1]
    assert error.code == "E_SOURCE_RANGE"
    assert f"asked for bytes 0-{len(BODY) - 1}, was sent 1-{len(BODY)}" in str(error)


def assert_read_before_it_ends(answer: Answer, is_over: threading.Event) -> None:
    """All of an object is read from a server whose answers go on until ``is_over``, which is set then."""
    with raw_server(answer) as url:
        began = time.monotonic()
        outcome = Seat(sign({"a.bin": BODY}, url), settings=PATIENT).read()
        elapsed_s = time.monotonic() - began
        is_over.set()
    assert (outcome.failed, outcome.errors) == ((), ())
    assert elapsed_s < PATIENT.read_timeout_s


def test_nobody_waits_for_the_end_of_a_body_that_is_all_here() -> None:
    """As from squid, where it takes the length away and keeps the connection."""
    is_over = threading.Event()

    def answer(start: int, stop: int) -> Iterator[bytes]:
        yield partial(BODY, start, stop, length=False)
        is_over.wait(3 * PATIENT.read_timeout_s)

    assert_read_before_it_ends(answer, is_over)


def test_a_body_that_is_longer_than_its_label_is_cut_and_its_connection_closed() -> None:
    """Without a length, where the label is all that says how long it is."""
    with raw_server(lambda start, stop: partial(BODY, start, stop, length=False) + b"more") as url:
        outcome = seat_at(url).read()
    assert (outcome.failed, outcome.errors) == ((), ())


@pytest.mark.parametrize("size", [len(BODY), 5000], ids=["large", "small"])
@pytest.mark.parametrize("header", ["Content-Range", "X-Other"])
def test_the_right_part_is_read_though_its_status_is_200(header: str, size: int) -> None:
    body = BODY[:size]

    def answer(start: int, stop: int) -> bytes:
        right = partial(body, start, stop).replace(b"206 Partial", b"200 OK")
        return right.replace(b"Content-Range", header.encode())

    with raw_server(answer) as url:
        seat = Seat(sign({"a.bin": body}, url))
        assert seat.reader.probe(seat.manifest).readable
        outcome = seat.read()
    assert (outcome.failed, outcome.errors) == ((), ())


def test_bytes_of_status_200_that_are_another_part_are_never_stored() -> None:
    other = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    with raw_server(lambda start, stop: other % (stop - start) + bytes(stop - start)) as url:
        outcome = seat_at(url).read()
    assert outcome.stored == ()
    assert outcome.errors[-1].code == "E_SOURCE_HASH"


@pytest.mark.parametrize(
    ("kind", "code"), [("text/html; charset=utf-8", "E_SOURCE_RANGE"), ("text/plain", "E_SOURCE_TRUNCATED")]
)
@pytest.mark.parametrize("size", [len(BODY), 40], ids=["large", "small"])
def test_a_short_whole_without_a_length_is_permanent(kind: str, code: str, size: int) -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n<html>\r\n0\r\n\r\n"
    with raw_server(lambda *_: answer.encode()) as url:
        seat = Seat(sign({"a.bin": BODY[:size]}, url))
        error = seat.reader.read_chunks(seat.manifest, [0], from_start=True).errors[-1]
    assert isinstance(error, SourceError)
    assert (error.code, error.is_permanent) == (code, True)


def test_a_page_that_has_ranges_is_told_as_a_page() -> None:
    page = b"<html>start</html>"
    with raw_server(lambda start, stop: partial(page, start, stop, "Content-Type: text/html")) as url:
        error = seat_at(url).read(0).errors[-1]
    assert error.code == "E_SOURCE_RANGE"
    assert "sent a page in its place" in str(error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_web_server_that_refuses_is_not_told_of_credentials(status: int) -> None:
    with raw_server(lambda *_: refusal(status, "")) as url:
        error = seat_at(url).read(0).errors[-1]
    assert error.code == "E_SOURCE_AUTH"
    assert f"access refused (status {status}): web servers are shown no credentials" in str(error)


def test_a_body_that_is_encoded_for_the_way_is_told_as_that() -> None:
    with raw_server(lambda start, stop: partial(BODY, start, stop, "Transfer-Encoding: gzip, chunked")) as url:
        assert seat_at(url).read(0).errors[-1].code == "E_SOURCE_ENCODING"


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (202, "E_SOURCE_UNREACHABLE", "not ready yet"),
        (204, "E_SOURCE", "answered without the object"),
        (304, "E_SOURCE", "refused the request"),
        (402, "E_SOURCE_ACCOUNT", "asks to be paid"),
        (451, "E_SOURCE_AUTH", "for legal reasons"),
        (498, "E_SOURCE_BUSY", "is busy"),
        (509, "E_SOURCE_BUSY", "is busy"),
        (529, "E_SOURCE_BUSY", "is busy"),
    ],
)
def test_a_rare_status_is_told_as_what_it_means(status: int, code: str, said: str) -> None:
    with raw_server(lambda *_: refusal(status, "")) as url:
        error = Seat(sign({"a.bin": BODY}, url), settings=QUICK).read(0).errors[-1]
    assert error.code == code
    assert said in str(error)


def refusal(status: int, document: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} No", "Content-Type: application/xml", f"Content-Length: {len(document)}", *headers]
    return ("".join(f"{line}\r\n" for line in lines) + "\r\n" + document).encode()


@pytest.mark.parametrize(
    ("status", "name", "code"),
    [
        (403, "InvalidObjectState", "E_SOURCE_ARCHIVED"),
        (403, "RequestLimitExceeded", "E_SOURCE_BUSY"),
        (403, "AllAccessDisabled", "E_SOURCE_ACCOUNT"),
        (404, "NoSuchBucket", "E_SOURCE_NO_BUCKET"),
        (400, "KMS.DisabledException", "E_SOURCE_ENCRYPTED"),
        (403, "AccessDenied", "E_SOURCE_AUTH"),
        (404, "NoSuchKey", "E_SOURCE_NOT_FOUND"),
    ],
)
def test_the_document_of_an_object_store_on_the_web_is_read_too(status: int, name: str, code: str) -> None:
    with raw_server(lambda *_: refusal(status, f"<Error><Code>{name}</Code></Error>")) as url:
        error = seat_at(url).read(0).errors[-1]
    assert error.code == code
    assert "the key is right" not in str(error), "none was shown"


def test_https_where_the_address_says_http_is_told() -> None:
    page = "<html><title>400 The plain HTTP request was sent to HTTPS port</title></html>"  # nginx
    answer = refusal(400, page).replace(b"application/xml", b"text/html")
    with raw_server(lambda *_: answer) as url:
        assert "takes https only; see the address" in str(seat_at(url).read(0).errors[-1])


def test_the_length_of_a_body_s_part_that_drips_holds_no_thread() -> None:
    def answer(start: int, stop: int) -> Iterator[bytes]:
        head = partial(BODY, start, stop, "Transfer-Encoding: chunked", length=False).partition(b"\r\n\r\n")[0]
        yield head + b"\r\n\r\n"
        for _ in range(400):  # or until the reader hangs up
            threading.Event().wait(QUICK.read_timeout_s / 10)
            yield b"0"

    with raw_server(answer) as url:
        outcome = Seat(sign({"a.bin": BODY}, url), settings=QUICK).read(0)
    assert outcome.stored == ()
    assert outcome.errors[-1].code == "E_SOURCE_SLOW"


def test_what_drips_after_the_last_wanted_byte_is_not_waited_for() -> None:
    is_over = threading.Event()

    def answer(start: int, stop: int) -> Iterator[bytes]:
        head = partial(BODY, start, stop, "Transfer-Encoding: chunked", length=False).partition(b"\r\n\r\n")[0]
        yield head + b"\r\n\r\n%x\r\n%b\r\n0\r\n" % (stop - start, BODY[start:stop])
        began = time.monotonic()
        while not is_over.wait(0.02) and time.monotonic() - began < PATIENT.read_timeout_s:
            yield b"X: more\r\n"

    assert_read_before_it_ends(answer, is_over)


def test_long_tags_of_many_objects_are_kept_as_digests() -> None:
    tag = f'ETag: "{"x" * 30_000}"'
    with raw_server(lambda start, stop: partial(BODY, start, stop, tag)) as url:
        seat = seat_at(url)
        assert seat.read().failed == ()
        kept = seat.reader._requests.versions._seen[seat.manifest.id].values()
        assert [len(version.tag or "") for pair in kept for version in pair] == [64, 64]


def test_a_document_that_drips_holds_no_thread() -> None:
    def answer(_start: int, _stop: int) -> Iterator[bytes]:
        yield b"HTTP/1.1 403 No\r\nContent-Type: text/xml\r\nTransfer-Encoding: chunked\r\n\r\n"
        while True:  # until the reader hangs up
            threading.Event().wait(QUICK.read_timeout_s / 10)
            yield b"0"

    with raw_server(answer) as url:
        outcome = Seat(sign({"a.bin": BODY}, url), settings=QUICK).read(0)
    assert outcome.errors[-1].code == "E_SOURCE_AUTH"


def test_a_range_that_is_refused_though_the_object_has_it_is_no_short_object() -> None:
    for total, code in ((len(BODY), "E_SOURCE_RANGE"), (0, "E_SOURCE_TRUNCATED")):
        with raw_server(lambda *_, total=total: refusal(416, "", f"Content-Range: bytes */{total}")) as url:
            assert seat_at(url).read(0).errors[-1].code == code


@pytest.mark.parametrize("text", ["Mon, 01 Jan 2024 00:00:00 +9999999999999", "9" * 5000, "-1", "\xb2", "soon"])
def test_an_absurd_retry_after_is_none(text: str) -> None:
    def answer(start: int, stop: int) -> bytes:
        return f"HTTP/1.1 503 Busy\r\nRetry-After: {text}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")

    with raw_server(answer) as url:
        assert seat_at(url).read().errors[-1].code == "E_SOURCE_BUSY"


def test_a_panic_of_obstores_is_an_error_that_names_the_object() -> None:
    store = from_url("http://127.0.0.1:1", client_options={"allow_http": True}, retry_config={"max_retries": 0})
    with pytest.raises(SourceError) as caught, in_our_words("http://host/a.bin"):
        obstore.get(store, "a.bin", options={"if_match": '"a\x01b"'})
    assert str(caught.value) == "http://host/a.bin: obstore panicked"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, AssertionError, AttributeError])
def test_what_is_not_obstores_stays_what_it_is(kind: type[BaseException]) -> None:
    with pytest.raises(kind), in_our_words("http://host/a.bin"):
        raise kind


def test_a_probe_that_waits_for_memory_can_be_cancelled(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(BODY)
    url = f"file://{tmp_path}"  # no web source: those are looked at without memory
    seat = Seat(sign({"a.bin": BODY}, url), allow=[url])
    lease = seat.pool.acquire(4 * 1024 * 1024)
    outcomes: list[ProbeOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(seat.reader.probe(seat.manifest)))
    thread.start()
    while not seat.pool.statistics().waiting:
        thread.join(0.001)
    seat.reader.cancel(seat.manifest.id)
    thread.join(120)
    lease.release()
    assert [error.code for error in outcomes[0].errors] == ["E_CANCELLED"]
    assert not outcomes[0].readable


EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"


@pytest.mark.parametrize("size", [len(BODY), 5000], ids=["large", "small"])
def test_answers_before_the_answer_are_skipped(size: int) -> None:
    body = BODY[:size]
    before = b"HTTP/1.1 100 Continue\r\n\r\n" + EARLY_HINTS + b"HTTP/1.1 102 Processing\r\n\r\n"
    with raw_server(lambda start, stop: before + partial(body, start, stop, TAGGED, DATED)) as url:
        assert Seat(sign({"a.bin": body}, url)).read().failed == ()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "what came is no answer of HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x50", "what came is no answer of HTTP"),  # TLS where the address says http
        (b"HTTP/2.0 206 OK\r\n\r\n", "what came is no answer of HTTP"),
        (EARLY_HINTS * 1000, "what came is no answer of HTTP"),
        (b"HTTP/1.1 206 Partial\r\n" + b"X: y\r\n" * 5000, "the head of the answer is longer"),
        (b"HTTP/1.1 206 Partial\r\nX: " + b"y" * 100_000, "the head of the answer is longer"),
        (b"", "the connection ended before an answer had come"),
    ],
    ids=[
        "another protocol",
        "tls",
        "a later version",
        "hints for ever",
        "lines for ever",
        "a line for ever",
        "nothing",
    ],
)
def test_what_is_no_answer_is_told_as_what_it_is(sent: bytes, said: str) -> None:
    with raw_server(lambda _start, _stop: sent) as url:
        outcome = seat_at(url).read()
    assert said in str(outcome.errors[-1])


def test_a_server_without_tls_at_an_address_with_it_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=_answer_in_clear, args=(listener,))
        answering.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        outcome = Seat(sign({"a.bin": BODY}, url), allow=["https://127.0.0.1:*"]).read()
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()
    assert "the server speaks no TLS there; see the address" in str(outcome.errors[-1])


def _answer_in_clear(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            with listener.accept()[0] as sock:
                sock.recv(4096)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
