"""What an attack is delivered to: the port that every part under attack has.

What lives here: the port, and the run of one attack. What does not: the parts.
"""

from __future__ import annotations

import traceback
from collections import Counter
from typing import Any, Protocol

from gossipd.core.errors import GossipdError
from membership.errors import MembershipError
from tests.attacks.attack import PURE, Attack, Outcome
from tests.attacks.stage import Stage

_TOLD_CHARS = 400


class Surface(Protocol):
    """One part, made for one attack."""

    @property
    def stage(self) -> Stage:
        """Whom the attack may name."""

    @property
    def payload_bytes(self) -> int:
        """Bytes of models that were fetched so far."""

    def deliver(self, made: Any) -> None:
        """Let it in. Raises what the part documents as a refusal."""

    def seen(self) -> Counter[str]:
        """Codes and counters so far."""

    def state(self) -> dict[str, Any]:
        """All that must not change, by name."""

    def state_after_restart(self) -> dict[str, Any]:
        """The part of the state that is kept, as the next life reads it."""

    def works(self) -> str:
        """Empty when an honest use succeeds still; else what does not."""

    def close(self) -> None:
        """Give back what is open."""


def differences(before: dict[str, Any], after: dict[str, Any], *, in_full: bool = False) -> str:
    """Names of what is not the same, in one line, with what came and went; only what both have is compared."""
    names = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    return ", ".join(f"{name} {_told(before[name], after[name])}" if in_full else name for name in names)


def _told(before: Any, after: Any) -> str:
    if not isinstance(before, list) or not isinstance(after, list):
        return ""
    gone, come = [one for one in before if one not in after], [one for one in after if one not in before]
    return f"(was {gone[:2]!r}, is {come[:2]!r})"[:_TOLD_CHARS]


def attacked(attack: Attack, surface: Surface) -> Outcome:
    """Deliver one attack and look at what came of it."""
    outcome = Outcome(attack, PURE)
    made = attack.build(surface.stage)
    before, seen, fetched = surface.state(), surface.seen(), surface.payload_bytes
    try:
        surface.deliver(made)
    except (GossipdError, MembershipError) as error:
        outcome.seen[getattr(error, "code", type(error).__name__)] += 1
    except Exception:  # noqa: BLE001 - whatever it is, it is what we are looking for
        outcome.traceback = traceback.format_exc(limit=-4)
    outcome.seen += surface.seen() - seen
    outcome.payload_bytes = surface.payload_bytes - fetched
    outcome.changed = differences(before, surface.state())
    outcome.changed_after_restart = differences(before, surface.state_after_restart())
    outcome.changed = outcome.changed or surface.works()
    return outcome
