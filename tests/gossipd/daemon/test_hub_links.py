"""When the links of a Hub's cache are looked at, and that no trouble of a directory ends it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from gossipd.daemon.hub_links import RETRY_S, HubLinks
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import HostState
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.hub_cache import REVISION_DIGITS
from tests.gossipd.deployment.scripted_host import ONE, said


async def test_a_store_that_cannot_be_read_is_looked_at_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    troubles: list[Exception] = [StoreUnreadableError("models cannot be read"), PermissionError(13, "no", "models")]

    def current(name: str) -> int:
        assert name == ONE.name
        if troubles:
            raise troubles.pop(0)
        return ONE.version

    record = DeploymentRecord(ONE.id, said(), ONE, state=HostState.COMPLETE, is_open=True)
    hf = SimpleNamespace(caches=(tmp_path / "cache",), names=((ONE.name, ("acme/one",)),))
    config = SimpleNamespace(hf=hf, store=SimpleNamespace(models=tmp_path / "models"))
    links = HubLinks(
        cast(Any, SimpleNamespace(config=config)), cast(Any, [record]), cast(Any, SimpleNamespace(current=current))
    )
    snapshot = tmp_path / "cache" / "models--acme--one" / "snapshots" / ONE.id.hex()[:REVISION_DIGITS]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(links.run)
        for _ in range(100):
            await trio.sleep(RETRY_S)
            await trio.to_thread.run_sync(lambda: None)
            if snapshot.is_symlink():
                break
        nursery.cancel_scope.cancel()
    assert snapshot.readlink() == tmp_path / "models" / ONE.name / str(ONE.version)
