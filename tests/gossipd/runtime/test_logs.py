"""Log lines: their form, and what never gets into them."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import time
from collections.abc import Iterator

import pytest

from gossipd.runtime import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_off_a_terminal_every_line_is_one_json_object() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream, node="gpu-17")
    logs.get_logger("store").info("published", model="toy@3", path="/m/toy/3\nnot a second line")
    [line] = lines(stream)
    assert line["node"] == "gpu-17", "lines of many hosts are gathered"
    assert line["event"] == "published"
    assert line["level"] == "info"
    assert line["logger"] == "store"
    assert str(line["ts"]).endswith("Z")


def test_the_latest_lines_are_kept_cut_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "EVENT_LINES_MAX", 10**6)
    logs.configure(stream=io.StringIO())
    log = logs.get_logger("store")
    for number in range(logs.LATEST_MAX + 1):
        log.info("read", number=number)
    log.info("long", address="https://user:word@host/?token=1", many=["x" * 2000] * 9)
    kept = logs.recent()
    assert (len(kept), json.loads(kept[0])["number"]) == (logs.LATEST_MAX, 2)
    assert len(kept[-1]) == logs.LATEST_CHARS_MAX
    assert "word" not in kept[-1] and "token" not in kept[-1]


def test_on_a_terminal_lines_are_for_people() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    logs.configure(stream=stream, node="gpu-17")
    logs.get_logger("store").warning("disk full", need_bytes=5)
    assert "disk full" in stream.getvalue()
    assert "{" not in stream.getvalue()
    assert "gpu-17" not in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("https://user:hunter2@h.example/a/b?sig=hunter2#hunter2", "https://h.example/a/b?..."),
        ("s3://key:hunter2@bucket/x", "s3://bucket/x"),
        ("GET http://h/a?t=hunter2 failed", "GET http://h/a?... failed"),
        ("http://h/a and http://u:hunter2@k/b", "http://h/a and http://k/b"),
        ("file:///models/x", "file:///models/x"),
        ("no url, 50% ? # @", "no url, 50% ? # @"),
    ],
)
def test_urls_lose_their_credentials(text: str, kept: str) -> None:
    assert logs.redacted(text) == kept


def test_a_long_word_is_looked_through_once() -> None:
    began_s = time.process_time()
    assert logs.redacted("ab" * 250_000 + "://u:hunter2@h/") == "ab" * 250_000 + "://h/"
    assert time.process_time() - began_s < 5, "a hundredth of it on a free core, and minutes where it is quadratic"


def test_values_are_redacted_and_bytes_are_never_written() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    logs.get_logger("x").error("failed at s3://a:hunter2@b/c", url="http://h/?k=hunter2", key=b"hunter2")
    assert "hunter2" not in stream.getvalue()
    assert lines(stream)[0]["key"] == "7 bytes"


def test_one_hostile_value_is_not_a_megabyte_of_log() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    logs.get_logger("x").info("refused", name="a" * 1_000_000)
    assert len(stream.getvalue()) < 3000


def test_lines_below_the_level_are_not_written_and_the_level_can_change() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream, level="warning")
    logs.get_logger("x").info("quiet")
    assert stream.getvalue() == ""
    logs.set_level("debug")
    logs.get_logger("x").debug("loud")
    assert lines(stream)[0]["event"] == "loud"


def test_warnings_of_libraries_come_in_our_form_with_their_traceback() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    try:
        raise ValueError("a bug")
    except ValueError:
        logging.getLogger("library").exception("route failed")
    logging.getLogger("library").info("chatter")
    [line] = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("route failed", "error", "library")
    assert "a bug" in json.dumps(line["exception"])


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_neither_variables_nor_what_urls_hide(as_json: bool) -> None:
    def fail(token: str) -> None:
        raise ValueError("no answer from http://h/?signature=" + token)

    stream = io.StringIO()
    logs.configure(stream=stream, as_json=as_json)
    try:
        fail("2retnuh"[::-1])  # a traceback quotes this line
    except ValueError as error:
        logs.get_logger("x").error("read failed", cause=error)
        logging.getLogger("library").exception("route failed")
    assert "ValueError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_a_library_that_says_the_same_again_and_again_is_heard_once_a_minute() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    bridge = logging.getLogger().handlers[0]

    def say(words: str, at_s: float) -> None:
        record = logging.LogRecord("library", logging.ERROR, __file__, 1, "%s", (words,), None)
        record.created = at_s
        bridge.emit(record)

    for tenths in range(1200):
        say("no descriptors", tenths / 10)
    say("something else", 120.0)
    assert [line["event"] for line in lines(stream)] == ["no descriptors", "no descriptors", "something else"]


def test_lines_of_one_kind_are_bounded_and_what_is_left_out_is_counted() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream, level="debug")
    bridge = logging.getLogger().handlers[0]

    def say(event: str, at_s: float, level: int = logging.INFO) -> None:
        record = logging.LogRecord("gossipd.members", level, __file__, 1, event, (), None)
        record.created = at_s
        bridge.emit(record)

    for number in range(logs.EVENT_LINES_MAX + 7):
        say("member up", 100.0 + number / 100)
    say("ready", 110.0)
    told = lines(stream)
    assert [line["event"] for line in told[-2:]] == ["more lines of this kind are left out", "ready"]
    assert (len(told), told[-2]["of"], told[-2]["level"]) == (logs.EVENT_LINES_MAX + 2, "member up", "warning")
    say("member up", 100.0 + logs.REPEAT_S)
    say("member up", 101.0 + logs.REPEAT_S)
    first, second = lines(stream)[-2:]
    assert (first["left_out"], "left_out" in second) == (7, False)
    for number in range(2 * logs.EVENT_LINES_MAX):  # the clock was set back
        say("member up", 100.0 - 365 * 86_400 + number * 300)
    assert "left_out" not in lines(stream)[-1] and lines(stream)[-1]["event"] == "member up"
    before = len(lines(stream))
    for _ in range(logs.EVENT_LINES_MAX + 7):
        say("seen", 200.0, logging.DEBUG)
    assert len(lines(stream)) - before == logs.EVENT_LINES_MAX + 7, "who asks for all has all"


def test_a_stderr_that_is_gone_loses_lines_and_nothing_else() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    logger = logs.get_logger("x")
    stream.close()
    logger.info("nobody reads this")


def test_lines_that_a_stopped_reader_has_lost_are_counted_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "EVENT_LINES_MAX", 10**6)
    reads, writes = os.pipe()
    with open(reads, "rb", buffering=0) as reader, open(writes, "w") as stream:
        logs.configure(stream=stream)
        logger = logs.get_logger("x")
        for _ in range(3000):
            logger.info("nobody reads", filler="y" * 100)
        os.set_blocking(reads, False)
        told = b""
        while part := reader.read(1 << 20):
            told += part
            logs.flush_lines()
        logger.info("read again")
        told += reader.read(1 << 20) or b""
    events = [json.loads(line) for line in told.splitlines()]
    lost, last = events[-2:]
    assert (last["event"], lost["event"], lost["level"]) == ("read again", "lines were lost", "warning")
    assert lost["count"] == 3000 - (len(events) - 2)


def test_the_last_lines_wait_for_a_reader_that_goes_on() -> None:
    reads, writes = os.pipe()
    with open(reads, "rb", buffering=0) as reader, open(writes, "w") as stream:
        logs.configure(stream=stream)
        for number in range(500):
            logs.get_logger("x").info("behind", number=number, filler="y" * 200)
        told: list[bytes] = []
        going_on = threading.Thread(target=lambda: told.extend(iter(lambda: reader.read(4096), b"")))
        going_on.start()
        logs.flush_lines(60.0)
        stream.close()
        going_on.join(60.0)
    assert [json.loads(line)["number"] for line in b"".join(told).splitlines()] == list(range(500))
