"""All planted bugs, by name."""

from __future__ import annotations

from tests.mutants import (
    exhausted,
    inputs,
    jobs,
    limits,
    manifests,
    members,
    page,
    parts,
    progress,
    rights,
    sessions,
    states,
    store,
    swarm,
    trust,
)
from tests.mutants.mutant import Mutant

_ALL = (
    *store.MUTANTS,
    *trust.MUTANTS,
    *swarm.MUTANTS,
    *sessions.MUTANTS,
    *members.MUTANTS,
    *inputs.MUTANTS,
    *rights.MUTANTS,
    *progress.MUTANTS,
    *parts.MUTANTS,
    *states.MUTANTS,
    *manifests.MUTANTS,
    *jobs.MUTANTS,
    *limits.MUTANTS,
    *page.MUTANTS,
    *exhausted.MUTANTS,
)
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _ALL}
assert len(MUTANTS) == len(_ALL), "two planted bugs have one name"
