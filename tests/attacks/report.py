"""Counting outcomes honestly: one line of JSON, and what went wrong in words.

What lives here: the sums. What does not: the verdict on one attack (``attack``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.attacks.attack import Outcome


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """An attack that is delivered at two places counts once, and is refused when it is at both."""
    worst: dict[str, bool] = {}
    for one in outcomes:
        worst[one.attack.name] = worst.get(one.attack.name, True) and one.is_refused
    attacks = {one.attack.name: one.attack for one in outcomes}
    families: dict[str, dict[str, int]] = {}
    for name, attack in attacks.items():
        row = families.setdefault(attack.family, {"attacks": 0, "refused": 0})
        row["attacks"] += 1
        row["refused"] += worst[name]
    return {
        "attacks": len(attacks),
        "refused": sum(worst.values()),
        "open": sum(bool(one.open) for one in attacks.values()),
        "wrong_code": sum(not one.is_expected for one in outcomes if not one.attack.open),
        "payload_bytes_fetched": sum(one.payload_bytes for one in outcomes),
        "state_changed": sum(bool(one.changed) for one in outcomes if not one.attack.open),
        "state_changed_after_restart": sum(bool(one.changed_after_restart) for one in outcomes if not one.attack.open),
        "tracebacks": sum(bool(one.traceback) for one in outcomes),
        "delivered": dict(Counter(one.where for one in outcomes)),
        "stories": len({attack.story for attack in attacks.values() if attack.story}),
        "families": families,
    }


def words(outcome: Outcome) -> str:
    """Why an attack does not count as refused; empty when it does."""
    attack = outcome.attack
    if outcome.is_refused:
        return f"{attack.name} ({outcome.where}): is refused, and says that it is open" if attack.open else ""
    seen = ", ".join(sorted(outcome.seen)) or "nothing"
    parts = [] if outcome.is_expected else [f"expected {' or '.join(attack.expect)}, saw {seen}"]
    parts += [f"changed: {outcome.changed}"] if outcome.changed else []
    parts += [f"changed after a restart: {outcome.changed_after_restart}"] if outcome.changed_after_restart else []
    parts += [outcome.traceback] if outcome.traceback else []
    return f"{attack.name} ({outcome.where}): {'; '.join(parts)}" + (f" [open: {attack.open}]" if attack.open else "")
