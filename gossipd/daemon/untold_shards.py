"""How long shards that this host has taken over may wait for somebody to tell the cluster of them.

What lives here: how long they may wait. What does not: taking them (``job_publishing``), deleting them (``leftovers``).

A host copies its shards of a version before rank 0's host tells of it. Where a rank fails in between, nobody ever does,
and no statement will name the copy. It stays for ``UNTOLD_S``, in which the ranks may try again with the same manifest.
"""

from __future__ import annotations

from collections.abc import Callable

from gossipd.core.ids import DeploymentId

UNTOLD_S = 3600.0
LOOK_S = 60.0
UNTOLD_MAX = 1024  # beyond, the oldest waits no longer


class UntoldShards:
    """By deployment, since when. One owner; times are arguments."""

    def __init__(self) -> None:
        self._taken_s: dict[DeploymentId, float] = {}

    def taken(self, deployment: DeploymentId, now: float) -> None:
        """This host has copied its files of the version, perhaps again."""
        self._taken_s.pop(deployment, None)
        self._taken_s[deployment] = now

    def told(self, deployment: DeploymentId) -> bool:
        """A statement has come: the shards wait no longer. Returns whether they did."""
        return self._taken_s.pop(deployment, None) is not None

    def to_settle(self, is_told: Callable[[DeploymentId], bool], now: float) -> list[DeploymentId]:
        """The shards that a statement names, and those whose time is over, the oldest first."""
        surplus = max(0, len(self._taken_s) - UNTOLD_MAX)
        return [
            deployment
            for number, (deployment, taken_s) in enumerate(self._taken_s.items())
            if number < surplus or now - taken_s >= UNTOLD_S or is_told(deployment)
        ]
