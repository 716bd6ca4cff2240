"""A bulk server's port for tests: everybody is a member, and nobody is told."""

from __future__ import annotations

from gossipd.core.ids import ChunkIndex, DeploymentId
from membership.member import NodeId


class QuietPort:
    """A ``ServerPort``; tests override what they look at."""

    def is_member(self, node: NodeId) -> bool:
        return True

    def may_have(self, node: NodeId, deployment: DeploymentId) -> bool:
        return True

    def may_send(self, deployment: DeploymentId, chunk: ChunkIndex) -> bool:
        return True

    def upload_ended(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """Nobody asks."""

    def is_member_address(self, address: str) -> bool:
        return True

    def slots_changed(self, free: int) -> None:
        """Nobody asks."""

    def chunk_sent(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex, byte_count: int) -> None:
        """Nobody asks."""

    def complaint_received(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """Nobody asks."""

    def read_failed(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """Nobody asks."""
