"""Which version ``current`` of each name should lead to here, after statements such as a roll back.

What lives here: when the store is asked to move ``current`` for a roll back, or from a version that this host's
operator trusts no longer; one work at a time for a name, and again after the disk has refused. What does not: the link
itself, and an operator's roll back of this host alone (the store's ``current_link``), and which versions are rolled
back (``deployment_table``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from gossipd.core.reasons import HostReason
from gossipd.deployment import events
from gossipd.deployment.commands import PointCurrent, WorkNumber
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb

Versions: TypeAlias = Callable[[str], Iterable[DeploymentRecord]]
"""The deployments of a name."""


class CurrentVersions:
    """One per brain."""

    def __init__(self, context: BrainContext, versions: Versions) -> None:
        self._context = context
        self._versions = versions
        self._asked: dict[WorkNumber, tuple[str, bool]] = {}  # at most one for a name
        self._retry_s = math.inf

    def settle(self) -> None:
        """Ask for what has become due: ``context.names_moved``."""
        busy = {name for name, _ in self._asked.values()}
        if math.isfinite(self._retry_s):
            return
        for name in [one for one in self._context.names_moved if one not in busy]:
            may_return = self._context.names_moved.pop(name)
            self.has_moved(name)
            if (avoided := self._avoided(name)) or may_return:
                work = self._context.next_work(self)
                self._asked[work] = name, may_return
                self._context.put(PointCurrent(work, name, avoided))

    def _avoided(self, name: str) -> frozenset[int]:
        """The versions that jobs should not begin with."""
        found = [
            one
            for one in self._versions(name)
            if one.statement.verb is Verb.ROLL_BACK or one.reason is HostReason.REFUSED_OPERATOR
        ]
        return frozenset(one.manifest.version for one in found if one.manifest is not None)

    def has_moved(self, name: str) -> None:
        """Hosts are told where ``current`` leads with the progress of each version that is complete."""
        for record in self._versions(name):
            record.current_moved = record.state is HostState.COMPLETE

    def work_ended(self, event: events.WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner."""
        name, may_return = self._asked.pop(event.work)
        self.has_moved(name)
        if isinstance(event, events.WorkFailed) and event.failure is Failure.DISK:
            self._context.warning("current is not moved yet", name=name, reason=event.error.sentence)
            self._context.names_moved[name] = may_return or self._context.names_moved.get(name, False)
            self._retry_s = now + self._context.settings.space_retry_s

    def tick(self, now: float) -> None:
        """Try again what the disk refused, when it is time."""
        if now >= self._retry_s:
            self._retry_s = math.inf
            self.settle()

    def next_deadline(self) -> float:
        """When ``tick`` is wanted next."""
        return self._retry_s
