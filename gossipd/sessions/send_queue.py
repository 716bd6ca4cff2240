"""What waits to be sent to one peer: messages in order, and deltas that merge instead of piling up.

What lives here: values and rules without a socket. What does not: the connection's state (``peer_channel``).

The queue has two parts. Messages keep their order and are bounded in number and bytes; what does not fit is refused to
the caller. Deltas are kept as at most one entry per deployment: while the peer is slow, further ones are merged into
it, so that it is bounded by the model and nothing has to be dropped. A delta gets its number when it is sent, hence
merging leaves no gap. Holdings overtake deltas that are queued, and supersede them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from gossipd.core.events import SendDelta
from gossipd.sessions.settings import SessionSettings
from gossipd.wire.control import DELTA_ITEMS_MAX, Delta, Holdings, Message
from gossipd.wire.control_frame import encode_fields, gaps

_MESSAGE_BYTES = 64  # what a frame has besides the bytes and texts of its message, at most
_SIZED = (bytes, str)


class DeltaPayload:
    """Changes of one deployment's holdings, at most ``DELTA_ITEMS_MAX`` in each ascending list; packed once for all."""

    __slots__ = ("_fields", "added", "dropped", "message", "reading")

    def __init__(
        self, stream: int, added: tuple[int, ...], dropped: tuple[int, ...], reading: tuple[int, ...], free_slots: int
    ) -> None:
        assert max(len(added), len(dropped), len(reading)) <= DELTA_ITEMS_MAX
        self.added, self.dropped, self.reading = added, dropped, reading
        self.message = Delta(stream, gaps(added), gaps(dropped), gaps(reading), free_slots)
        self._fields = b""

    @property
    def fields(self) -> bytes:
        """The fields of the frame; the same for every receiver."""
        if not self._fields:
            self._fields = encode_fields(self.message)
        return self._fields


class Outgoing(NamedTuple):
    """One message on its way out, and the number that stands in front of it."""

    message: Message | DeltaPayload
    number: int


class Backlog:
    """Deltas of one deployment that a slow peer has not been sent yet, merged; the last change of each chunk counts.

    What is being read, and the free slots, are as they are now: every delta says all of that.
    """

    def __init__(self, first: DeltaPayload) -> None:
        self._added: set[int] = set()
        self._dropped: set[int] = set()
        self.merge(first)

    def merge(self, payload: DeltaPayload) -> None:
        """Fold a later one in."""
        self._added = self._added.difference(payload.dropped).union(payload.added)
        self._dropped = self._dropped.difference(payload.added).union(payload.dropped)
        self._last, self._is_untold = payload, True

    def take(self) -> DeltaPayload:
        """The next piece of it, as much as one delta holds."""
        parts = []
        for pending in (self._added, self._dropped):
            part = tuple(sorted(pending)[:DELTA_ITEMS_MAX])
            pending.difference_update(part)
            parts.append(part)
        self._is_untold = False
        last = self._last.message
        return DeltaPayload(last.stream, parts[0], parts[1], self._last.reading, last.free_slots)

    def __bool__(self) -> bool:
        return bool(self._added or self._dropped or self._is_untold)


_Pending: TypeAlias = DeltaPayload | Backlog


class SendQueue:
    """The queue for one peer, and the numbers of what it was sent."""

    def __init__(self, settings: SessionSettings) -> None:
        self._session_settings = settings
        self._messages: list[tuple[Outgoing, int]] = []  # each with its bytes; few, and an empty deque takes 600 bytes
        self._message_bytes = 0
        self._deltas: dict[int, _Pending] = {}
        self._numbers: dict[int, int] = {}  # of the last Holdings or Delta, by stream; the peer listens to these
        self._numbered = -1  # the highest number given out; goes on when the connection fails and streams begin again

    def __bool__(self) -> bool:
        return bool(self._messages or self._deltas)

    def put(self, message: Message, *, number: int = 0) -> bool:
        """Queue a message; False when the queue is full and nothing was changed."""
        size = message_bytes(message)
        if (
            len(self._messages) >= self._session_settings.link_queue_messages_max
            or self._message_bytes + size > self._session_settings.link_queue_bytes_max
        ):
            return False
        self._messages.append((Outgoing(message, number), size))
        self._message_bytes += size
        return True

    def put_holdings(self, holdings: Holdings) -> bool:
        """Queue Holdings with a number above all before: the stream begins again there.

        Not with 0: to a peer that had Holdings before, and missed these, the next delta must not look like the next.
        """
        number = self._numbered + 1
        if not self.put(holdings, number=number):
            return False
        self._deltas.pop(holdings.stream, None)
        self._numbers[holdings.stream] = self._numbered = number
        return True

    def put_delta(self, payload: DeltaPayload) -> bool:
        """Queue a delta; False when the peer does not listen to its stream (any more)."""
        stream = payload.message.stream
        if stream not in self._numbers:
            return False
        queued = self._deltas.get(stream)
        if queued is None:
            self._deltas[stream] = payload
            return True
        if isinstance(queued, DeltaPayload):
            queued = self._deltas[stream] = Backlog(queued)
        queued.merge(payload)
        return True

    def drop_stream(self, stream: int) -> None:
        """The peer listens to this stream no more."""
        self._numbers.pop(stream, None)
        self._deltas.pop(stream, None)

    def take(self) -> Outgoing | None:
        """The next message to send; the caller sends it, or puts it back."""
        if self._messages:
            outgoing, size = self._messages.pop(0)
            self._message_bytes -= size
            return outgoing
        if not self._deltas:
            return None
        stream, pending = next(iter(self._deltas.items()))
        piece = pending.take() if isinstance(pending, Backlog) else pending
        if piece is pending or not pending:
            del self._deltas[stream]
        number = self._numbers[stream] = self._numbers[stream] + 1
        self._numbered = max(self._numbered, number)
        return Outgoing(piece, number)

    def put_back(self, outgoing: Outgoing) -> None:
        """The message could not be sent now: it is the next one again."""
        size = message_bytes(outgoing.message)
        self._messages.insert(0, (outgoing, size))
        self._message_bytes += size

    def clear(self) -> int:
        """The connection has failed: nothing is queued or listened to any more; returns how much was dropped."""
        dropped = len(self._messages) + len(self._deltas)
        self._messages.clear()
        self._message_bytes = 0
        self._deltas.clear()
        self._numbers.clear()
        return dropped


def message_bytes(message: Message | DeltaPayload) -> int:
    """What a message takes of a queue's room, about: the bytes and texts in it, and its head."""
    if isinstance(message, DeltaPayload):
        return _MESSAGE_BYTES
    parts = msgspec.structs.astuple(message)
    return _MESSAGE_BYTES + sum([len(part) for part in parts if isinstance(part, _SIZED)])


def payloads_of(stream: int, command: SendDelta) -> list[DeltaPayload]:
    """A command as payloads; one that is longer than a delta may be is split. What is being read stands on each, since
    the last one counts."""
    lists = [tuple(sorted(command.added)), tuple(sorted(command.dropped))]
    reading = tuple(sorted(command.reading))[:DELTA_ITEMS_MAX]
    pieces = max(1, *(math.ceil(len(items) / DELTA_ITEMS_MAX) for items in lists))
    return [
        DeltaPayload(stream, _piece(lists[0], piece), _piece(lists[1], piece), reading, command.free_slots)
        for piece in range(pieces)
    ]


def _piece(items: Sequence[int], piece: int) -> tuple[int, ...]:
    return tuple(items[piece * DELTA_ITEMS_MAX : (piece + 1) * DELTA_ITEMS_MAX])
