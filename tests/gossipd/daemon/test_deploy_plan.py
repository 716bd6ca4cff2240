"""What a dry run reckons of the models that hosts have told they have."""

from __future__ import annotations

from gossipd.daemon import deploy_plan
from gossipd.daemon.deploy_plan import deploy_costs
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.manifest.manifest import Manifest
from membership.member import NodeId
from tests.gossipd.manifest.making import CHUNK, manifest

A, B, C = (bytes([number]) * 32 for number in range(3))
ONE, TWO, AWAY = (NodeId(bytes([number]) * 16) for number in range(3))
NAMES = {ONE: "one", TWO: "two"}
NEW = manifest((3 * CHUNK,), digests=A + B + A, version=9)


class Known:
    def __init__(self) -> None:
        self.table, self.models = ClusterProgress(), {NEW.id: NEW}

    def has(self, model: Manifest, node: NodeId, state: HostState = HostState.COMPLETE) -> None:
        self.models[model.id] = model
        told = Progress(state=state, chunks_verified=model.chunk_count)
        self.table.record(node, progress_key(model.id), 1, told, now=0.0)


async def test_models_of_living_targets_save_what_they_share() -> None:
    known = Known()
    older, other = manifest((CHUNK,), digests=A, version=1), manifest((2 * CHUNK,), digests=B + C, name="other")
    known.has(older, ONE)
    known.has(other, TWO)
    known.has(other, ONE, HostState.DOWNLOADING)
    known.has(other, AWAY)
    known.has(NEW, TWO)  # itself is no other model
    costs = await deploy_costs(NEW, known.models.values(), known.table, NAMES)
    assert (costs.distinct_bytes, costs.reused_bytes) == (2 * CHUNK, 2 * CHUNK)
    assert costs.reused == {"one": CHUNK, "two": CHUNK}


async def test_many_models_cost_no_more_than_some_of_the_same_name_first() -> None:
    known = Known()
    for number in range(deploy_plan.OTHERS_MAX):
        known.has(manifest((CHUNK,), digests=B, name=f"other-{number}"), ONE)
    known.has(manifest((CHUNK,), digests=A, version=1), ONE)
    assert (await deploy_costs(NEW, known.models.values(), known.table, NAMES)).reused == {"one": 2 * CHUNK}
