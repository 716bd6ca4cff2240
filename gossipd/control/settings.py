"""Every bound and time of the control plane, with its range and where its value comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """Values are those of the daemon; tests shorten some. None of them is a user's setting."""

    handshake_s: float = 1.5
    """Either end gives up on a handshake after this. Bounds how long a silent connection is held (threat: slow
    loris; at most 2 s), and is the pause before a joiner that was refused for now is heard again."""

    zap_hold_s: float = 0.5
    """How long a key that nobody knows yet is kept waiting for its member record before it is refused. A record
    sent by UDP just before dialing arrives well within it. Less than ``handshake_s``."""

    zap_held_max: int = 64
    """Unknown keys waiting at once; further ones are refused at once. Each costs a few hundred bytes."""

    temporary_refusals: int = 2
    """A key is refused this often as 300 ("not now": silence), then as 400 ("no"), within ``refusal_memory_s``.
    400 tells a person at ``gossipd trigger`` what is wrong; a node dials again after either."""

    refusal_memory_s: float = 30.0
    refused_keys_max: int = 1024
    """Refused keys remembered; the oldest are forgotten, which costs a stranger nothing and us 100 KB at most."""

    server_receive_messages_max: int = 256
    """ZeroMQ's queue per accepted peer. 50 batches a second from one peer fill it in 5 s of a stalled loop."""

    link_send_messages_max: int = 64
    """ZeroMQ's queue per dialed peer; more waits in our own queue, where news can still be merged."""

    link_queue_messages_max: int = 256
    """Our own queue per peer, deltas apart (those merge into one per deployment)."""

    link_queue_bytes_max: int = 1024 * 1024
    """Eight Holdings of a million chunks."""

    links_max: int = 2048
    """Peers dialed at once: two links per pair in a cluster of 1,000, where 40 are usual."""

    link_idle_s: float = 60.0
    """A link without a message for so long, without a subscription, and not to an acquaintance, is closed. A TLS-free
    CURVE handshake costs under 1 ms; keeping a link costs 280 bytes per heartbeat."""

    redial_min_s: float = 0.1
    redial_max_s: float = 5.0
    """Pause before a failed link is dialed again, doubled each time, jittered by half; only while it is wanted.
    The first is short because a restarted daemon is back within a second. A link has to be up for ``redial_max_s``
    before the next pause is the first again."""

    silence_s: float = 5.0
    """A dialed link on which something was said, a heartbeat or any message, is dead when the other host's kernel has
    not acknowledged it, or the process not answered the heartbeat, for so long. As long as membership takes to find a
    host that has vanished (5 to 8 s). A process that dies is noticed at once by its reset."""

    heartbeat_s: float = 30.0
    """A dialed link sends a heartbeat so often, whatever else is said on it (libzmq): for links on which nothing is,
    and processes that stand still while their kernel acknowledges; membership finds both sooner, so this is the last
    net. 9 bytes/s and link; each 3 s they were a quarter of all control bytes of a host of 1,000."""

    resubscribe_s: float = 5.0
    """A subscription that has had no answer for so long is repeated. Also the least pause between two repeats."""

    requests_max: int = 4096
    """Requests under way from here at once."""

    audit_per_s: float = 10.0
    """Refusals told to the audit log, per second; all are counted (threat T29: a flood must not fill the disk)."""
