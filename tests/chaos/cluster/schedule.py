"""What goes wrong in one run, drawn from a seed before anything starts.

What lives here: pure values. What does not: doing it (``trouble``). A fault begins when the hosts' mean progress has
passed ``at``, so that it falls into the delivery on a machine of any speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

KILLED_SHARE = 0.3
ROTTEN_SHARE = 0.25  # of the runs under TLS; what nobody asks for is found by the scrub, a minute after a start
SEED = "seed"
AT_MIN, AT_MAX = 0.04, 0.7


class Kind(Enum):
    """What is done to a host; ``for_s`` later it is undone, except that a killed host is then started."""

    KILL = "kill"  # SIGKILL
    RESTART = "restart"  # SIGTERM, and started again when it has ended
    STOP = "stop"  # SIGSTOP and SIGCONT
    CUT = "cut"  # the host's cable
    CUT_RACK = "cut_rack"  # the cable between its rack and the rest


@dataclass(frozen=True, slots=True)
class Fault:
    """``who`` is a host's name, or ``seed``: one of those that claim to read storage at that moment."""

    at: float
    kind: Kind
    who: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Liar:
    """A host whose chunks are damaged behind its back, on the wire; ``share`` of those that it sends."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. ``rotten``: a host whose disk flips bytes in what it has stored; it is not killed besides."""

    encryption: str
    faults: tuple[Fault, ...]
    liars: tuple[Liar, ...]
    rotten: str | None


def draw(rng: Random, names: Sequence[str], *, encryption: str | None = None) -> Plan:
    """The plan of one run.

    Args:
        encryption: None draws it: in clear twice as often, because only there damage on the wire reaches the hash.
    """
    drawn = rng.choice(("none", "none", "tls"))
    chosen = encryption or drawn
    pool = list(names)
    rng.shuffle(pool)
    rotten = pool.pop() if rng.random() < ROTTEN_SHARE and chosen == "tls" else None
    kills = math.ceil(KILLED_SHARE * len(names))
    victims = [SEED, *(pool.pop() for _ in range(kills - 1))]
    faults = [Fault(_at(rng), Kind.KILL, who, rng.uniform(0.3, 4.0)) for who in victims]
    few = max(1, len(names) // 6)
    for kind, count, longest_s in (
        (Kind.STOP, few, 6.0),
        (Kind.CUT, few, 6.0),
        (Kind.RESTART, 1, 1.0),
    ):
        faults += [Fault(_at(rng), kind, pool.pop(), rng.uniform(0.2, longest_s)) for _ in range(min(count, len(pool)))]
    if rng.random() < 0.5:
        faults.append(Fault(_at(rng), Kind.CUT_RACK, rng.choice(list(names)), rng.uniform(0.5, 5.0)))
    liars = tuple(Liar(name, rng.choice((0.1, 0.4, 1.0))) for name in rng.sample(list(names), rng.choice((1, 2))))
    faults.sort(key=lambda fault: (fault.at, fault.who))
    return Plan(chosen, tuple(faults), liars, rotten)


def _at(rng: Random) -> float:
    return rng.uniform(AT_MIN, AT_MAX)
