"""``net.background``: keeps this daemon's model bytes to their share of the host's link while others use it, too.

What lives here: looking at the interface, and holding both directions to what ``transfer.link_share`` says. What does
not: the decision, and limits that the operator has set (``scheduled_limits``), which count beside it.

At rest the interface is looked at once a second, so that others are known before a deployment begins.
"""

from __future__ import annotations

import time

import trio

from gossipd.core.units import show_bytes
from gossipd.runtime.bulk_sockets import BulkSockets, WindowLimit, WireBytes
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.network_interface import LOOPBACK, InterfaceBytes, bytes_of, interface_of
from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.link_share import LinkCounters, LinkShare

LOOK_S = 0.05
RESTING_LOOK_S = 1.0
# Without windows a limit would only hold back the reading: each chunk would come at the link's rate into the kernel's
# buffer.
WINDOW_S = 0.001  # of the rate: what each peer may have on its way to us, which waits in front of others' packets
WINDOW_BYTES_MIN = 16 * 1024
log = get_logger("bulk")


class LinkSharing:
    """One per daemon, on the trio loop. Nothing is limited unless ``run`` runs."""

    def __init__(self, sockets: BulkSockets) -> None:
        self.upload, self.download = RateLimit(), RateLimit()
        """Limits within which those of the operator lie."""
        self._sockets = sockets
        self._share = LinkShare()
        self._own = WireBytes()
        self._is_shared = False
        self._told = self._interface = ""

    async def run(self, address: str) -> None:
        """Never returns. ``address``: of the interface over which model bytes go; it may come late, or move."""
        interface, found_s = self._find(address), trio.current_time()
        while True:
            if trio.current_time() - found_s >= RESTING_LOOK_S:
                interface, found_s = self._find(address), trio.current_time()
            if self.look(interface, trio.current_time(), time.time()):
                # At moments that hosts have in common, as their trials begin and end with a look.
                await trio.sleep(LOOK_S - time.time() % LOOK_S)
                continue
            await until_next_look(RESTING_LOOK_S)
            interface, found_s = self._find(address), trio.current_time()

    def _find(self, address: str) -> str:
        """Empty: others cannot be noticed, as the log tells once."""
        found, why = interface_of(address), ""
        if found is None:
            why = "no network interface has this address: others are not noticed"
        elif found == LOOPBACK:  # it counts each byte as sent and as received: own ones would pass for others'
            why = "net.background does nothing on a loopback address"
        if why and why != self._told:
            log.warning(why, address=address)
        self._told = why
        return "" if why else found or ""

    def look(self, interface: str, now: float, wall_s: float) -> bool:
        """Compare with the last look. Returns whether model bytes have moved since."""
        self._sockets.watch(interface)
        carried, own = bytes_of(interface), self._sockets.look()
        is_moving, self._own = own != self._own, own
        is_another, self._interface = self._interface not in ("", interface), interface  # whose counters are others
        is_blind = not self._sockets.were_all() or is_another or carried is None
        carried = carried or InterfaceBytes(0, 0)
        sent = LinkCounters(carried.sent, own.sent, own.acknowledged)
        received = LinkCounters(carried.received, own.received, own.received)
        self._share.heard(sent, received, now, wall_s, is_blind=is_blind)
        self._apply()
        return is_moving

    def _apply(self) -> None:
        sending, receiving = self._share.sending, self._share.receiving
        self.upload.set_rate(sending.rate, piece_rate=sending.held)
        self.download.set_rate(receiving.rate, piece_rate=receiving.held)
        held = receiving.held
        window = None if held is None else WindowLimit(WINDOW_BYTES_MIN, held, WINDOW_S)
        self._sockets.limit_windows(window)
        if self._share.is_shared is not self._is_shared:
            self._is_shared = self._share.is_shared
            told = {} if held is None else {"download": f"{show_bytes(held)}/s"}
            log.info("others use the link" if self._is_shared else "nobody else uses the link", **told)
