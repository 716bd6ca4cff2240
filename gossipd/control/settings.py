"""Bounds and times of the control plane's sockets and admission, with their ranges and where their values come from.

What lives here: what adapters need. What does not: what the sessions decide by (``sessions.settings``), which these
include.
"""

from __future__ import annotations

from gossipd.sessions.settings import SessionSettings


class ControlSettings(SessionSettings, frozen=True, kw_only=True):
    """Values are those of the daemon; tests shorten some. None but ``dscp`` is a user's setting."""

    pending_max: int = 256
    """Accepted connections younger than ``handshake_s``, half of them for members' addresses: a cluster that dials a
    host which comes back, several times over. Also an eighth of the process's descriptors at most."""

    pending_per_address_max: int = 128
    """The same for one address: on one machine and behind address translation many hosts share one."""

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
    """ZeroMQ's queue per dialed peer; more waits in our own queue, where deltas can still be merged."""

    requests_max: int = 4096
    """Requests under way from here at once."""

    dscp: int = 0
    """Mark of every packet of the control port, 0 to 63; 0 is none. The operator's, ``net.dscp_control``."""

    audit_per_s: float = 10.0
    """Refusals told to the audit log, per second; all are counted (threat T29: a flood must not fill the disk)."""
