"""What the last step of a publication waits for; the whole of it is tested in ``tests/e2e/test_job_publishing.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from gossipd.api.readiness import HostsNeeded
from gossipd.core.ids import DeploymentId
from gossipd.daemon.job_publishing import LOOK_S, JobPublishing, NotDeployedError, TwoContentsError
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import HostState
from tests.gossipd.deployment.scripted_host import ONE, said


class Parts:
    """A publication whose version has the record's state; a row says that it is complete once that was told."""

    def __init__(self, record: DeploymentRecord) -> None:
        self.record = record
        self.told_s: list[float] = []
        self.refuses_to_tell = 0
        self.others: list[DeploymentId] = []
        nothing = cast(Any, SimpleNamespace())
        self.publishing = JobPublishing(
            live=nothing, store=nothing, statements=nothing,
            view=cast(Any, SimpleNamespace(host_name=lambda: "here", deployments=self._rows)),
            driver=cast(Any, SimpleNamespace(lifecycle=SimpleNamespace(get=lambda _: self.record))),
            nursery=nothing, state=nothing, progress=cast(Any, SimpleNamespace(tell_due=self._tell)),
        )  # fmt: skip

    def _rows(self, name: str, version: int) -> list[object]:
        told = [*self.others, *([] if self.record.changed else [self.record.id])]
        return [SimpleNamespace(id=one.hex()) for one in told]

    def _tell(self, now: float) -> None:
        self.told_s.append(now)
        if self.refuses_to_tell:
            self.refuses_to_tell -= 1
        else:
            self.record.changed = False

    async def complete(self) -> float:
        """The seconds that the last step takes."""
        began_s = trio.current_time()
        await self.publishing._complete(cast(Any, ONE))
        return trio.current_time() - began_s


@pytest.fixture(autouse=True)
def any_row_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostsNeeded, "met_by", lambda *_: True)


async def test_a_host_at_rest_tells_what_it_has_published_at_once(autojump_clock: trio.testing.MockClock) -> None:
    parts = Parts(DeploymentRecord(ONE.id, said(ONE.id), state=HostState.COMPLETE))
    assert await parts.complete() == 0.0
    assert len(parts.told_s) == 1


async def test_what_may_not_be_told_yet_is_tried_again_soon(autojump_clock: trio.testing.MockClock) -> None:
    parts = Parts(DeploymentRecord(ONE.id, said(ONE.id), state=HostState.COMPLETE))
    parts.refuses_to_tell = 3
    assert await parts.complete() == pytest.approx(3 * LOOK_S)


async def test_a_version_that_ends_otherwise_is_an_error_with_its_state(autojump_clock: trio.testing.MockClock) -> None:
    parts = Parts(DeploymentRecord(ONE.id, said(ONE.id), state=HostState.FAILED))
    with pytest.raises(NotDeployedError):
        await parts.complete()
    assert parts.told_s == []


async def test_a_version_that_has_two_contents_ends_for_its_publisher(autojump_clock: trio.testing.MockClock) -> None:
    parts = Parts(DeploymentRecord(ONE.id, said(ONE.id), state=HostState.COMPLETE))
    parts.others = [DeploymentId(bytes(32))]
    with pytest.raises(TwoContentsError, match="with other content \\(000000000000\\)"):
        await parts.complete()
