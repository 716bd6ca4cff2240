"""What the operator of this host may order on the local socket: the body of ``ops.doors.AdminPort``.

What lives here: the orders. What does not: who may give them (the socket's mode) and how they are worded on the wire.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator

import trio

from gossipd.api.ports import Done, VerifyStep
from gossipd.core.errors import LocalError, NotFoundError
from gossipd.daemon.deployment import Deployment
from gossipd.daemon.deployments import Deployments
from gossipd.daemon.dissemination import Dissemination
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.progress import HostReason, HostState
from gossipd.deployment.statement import Verb
from gossipd.deployment.statement_file import snapshot
from gossipd.deployment.statement_store import StatementStore
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models.scrub import Checked
from membership.member import MemberState, NodeId
from membership.swim import Swim

VERIFY_STEP_S = 0.5  # how much hashing lies between two lines of progress


class MemberAliveError(LocalError):
    """A member that is alive cannot be forgotten. Fault: the operator. Retry: after it was stopped."""

    code = "E_MEMBER_ALIVE"


class AdminOperations:
    """See AdminPort."""

    def __init__(
        self,
        *,
        swim: Swim,
        wake: Callable[[], None],
        register: StatementStore,
        deployments: Deployments,
        dissemination: Dissemination,
        store: ChunkStore,
        state: StateDirectory,
        progress_publisher: ProgressPublisher,
        audit: Callable[..., None],
    ) -> None:
        self._swim = swim
        self._wake = wake
        self._register = register
        self._deployments = deployments
        self._dissemination = dissemination
        self._store = store
        self._state = state
        self._progress_publisher = progress_publisher
        self._audit = audit

    def _one(self, name: str, version: int) -> Deployment:
        found = self._deployments.find(name, version)
        if not found:
            raise NotFoundError(f"no deployment {name}@{version} is known here")
        return found[0]

    async def cancel(self, name: str, version: int) -> Done:
        """See AdminPort."""
        deployment = self._one(name, version)
        if deployment.statement.verb is Verb.CANCEL:
            return Done(changed=False, sentence=f"{name}@{version} is cancelled already")
        size = deployment.statement.manifest_bytes
        self._dissemination.say(deployment.id, Verb.CANCEL, size)
        await self._keep_register()
        self._audit("cancelled", name=name, version=version)
        return Done(changed=True, sentence=f"{name}@{version} is cancelled; hosts that are complete keep it")

    async def remove(self, name: str, version: int, *, dry_run: bool) -> Done:
        """See AdminPort."""
        deployment = self._one(name, version)
        manifest = deployment.manifest
        assert manifest is not None
        was_removed = self._register.is_removed(deployment.id)
        nothing_to_do = Done(changed=False, sentence=f"{name}@{version} was removed from this host before")
        if dry_run:
            words = f"would remove {name}@{version}, {manifest.bytes_total} bytes, from this host"
            return nothing_to_do if was_removed else Done(changed=False, sentence=words)
        is_kept = await self._deployments.remember_removed(deployment.id)
        self._deployments.close(deployment, HostState.CANCELLED, HostReason.REMOVED)
        try:
            await run_blocking(self._store.remove, name, version)
        except NotFoundError:  # it was never begun here, or is deleted; the mark is what counts
            if was_removed:
                return nothing_to_do
        if not is_kept:
            await self._keep_register()
        self._audit("removed", name=name, version=version)
        return Done(changed=True, sentence=f"{name}@{version} is removed from this host and stays removed")

    async def rollback(self, name: str) -> Done:
        """See AdminPort."""
        if not self._store.versions(name):
            raise NotFoundError(f"no complete version of {name} is on this host")
        version = await run_blocking(self._store.rollback, name)
        self._audit("rolled back", name=name, version=version)
        return Done(changed=True, sentence=f"{name}/current leads to version {version} until a newer one is complete")

    async def forget(self, node: str) -> Done:
        """See AdminPort."""
        found = [one for one in self._swim.members() if node in (one.record.name, one.record.node.hex())]
        if not found:
            raise NotFoundError(f"no member {node} is on the roster")
        gone = [one for one in found if one.state in (MemberState.DEAD, MemberState.LEFT)]
        if not gone:
            raise MemberAliveError(f"{node} is {found[0].state.value}; stop its daemon first")
        for member in gone:
            self._swim.forget(NodeId(member.record.node), trio.current_time())
            self._progress_publisher.table.forget(member.record.node)
        self._wake()
        self._audit("forgotten", member=node)
        return Done(changed=True, sentence=f"{node} is forgotten")

    async def verify(self, name: str, version: int) -> AsyncGenerator[VerifyStep, None]:
        """See AdminPort."""
        deployment = self._one(name, version)
        manifest = deployment.manifest
        if manifest is None or not deployment.is_open:
            raise NotFoundError(f"{name}@{version} is not on this host")
        checks = self._store.verify(name, version)
        checked = bad = 0
        while True:
            batch = await run_blocking(_some, checks)
            checked += len(batch)
            wrong = [_words(manifest, one.chunk) for one in batch if not one.is_good]
            bad += len(wrong)
            yield VerifyStep(
                chunks_checked=checked, chunks_total=manifest.chunk_count, bad_count=bad, bad_chunks=wrong,
                done=not batch,
            )  # fmt: skip
            if not batch:
                return

    async def _keep_register(self) -> None:
        await run_blocking(self._state.keep_register, *snapshot(self._register))


def _some(checks: Iterator[Checked]) -> list[Checked]:
    """As many as fit into one step of progress; none at the end. In a worker thread."""
    until = time.monotonic() + VERIFY_STEP_S
    batch: list[Checked] = []
    for one in checks:
        batch.append(one)
        if time.monotonic() >= until:
            break
    return batch


def _words(manifest: Manifest, chunk: int) -> str:
    segment = manifest.segments(chunk)[0]
    end = segment.offset + segment.length
    return f"{manifest.files[segment.file_index].path} bytes {segment.offset}-{end} (chunk {chunk})"
