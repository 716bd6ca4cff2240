"""Order numbers from the network (boot, incarnation, version, epoch): one rule for how far they may go.

What lives here: the rule. What does not: what each number means, and who may raise it.

A number that only grows is a weapon when a liar may raise it: at its type's maximum nothing can follow it. So one step
may not lead far from what is known, nor beyond what the wall clock can explain, and never near the maximum.
"""

from __future__ import annotations

INCARNATION_STEP = 16  # more contradictions than one member has missed of another
BOOT_STEP = 16  # lives that began within one tick of the clock, or after a clock was set back


def ceiling(maximum: int) -> int:
    """The highest number that is believed of a type with this maximum; the rest is kept for numbers that follow."""
    return maximum - maximum // 4


def fits(value: int, *, known: int, step: int, maximum: int, clock_bound: int | None = None) -> bool:
    """Whether a number from the network counts.

    Args:
        known: the highest number believed so far, 0 for none. step: how far one word may go beyond it.
        maximum: of the type on the wire.
        clock_bound: the highest number that the wall clock explains, for numbers that follow the clock.
    """
    if not 0 <= value <= ceiling(maximum):
        return False
    return value <= known + step or (clock_bound is not None and value <= clock_bound)
