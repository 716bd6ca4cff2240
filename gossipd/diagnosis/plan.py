"""Who would take a deployment, and what the others lack: the body of ``gossipd deploy --dry-run``.

What lives here: from the daemon's answer and its status page to one line for each host, and to the least time, pure.
What does not: the signature and this host's own rules, which its daemon judges, and which chunks hosts have in other
models (``manifest.shared_chunks``).

Other hosts tell their space in coarse steps and some minutes late, and of their trusted keys only a print: a host whose
print is another than ours trusts another list, which may have the publisher's key all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossipd.core.targets import Targets
from gossipd.core.units import show_bytes
from gossipd.diagnosis.fluid_bound import slowest, times_of

_AWAY = ("dead", "left")


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A target. ``lacks`` is what keeps it from taking the model, ``unsure`` what may; both in words.
    ``fetched_bytes``: what it does not have, and cannot copy from other models that it has. ``room_bytes``: what it
    needs on its disk; a copy may take as much as what is fetched."""

    name: str
    rack: str
    lacks: tuple[str, ...]
    unsure: tuple[str, ...]
    fetched_bytes: int = 0
    room_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All targets, those that lack something first. ``external_bytes``: read from storage. ``seconds_least``: what the
    slowest resource needs, which has the name; None where nothing is fetched."""

    hosts: tuple[PlannedHost, ...]
    external_bytes: int
    seconds_least: float | None
    limiting_resource: str | None

    @property
    def takers(self) -> list[PlannedHost]:
        """Those that lack nothing."""
        return [host for host in self.hosts if not host.lacks]


def plan(answer: Mapping[str, Any], page: Mapping[str, Any], *, link: float, external: float) -> Plan:
    """Args:
    answer: of ``POST /v1/deploy`` with ``dry_run``.
    page: of ``GET /v1/status``.
    link, external: what a host and storage can send, in bytes a second.
    """
    row, costs = answer["manifest"], costs_of(answer)
    known = [one for one in page["deployments"] if one["id"] == row["id"]]
    held = {host["name"]: host["chunks_verified"] * row["chunk_bytes"] for one in known for host in one["hosts"]}
    hosts = planned_hosts(row, costs, page["members"], page["node"]["name"], held)
    fetched = [host.fetched_bytes for host in hosts if not host.lacks]
    if not any(fetched):
        return Plan(tuple(hosts), 0, None, None)
    is_somewhere = any(one["hosts_complete"] for one in known)
    there = max(costs["reused_bytes"], *held.values(), 0)
    external_bytes = 0 if is_somewhere else max(0, costs["distinct_bytes"] - there)
    times = times_of(external_bytes, max(fetched), sum(fetched), len(fetched), link=link, external=external)
    return Plan(tuple(hosts), external_bytes, max(times.values()), slowest(times))


def costs_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the manifest costs; all of its bytes where the daemon was not restarted since an upgrade and told none."""
    bytes_total = answer["manifest"]["bytes_total"]
    return answer.get("costs") or {"distinct_bytes": bytes_total, "reused_bytes": 0, "reused": {}}


def planned_hosts(
    manifest: Mapping[str, Any],
    costs: Mapping[str, Any],
    members: Sequence[Mapping[str, Any]],
    own: str,
    held: Mapping[str, int],
) -> list[PlannedHost]:
    """Every target on the roster, those that lack something first.

    Args:
        costs: as ``api.ports.Costs``.
        own: the name of the host whose daemon has judged the manifest.
        held: bytes of the model that each host has verified, of those that have told.
    """
    targets = Targets(tuple(manifest["racks"]), tuple(manifest["names"]))
    ours = next((one.get("prints") or {} for one in members if one["name"] == own), {})
    found = []
    for one in members:
        name = one["name"]
        if one["state"] != "unheard" and targets.include(name=name, rack=one["rack"]):
            here = held.get(name, 0)
            fetched = max(0, costs["distinct_bytes"] - max(here, costs["reused"].get(name, 0)))
            room = max(0, manifest["bytes_total"] - here)
            found.append(_planned(one, fetched, room, ours, is_own=name == own))
    return sorted(found, key=lambda host: (not host.lacks, not host.unsure, host.name))


def _planned(
    member: Mapping[str, Any], fetched: int, need: int, ours: Mapping[str, str], *, is_own: bool
) -> PlannedHost:  # fmt: skip
    lacks, unsure = [], []
    if member["state"] in _AWAY:
        lacks.append(f"is {member['state']}")
    elif member["state"] == "suspect":
        unsure.append("does not answer")
    free = member.get("free_bytes")
    if free is not None and free < need:
        lacks.append(f"space: {show_bytes(need)} needed, {show_bytes(free)} free")
    trust = (member.get("prints") or {}).get("trust", "")
    if not is_own and trust != ours.get("trust", ""):
        unsure.append("trusts other keys than this host" if trust else "does not tell which keys it trusts")
    return PlannedHost(member["name"], member["rack"], tuple(lacks), tuple(unsure), fetched, need)
