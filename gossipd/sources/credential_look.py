"""A look for credentials that nobody waits for longer than some seconds.

What lives here: a thread for each look, and who waits for it. What does not: where credentials are looked for
(``aws_credentials``, ``google_credentials``).

The libraries that look have no bound of their own: a command of a profile may never end, a service that gives tokens
may take minutes. All reading threads would wait, so that no other mirror is read and no daemon stops.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.system_refusals import NoThreadError
from gossipd.sources.errors import SourceError, SourceUnreachableError

T = TypeVar("T")

WAIT_S = 15.0  # a command that asks a vault takes some seconds
_ENDED = "this host's reads are being ended"


class CredentialLook(Generic[T]):
    """At most one look at a time, for all threads that want its outcome. Thread-safe."""

    def __init__(self, look: Callable[[str], T], whose: str) -> None:
        """``look`` is given what is read, for its errors, and raises SourceError. ``whose``: words for its silence."""
        self._look = look
        self._whose = whose
        self._lock = threading.Lock()
        self._under_way: Future[T] | None = None
        self._began_s = 0.0
        self._is_closed = False

    def get(self, what: str) -> T:
        """The outcome of the look that is under way, or of a new one. Raises what it raises, SourceUnreachableError
        where it has not ended in time."""
        with self._lock:
            if self._is_closed:
                raise SourceUnreachableError(what, _ENDED)
            outcome = self._under_way or self._begin(what)
            left_s = self._began_s + WAIT_S - time.monotonic()
        try:
            return outcome.result(max(0.0, left_s))
        except TimeoutError:
            words = f"{self._whose} have not come for {WAIT_S:g} s: see the service or the command that gives them"
            raise SourceUnreachableError(what, words) from None
        except SourceError as error:
            raise error.about(what) from None

    def close(self) -> None:
        """Nobody waits any longer. The thread of a look that hangs is left."""
        with self._lock:
            self._is_closed = True
            if self._under_way is not None and not self._under_way.done():
                self._under_way.set_exception(SourceUnreachableError("storage", _ENDED))

    def _begin(self, what: str) -> Future[T]:
        outcome: Future[T] = Future()
        self._under_way, self._began_s = outcome, time.monotonic()
        try:
            NamedThread(target=self._run, args=(outcome, what), name="credentials", daemon=True).start()
        except NoThreadError:
            self._under_way = None
            raise SourceUnreachableError(what, "the system refuses new threads") from None
        return outcome

    def _run(self, outcome: Future[T], what: str) -> None:
        try:
            found = self._look(what)
        except SourceError as error:
            self._end(partial(outcome.set_exception, error))
        except BaseException as error:
            self._end(partial(outcome.set_exception, error))
            raise
        else:
            self._end(partial(outcome.set_result, found))

    def _end(self, tell: Callable[[], None]) -> None:
        with self._lock:
            self._under_way = None
            if not self._is_closed:
                tell()
