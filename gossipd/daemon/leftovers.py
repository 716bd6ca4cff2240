"""What a start deletes of the last run: removals that were not finished, publications that were cut short.

What lives here: which of them, from what was written down. What does not: deleting (``store``), and the chunks of a
cancelled deployment, which are kept until their space is needed (``deployment``).

Nothing is deleted because no statement tells of it: the statement store forgets the oldest, and those books may be of a
model that an operator keeps. A publication is noted before its copy is begun (``job_publishing``).
"""

from __future__ import annotations

from pathlib import Path

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.daemon.slow_start import WAIT_S, told_if_slow
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.statement_store import StatementStore
from gossipd.runtime.logs import get_logger
from gossipd.runtime.ports import StoreWriteError
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore

log = get_logger("node")


async def clear(
    state: StateDirectory, statements: StatementStore, store: ChunkStore, *, models: Path, wait_s: float = WAIT_S
) -> None:
    """All of it, before a job publishes again. The log says so where it takes longer than ``wait_s``."""
    with told_if_slow(models, wait_s=wait_s):
        await run_blocking(delete_cut_short, state, statements, store)
        await run_blocking(finish_removals, state, statements, store)


def finish_removals(state: StateDirectory, statements: StatementStore, store: ChunkStore) -> None:
    """Delete models that the last run marked as removed, and manifests without a statement, if the disk lets us."""
    try:
        for deployment in state.envelopes():
            if statements.statement(deployment) is None:
                state.forget_envelope(deployment)
        for model in store.models():
            if statements.is_removed(model.deployment) and model.name:
                store.remove(model.name, model.version)
    except (OSError, StoreWriteError, NotFoundError) as error:
        log.warning("removed model not deleted yet", reason=str(error))


def delete_cut_short(state: StateDirectory, statements: StatementStore, store: ChunkStore) -> None:
    """Delete what publications left on their way, and copies that no statement tells of, if the disk lets us; else at
    the next start. No publication may be under way."""
    try:
        state.delete_scratch()
    except OSError as error:
        log.warning("what a publication left is not deleted yet", reason=str(error))
    for deployment in state.publications():
        if not settle_publication(deployment, state, statements, store):
            return


def settle_publication(
    deployment: DeploymentId, state: StateDirectory, statements: StatementStore, store: ChunkStore
) -> bool:
    """Delete the copy unless a statement tells of it, and forget that it was noted. False: the disk does not let us."""
    try:
        if statements.statement(deployment) is None:
            store.abandon(deployment)
        state.forget_publication(deployment)
    except (OSError, StoreWriteError) as error:
        log.warning("publication that was cut short not deleted yet", reason=str(error))
        return False
    return True
