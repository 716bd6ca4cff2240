"""What the daemon counts of its uploads."""

from __future__ import annotations

from typing import cast

from gossipd.core.ids import DeploymentId
from gossipd.daemon.chunk_access import ChunkAccess
from gossipd.daemon.state_dir import StateDirectory
from gossipd.store.chunk_store import ChunkStore
from membership.member import NodeId

MODEL, OTHER = DeploymentId(b"m" * 32), DeploymentId(b"o" * 32)
MATE, FAR = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_sent_bytes_are_counted_by_deployment_and_by_whether_they_left_the_rack() -> None:
    shelf = ChunkAccess(
        cast(ChunkStore, None), cast(StateDirectory, None), is_mate=lambda node: node == MATE, is_coming=lambda _: False
    )
    shelf.sent(MATE, MODEL, 100)
    shelf.sent(FAR, MODEL, 20)
    shelf.sent(MATE, MODEL, 3)
    assert shelf.sent_bytes(MODEL) == {"rack": 103, "far": 20}
    assert shelf.sent_bytes(OTHER) == {}
