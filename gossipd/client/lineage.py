"""What a version came from, parent by parent, as far as the daemon of this host knows them.

What lives here: the walk, for jobs and for ``gossipd lineage``. What does not: the fields (``api.schema.ManifestRow``).
Parents are named by their publisher, in ``about``; nobody has proved them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gossipd.api.client import RefusedByDaemonError, StatusClient
from gossipd.core.errors import ExitCode
from gossipd.core.lineage import parents_of

GENERATIONS_MAX = 100
LINEAGE_MAX = 1000  # rows: parents may share parents


def ancestors(first: dict[str, Any], daemon: StatusClient) -> Iterator[dict[str, Any]]:
    """The row of the version, then each parent with its parents, depth first; one that comes again is not followed
    again. ``known`` is false, and there is no more than its id, of one whose manifest is not here."""
    seen: set[str] = set()
    ahead: list[tuple[str, int]] = [(first["id"], 0)]
    rows = {first["id"]: first}
    for _ in range(LINEAGE_MAX):
        if not ahead:
            return
        deployment, generation = ahead.pop()
        row = rows.get(deployment) or _known(deployment, daemon)
        if row is None:
            yield {"id": deployment, "generation": generation, "known": False}
            continue
        is_repeated = deployment in seen
        seen.add(deployment)
        yield {**row, "generation": generation, "known": True, "repeated": is_repeated}
        if not is_repeated and generation < GENERATIONS_MAX:
            ahead += [(parent, generation + 1) for parent in reversed(parents_of(row["about"]))]


def _known(deployment: str, daemon: StatusClient) -> dict[str, Any] | None:
    try:
        return daemon.manifest(deployment=deployment)
    except RefusedByDaemonError as refused:
        if refused.code_of_exit == ExitCode.NOT_FOUND:
            return None
        raise
