"""When a host tells what: numbers of the daemon that the simulators count with too.

What lives here: one definition of each. What does not: numbers that only one package needs (its ``settings``).
"""

from __future__ import annotations

TOLD_SHARE = 1 / 8
"""So much of a chunk must be here before others hear of it. A quarter makes the last host later; a sixteenth wins
nothing."""

ENDING_SHARE = 0.3
READ_ENDING_SHARE = 0.15
ENDING_S = 0.1
"""What is left of a chunk when its end is told: this share of it, or what comes in this time if that is less, which is
how long the next request takes to be planned and sent on loaded links. The read of a chunk from storage has a smaller
share: it needs no slot, and two reads at once share the reader's part of storage's link."""

HEARTBEAT_S = 30.0
"""Between two heartbeats of a control link, whatever else is said on it."""
