"""Admission to sources: policy, pace, refusals and counters of every source, behind one lock.

What lives here: the state that all reading threads share. What does not: requests, and what to read (``reader``).
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urljoin, urlsplit

from gossipd.core.errors import GossipdError
from gossipd.core.ids import DeploymentId
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import WEB_SCHEMES, SourceUrl
from gossipd.sources import errors
from gossipd.sources.clients import Clock
from gossipd.sources.hub import Hub
from gossipd.sources.location import Location, authority
from gossipd.sources.pace import Pace
from gossipd.sources.settings import SourceSettings
from gossipd.sources.web_connection import Addresses, proxy_of, resolve

_WAITING_HELPS = (errors.SourceBusyError, errors.SourceUnreachableError, errors.SourceShortError)
_ABOUT_THE_HOST = (
    errors.SourceAuthError, errors.SourceNotFoundError, errors.SourceChangedError, errors.SourceRangeError,
    errors.SourceLongError, errors.SourceTruncatedError, errors.SourceNoRangesError, errors.SourceEncodingError,
)  # fmt: skip
REFUSALS_MAX = 3  # refusing objects of one source before the whole source is left alone
RATED_BYTES_MIN = 128 * 1024  # less is over before TCP has opened its window
HOSTS_MAX = 1024  # remembered authorities; a manifest names at most 16 sources
Resolve = Callable[[SourceUrl, str], Addresses]


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Counters since start. ``results`` counts requests by scheme and outcome (``ok`` or an error code). ``bytes`` are
    received body bytes, right or wrong. ``troubles`` has the last error of each authority, until a good answer.
    """

    requests: int
    retries: int
    bytes: int
    in_flight: int
    results: Mapping[tuple[str, str], int]
    troubles: Mapping[str, str]


class SourceAdmission:
    """Thread-safe. The calling thread does the waiting, with its own stop flag."""

    def __init__(
        self, settings: SourceSettings, *, policy: SourcePolicy, rng: Random, clock: Clock, find: Resolve = resolve
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._rng = rng
        self._clock = clock
        self._find = find
        self._lock = threading.Lock()
        self._paces: dict[str, Pace] = {}
        self._resolved: dict[str, tuple[float, Addresses]] = {}
        self._refused: dict[tuple[DeploymentId, str], dict[str, tuple[float, errors.SourceError]]] = {}
        self._results: Counter[tuple[str, str]] = Counter()
        self._troubles: dict[str, str] = {}
        self._fast: set[str] = set()
        self._requests = self._retries = self._bytes = self._in_flight = 0

    def set_policy(self, policy: SourcePolicy) -> None:
        """For requests from now on."""
        self._policy = policy

    def admit(self, source: SourceUrl, what: str) -> Addresses:
        """Addresses that the policy admits, resolved now or lately; empty where a proxy or obstore resolves the host.
        Raises SourceForbiddenError, SourceUnreachableError, SourceProxyError.
        """
        try:
            self._policy.check_url(source)
            addresses = self._found(source, what)
            self._policy.check_addresses(source, addresses)
        except ManifestError as error:
            raise errors.SourceForbiddenError(what, str(error)) from None
        return addresses

    def admit_hub(self, location: Location, hub: Hub, at: Location) -> Addresses:
        """The same for a place to which a hub led, where the policy names the repository or its hub. An address that
        this host's environment names as the hub's needs no entry.
        """
        try:
            self._policy.check_hub(location.source, hub.endpoint)
            addresses = self._found(at.source, location.shown)
            self._policy.check_addresses(at.source, [one for one in addresses if not hub.names(one)])
        except ManifestError as error:
            raise errors.SourceForbiddenError(location.shown, str(error)) from None
        return addresses

    def _found(self, source: SourceUrl, what: str) -> Addresses:
        """Where the source's host is."""
        place = authority(source)
        now = self._clock()
        with self._lock:
            known_until_s, addresses = self._resolved.get(place, (-math.inf, ()))
        if now >= known_until_s:
            direct = source.scheme in WEB_SCHEMES and proxy_of(source, what) is None
            addresses = self._find(source, what) if direct else ()
            with self._lock:
                _bound(self._resolved)
                self._resolved[place] = (now + self._settings.admission_s, addresses)
        return addresses

    def judge_redirect(self, source: SourceUrl, error: errors.SourceRedirectError) -> errors.SourceError:
        """The error to raise: SourceForbiddenError, which names both hosts, when the policy does not list the target.
        Neither kind of redirect is followed.
        """
        try:
            target = urlsplit(urljoin(source.text, error.target))
        except ValueError:
            return error
        host = target.netloc.rpartition("@")[2]
        try:
            self._policy.check(f"{target.scheme}://{host}{target.path or '/'}")
        except ManifestError:
            shown = host if re.fullmatch(r"[A-Za-z0-9.:\[\]-]{1,253}", host) else "an address without a host"
            return errors.SourceForbiddenError(
                error.what, f"{source.host}:{source.port} redirects to {shown}, which sources.allow does not list"
            )
        return error

    def enter(self, source: SourceUrl, what: str, stop: threading.Event) -> bool:
        """Wait until the host may be asked; ``leave`` must follow. True when its last request failed. Raises
        SourceCancelledError, or SourceBusyError when the wait would be too long.
        """
        deadline = self._clock() + self._settings.patience_s
        while True:
            if stop.is_set():
                raise errors.SourceCancelledError(what, "the read was stopped")
            now = self._clock()
            with self._lock:
                pace = self._pace(source)
                wait_s = pace.wait_s(now)
                if wait_s == 0.0:
                    self._requests += 1
                    self._in_flight += 1
                    return pace.failures > 0
                trouble = self._troubles.get(authority(source), "an earlier failure")
            if now + wait_s > deadline:
                raise errors.SourceBusyError(what, f"not asked again yet, because of {trouble}")
            stop.wait(wait_s)

    def leave(self, source: SourceUrl, error: GossipdError | None, received: int) -> None:
        """One request has ended, well or with ``error``."""
        place = authority(source)
        with self._lock:
            pace = self._pace(source)
            self._in_flight -= 1
            self._bytes += received
            self._results[source.scheme, "ok" if error is None else error.code] += 1
            if error is None:
                pace.succeeded()
                self._troubles.pop(place, None)
                return
            if isinstance(error, errors.SourceError) and not isinstance(error, errors.SourceCancelledError):
                _bound(self._troubles)
                self._troubles[place] = error.sentence
                self._fast.discard(place)
            if isinstance(error, _WAITING_HELPS):
                pace.failed(self._clock(), error.retry_after_s)
            elif isinstance(error, _ABOUT_THE_HOST):
                pace.succeeded()
            else:
                pace.left()

    def is_fast(self, source: SourceUrl) -> bool:
        """Whether the host's last range came quickly enough to read whole ranges."""
        with self._lock:
            return authority(source) in self._fast

    def note_rate(self, source: SourceUrl, received: int, waited_s: float) -> None:
        """Note how quickly a range came, without our own time."""
        if received < RATED_BYTES_MIN:
            return
        place = authority(source)
        with self._lock:
            if received >= self._settings.whole_rate_bytes_min * waited_s and len(self._fast) < HOSTS_MAX:
                self._fast.add(place)
            else:
                self._fast.discard(place)

    def take_retry(self, source: SourceUrl) -> bool:
        """True when one more repeat to this host is within its budget."""
        with self._lock:
            granted = self._pace(source).take_retry()
            self._retries += granted
            return granted

    def refuse(self, deployment: DeploymentId, location: Location, error: errors.SourceError) -> None:
        """Remember for a while that this object is of no use to this deployment."""
        with self._lock:
            _bound(self._refused)
            refused = self._refused.setdefault((deployment, location.source.text), {})
            _bound(refused)
            refused[location.path] = (self._clock() + self._settings.refusal_remembered_s, error)

    def refusal(self, deployment: DeploymentId, location: Location) -> errors.SourceError | None:
        """The recent error of this object, or one of its source when three objects refused."""
        now = self._clock()
        with self._lock:
            refused = self._refused.get((deployment, location.source.text), {})
            recent = {path: error for path, (until_s, error) in refused.items() if now < until_s}
            if len(recent) >= REFUSALS_MAX:
                return next(iter(recent.values()))
            return recent.get(location.path)

    def forget(self, deployment: DeploymentId) -> None:
        """The deployment is over, or its sources are to be tried again."""
        with self._lock:
            self._refused = {key: value for key, value in self._refused.items() if key[0] != deployment}

    def statistics(self) -> SourceStatistics:
        with self._lock:
            return SourceStatistics(
                requests=self._requests,
                retries=self._retries,
                bytes=self._bytes,
                in_flight=self._in_flight,
                results=dict(self._results),
                troubles=dict(self._troubles),
            )

    def _pace(self, source: SourceUrl) -> Pace:
        place = authority(source)
        if place not in self._paces:
            _bound(self._paces)
            self._paces[place] = Pace(self._settings, self._rng)
        return self._paces[place]


def _bound(table: dict[Any, Any]) -> None:
    """Make room for one more: the oldest entry goes."""
    while len(table) >= HOSTS_MAX:
        del table[next(iter(table))]
