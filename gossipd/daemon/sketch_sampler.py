"""Looks at the sketches of hosts whose chunks are known here, for the courses of deployments that are under way.

What lives here: of which deployments and hosts, and how often. What does not: sketches (``core.sketch``), the course
(``deployment.history``). A sketch is made only where the number of chunks has changed.
"""

from __future__ import annotations

from msgspec import Struct

from gossipd.core.sketch import sketch
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.history import FINE_COLUMNS, Histories, begins_s
from gossipd.deployment.progress_record import progress_key
from gossipd.swarm.planner import Planner

COARSE_S = begins_s(FINE_COLUMNS + 1) - begins_s(FINE_COLUMNS)
HOSTS_MAX = 64  # of one look: a sketch of ten thousand chunks takes some 50 us, and a host has fewer neighbours


class SketchSampler(Struct, eq=False):
    """One per daemon; owned by the trio loop."""

    planner: Planner
    lifecycle: DeploymentTable
    histories: Histories
    looked_s: float = 0.0

    def look(self, wall_s: float) -> None:
        """Once a second. ``wall_s``: seconds since 1970."""
        is_coarse_due = not 0 <= wall_s - self.looked_s < COARSE_S
        if is_coarse_due:
            self.looked_s = wall_s
        for deployment in self.lifecycle:
            history = self.histories.live.get(progress_key(deployment.id))
            if history is None or history.is_closed(wall_s - history.began_wall_s):
                continue
            at_s = wall_s - history.began_wall_s
            if at_s > FINE_COLUMNS and not is_coarse_due:
                continue
            left = HOSTS_MAX
            for node, host in history.hosts.items():
                known = self.planner.holdings(deployment.id, node) if left and host.is_open else None
                if known is None or (count := len(known.held & known.wanted)) == host.chunks_sketched:
                    continue
                left -= 1
                history.sketched(node, at_s, count, sketch(known.held, known.wanted))
