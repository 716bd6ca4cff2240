"""Admission to sources: policy, pace, refusals and counters of every source, behind one lock.

What lives here: the state that all reading threads share. What does not: requests, and what to read (``reader``).
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from msgspec import Struct, field

from gossipd.core.errors import GossipdError
from gossipd.core.ids import DeploymentId
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import WEB_SCHEMES, SourceUrl
from gossipd.sources import errors
from gossipd.sources.addresses import Addresses, proxy_of, resolve
from gossipd.sources.host_pace import FOLLOWER_WAIT_S, Pace, Turn
from gossipd.sources.hub import Hub
from gossipd.sources.location import Location, authority
from gossipd.sources.mirror_rates import Brought, MirrorRates
from gossipd.sources.redirects import redirect_cure
from gossipd.sources.settings import Clock, SourceSettings

_WAITING_HELPS = (errors.SourceBusyError, errors.SourceUnreachableError, errors.SourceShortError)
_ABOUT_THE_HOST = (
    errors.SourceAuthError, errors.SourceNotFoundError, errors.SourceChangedError, errors.SourceRangeError,
    errors.SourceLongError, errors.SourceTruncatedError, errors.SourceNoRangesError, errors.SourceWholeOnlyError,
    errors.SourceEncodingError,
)  # fmt: skip
REFUSALS_MAX = 3  # refusing objects of one source before the whole source is left alone
RATED_BYTES_MIN = 128 * 1024  # less is over before TCP has opened its window
WELL_S = 10.0  # a host that has answered within this time is well: what fails there is repeated more often
REPEATS_WELL_MAX = 8
REFUSALS_WELL_MAX = 100  # of one read, some 30 s
REPEAT_PAUSE_S_MAX = 2.0  # of one request, while the host answers others
STEADY_AFTER = 8  # good ranges after a failure until a host is read in whole ranges again
GOOD_BYTES_MIN = 64 * 1024  # a request that brought as many was of use, though it broke
HOSTS_MAX = 1024  # remembered authorities; a manifest names at most 16 sources
Resolve = Callable[[SourceUrl, str], Addresses]


class Stop(Protocol):
    """What ends a wait, as an event does."""

    def is_set(self) -> bool:
        """Whether it is over."""


class SourceStatistics(Struct, frozen=True):
    """Counters since start. ``results`` counts requests by scheme and outcome (``ok`` or an error code). ``bytes`` are
    received body bytes, right or wrong. ``troubles`` has the last error of each authority, until a good answer.
    """

    requests: int
    retries: int
    bytes: int
    in_flight: int
    results: Mapping[tuple[str, str], int]
    troubles: Mapping[str, str]


class _Judged(Struct):
    """A policy, and the sources that it has admitted, each at its last addresses: those are not looked at again before
    every request."""

    policy: SourcePolicy
    admitted: dict[SourceUrl, Addresses] = field(default_factory=dict)


class SourceAdmission:
    """Thread-safe. The calling thread does the waiting, with its own stop flag."""

    def __init__(
        self, settings: SourceSettings, *, policy: SourcePolicy, rng: Random, clock: Clock, find: Resolve = resolve
    ) -> None:
        self._source_settings = settings
        self._judged = _Judged(policy)
        self._rng = rng
        self._clock = clock
        self._find = find
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._mirrors = MirrorRates()
        self._paces: dict[str, Pace] = {}
        self._resolved: dict[str, tuple[float, Addresses]] = {}
        self._refused: dict[tuple[DeploymentId, str], dict[str, tuple[float, errors.SourceError]]] = {}
        self._results: Counter[tuple[str, str]] = Counter()
        self._troubles: dict[str, str] = {}
        self._steady: Counter[str] = Counter()  # by authority: good ranges in a row, from below zero after a failure
        self._requests = self._retries = self._bytes = self._in_flight = 0

    def set_policy(self, policy: SourcePolicy) -> None:
        """For requests from now on."""
        self._judged = _Judged(policy)

    def admit(self, source: SourceUrl, what: str) -> Addresses:
        """Addresses that the policy admits, resolved now or lately; empty where a proxy or obstore resolves the host.
        Raises SourceForbiddenError, SourceUnreachableError, SourceProxyError.
        """
        judged = self._judged
        known = self._known(authority(source))
        if known is not None and judged.admitted.get(source) == known:
            return known
        try:
            judged.policy.check_url(source)
            addresses = self._found(source, what)
            judged.policy.check_addresses(source, addresses)
        except ManifestError as error:
            raise errors.SourceForbiddenError(what, str(error)) from None
        with self._lock:
            _bound(judged.admitted)
            judged.admitted[source] = addresses
        return addresses

    def admit_hub(self, location: Location, hub: Hub, at: Location) -> Addresses:
        """As ``admit``, for a place to which a hub led, where the policy names the repository or its hub. An address
        that this host's environment names as the hub's needs no entry."""
        try:
            policy = self._judged.policy
            policy.check_hub(location.source, hub.endpoint)
            addresses = self._found(at.source, location.shown)
            policy.check_addresses(at.source, [one for one in addresses if not hub.names(one)])
        except ManifestError as error:
            raise errors.SourceForbiddenError(location.shown, str(error)) from None
        return addresses

    def _found(self, source: SourceUrl, what: str) -> Addresses:
        """Where the source's host is."""
        place = authority(source)
        known, now = self._known(place), self._clock()
        if known is not None:
            return known
        direct = source.scheme in WEB_SCHEMES and proxy_of(source, what) is None
        addresses = self._find(source, what) if direct else ()
        with self._lock:
            _bound(self._resolved)
            self._resolved[place] = (now + self._source_settings.admission_s, addresses)
        return addresses

    def _known(self, place: str) -> Addresses | None:
        with self._lock:
            known_until_s, addresses = self._resolved.get(place, (-math.inf, ()))
        return addresses if self._clock() < known_until_s else None

    def judge_redirect(self, source: SourceUrl, error: errors.SourceRedirectError) -> errors.SourceRedirectError:
        """The error to raise, which names both hosts and what helps, and says whether the policy lists the target."""
        if not error.target:
            return error
        try:
            target = urlsplit(urljoin(source.text, error.target))
        except ValueError:
            return error
        host = target.netloc.rpartition("@")[2]
        shown = host if re.fullmatch(r"[A-Za-z0-9.:\[\]-]{1,253}", host) else "an address without a host"
        way, cure = f"{source.bracketed}:{source.port} redirects to {shown}", redirect_cure(target)
        try:
            self._judged.policy.check(f"{target.scheme}://{host}{target.path or '/'}")
        except ManifestError:
            way = f"{way}, which sources.allow does not list"
        return errors.SourceRedirectError(error.what, f"{way}; redirects are not followed: {cure}")

    def enter(self, source: SourceUrl, what: str, stop: Stop) -> Turn:
        """Wait until the host may be asked; ``leave`` must follow. Raises SourceCancelledError, or SourceBusyError when
        the host has answered nobody for too long.
        """
        deadline = self._clock() + self._source_settings.patience_s
        with self._lock:
            while True:
                if stop.is_set():
                    raise errors.SourceCancelledError(what, "the read was stopped")
                now = self._clock()
                pace = self._pace(source)
                wait_s = pace.wait_s(now)
                if wait_s == 0.0:
                    self._requests += 1
                    self._in_flight += 1
                    return pace.begin(now)
                if now + wait_s > max(deadline, pace.answered_s + self._source_settings.patience_s):
                    trouble = self._troubles.get(authority(source), "an earlier failure")
                    raise errors.SourceBusyError(what, f"not asked again yet, because of {trouble}")
                self._changed.wait(min(wait_s, FOLLOWER_WAIT_S))

    def answered(self, source: SourceUrl, turn: Turn) -> None:
        """The head of a good answer has come."""
        with self._lock:
            self._pace(source).answered(turn, self._clock())
            self._changed.notify_all()

    def leave(self, source: SourceUrl, turn: Turn, error: GossipdError | None, received: int) -> None:
        """One request has ended, well or with ``error``."""
        place, now = authority(source), self._clock()
        with self._lock:
            pace = self._pace(source)
            self._in_flight -= 1
            self._bytes += received
            self._results[source.scheme, "ok" if error is None else error.code] += 1
            if error is None:
                pace.answered(turn, now)
                self._troubles.pop(place, None)
                if received < GOOD_BYTES_MIN:
                    pace.connections.small_came(now - turn.sent_s)
            elif isinstance(error, errors.SourceError) and not isinstance(error, errors.SourceCancelledError):
                self._failed(source, turn, error, now)
            pace.ended(turn, is_good=error is None or received >= GOOD_BYTES_MIN)
            self._changed.notify_all()

    def _failed(self, source: SourceUrl, turn: Turn, error: errors.SourceError, now: float) -> None:
        place, pace = authority(source), self._pace(source)
        _bound(self._troubles)
        self._troubles[place] = error.sentence
        _bound(self._steady)
        self._steady[place] = -STEADY_AFTER
        if isinstance(error, errors.SourceSlowError):
            pace.connections.was_slow(turn.sent_s, now)
        if isinstance(error, errors.SourceBusyError):
            pace.refused(turn, now, is_too_many=error.is_too_many, retry_after_s=error.retry_after_s)
        if isinstance(error, _WAITING_HELPS):
            pace.failed(turn, now, error.retry_after_s)
        elif isinstance(error, _ABOUT_THE_HOST):
            pace.answered(turn, now)

    def choose(self, sources: Sequence[SourceUrl], what: str, stop: Stop) -> SourceUrl:
        """The mirror for the next read, of at least one; ``release`` must follow. Waits while each is in use as far as
        makes sense. Raises as ``enter``.
        """
        by_key = {source.text: source for source in sources}
        deadline = self._clock() + self._source_settings.patience_s
        with self._lock:
            while True:
                if stop.is_set():
                    raise errors.SourceCancelledError(what, "the read was stopped")
                now = self._clock()
                waits = {source.text: self._pace(source).wait_s(now) for source in sources}
                if len(by_key) == 1 or now > deadline or all(self._pace(source).failures for source in sources):
                    chosen: str | None = min(waits, key=waits.__getitem__)
                else:
                    places = {key: self._places(by_key[key], now) for key in by_key}
                    chosen = self._mirrors.choose(places, now)
                if chosen is not None:
                    self._mirrors.assign(chosen, by_key)
                    return by_key[chosen]
                self._changed.wait(FOLLOWER_WAIT_S)

    def _places(self, source: SourceUrl, now: float) -> int:
        pace = self._pace(source)
        is_paused = pace.wait_s(now) > 0.0 and pace.connections.under_way < pace.connections.places(now)
        return 0 if is_paused else pace.connections.places(now)

    def release(self, source: SourceUrl) -> None:
        """The read from a chosen mirror is over."""
        with self._lock:
            self._mirrors.release(source.text)
            self._changed.notify_all()

    def blame(self, source: SourceUrl, error: errors.SourceError) -> None:
        """A read from there failed: other mirrors are asked first for a while, for longer after wrong bytes."""
        with self._lock:
            if isinstance(error, errors.SourceHashError):
                self._mirrors.lied(source.text, self._clock())
            else:
                self._mirrors.failed(source.text, self._clock())

    def is_slow(self, mirror: str, location: Location, brought: Brought) -> bool:
        """See Comparison."""
        if self.is_let_go_on(mirror, location.source):
            return False
        with self._lock:
            requests = self._pace(location.source).connections.under_way
            return self._mirrors.is_slow(mirror, brought, requests)

    def is_let_go_on(self, mirror: str, source: SourceUrl) -> bool:
        """Whether a request below the least rate goes on while it moves: it is the only one to a host that is too slow
        for more, and no other mirror is there to be asked."""
        with self._lock:
            return self._pace(source).connections.is_single and not self._mirrors.has_rival(mirror, self._clock())

    def given_up(self, mirror: str) -> None:
        """See Comparison."""
        with self._lock:
            self._mirrors.given_up(mirror)

    def is_fast(self, source: SourceUrl) -> bool:
        """Whether the host's last ranges came quickly enough, and without a break, to read whole ranges."""
        with self._lock:
            return self._steady[authority(source)] > 0

    def is_breaking(self, source: SourceUrl) -> bool:
        """Whether a request to the host has failed lately."""
        with self._lock:
            return self._steady[authority(source)] < 0

    def note_rate(self, mirror: str, source: SourceUrl, turn: Turn, received: int, waited_s: float) -> None:
        """Note how quickly a range came, without our own time."""
        place = authority(source)
        with self._lock:
            requests = max(turn.level, self._pace(source).connections.under_way)
            self._mirrors.came(mirror, received, waited_s, requests, self._clock())
            if received >= GOOD_BYTES_MIN:
                self._pace(source).connections.range_came(received, waited_s, self._source_settings.rate_bytes_min)
            if self._steady[place] < 0:
                self._steady[place] += 1
            elif received >= RATED_BYTES_MIN and len(self._steady) <= HOSTS_MAX:
                self._steady[place] = int(received >= self._source_settings.whole_rate_bytes_min * waited_s)

    def take_retry(self, source: SourceUrl, error: errors.SourceError, repeats: int) -> float | None:
        """The pause before a request is repeated at this host; None when it is not. ``repeats``: this one included."""
        with self._lock:
            pace = self._pace(source)
            is_well = not pace.failures and self._clock() < pace.answered_s + WELL_S
            may_wait = error.again > 0 and not isinstance(error, errors.SourceHashError)
            is_refusal = isinstance(error, errors.SourceBusyError)
            if is_well and is_refusal:  # others have its places, and there is a pause before each
                if repeats > REFUSALS_WELL_MAX:
                    return None
            elif repeats > (REPEATS_WELL_MAX if is_well and may_wait else error.again) or not pace.take_retry():
                return None
            self._retries += 1
            if not is_well or (repeats == 1 and not is_refusal):
                return 0.0
            # The number of places spares the host; a longer pause would only make the last reads late.
            return min(REPEAT_PAUSE_S_MAX, pace.pause_s(min(1, repeats - 1) if is_refusal else repeats - 1))

    def went_on(self) -> None:
        """A request asks for what a broken one had left over."""
        with self._lock:
            self._retries += 1

    def refuse(self, deployment: DeploymentId, location: Location, error: errors.SourceError) -> None:
        """Remember for a while that this object is of no use to this deployment."""
        with self._lock:
            _bound(self._refused)
            refused = self._refused.setdefault((deployment, location.source.text), {})
            _bound(refused)
            refused[location.path] = (self._clock() + self._source_settings.refusal_remembered_s, error)

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

    def forget_all(self) -> None:
        """The sources of all deployments are to be tried again."""
        with self._lock:
            self._refused = {}

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
            self._paces[place] = Pace(self._source_settings, self._rng)
        return self._paces[place]


def _bound(table: dict[Any, Any]) -> None:
    """Make room for one more: the oldest entry goes."""
    while len(table) >= HOSTS_MAX:
        del table[next(iter(table))]
