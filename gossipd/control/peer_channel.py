"""One link: its state, and its queue, in which news of one deployment merges instead of piling up.

What lives here: values and rules without a socket. What does not: dialing and sending (``dialer``).

States: WAITING (for its time to be dialed) -> DIALING -> UP -> WAITING. The queue has two parts. Messages keep their
order and are bounded in number and bytes; what does not fit is refused to the caller. News (deltas) is kept as at
most one entry per deployment: while the peer is slow, further news is merged into it, so it is bounded by the model
and nothing has to be dropped. A delta gets its number when it is sent, hence merging leaves no gap. Holdings
overtake news that is queued, and supersede it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from gossipd.control.settings import ControlSettings
from gossipd.wire.control import DELTA_ITEMS_MAX, Delta, Holdings
from gossipd.wire.control_frame import encode, encode_delta, join
from membership.member import NodeId


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a member's control port is, and the CURVE key that must answer there."""

    host: str
    port: int
    curve_key: bytes


class ChannelState(Enum):
    """See the module."""

    WAITING = "waiting"
    DIALING = "dialing"
    UP = "up"


@dataclass(frozen=True, slots=True)
class DeltaPayload:
    """Changes of one deployment's holdings, at most ``DELTA_ITEMS_MAX`` in each ascending list.

    ``fields`` are packed once and shared by all receivers.
    """

    added: tuple[int, ...]
    dropped: tuple[int, ...]
    reading: tuple[int, ...]
    free_slots: int
    fields: bytes

    @classmethod
    def of(
        cls, stream: int, added: tuple[int, ...], dropped: tuple[int, ...], reading: tuple[int, ...], free_slots: int
    ) -> DeltaPayload:
        """News that is packed now."""
        fields = encode_delta(stream, added=added, dropped=dropped, reading=reading, free_slots=free_slots)
        return cls(added, dropped, reading, free_slots, fields)


@dataclass(slots=True)
class Backlog:
    """News that a slow peer has not been sent yet, merged; the last word on each chunk counts.

    What is being read, and the free slots, are as they are now: every delta says all of that.
    """

    added: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    reading: tuple[int, ...] = ()
    free_slots: int = 0
    is_untold: bool = False

    def merge(self, news: DeltaPayload) -> None:
        """Fold later news in."""
        self.added = self.added.difference(news.dropped).union(news.added)
        self.dropped = self.dropped.difference(news.added).union(news.dropped)
        self.reading, self.free_slots, self.is_untold = news.reading, news.free_slots, True

    def take(self, stream: int) -> DeltaPayload:
        """The next piece of it, as much as one delta holds."""
        parts = []
        for pending in (self.added, self.dropped):
            part = tuple(sorted(pending)[:DELTA_ITEMS_MAX])
            pending.difference_update(part)
            parts.append(part)
        self.is_untold = False
        return DeltaPayload.of(stream, parts[0], parts[1], self.reading, self.free_slots)

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.is_untold)


class PeerChannel:
    """State and queue of the connection to one peer."""

    def __init__(self, node: NodeId, settings: ControlSettings) -> None:
        self.node = node
        self.state = ChannelState.WAITING
        self.endpoint: Endpoint | None = None
        self.address = ""
        self.name = b""
        self.used_s = 0.0
        self.dial_at_s = 0.0
        self.failed_at_s = 0.0
        self.dial_until_s = 0.0
        self.up_s = 0.0
        self.streams: dict[int, int] = {}
        """Stream -> number of its last Holdings or Delta; the peer follows these."""
        self._settings = settings
        self._pause_s = settings.redial_min_s
        self._numbered = -1  # highest number given out; goes on when the link fails and streams begin anew
        self._messages: deque[bytes] = deque()
        self._message_bytes = 0
        self._news: dict[int, DeltaPayload | Backlog] = {}

    @property
    def has_queued(self) -> bool:
        """True when something waits to be sent."""
        return bool(self._messages or self._news)

    def put(self, frame: bytes) -> bool:
        """Queue a message; False when the queue is full and nothing was changed."""
        if (
            len(self._messages) >= self._settings.link_queue_messages_max
            or self._message_bytes + len(frame) > self._settings.link_queue_bytes_max
        ):
            return False
        self._messages.append(frame)
        self._message_bytes += len(frame)
        return True

    def put_holdings(self, stream: int, holdings: Holdings) -> bool:
        """Queue Holdings with a number above all before: the stream begins anew there.

        Not with 0: to a peer that had Holdings before, and missed these, the next delta must not look like the next.
        """
        number = self._numbered + 1
        if not self.put(encode(holdings, number=number)):
            return False
        self._news.pop(stream, None)
        self.streams[stream] = self._numbered = number
        return True

    def put_news(self, stream: int, news: DeltaPayload) -> bool:
        """Queue news; False when the peer does not follow this stream (any more)."""
        if stream not in self.streams:
            return False
        queued = self._news.get(stream)
        if queued is None:
            self._news[stream] = news
            return True
        if isinstance(queued, DeltaPayload):
            backlog = Backlog()
            backlog.merge(queued)
            queued = self._news[stream] = backlog
        queued.merge(news)
        return True

    def drop_stream(self, stream: int) -> None:
        """The peer follows this stream no more."""
        self.streams.pop(stream, None)
        self._news.pop(stream, None)

    def next_frame(self) -> bytes | None:
        """Take the next frame to send."""
        if self._messages:
            frame = self._messages.popleft()
            self._message_bytes -= len(frame)
            return frame
        if not self._news:
            return None
        stream, news = next(iter(self._news.items()))
        if isinstance(news, Backlog):
            piece = news.take(stream)
            if not news:
                del self._news[stream]
        else:
            piece = news
            del self._news[stream]
        number = self.streams[stream] = self.streams[stream] + 1
        self._numbered = max(self._numbered, number)
        return join(Delta, piece.fields, number=number)

    def put_back(self, frame: bytes) -> None:
        """The frame could not be sent: it is the next one again."""
        self._messages.appendleft(frame)
        self._message_bytes += len(frame)

    def dialing(self, endpoint: Endpoint, address: str, name: bytes, now: float) -> None:
        """A connection was begun; it must be up within two handshakes' time."""
        self.state = ChannelState.DIALING
        self.endpoint, self.address, self.name = endpoint, address, name
        self.dial_until_s = now + 2 * self._settings.handshake_s

    def up(self, now: float) -> None:
        """The handshake has succeeded."""
        self.state, self.up_s = ChannelState.UP, now

    def failed(self, now: float, *, jitter: float) -> int:
        """Nothing is queued or followed any more; returns how many messages were dropped by that.

        The next pause is the shortest one after a link that held, and not after one that failed as soon as it was up:
        a peer that resets all connections would be dialed, and the news of it planned for, ten times a second.
        """
        dropped = len(self._messages) + len(self._news)
        if self.state is ChannelState.UP and now - self.up_s >= self._settings.redial_max_s:
            self._pause_s = self._settings.redial_min_s
        self.state = ChannelState.WAITING
        self.failed_at_s = now
        self.dial_at_s = now + self._pause_s * jitter
        self._pause_s = min(self._pause_s * 2, self._settings.redial_max_s)
        self._messages.clear()
        self._message_bytes = 0
        self._news.clear()
        self.streams.clear()
        return dropped
