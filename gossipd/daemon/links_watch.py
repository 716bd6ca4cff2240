"""The alarm ``E_NO_LINKS``: others are alive, and no control link to them comes up, or none of theirs comes in here.

What lives here: when that is told, and in which words. What does not: dialing and accepting (``control``), and hearing
nothing at all (``loneliness``, ``membership``), whose alarms say more.

Members are heard over UDP. Where the same port is closed for TCP they are all alive, and a host that hears of no chunks
reads storage for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio
from msgspec import Struct

from gossipd.control.control_plane import ControlPlane
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.runtime.look_interval import until_next_look
from gossipd.sessions.channel_table import LinkCounts
from membership.member import NodeId

LOOK_S = 1.0
LATE_S = 3.0  # between two looks of a daemon that is busy
WITHOUT_S = 15.0  # three times what a link that is tried again waits at most, and the time to call a host dead
NAMED_MAX = 3
_SAID_BY_OTHERS = frozenset(("E_ALONE", "E_ISOLATED"))
_CURE = (
    "open `net.port` for TCP, as for UDP, both ways between the hosts; `gossipd doctor --peers` tries it. Until then "
    "hosts do not tell each other what they hold, and storage is read twice"
)


class LinksSeen(Struct, frozen=True, kw_only=True):
    """One look at the control plane."""

    links: LinkCounts
    accepted: int
    """Connections that others have dialed."""
    others: Sequence[str]
    """Addresses of living members, in an order that stays."""
    own: str


class LinkLoss:
    """Decides; the clock is handed in."""

    def __init__(self, now: float) -> None:
        self._out_s = self._in_s = now
        """When links were as they should be last, by direction."""
        self._looked_s = now

    def look(self, now: float, seen: LinksSeen) -> str | None:
        """What to tell; None while nothing is wrong. Links come in where hosts keep links to each other, and only
        there: else a deployment's may end at one side first."""
        links, stood_s = seen.links, now - self._looked_s - LATE_S
        self._looked_s = now
        if stood_s > 0:  # the process was stopped, and its peers have cut what was silent
            self._out_s, self._in_s = self._out_s + stood_s, self._in_s + stood_s
        if not seen.others or not links.wanted or links.up:
            self._out_s = now
        if not seen.others or not links.standing or seen.accepted:
            self._in_s = now
        if now - self._out_s >= WITHOUT_S:
            named = ", ".join(seen.others[:NAMED_MAX])
            return f"no control link to any other host comes up; members are alive at {named}: {_CURE}"
        if now - self._in_s >= WITHOUT_S:
            return f"no other host's control link comes in here, at {seen.own}: {_CURE}"
        return None


class LinksWatch:
    """One per daemon."""

    def __init__(self, plane: ControlPlane, directory: MemberDirectory, alarms: Alarms) -> None:
        self._plane = plane
        self._directory = directory
        self._alarms = alarms

    async def run(self) -> None:
        """Never returns."""
        loss = LinkLoss(trio.current_time())
        while True:
            await until_next_look(LOOK_S)
            self.tell(loss.look(trio.current_time(), self.seen()))

    def seen(self) -> LinksSeen:
        """A look. Where this host hears nobody, another alarm says so, and no link is missed."""
        is_said = any(code in _SAID_BY_OTHERS for code, _ in self._alarms.rows)
        live = () if is_said else sorted(self._directory.live() - self._directory.unheard)
        others = [self._address(node) for node in live[:NAMED_MAX]]
        return LinksSeen(
            links=self._plane.links(), accepted=self._plane.listener.accepted_count, others=others,
            own=self._address(self._directory.own),
        )  # fmt: skip

    def _address(self, node: NodeId) -> str:
        return self._directory.records[node].contact

    def tell(self, sentence: str | None) -> None:
        """Begin, change or end the alarm."""
        if sentence is None:
            self._alarms.cured("E_NO_LINKS")
        else:
            self._alarms.ring_as("E_NO_LINKS", sentence)
