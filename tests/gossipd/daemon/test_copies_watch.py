"""What a host takes again for its rack: evicted versions that may come again and fit, one at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.daemon.copies_watch import CopiesWatch
from gossipd.deployment.events import CopyWanted
from gossipd.deployment.lost_copies import RackView
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb
from gossipd.store.disk.disk import Space
from membership.member import NodeId

OWN = NodeId(b"o" * 16)


class Evicted:
    """A record of version ``number`` of m, of 10 bytes."""

    def __init__(self, number: int, state: HostState = HostState.EVICTED) -> None:
        self.id, self.state, self.told_state = DeploymentId(bytes([number]) * 32), state, state
        self.statement = SimpleNamespace(verb=Verb.DEPLOY)
        self.manifest: Any = SimpleNamespace(version=number, bytes_total=10)
        self.is_live, self.is_paused, self.stall, self.reason = False, False, None, HostReason.NONE
        self.label = f"m@{number}"


class Host:
    """A disk of 100 bytes in a rack without a copy."""

    def __init__(self, *records: Evicted, used_bytes: int = 0, high: int = 0) -> None:
        self.records, self.used_bytes = list(records), used_bytes
        self.wants: dict[str, object] = {}
        self.posted: list[CopyWanted] = []
        self.settings = SimpleNamespace(replicas=1, replicas_after_s=60.0, keep_versions=2, high_watermark_percent=high)
        directory = SimpleNamespace(own=OWN)
        view = SimpleNamespace(directory=directory, view=lambda _: RackView(0, frozenset({OWN})))
        live = SimpleNamespace(config=SimpleNamespace(store=self.settings), wants=lambda: self.wants)
        store = SimpleNamespace(space=lambda: Space(100 - self.used_bytes, 100))
        self.watch = CopiesWatch(
            live=cast(Any, live), store=cast(Any, store), lifecycle=cast(Any, self), copies=cast(Any, view),
            driver=cast(Any, SimpleNamespace(post=self.posted.append)),
        )  # fmt: skip

    def __iter__(self) -> Any:
        return iter(self.records)

    def get(self, deployment: DeploymentId) -> Any:
        return next(one for one in self.records if one.id == deployment)

    def find(self, name: str) -> list[Evicted]:
        return self.records

    def model_of(self, deployment: DeploymentId) -> tuple[str, int]:
        return "m", deployment[0]

    async def taken(self) -> list[int]:
        """Versions, after so long that all are due."""
        self.posted.clear()
        await self.watch.look(0.0)
        await self.watch.look(60.0)
        return [one.deployment[0] for one in self.posted]


async def test_one_version_is_taken_while_nothing_else_is_under_way() -> None:
    assert await Host(Evicted(1), Evicted(2)).taken() == [1]
    busy = Evicted(3, HostState.DOWNLOADING)
    busy.is_live = True
    host = Host(Evicted(1), busy)
    assert await host.taken() == []
    busy.reason = HostReason.NO_SPACE
    assert await host.taken() == [1], "one that waits for an operator holds up nothing"


async def test_it_must_fit_below_the_high_watermark() -> None:
    assert await Host(Evicted(1), used_bytes=90).taken() == [1]
    assert await Host(Evicted(1), used_bytes=91).taken() == []
    assert await Host(Evicted(1), used_bytes=79, high=90).taken() == [1]
    assert await Host(Evicted(1), used_bytes=80, high=90).taken() == []
    unread = Evicted(1)
    unread.manifest = None
    assert await Host(unread).taken() == [1], "its size is seen when the manifest is read"


async def test_what_is_over_or_wanted_in_part_or_surplus_stays_evicted() -> None:
    cancelled = Evicted(1)
    cancelled.statement.verb = Verb.CANCEL
    assert await Host(cancelled, Evicted(2, HostState.REMOVED)).taken() == []
    part = Host(Evicted(1))
    part.wants = {"m": object()}
    assert await part.taken() == []
    newer = [Evicted(2, HostState.COMPLETE), Evicted(3, HostState.COMPLETE)]
    surplus = Host(Evicted(1), *newer)
    assert await surplus.taken() == [], "keep_versions would delete it at once"
    surplus.settings.keep_versions = 3
    assert await surplus.taken() == [1]
    surplus.settings.replicas = 0
    assert await surplus.taken() == []
