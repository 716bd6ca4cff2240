"""Who would take a deployment, and what the others lack: the body of ``gossipd deploy --dry-run``.

What lives here: from a manifest's row and the members of a status page to one line for each host, pure. What does not:
the signature and this host's own rules, which its daemon judges, and how long it takes (``sim.scenario``).

Other hosts tell their space in coarse steps and some minutes late, and of their trusted keys only a print: a host whose
print is another than ours trusts another list, which may have the publisher's key all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossipd.core.targets import Targets
from gossipd.core.units import show_bytes

_AWAY = ("dead", "left")


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A target. ``lacks`` is what keeps it from taking the model, ``unsure`` what may; both in words."""

    name: str
    rack: str
    lacks: tuple[str, ...]
    unsure: tuple[str, ...]


def planned_hosts(
    manifest: Mapping[str, Any], members: Sequence[Mapping[str, Any]], own: str, held: Mapping[str, int]
) -> list[PlannedHost]:
    """Every target on the roster, those that lack something first.

    Args:
        own: the name of the host whose daemon has judged the manifest.
        held: bytes of the model that each host has verified, of those that have told.
    """
    targets = Targets(tuple(manifest["racks"]), tuple(manifest["names"]))
    ours = next((one.get("prints") or {} for one in members if one["name"] == own), {})
    found = [
        _planned(one, manifest["bytes_total"] - held.get(one["name"], 0), ours, is_own=one["name"] == own)
        for one in members
        if targets.include(name=one["name"], rack=one["rack"])
    ]
    return sorted(found, key=lambda host: (not host.lacks, not host.unsure, host.name))


def _planned(member: Mapping[str, Any], need: int, ours: Mapping[str, str], *, is_own: bool) -> PlannedHost:
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
    return PlannedHost(member["name"], member["rack"], tuple(lacks), tuple(unsure))
