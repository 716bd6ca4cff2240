"""The connection that we dial to one peer: its state, its pauses, and its queue.

What lives here: values and rules without a socket. What does not: all of them together (``channel_table``).

=======  =======================================  ======================================================
state    means                                    leaves it by
=======  =======================================  ======================================================
WAITING  for its time to be dialed                ``dial``: DIALING. Not wanted: dropped
DIALING  asked, or the handshake is under way     ``up``: UP. ``fail``, or twice ``handshake_s``: WAITING
UP       messages can be sent                     ``fail``: WAITING. Idle and not wanted: dropped
=======  =======================================  ======================================================
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gossipd.sessions.failed_peers import PAUSE_MAX_S, LinkFailure
from gossipd.sessions.send_queue import SendQueue
from gossipd.sessions.settings import SessionSettings
from membership.member import NodeId


class Endpoint(Struct, frozen=True):
    """Where a member's control port is, the CURVE key that must answer there, and the boot number in its record: a
    connection to an earlier life is dead, though nothing may have said so after a power cut."""

    host: str
    port: int
    curve_key: bytes
    boot: int = 0


class ChannelState(Enum):
    """See the module."""

    WAITING = "waiting"
    DIALING = "dialing"
    UP = "up"


class PeerChannel:
    """State and queue of the connection to one peer. Fields are read by ``channel_table``."""

    def __init__(self, peer: NodeId, settings: SessionSettings, now: float) -> None:
        self.peer = peer
        self.state = ChannelState.WAITING
        self.endpoint: Endpoint | None = None
        self.used_s = now
        self.dial_at_s = now
        self.dial_until_s = 0.0
        self.is_asking = False  # whether it is where its record says; dialed when it has answered
        self.is_ready = False  # the caller knows that something can be sent
        self.queue = SendQueue(settings)
        self._session_settings = settings
        self._failed_at_s: float | None = None
        self._up_s = 0.0
        self._pause_s, self._pause_max_s = settings.redial_min_s, settings.redial_max_s

    def resume(self, failure: LinkFailure) -> None:
        """It is wanted again after it had failed and was let go: it is dialed when that is over, and should it fail
        again, that counts for longer, because it was no accident."""
        self._failed_at_s, self.dial_at_s = failure.at_s, max(self.dial_at_s, failure.until_s)
        self._pause_s = failure.pause_s
        self._pause_max_s = max(self._pause_max_s, min(2 * failure.pause_s, PAUSE_MAX_S))

    @property
    def failure(self) -> LinkFailure | None:
        """What follows from it if nothing wants it now; None unless it waits because it has failed."""
        if self.state is not ChannelState.WAITING or self._failed_at_s is None:
            return None
        return LinkFailure(self._failed_at_s, self.dial_at_s, self._pause_s)

    @property
    def due_s(self) -> float:
        """When one that is wanted is dialed: after ``redial_max_s``, however long its failure would else count."""
        if self._failed_at_s is None:
            return self.dial_at_s
        return min(self.dial_at_s, self._failed_at_s + self._session_settings.redial_max_s)

    def dial(self, endpoint: Endpoint, now: float, *, is_asking: bool = False) -> None:
        """A connection is begun, which must be up within two handshakes' time, or the peer asked for first."""
        self.is_asking = is_asking
        self.state, self.endpoint = ChannelState.DIALING, endpoint
        settings = self._session_settings
        self.dial_until_s = now + (settings.ask_s if is_asking else 2 * settings.handshake_s)

    def up(self, now: float) -> None:
        """The handshake has succeeded."""
        self.state, self._up_s = ChannelState.UP, now

    def fail(self, now: float, *, jitter: float) -> int:
        """Nothing is queued or listened to any more; returns how many messages were dropped by that.

        After a connection that held, the next pause is the shortest, times ``jitter``. It is not after one that failed
        as soon as it was up, or a peer that resets all connections would be dialed ten times a second.
        """
        if self.state is ChannelState.UP and now - self._up_s >= self._session_settings.redial_max_s:
            self._pause_s, self._pause_max_s = self._session_settings.redial_min_s, self._session_settings.redial_max_s
        self.state, self.is_ready = ChannelState.WAITING, False
        self._failed_at_s = now
        self.dial_at_s = now + self._pause_s * jitter
        self._pause_s = min(self._pause_s * 2, self._pause_max_s)
        return self.queue.clear()

    def hurry(self) -> None:
        """Something waits for this peer: do not sit out a long pause before dialing again, only the shortest."""
        if self._failed_at_s is not None:
            self.dial_at_s = min(self.dial_at_s, self._failed_at_s + self._session_settings.redial_min_s)
