"""What has happened in the cluster, and what happens, one event after the other.

What lives here: ``Event``, and following a daemon that restarts. What does not: asking it (``api.client``), and what
its events mean (``api.events``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any

from gossipd.api.client import DaemonUnreachableError, StatusClient
from gossipd.client.arguments import text
from gossipd.client.errors import typed_refusals
from gossipd.client.patience import Patience

ROUND_S = 8  # under the time-out of a request


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened in the cluster, as this host has heard of it."""

    position: str
    """``BOOT:ID``: where ``events(since=...)`` goes on."""
    at: str
    """UTC, as in 2026-11-25T12:00:00Z."""
    type: str
    """``member``, ``deployment``, ``host-state``, ``source``, ``store``, ``seed``, ``config``, ``security``,
    ``alarm``; ``gap``: more has happened than is kept, or the daemon was started again, so ask for the state."""
    fields: Mapping[str, Any]


def events_of(
    daemon: StatusClient, name: str | None, since: str | None, *, follow: bool, over: Flag
) -> Iterator[Event]:
    """As ``Client.events``; ends with its round when ``over`` is set by another thread."""
    if name is not None:
        text(name, "name")
    patience = Patience(None)
    while not over.is_set():
        try:
            with typed_refusals():
                rows = daemon.events(since, wait_s=ROUND_S if follow else 0)["events"]
            patience.answered()
        except DaemonUnreachableError as error:
            if not follow:
                raise
            patience.wait_or_raise(error)
            continue
        for row in rows:
            since = f"{row['boot']}:{row['id']}"
            body = dict(row["body"])
            kind = body.pop("type")
            if name is None or kind == "gap" or body.get("deployment", "").partition("@")[0] == name:
                yield Event(since, row["at"] or "", kind, body)
        if not follow and not rows:
            return
