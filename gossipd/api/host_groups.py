"""A deployment's row for a page that shows few hosts: those that are complete are counts.

What lives here: a pure function. What does not: the row of all hosts (``deployment_row``), and which of the others a
page shows.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from gossipd.api.schema import DeploymentRow, HostGroupRow, HostRow
from gossipd.deployment.progress_record import HostState

_COMPLETE = HostState.COMPLETE.value


def grouped(row: DeploymentRow, hosts_max: int) -> DeploymentRow:
    """The row as it is, of at most ``hosts_max`` hosts; of more, the complete ones are groups in ``left_out``."""
    if len(row.hosts) <= hosts_max:
        return row
    groups: defaultdict[tuple[str, str, int | None], list[HostRow]] = defaultdict(list)
    for host in row.hosts:
        if host.state == _COMPLETE:
            groups[host.rack, host.reason, host.current].append(host)
    left_out = [
        HostGroupRow(
            rack=rack, state=_COMPLETE, reason=reason, current=current, hosts=len(hosts),
            chunks_verified=sum(host.chunks_verified for host in hosts),
            chunks_wanted=sum(host.chunks_wanted or row.chunks_total for host in hosts),
        )
        for (rack, reason, current), hosts in groups.items()
    ]  # fmt: skip
    return replace(row, hosts=[host for host in row.hosts if host.state != _COMPLETE], left_out=left_out)
