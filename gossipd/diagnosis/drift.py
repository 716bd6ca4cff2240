"""In what hosts differ that should be the same: versions, keys, settings, clocks.

What lives here: from the members of a status page to groups of hosts, pure. What does not: what hosts tell of it
(``config.prints``), and display (``cli.members``).

Hosts that are dead or have left are not compared: what they told last says nothing of how they would start. A host of a
version that tells no prints stands in a group of its own, of which nothing is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

CLOCK_APART_S = 10.0
_UNKNOWN = ""
_PRINTS = ("trust", "clients", "cluster_key", "encryption", "settings")
ASPECTS = {
    "version": "the software",
    "trust": "publishers' keys, `security.trust` and `trust_names`",
    "clients": "clients' keys and `security.may_cancel`",
    "cluster_key": "keys in the cluster's key file, and which one sends",
    "encryption": "`bulk.encryption`",
    "settings": "the other settings that are no host's own",
    "clock": "clocks, against this host's",
}


class HostGroup(Struct, frozen=True):
    """Hosts that say the same. ``value``: a version, a print, or seconds; empty for hosts that do not tell."""

    value: str
    hosts: tuple[str, ...]


class Aspect(Struct, frozen=True):
    """One thing that should be the same, with the groups of hosts, the largest first."""

    name: str
    groups: tuple[HostGroup, ...]

    @property
    def differs(self) -> bool:
        """Whether hosts say different things; one that says nothing does not count."""
        return len({group.value for group in self.groups} - {_UNKNOWN}) > 1

    @property
    def fewest(self) -> HostGroup:
        """The smallest group of hosts that tell it."""
        return [group for group in self.groups if group.value != _UNKNOWN][-1]


def compare(members: Sequence[Mapping[str, Any]]) -> list[Aspect]:
    """Every aspect, those that differ first."""
    present = [one for one in members if one["state"] in ("alive", "suspect")]
    found = [Aspect("version", _groups({one["name"]: one.get("version") or _UNKNOWN for one in present}))]
    for name in _PRINTS:
        told = {one["name"]: (one.get("prints") or {}).get(name, _UNKNOWN) for one in present}
        found.append(Aspect(name, _groups(told)))
    found.append(Aspect("clock", _groups({one["name"]: _clock(one.get("clock_ahead_s")) for one in present})))
    return sorted(found, key=lambda one: not one.differs)


def hosts_apart(aspects: Sequence[Aspect]) -> frozenset[str]:
    """The hosts whose keys or settings are others than those that the most hosts have."""
    apart = [group for one in aspects if one.name in _PRINTS for group in one.groups[1:]]
    return frozenset(host for group in apart if group.value != _UNKNOWN for host in group.hosts)


def _clock(ahead_s: float | None) -> str:
    """How far a clock is ahead, in steps of ten seconds, as it is known to some seconds only. None is this host, or one
    that has told nothing."""
    if ahead_s is None or abs(ahead_s) < CLOCK_APART_S:
        return "+0 s"
    return f"{round(ahead_s / CLOCK_APART_S) * CLOCK_APART_S:+.0f} s"


def _groups(told: Mapping[str, str]) -> tuple[HostGroup, ...]:
    by_value: defaultdict[str, list[str]] = defaultdict(list)
    for host, value in told.items():
        by_value[value].append(host)
    groups = [HostGroup(value, tuple(sorted(hosts))) for value, hosts in by_value.items()]
    return tuple(sorted(groups, key=lambda group: (group.value == _UNKNOWN, -len(group.hosts), group.value)))
