"""What a manifest would cost to deploy: which of its bytes each host can copy from models that it has.

What lives here: which hosts have which models, as far as this one has heard, and the row of it. What does not: counting
chunks (``manifest.shared_chunks``), and what is made of it for people (``diagnosis.plan``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gossipd.api.ports import Costs
from gossipd.deployment.progress_record import progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.shared_chunks import shared_chunks
from gossipd.runtime.worker_threads import run_blocking
from membership.member import NodeId

OTHERS_MAX = 16  # the highest versions of its own name first; each costs a pass over its chunks


async def deploy_costs(
    manifest: Manifest, known: Iterable[Manifest], table: ClusterProgress, names: Mapping[NodeId, str]
) -> Costs:
    """``known``: all that this host has accepted. ``names``: of the living targets, by node."""
    others = [one for one in known if one.id != manifest.id]
    others.sort(key=lambda one: (one.name != manifest.name, -one.version))
    had = [(one, [node for node in table.had_it_whole(progress_key(one.id)) if node in names]) for one in others]
    shared = await run_blocking(shared_chunks, manifest, [one for one in had if one[1]][:OTHERS_MAX])
    return Costs(
        distinct_bytes=shared.distinct_bytes, reused_bytes=shared.somewhere_bytes,
        reused={names[node]: count for node, count in shared.by_host.items()},
    )  # fmt: skip
