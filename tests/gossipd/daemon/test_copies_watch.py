"""What a host takes again for its rack is asked for once it is due, whatever the disk says meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import trio

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.daemon.copies_watch import LOOK_S, CopiesWatch
from gossipd.deployment.events import CopyWanted
from gossipd.deployment.lost_copies import RackView
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.disk.disk import Space
from membership.member import NodeId

OWN = NodeId(b"o" * 16)
EVICTED = SimpleNamespace(
    id=DeploymentId(b"1" * 32), state=HostState.EVICTED, statement=SimpleNamespace(verb=Verb.DEPLOY), label="m@1",
    manifest=SimpleNamespace(version=1, bytes_total=10), is_live=False, is_paused=False, reason=HostReason.NONE,
)  # fmt: skip


class Host:
    """A disk of 100 bytes in a rack without a copy of m@1."""

    def __init__(self) -> None:
        self.posted: list[CopyWanted] = []
        self.answers: list[Space | StoreWriteError] = []
        self.evicted, self.looked_at, self.is_asked = [EVICTED], list[DeploymentId](), False
        settings = SimpleNamespace(replicas=1, replicas_after_s=2 * LOOK_S, keep_versions=2, high_watermark_percent=0)
        copies = SimpleNamespace(
            directory=SimpleNamespace(own=OWN), view=lambda _: RackView(0, frozenset({OWN})), look_again=self.look_again
        )  # fmt: skip
        self.watch = CopiesWatch(
            live=cast(Any, SimpleNamespace(config=SimpleNamespace(store=settings), wants=dict)),
            store=cast(Any, self), lifecycle=cast(Any, self), copies=cast(Any, copies),
            driver=cast(Any, SimpleNamespace(post=self.posted.append)),
        )  # fmt: skip

    async def look_again(self, deployment: DeploymentId) -> bool:
        self.looked_at.append(deployment)
        return self.is_asked

    def __iter__(self) -> Any:
        return iter(self.evicted)

    def get(self, deployment: DeploymentId) -> Any:
        return EVICTED

    def find(self, name: str) -> list[Any]:
        return [SimpleNamespace(told_state=HostState.EVICTED)]

    def model_of(self, deployment: DeploymentId) -> tuple[str, int]:
        return "m", 1

    def space(self) -> Space:
        answer = self.answers.pop(0) if self.answers else Space(100, 100)
        if isinstance(answer, StoreWriteError):
            raise answer
        return answer


async def test_a_copy_is_asked_for_when_it_is_due_and_fits() -> None:
    host = Host()
    await host.watch.look(0.0)
    assert host.posted == []
    host.answers = [Space(9, 100)]
    await host.watch.look(2 * LOOK_S)
    assert host.posted == []
    await host.watch.look(3 * LOOK_S)
    assert host.posted == [CopyWanted(EVICTED.id)]


async def test_a_disk_that_does_not_answer_ends_no_daemon(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    host.answers = [StoreWriteError("statvfs: Input/output error")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.watch.run)
        while not host.posted:  # the clock goes on while a thread asks the disk, so no number of looks is enough
            await trio.sleep(LOOK_S)
        nursery.cancel_scope.cancel()
    assert host.answers == [], "the disk did not answer once"


async def test_the_copies_of_one_version_after_the_other_are_looked_at() -> None:
    host = Host()
    host.evicted = [
        SimpleNamespace(id=DeploymentId(bytes((number,)) * 32), state=HostState.EVICTED) for number in b"123"
    ]
    await host.watch._look_again([one.id for one in host.evicted])
    assert len(host.looked_at) == 3, "none was due"
    host.is_asked, host.looked_at = True, []
    for _ in range(3):
        await host.watch._look_again([one.id for one in host.evicted])
    assert sorted(host.looked_at) == [one.id for one in host.evicted]
    await host.watch._look_again([])
