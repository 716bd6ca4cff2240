"""Constants that packages share: when a chunk is announced and its end told, stalls, clocks apart, ends of credentials.

What lives here: one definition of each. What does not: numbers that only one package needs (its ``settings``).
"""

from __future__ import annotations

CLOCKS_APART_MAX_S = 3600
"""What two hosts' clocks may differ by, where a host believes a boot number or the date of a record of progress."""

STALL_S = 3.0
"""A host to which no chunk has come for so long says why."""

CREDENTIAL_LEAST_S = 3600.0
"""Credentials of a storage that end sooner are told of, by the daemon and by the checks of ``doctor``."""

TOLD_SHARE = 1 / 8
"""The share of a chunk that must be here before the chunk is announced. A quarter delays the last host, and a sixteenth
gains nothing (simulated)."""

ENDING_SHARE = 0.3
READ_ENDING_SHARE = 0.15
ENDING_S = 0.1
"""The rest of a chunk when its end is told: this share of it, or what comes in this time if that is less. The next
request is planned and sent within the time, on loaded links too. A read from storage has a smaller share, because it
needs no upload slot, and two at once share the link to storage."""
