"""Logs of the daemon: one line on stderr for every change of state, never one for a chunk.

What lives here: the form of lines, and keeping secrets out of them. What does not: what is logged, and the audit log
(``audit.log``), which has its own file and is never rate-limited.

On a terminal lines are for people; elsewhere each is a JSON object with ``ts``, ``level``, ``event``, ``logger`` and
the caller's fields. Values pass ``redacted``: URLs lose user names, passwords, queries and fragments, because presigned
URLs carry credentials there. The standard library's logging makes the records, and those of libraries are included from
WARNING upwards. A stderr that is closed, or that nobody reads, loses lines and never stops the daemon
(``line_stream``). The latest lines are kept in
memory, for hosts that keep no journal. Rejected: structlog, which brings asyncio and
rich into each daemon.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from gossipd.runtime.line_stream import LineStream

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
REPEAT_S = 60.0
LINES_REMEMBERED_MAX = 256
EVENT_LINES_MAX = 500  # of one kind in REPEAT_S: what others do, as members that come and go, must not fill a disk
VALUE_CHARS_MAX = 2000  # bounds what a hostile name or answer can log
LATEST_MAX, LATEST_CHARS_MAX = 5000, 1000  # kept for `gossipd support`; most lines have 200

_TRACEBACKS = logging.Formatter()
_OURS = "gossipd"  # the parent of our loggers, whose names are told without it
# Of the scheme the last character: all of it would be looked for from each character of a long word.
_URL = re.compile(r"(?P<scheme>[A-Za-z0-9+.-]://)(?:[^\s/?#@]*@)?(?P<rest>[^\s?#]*)(?P<tail>[?#][^\s\"']*)?")


def redacted(text: str) -> str:
    """``text`` with every URL stripped of user, password, query and fragment."""
    return _URL.sub(lambda url: url["scheme"] + url["rest"] + ("?..." if url["tail"] else ""), text)


class Logger:
    """The lines of one part of the daemon: ``log.info("published", model="toy@3")``."""

    __slots__ = ("_records",)

    def __init__(self, name: str) -> None:
        self._records = logging.getLogger(f"{_OURS}.{name}")

    def debug(self, event: str, **fields: object) -> None:
        """Of no interest but in a search for a fault."""
        self._records.debug(event, extra={"fields": fields})

    def info(self, event: str, **fields: object) -> None:
        """A change of state."""
        self._records.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: object) -> None:
        """Something is not as it should be, and the daemon goes on."""
        self._records.warning(event, extra={"fields": fields})

    def error(self, event: str, *, cause: BaseException | None = None, **fields: object) -> None:
        """Something has failed. ``cause``: told with its traceback."""
        self._records.error(event, exc_info=cause, extra={"fields": fields})


def get_logger(name: str) -> Logger:
    """For a module; its lines are lost until ``configure``, but warnings, which Python then writes to stderr."""
    return Logger(name)


def recent() -> list[str]:
    """The latest lines of this process, as they were written, oldest first; none before ``configure``."""
    return [line for handler in logging.getLogger().handlers if isinstance(handler, _Lines) for line in handler.latest]


def flush_lines(wait_s: float = 0.0) -> None:
    """Write what waits for the reader of a stream that was full, as far as that takes it now; at the end of a daemon
    the reader gets ``wait_s``."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Lines):
            handler.write_waiting(wait_s)


def configure(
    *, level: str = "info", as_json: bool | None = None, node: str = "", stream: TextIO | None = None
) -> None:  # fmt: skip
    """Set up logging for the whole process; call it once, before anything logs. ``as_json``: None decides by whether
    ``stream`` is a terminal. ``node``: this host's name, in every line of JSON, as lines of many hosts are gathered.
    ``stream``: where lines go, stderr when None; never closed here.
    """
    target = sys.stderr if stream is None else stream
    root = logging.getLogger()
    root.handlers = [_Lines(target, as_json=not target.isatty() if as_json is None else as_json, node=node)]
    root.setLevel(logging.WARNING)
    set_level(level)


def set_level(level: str) -> None:
    """Change the level of all loggers from now on (SIGHUP)."""
    logging.getLogger(_OURS).setLevel(LEVELS[level])
    for handler in logging.getLogger().handlers:
        handler.setLevel(LEVELS[level])


class _Lines(logging.Handler):
    """Writes whole lines, so many of one kind a minute, and waits for no reader. A line of a library is written at most
    once a minute: without this, trio logs a traceback ten times a second while the process is out of descriptors.
    """

    def __init__(self, stream: TextIO, *, as_json: bool, node: str) -> None:
        super().__init__()
        self._everywhere = {"node": node} if node and as_json else {}
        self.latest: deque[str] = deque(maxlen=LATEST_MAX)
        self._stream = LineStream(stream)
        self._as_json = as_json
        self._told_s: dict[tuple[str, str], float] = {}
        self._counted: dict[tuple[str, str], tuple[float, int]] = {}  # by logger and event, the least lately first

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler, which holds a lock meanwhile."""
        is_ours = record.name.startswith(f"{_OURS}.")
        if not is_ours and self._is_repeated(record):
            return
        if is_ours and record.levelno > logging.DEBUG and self._is_one_too_many(record):
            return
        self._write(record)
        self._tell_lost()

    def _tell_lost(self) -> None:
        if lost := self._stream.take_lost():
            told = {"name": f"{_OURS}.log", "levelname": "WARNING", "msg": "lines were lost", "fields": {"count": lost}}
            self._write(logging.makeLogRecord(told))

    def write_waiting(self, wait_s: float) -> None:
        """See ``flush_lines``."""
        self._stream.flush(wait_s)
        self._tell_lost()

    def _write(self, record: logging.LogRecord) -> None:
        fields = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(), "event": record.getMessage(),
            "logger": record.name.removeprefix(f"{_OURS}."), **self._everywhere, **getattr(record, "fields", {}),
        }  # fmt: skip
        if record.exc_info and record.exc_info[1] is not None:
            # Without local variables, which may be keys and tokens.
            fields["exception"] = _TRACEBACKS.formatException(record.exc_info)
        safe = {name: _safe(value) for name, value in fields.items()}
        line = json.dumps(safe, default=repr) if self._as_json else _for_people(safe)
        self.latest.append(line[:LATEST_CHARS_MAX])
        self._stream.write(line)

    def _is_one_too_many(self, record: logging.LogRecord) -> bool:
        """Whether its kind has had its lines of this minute. The first that is left out is told as that; the first of
        the next minute says how many were."""
        kind = (record.name, record.msg)
        minute_s, count = self._counted.get(kind, (record.created, 0))
        if not minute_s <= record.created < minute_s + REPEAT_S:  # or the clock was set back
            if count > EVENT_LINES_MAX:
                record.fields = {**getattr(record, "fields", {}), "left_out": count - EVENT_LINES_MAX}
            minute_s, count = record.created, 0
        self._counted.pop(kind, None)
        self._counted[kind] = minute_s, count + 1
        if len(self._counted) > LINES_REMEMBERED_MAX:
            del self._counted[next(iter(self._counted))]
        if count == EVENT_LINES_MAX:
            fields = {"of": record.msg, "lines": EVENT_LINES_MAX, "within_s": REPEAT_S}
            told = {"name": record.name, "levelname": "WARNING", "msg": "more lines of this kind are left out"}
            self._write(logging.makeLogRecord({**told, "fields": fields}))
        return count >= EVENT_LINES_MAX

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        line = (record.name, record.getMessage()[:VALUE_CHARS_MAX])
        told_s = self._told_s.get(line, -REPEAT_S)
        if told_s <= record.created < told_s + REPEAT_S:
            return True
        self._told_s[line] = record.created
        if len(self._told_s) > LINES_REMEMBERED_MAX:
            del self._told_s[next(iter(self._told_s))]
        return False


def _for_people(fields: Mapping[str, Any]) -> str:
    left = dict(fields)
    when, level, event, logger = (left.pop(name) for name in ("ts", "level", "event", "logger"))
    traceback = left.pop("exception", "")
    told = " ".join(f"{name}={_word(value)}" for name, value in left.items())
    return f"{when} [{level:7}] {event if event.isprintable() else repr(event)} [{logger}] {told}\n{traceback}".rstrip()


def _word(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if text.isprintable() and " " not in text else repr(text)


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        # Of a traceback the end tells what happened.
        cut = value[-VALUE_CHARS_MAX:] if value.startswith("Traceback") else value[:VALUE_CHARS_MAX]
        return redacted(cut)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"  # never the content: it may be a key
    if isinstance(value, dict):
        return {name: _safe(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(inner) for inner in value]
    return value
