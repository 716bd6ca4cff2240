"""Finding the cluster: contacts by name or address, asked for ever until one answers.

What lives here: looking names up, again and again, as what they stand for may change. What does not: asking and waiting
for an answer (``membership``, which asks the addresses it was given for ever). Addresses are asked at once, and names
are looked up side by side: a resolver that does not answer holds up nobody.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from functools import partial

import trio

from gossipd.config.kinds import split_contact
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.membership_host import MembershipHost
from gossipd.runtime.logs import get_logger
from gossipd.runtime.worker_threads import run_blocking
from membership.member import Address

RETRY_S = 2.0
RETRY_MAX_S = 30.0  # what a name stands for changes in minutes
THREADS = 8
log = get_logger("joining")


class Contacts:
    """One per daemon, on the trio loop. ``net.join`` holds ``HOST:PORT``; a name is every address it has."""

    def __init__(self, membership_host: MembershipHost, live: LiveSettings) -> None:
        self._membership_host = membership_host
        self._live = live
        self._threads = trio.CapacityLimiter(THREADS)
        self._found: dict[str, frozenset[Address]] = {}
        """By contact, at the last look."""
        self._known: set[Address] = set()

    async def run(self) -> None:
        """Never returns."""
        delay_s = RETRY_S
        while True:
            await self.look(self._live.config.net.join)
            await trio.sleep(delay_s)
            delay_s = min(delay_s * 2, RETRY_MAX_S)

    def without_address(self) -> list[str]:
        """The contacts that stand for no address, or for which no resolver has answered yet."""
        return [contact for contact in self._live.config.net.join if not self._found.get(contact)]

    async def look(self, contacts: Sequence[str]) -> None:
        """Look all of them up, and have membership ask them when they are others than before."""
        self._found = {contact: found for contact, found in self._found.items() if contact in contacts}
        async with trio.open_nursery() as nursery:
            for contact in contacts:
                host, port = split_contact(contact)
                if _is_address(host):
                    self._take(contact, frozenset({(host, port)}))
                else:
                    nursery.start_soon(self._look_up, contact, host, port)
        self._join()

    async def _look_up(self, contact: str, host: str, port: int) -> None:
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_DGRAM)
        try:
            answers = await run_blocking(ask, limiter=self._threads, abandon_on_cancel=True)
        except (OSError, UnicodeError) as error:
            log.warning("contact cannot be looked up", contact=contact, reason=str(error))
            self._found.pop(contact, None)
            return
        self._take(contact, frozenset((str(answer[4][0]), port) for answer in answers))

    def _take(self, contact: str, found: frozenset[Address]) -> None:
        self._found[contact] = found
        self._join()

    def _join(self) -> None:
        known = set[Address]().union(*self._found.values())
        if known and known != self._known:
            self._known = known
            self._membership_host.swim.join(sorted(known), trio.current_time())
            self._membership_host.wake()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
