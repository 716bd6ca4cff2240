"""Settings of what the daemon shows: the status sockets, metrics, the alarm on drift, and the log.

What lives here: the sections ``[status]`` and ``[log]``. What does not: the sockets (``api``), the lines of the log
(``runtime.logs``), and the other sections (``sections`` names them).
"""

from __future__ import annotations

from pathlib import Path

from gossipd.config import kinds
from gossipd.config.section import Section
from gossipd.config.setting import GROUP, PATH, setting

DRIFT_ASPECTS = ("version", "trust", "clients", "cluster_key", "encryption", "settings")


def _check_aspect(text: str) -> None:
    if text not in DRIFT_ASPECTS:
        raise ValueError(f"{text[:80]!r} must be one of {', '.join(DRIFT_ASPECTS)}")


class StatusSection(Section, frozen=True, kw_only=True):
    """The status socket and metrics."""

    socket: Path = setting(
        PATH, "Unix socket for status, metrics and commands. At most 107 bytes with its directory.", "gossipd.sock"
    )
    read_socket: Path = setting(
        PATH, "Unix socket that answers questions and takes no command: for jobs and scrapers.", "gossipd-read.sock"
    )
    readers: str = setting(
        kinds.Choice(("all", "group", "none")),
        'Who may use read_socket. "all": every user of this host. "group": the group below. "none": it is not made.',
        "all",
    )
    read_group: str = setting(GROUP, "That group, by name or number; empty is the daemon's own group.", "")
    metrics_port: int = setting(
        kinds.Whole(0, 65_535), "TCP port for /metrics and /healthz; 0 is none (the socket has both).", 0
    )
    metrics_bind: str = setting(
        kinds.Text("an IP address", kinds.check_address),
        "Address of that port. On any but 127.0.0.1 all who reach it may read which models and racks there are: keep\n"
        "it to the network of your monitoring. It takes no orders. gossipd 0.1 does not know it.",
        "127.0.0.1",
    )
    drift_alarm: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("version, trust, clients, cluster_key, encryption or settings", _check_aspect)),
        "What should be the same on all hosts, as `gossipd members --drift` names it: the alarm E_DRIFT when it\n"
        "differs for ten minutes, a version for a day. Empty: no alarm. Take out what differs on purpose.",
        DRIFT_ASPECTS[:-1],
        reload=True,
    )


class LogSection(Section, frozen=True, kw_only=True):
    """Lines on stderr."""

    level: str = setting(
        kinds.Choice(("debug", "info", "warning", "error")), "Least level that is logged.", "info", reload=True
    )
    format: str = setting(
        kinds.Choice(("auto", "json", "text")), '"auto": text on a terminal, else JSON lines.', "auto"
    )
