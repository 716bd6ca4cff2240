"""Finding the cluster: contacts by name or address, asked for ever until one answers.

What lives here: looking names up, again and again, as what they stand for may change. What does not: asking and waiting
for an answer (``membership``, which retries the addresses it has by itself).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog
import trio

from gossipd.config.kinds import split_contact
from membership.member import Address
from membership.swim import Swim

RETRY_S = 2.0
RETRY_MAX_S = 30.0
SETTLED_S = 60.0  # with company found, contacts are still asked now and then: a partition that began at start heals by it
log = structlog.get_logger("joining")


async def keep_joining(
    swim: Swim, contacts: Callable[[], Sequence[str]], wake: Callable[[], None], is_alone: Callable[[], bool]
) -> None:
    """Never returns. ``contacts`` are ``HOST:PORT``; a name is every address it has."""
    delay_s = RETRY_S
    while True:
        if is_alone() and contacts():
            addresses = await _resolve(contacts())
            if addresses:
                swim.join(addresses, trio.current_time())
                wake()
            await trio.sleep(delay_s)
            delay_s = min(delay_s * 2, RETRY_MAX_S)
        else:
            delay_s = RETRY_S
            await trio.sleep(SETTLED_S if contacts() else RETRY_MAX_S)


async def _resolve(contacts: Sequence[str]) -> list[Address]:
    found: list[Address] = []
    for contact in contacts:
        host, port = split_contact(contact)
        try:
            answers = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_DGRAM)
        except OSError as error:
            log.warning("contact cannot be looked up", contact=contact, reason=str(error))
            continue
        found += [(str(answer[4][0]), port) for answer in answers]
    return list(dict.fromkeys(found))
