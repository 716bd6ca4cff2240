"""Logs of the daemon: one line on stderr for every change of state, never one for a chunk.

What lives here: the form of lines, and keeping secrets out of them. What does not: what is logged, and the audit log
(``audit.log``), which has its own file and is never rate-limited.

On a terminal lines are for people; elsewhere each is a JSON object with ``ts``, ``level``, ``event``, ``logger`` and
the caller's fields. Values pass ``redacted``: URLs lose user names, passwords, queries and fragments, because presigned
URLs carry credentials there. The standard library's logging is included from WARNING upwards. A closed stderr loses
lines and never stops the daemon.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
REPEAT_S = 60.0
LINES_REMEMBERED_MAX = 256
VALUE_CHARS_MAX = 2000  # bounds what a hostile name or answer can log

# Without local variables, which may be keys and tokens; a traceback passes the redaction as every value does.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#@]*@)?(?P<rest>[^\s?#]*)(?P<tail>[?#][^\s\"']*)?")


def redacted(text: str) -> str:
    """``text`` with every URL stripped of user, password, query and fragment."""
    return _URL.sub(lambda url: url["scheme"] + url["rest"] + ("?..." if url["tail"] else ""), text)


def configure(*, level: str = "info", as_json: bool | None = None, stream: TextIO | None = None) -> None:
    """Set up logging for the whole process; call it once, before anything logs. ``as_json``: None decides by whether
    ``stream`` is a terminal. ``stream``: where lines go, stderr when None; never closed here.
    """
    target = sys.stderr if stream is None else stream
    json_lines = not target.isatty() if as_json is None else as_json
    processors: list[Callable[[Any, str, MutableMapping[str, Any]], Any]] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts" if json_lines else "timestamp"),
        _name_of_logger,
        _TRACEBACKS if json_lines else structlog.processors.format_exc_info,
        _redact,
    ]
    if json_lines:
        processors.append(structlog.processors.JSONRenderer())
    else:
        traceback = structlog.dev.plain_traceback  # the default shows local variables, which may be keys
        processors.append(structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=traceback))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *names: _Lines(target, names[0] if names else ""),
        cache_logger_on_first_use=False,  # module-level loggers are made before this runs
    )
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Change the level of all loggers from now on (SIGHUP)."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]))


class _Lines:
    """Writes whole lines; they are lost when the stream refuses them."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self.name = name

    def msg(self, message: str) -> None:
        try:
            self._stream.write(message + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = exception = log = fatal = warn = failure = err = msg


class _Bridge(logging.Handler):
    """Lines of the standard library's logging, in our form, each at most once a minute. Without this, trio logs a
    traceback ten times a second while the process is out of descriptors.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told_s: dict[tuple[str, str], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        line = (record.name, record.getMessage()[:VALUE_CHARS_MAX])
        if record.created < self._told_s.get(line, -REPEAT_S) + REPEAT_S:
            return
        self._told_s[line] = record.created
        if len(self._told_s) > LINES_REMEMBERED_MAX:
            del self._told_s[next(iter(self._told_s))]
        logger = structlog.get_logger(record.name)
        # The levels of a filtering logger are those of the standard library.
        logger.log(min(record.levelno, logging.ERROR), record.getMessage(), exc_info=record.exc_info)


def _name_of_logger(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if name := getattr(logger, "name", ""):
        event.setdefault("logger", name)
    return event


def _redact(logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    for key, value in event.items():
        event[key] = _safe(value)
    return event


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
