"""Keeping what failed: the input, the seed that leads to it, and a smaller one that fails in the same place.

What lives here: shrinking and writing. What does not: finding (``surface``).

A surface with state may fail only after all that came before: then the case alone does nothing at a new one, and
the seed and the number of the input are what reproduces it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.fuzz.surface import Case, Finding, MakeSurface, once

_TRIES_MAX = 400  # each makes a new surface; some of them start a cluster


async def keep(directory: Path, surface: str, make: MakeSurface, finding: Finding, *, seed: int) -> Path:
    """Write one finding as JSON; returns the file."""
    alone = await once(make, finding.case, seed=seed)
    smaller = await shrink(make, finding.case, alone, seed=seed) if alone is not None else finding.case
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{surface}-{seed}-{finding.number}.json"
    content = {
        "surface": surface,
        "seed": seed,
        "number": finding.number,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "fails_alone": alone is not None,
        "kind": finding.case.kind,
        "before_sealing": finding.case.before_sealing,
        "context": repr(finding.case.context),
        "body_hex": finding.case.body.hex(),
        "smaller_hex": smaller.body.hex(),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


async def shrink(make: MakeSurface, case: Case, failure: tuple[str, str], *, seed: int = 0) -> Case:
    """The case with as much cut out of its body as may be while it fails in the same place."""
    place = _place(failure)
    tries = 0
    step = max(1, len(case.body) // 2)
    while step:
        at, shrunk = 0, False
        while at < len(case.body) and tries < _TRIES_MAX:
            tries += 1
            candidate = replace(case, body=case.body[:at] + case.body[at + step :])
            found = await once(make, candidate, seed=seed)
            if found is not None and _place(found) == place:
                case, shrunk = candidate, True
            else:
                at += step
        if not shrunk or tries >= _TRIES_MAX:
            step //= 2
    return case


def _place(failure: tuple[str, str]) -> tuple[str, str]:
    verdict, reason = failure
    return verdict, reason.partition(": ")[0] if verdict != "slow" else ""
