"""Finding the cluster: contacts by name or address, asked for ever until one answers.

What lives here: looking names up, again and again, as what they stand for may change. What does not: asking and waiting
for an answer (``membership``, which asks the addresses it was given for ever).
"""

from __future__ import annotations

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
log = get_logger("joining")


async def keep_joining(membership_host: MembershipHost, live: LiveSettings) -> None:
    """Never returns. ``net.join`` holds ``HOST:PORT``; a name is every address it has."""
    delay_s = RETRY_S
    known: list[Address] = []
    while True:
        addresses = await _resolve(live.config.net.join)
        if addresses and addresses != known:
            known = addresses
            membership_host.swim.join(addresses, trio.current_time())
            membership_host.wake()
        await trio.sleep(delay_s)
        delay_s = min(delay_s * 2, RETRY_MAX_S)


async def _resolve(contacts: Sequence[str]) -> list[Address]:
    found: list[Address] = []
    for contact in contacts:
        host, port = split_contact(contact)
        try:
            answers = await run_blocking(partial(socket.getaddrinfo, host, port, type=socket.SOCK_DGRAM))
        except OSError as error:
            log.warning("contact cannot be looked up", contact=contact, reason=str(error))
            continue
        found += [(str(answer[4][0]), port) for answer in answers]
    return sorted(set(found))
