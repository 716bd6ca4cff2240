"""What the daemon counts of its uploads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.daemon.chunk_access import ChunkAccess
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.runtime.ports import NotHeldError
from gossipd.store.chunk_store import ChunkStore
from membership.member import NodeId

MODEL, OTHER = DeploymentId(b"m" * 32), DeploymentId(b"o" * 32)
RACK_PEER, FAR = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_sent_bytes_are_counted_by_deployment_and_by_whether_they_left_the_rack() -> None:
    chunk_access = ChunkAccess(
        cast(ChunkStore, None),
        cast(StateDirectory, None),
        cast(MemberDirectory, SimpleNamespace(is_rack_peer=lambda node: node == RACK_PEER)),
        cast(DeploymentTable, None),
    )
    chunk_access.sent(RACK_PEER, MODEL, 100)
    chunk_access.sent(FAR, MODEL, 20)
    chunk_access.sent(RACK_PEER, MODEL, 3)
    assert chunk_access.sent_bytes(MODEL) == {"rack": 103, "far": 20}
    assert chunk_access.sent_bytes(OTHER) == {}


def test_what_is_not_open_here_is_not_served() -> None:
    opened = SimpleNamespace(length=7)
    lifecycle = SimpleNamespace(is_served=lambda deployment: deployment == MODEL)
    store = SimpleNamespace(open_chunk=lambda deployment, chunk: opened)
    access = ChunkAccess(cast(ChunkStore, store), cast(Any, None), cast(Any, None), cast(DeploymentTable, lifecycle))
    assert access.open_chunk(MODEL, 0) is cast(Any, opened)
    with pytest.raises(NotHeldError):
        access.open_chunk(OTHER, 0)
