"""The alarm ``E_ALONE``, and a line in the log each minute, while this host hears no other.

What lives here: the alarm ``E_ALONE`` with what was seen; whether this host has had the time to hear the others. What
does not: verdicts on members, which wait for several silent ones (``membership``): a small cluster, a first rack or a
new host would not be told otherwise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import trio
from msgspec import Struct

from gossipd.core.timing import CLOCKS_APART_MAX_S
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.contacts import Contacts
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from membership.member import MemberState
from membership.swim import Swim

LOOK_S = 1.0
ALONE_S = 10.0  # twenty rounds of probes; a join is asked for eight times
PROBES_LEAST = 5
NEWCOMER_S = 3.0  # what others know comes with the answer to a join, and soon after it
LOG_EACH_S = 60.0
CONTACTS_NAMED = 3
log = get_logger("joining")


def is_alone(swim: Swim, live: LiveSettings) -> bool:
    """Whether there should be others, and this host knows of none that lives."""
    return bool(live.config.net.join) and sum(each.state is MemberState.ALIVE for each in swim.members()) < 2


class Newcomer:
    """Why this host may not have heard yet what the others know; from its start."""

    def __init__(self, now: float) -> None:
        self.started_s = self._alone_s = now

    def words(self, now: float, swim: Swim, live: LiveSettings) -> str:
        """As a part of a sentence; empty when it has had the time."""
        if not live.config.net.join:
            return ""
        if is_alone(swim, live):
            self._alone_s = now
            return "this host has found no other member yet"
        with_others_s = now - self._alone_s
        return f"this host is with others for {with_others_s:.0f} s only" if with_others_s < NEWCOMER_S else ""

    def settling(self, now: float, swim: Swim, live: LiveSettings) -> str:
        """The same while this host starts. Later it answers by what it knows, though its contacts may be silent for
        good: ``E_ALONE`` says that."""
        return self.words(now, swim, live) if now < self.started_s + ALONE_S else ""


class Hearing(Struct, frozen=True, kw_only=True):
    """What membership has counted since the start, and whom this host should hear."""

    datagrams_in: int
    unsealed: int
    """Datagrams that no cluster key of this host opens."""
    replayed: int
    contacts: Sequence[str]
    nowhere: Sequence[str] = ()
    """Of the contacts those that have no address."""
    others: int
    """Hosts on the roster that have not left."""
    answered: int = 0
    failed: int = 0
    """Probes of this host's: those that no datagram answered have failed, though the control channel may have."""
    is_isolated: bool
    boot_ahead_s: float = 0.0
    """By how much the number of this start is ahead of the wall clock."""


def hearing(
    counts: Mapping[str, int], *, contacts: Sequence[str], others: int, boot_ahead_s: float = 0.0,
    nowhere: Sequence[str] = (),
) -> Hearing:  # fmt: skip
    """From the counters of ``Swim.statistics``."""
    return Hearing(
        datagrams_in=counts.get("datagrams_in", 0), unsealed=counts.get("dropped_unsealed", 0),
        replayed=counts.get("dropped_replays", 0), contacts=contacts, others=others,
        is_isolated=bool(counts.get("isolated", 0)), answered=counts.get("probes_answered", 0),
        failed=counts.get("probes_failed", 0) + counts.get("probes_saved_by_control", 0), boot_ahead_s=boot_ahead_s,
        nowhere=nowhere,
    )  # fmt: skip


class Loneliness:
    """Decides; the clock is handed in. Alone: nothing was heard for ``ALONE_S`` though there should be somebody, or
    every probe failed for as long."""

    def __init__(self, now: float) -> None:
        self._heard_s = self._answered_s = now
        self._before = self._before_answer = hearing({}, contacts=(), others=0)
        """As it was when something was heard last, and when a probe was answered last."""

    def look(self, now: float, seen: Hearing) -> str | None:
        """What to tell, None while this host is not alone."""
        should_hear = bool(seen.contacts or seen.others)
        if seen.datagrams_in != self._before.datagrams_in or not should_hear:
            if now - self._heard_s >= ALONE_S:  # what failed in the silence says nothing of what is heard now
                self._answered_s, self._before_answer = now, seen
            self._heard_s, self._before = now, seen
        if seen.answered != self._before_answer.answered or not should_hear:
            self._answered_s, self._before_answer = now, seen
        if seen.is_isolated:
            return None
        is_alone = now - self._heard_s >= ALONE_S
        if not is_alone and now - self._answered_s < ALONE_S:
            return None
        if seen.boot_ahead_s > CLOCKS_APART_MAX_S:
            return (
                f"others may refuse this host: the number of its start is {seen.boot_ahead_s / 3600:.0f} h ahead of "
                "its clock, as that was once; where the clock is right now, restart it: it begins from the clock"
            )
        if is_alone:
            return f"this host hears no other; {self._what(seen, self._before)}"
        if seen.failed - self._before_answer.failed >= PROBES_LEAST:
            return (
                "this host hears others, and all its probes fail; is UDP open from here to them, and does "
                "`net.advertise` lead here?"
            )
        return None

    def _what(self, seen: Hearing, before: Hearing) -> str:
        if seen.unsealed != before.unsealed:
            return "others send datagrams that our cluster key does not open: compare `cluster.key`"
        if seen.replayed != before.replayed:
            return "the datagrams that come are old copies: look at the clocks, and at who sends them"
        lost = ", ".join(seen.nowhere[:CONTACTS_NAMED])
        lookup = f"no address was found for {lost}: is the name right, and does the resolver answer?" if lost else ""
        asked = [contact for contact in seen.contacts if contact not in seen.nowhere]
        if not asked and (lookup or not seen.others):
            return lookup
        named = ", ".join(f"{contact}/udp" for contact in asked[:CONTACTS_NAMED])
        whom = f"no answer from {named}" if named else f"no answer from {seen.others} hosts on the roster"
        cure = "is UDP open both ways, is it the right address, has it the same `cluster.key`?"
        return f"{lookup}{' ' if lookup else ''}{whom}: {cure}"


class LonelinessWatch:
    """One per daemon."""

    def __init__(
        self, swim: Swim, live: LiveSettings, alarms: Alarms, state: StateDirectory, contacts: Contacts
    ) -> None:
        self._swim = swim
        self._contacts = contacts
        self._live = live
        self._alarms = alarms
        self._state = state
        self._logged_s = -math.inf
        self._begins_from_clock = False

    async def run(self, clock: Callable[[], float] = trio.current_time) -> None:
        """Never returns."""
        loneliness = Loneliness(clock())
        while True:
            await until_next_look(LOOK_S)
            seen = self._seen()
            sentence = loneliness.look(clock(), seen)
            self.tell(sentence, clock())
            begins_from_clock = sentence is not None and seen.boot_ahead_s > CLOCKS_APART_MAX_S
            if begins_from_clock != self._begins_from_clock:
                with suppress(StateWriteError):  # which has its own alarm; tried again
                    await run_blocking(self._state.keep_boot, None if begins_from_clock else self._own_boot())
                    self._begins_from_clock = begins_from_clock

    def _seen(self) -> Hearing:
        counts = self._swim.statistics()
        others = counts["members_known"] - counts["members_left"] - 1
        ahead_s = self._own_boot() - time.time()
        return hearing(
            counts, contacts=self._live.config.net.join, others=others, boot_ahead_s=ahead_s,
            nowhere=self._contacts.without_address(),
        )  # fmt: skip

    def _own_boot(self) -> int:
        return self._swim.self_record().boot

    def tell(self, sentence: str | None, now: float) -> None:
        """Begin, change or end the alarm; log it at most once a minute."""
        if sentence is None:
            self._alarms.cured("E_ALONE")
            self._logged_s = -math.inf
            return
        self._alarms.ring_as("E_ALONE", sentence)
        if now - self._logged_s >= LOG_EACH_S:
            self._logged_s = now
            counts = self._swim.statistics()
            log.warning(
                "alone", code="E_ALONE", reason=sentence, unsealed=counts.get("dropped_unsealed", 0),
                joins_sent=counts.get("joins_sent", 0),
            )  # fmt: skip
