"""``GET /v1/wait``: the answer is held back until a version is where it is needed, or the round is over.

What lives here: looking again, how often, and for how long. What does not: what is enough (``readiness``).

A row is made of every target's record, so looking costs time on a large cluster. All who wait for one version share a
look, which is repeated every ``LOOK_S``, or more rarely where all the looks together would take more than a twentieth
of the time. A round ends after ``ROUND_S_MAX`` with what is known then, and the client asks again; so a client that has
gone holds its place only that long. For its first seconds a host knows itself alone: a share of that is not enough.

Rejected: to be told of each record that arrives, because during a deployment every host sends one each second.
"""

from __future__ import annotations

import time

import trio
from msgspec import Struct

from gossipd.api.ports import StatusPort
from gossipd.api.readiness import (
    DeploymentEndedError,
    HostsNeeded,
    blamed,
    ended,
    is_being_filled,
    is_wanted,
    of_this_host,
    why_ended,
)
from gossipd.api.schema import DeploymentRow, Row

LOOK_S = 0.025  # an answer comes within 50 ms of the change
ROUND_S_MAX = 20.0
DEPLOYED = "deploy"  # as the last word on it
HOPELESS_S = 3.0  # a word that is superseded at once must not end the wait, nor the end of a life before this one
FILLING_S = 40.0  # the same while an object in storage is too short, which is looked at again after 30: an upload
BETWEEN_ROUNDS_S, HOPELESS_MAX = 5.0, 256
_SHARE = 20  # looking takes at most 1/20 of the time


class WaitRow(Row, frozen=True, kw_only=True):
    """The answer to one round. ``ready``: enough hosts are complete. ``sentence``: what is so, for people. ``label``:
    NAME@VERSION for people of what is not known here yet."""

    ready: bool
    sentence: str
    deployment: DeploymentRow | None
    label: str = ""


class _Look(Struct):
    row: DeploymentRow | None
    taken_s: float
    cost_s: float
    waiting: int = 0


class LongPoll:
    """Looks for all who wait."""

    def __init__(self, view: StatusPort) -> None:
        self._view = view
        self._looks: dict[tuple[str, int | None], _Look] = {}
        self._hopeless: dict[tuple[str, int | None, HostsNeeded], tuple[float, float]] = {}
        """Since when so many hosts cannot come, and when that was seen last: for longer than a round."""

    async def wait(self, name: str, version: int | None, needed: HostsNeeded, round_s: float) -> WaitRow:
        """Wait until the hosts needed are complete, at most ``round_s``. Without a version: the newest one known.
        Raises DeploymentEndedError when they will not be: at once after a word that stops it."""
        key = (name, version)
        look = self._looks.setdefault(key, _Look(None, -1.0, 0.0))
        look.waiting += 1
        began = time.monotonic()
        try:
            with trio.move_on_after(min(round_s, ROUND_S_MAX)):
                while not self._is_ready(key, look, needed):
                    await trio.sleep(self._interval_s())
            self._raise_if_so_all_along((*key, needed), look.row, began, round_s)
        except DeploymentEndedError as error:
            assert look.row is not None
            raise blamed(error, look.row, self._view.deployments(name, look.row.version)) from None
        finally:
            look.waiting -= 1
            if not look.waiting:
                del self._looks[key]
        return self._answer(key, look, needed)

    def _interval_s(self) -> float:
        return max(LOOK_S, _SHARE * sum(look.cost_s for look in self._looks.values()))

    def _is_ready(self, key: tuple[str, int | None], look: _Look, needed: HostsNeeded) -> bool:
        now = time.monotonic()
        if look.taken_s < 0 or now - look.taken_s >= self._interval_s() / 2:
            look.row = newest_row(self._view, *key)
            look.taken_s = now
            look.cost_s = time.monotonic() - now
        if look.row is None:
            return False
        here = self._view.host_name()
        settling = self._settling(needed)
        if needed.met_by(look.row, here):
            return not settling
        end = why_ended(look.row, needed, here)
        if end is not None and look.row.word != DEPLOYED:
            raise end
        lasts_s = HOPELESS_S
        if end is None and not settling and needed.is_hopeless(look.row):
            end = ended(look.row)
            lasts_s = FILLING_S if is_being_filled(look.row) else HOPELESS_S
        if end is not None:
            self._raise_if_lasting(end, (*key, needed), now, lasts_s)
        else:
            self._hopeless.pop((*key, needed), None)
        return False

    def _raise_if_so_all_along(
        self, key: tuple[str, int | None, HostsNeeded], row: DeploymentRow | None, began: float, round_s: float
    ) -> None:
        """A caller that has less time than an end has to last hears of one that was so for all of it."""
        since_s, _ = self._hopeless.get(key, (began + HOPELESS_S, 0.0))
        is_so = 0.0 < round_s < HOPELESS_S and since_s <= began + LOOK_S
        if row is not None and is_so and (end := why_ended(row, key[2], self._view.host_name())) is not None:
            raise end

    def _raise_if_lasting(
        self, end: DeploymentEndedError, key: tuple[str, int | None, HostsNeeded], now: float, lasts_s: float
    ) -> None:
        """What is deployed again has ended before, as far as hosts have told yet."""
        self._hopeless = {one: times for one, times in self._hopeless.items() if now - times[1] < BETWEEN_ROUNDS_S}
        since_s, _ = self._hopeless.pop(key, (now, now))
        if now - since_s >= lasts_s:
            raise end
        self._hopeless[key] = (since_s, now)
        if len(self._hopeless) > HOPELESS_MAX:  # of the one that was seen least lately
            del self._hopeless[next(iter(self._hopeless))]

    def _answer(self, key: tuple[str, int | None], look: _Look, needed: HostsNeeded) -> WaitRow:
        row = look.row
        if row is None:
            label = self._view.label(*key)
            sentence = f"no deployment {label} is known here"
            return WaitRow(ready=False, sentence=sentence, deployment=None, label=label)
        here = self._view.host_name()
        settling, sentence = self._settling(needed), needed.so_far(row, here)
        if settling:
            sentence += f"; {settling}, and may not have heard of all hosts"
        is_ready = needed.met_by(row, here) and not settling
        return WaitRow(ready=is_ready, sentence=sentence, deployment=row)

    def _settling(self, needed: HostsNeeded) -> str:
        """A share of the hosts that a host which has just started knows is no share of all."""
        return self._view.newcomer(at_start=True) if needed.share else ""


def newest_row(view: StatusPort, name: str, version: int | None) -> DeploymentRow | None:
    """The row of that version; of the highest that is wanted where none is given. Of two contents that of this host."""
    rows = view.deployments(name, version)
    return of_this_host(row for row in rows if version is not None or is_wanted(row))
