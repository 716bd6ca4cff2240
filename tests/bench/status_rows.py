"""The status page's rows in a large cluster: seconds of CPU to build and encode them, in this process.

``python -m tests.bench.status_rows [--members 1000] [--deployments 100] [--json]``. The table of progress hears every
host of every deployment, as gossip brings it; a tenth are under way, some of them with a reason, the others complete.
``first_s``: all rows once; ``again_s``: when nothing has been heard since; ``after_news_s``: when a hundredth of all
hosts have told again. ``longest_s``: one row, during which nothing else has the loop. Medians of ``--repeat``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

_CHUNKS, _BYTES = 30_000, 500_000_000_000
_UNDER_WAY_EVERY, _NEWS_EVERY = 10, 100
_STARTED_S = 1_800_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.status_rows", description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--deployments", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    result = measure(options.members, options.deployments, options.repeat)
    print(json.dumps(result) if options.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))
    return 0


def measure(members: int, deployments: int, repeat: int) -> dict[str, Any]:
    """The row."""
    taken: dict[str, list[float]] = {name: [] for name in ("first_s", "again_s", "after_news_s", "longest_s")}
    for _ in range(repeat):
        cluster = _Cluster(members, deployments)
        each = cluster.page()
        taken["first_s"].append(sum(each))
        taken["longest_s"].append(max(each))
        taken["again_s"].append(sum(cluster.page()))
        for number in range(0, members * deployments, _NEWS_EVERY):
            cluster.hear(*divmod(number, members))
        taken["after_news_s"].append(sum(cluster.page()))
    medians = {name: round(statistics.median(values), 4) for name, values in taken.items()}
    return {"members": members, "deployments": deployments, "repeat": repeat, **medians}


class _Cluster:
    """What one daemon has heard of all."""

    def __init__(self, members: int, deployments: int) -> None:
        self._table = ClusterProgress()
        self._nodes = [NodeId(number.to_bytes(16, "big")) for number in range(members)]
        self._targets = [
            TargetFacts(node, f"node-{number:04}", f"rack-{number % 40}", "alive")
            for number, node in enumerate(self._nodes)
        ]
        self._facts = [
            DeploymentFacts(
                id=DeploymentId(number.to_bytes(32, "big")), name=f"org/model-{number}", version=1, bytes_total=_BYTES,
                chunk_count=_CHUNKS, own=self._nodes[0],
            )
            for number in range(deployments)
        ]  # fmt: skip
        self._now_s = 1000.0
        self._versions = 0
        for deployment in range(deployments):
            for member in range(members):
                self.hear(deployment, member)

    def hear(self, deployment: int, member: int) -> None:
        """One record, as the host would tell it now."""
        self._versions += 1
        under_way = member % _UNDER_WAY_EVERY == 0
        progress = Progress(
            state=HostState.DOWNLOADING if under_way else HostState.COMPLETE,
            reason=HostReason.ALL_BUSY if member % (3 * _UNDER_WAY_EVERY) == 0 else HostReason.NONE,
            chunks_verified=self._versions % _CHUNKS if under_way else _CHUNKS, started_s=_STARTED_S,
            peer_bytes_same_rack=_BYTES // 2, rate_in_bytes_per_s=10_000_000 if under_way else 0,
        )  # fmt: skip
        key = progress_key(self._facts[deployment].id)
        version = _STARTED_S * 1000 + self._versions
        assert self._table.record(self._nodes[member], key, version, progress, now=self._now_s)

    def page(self) -> list[float]:
        """CPU seconds of each deployment's row; time goes on meanwhile."""
        taken = []
        for facts in self._facts:
            self._now_s += 0.1
            began_s = time.thread_time()
            assert msgspec.json.encode(deployment_row(facts, self._table, self._targets, now=self._now_s))
            taken.append(time.thread_time() - began_s)
        return taken


if __name__ == "__main__":
    sys.exit(main())
