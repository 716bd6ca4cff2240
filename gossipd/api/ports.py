"""What the status socket needs of a daemon: two protocols, the only way from ``ops`` to everything else.

``StatusPort`` answers questions from memory and never waits. ``AdminPort`` act; they may wait for the disk or for the
loop that owns the planner, raise GossipdError for whatever an operator can cause, and are safe to repeat. All are
called on the trio loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

import msgspec

from gossipd.api.counters import LocalCounters
from gossipd.api.schema import DeploymentRow, HealthRow, ModelRow, PeerRow, Row, StatusSnapshot


class Done(Row, frozen=True, kw_only=True):
    """The answer to every order: ``changed`` is False when it was so already."""

    changed: bool
    sentence: str


class VerifyStep(Row, frozen=True, kw_only=True):
    """One line of a running verification: cumulative counts, and the bad chunks found since the last line.

    The last line has ``done`` true. ``bad_chunks`` are ``"FILE bytes A-B (chunk N)"``, in words for people.
    """

    chunks_checked: int
    chunks_total: int
    bad_count: int
    bad_chunks: list[str] = msgspec.field(default_factory=list)
    done: bool = False


class StatusPort(Protocol):
    """Everything there is to see, now. Values are immutable; nothing here may raise or wait."""

    def snapshot(self) -> StatusSnapshot:
        """The whole page, all deployments."""

    def deployments(self, name: str | None = None, version: int | None = None) -> Sequence[DeploymentRow]:
        """Those of that name and version; with no arguments, all. Cheaper than a whole page."""

    def models(self) -> Sequence[ModelRow]:
        """What is on this host, partial ones included, by name and then version, highest first."""

    def peers(self) -> Mapping[str, PeerRow]:
        """Traffic with each peer, by node id in hex."""

    def counters(self) -> LocalCounters:
        """Figures of this host alone, for Prometheus."""

    def health(self) -> HealthRow:
        """Whether this host may be counted upon; no secrets in it, anybody may ask."""


class AdminPort(Protocol):
    """Orders of the operator of this host."""

    async def cancel(self, name: str, version: int) -> Done:
        """Stop a deployment in the whole cluster. Raises NotFoundError."""

    async def remove(self, name: str, version: int, *, dry_run: bool) -> Done:
        """Remove it from this host; it stays removed. Raises NotFoundError."""

    async def rollback(self, name: str) -> Done:
        """Point ``current`` at the version before. Raises NotFoundError when there is none."""

    async def forget(self, node: str) -> Done:
        """Take a dead host, given by name or id, off the roster. Raises NotFoundError, or GossipdError if it lives."""

    def verify(self, name: str, version: int) -> AsyncGenerator[VerifyStep, None]:
        """Hash what lies on this disk; about one step a second, the last one ``done``. Raises NotFoundError.

        Bad chunks are dropped and fetched again by the daemon in its own time. The generator is closed when the
        client goes away.
        """
