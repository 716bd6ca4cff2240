"""Bounds and times of the connections between hosts, with their ranges and where their values come from.

What lives here: what the sessions decide by, and what a simulation of connections needs besides. What does not: times
of admission and bounds of sockets (``control.settings``, which adds to these).
"""

from __future__ import annotations

from msgspec import Struct


class SessionSettings(Struct, frozen=True, kw_only=True):
    """Values are those of the daemon; tests shorten some. None of them is a user's setting."""

    handshake_s: float = 1.5
    """Either end gives up on a handshake after this. Bounds how long a silent connection is held (threat: slow
    loris; at most 2 s), and is the pause before a joiner that was refused for now is heard again. A connection that
    is dialed must be up within twice this."""

    ask_s: float = 0.5
    """A member that never spoke from the address in its record has to answer a ping within this before it is dialed.
    Else it counts as unreachable, and is asked again after a pause. A daemon that has much to do answers within a tenth
    of that. A member that does not exist, which any other can make up, has roles for so long, and its rack peers wait.
    """

    link_queue_messages_max: int = 256
    """Our own queue per peer, deltas apart (those merge into one per deployment)."""

    link_queue_bytes_max: int = 1024 * 1024
    """Eight Holdings of a million chunks."""

    links_max: int = 2048
    """Peers dialed at once: two connections per pair in a cluster of 1,000, where 40 are usual."""

    link_idle_s: float = 60.0
    """A connection without a message for so long, without a subscription, and not a standing one, is closed. A TLS-free
    CURVE handshake costs under 1 ms; keeping a connection costs 280 bytes per heartbeat."""

    redial_min_s: float = 0.1
    redial_max_s: float = 5.0
    """Pause before a failed connection is dialed again, doubled each time, jittered by half; only while it is wanted.
    The first is short because a restarted daemon is back within a second. A connection has to be up for
    ``redial_max_s`` before the next pause is the first again. One that nothing wants any more counts as failed for the
    same pauses, and then up to a minute (``failed_peers``)."""

    silence_s: float = 5.0
    """A dialed link on which something was said, a heartbeat or any message, is dead when the other host's kernel has
    not acknowledged it, or the process not answered the heartbeat, for so long. As long as membership takes to find a
    host that has vanished (5 to 8 s). A process that dies is noticed at once by its reset."""

    heartbeat_s: float = 30.0
    """A dialed link sends a heartbeat so often, whatever else is said on it (libzmq): for links on which nothing is,
    and processes that stand still while their kernel acknowledges; membership finds both sooner. Every 3 s would be
    a large share of all control bytes."""

    resubscribe_s: float = 5.0
    """A subscription that has had no answer for so long is asked for again. Also the least pause between two
    questions about one gap."""

    early_per_peer_max: int = 64
    """Deployments that one peer may ask for before they are open here; the oldest are dropped, and the peer asks
    again. More than a host has under way."""
