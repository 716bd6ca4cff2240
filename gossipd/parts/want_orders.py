"""What this host wants by order, beside what its configuration says: a host wants what either of them names.

What lives here: uniting both, and the orders as bytes. What does not: giving an order (``daemon.want_orders``).

Rejected: an order that stands in place of the configuration, because a job could then take from a host what its
operator has said it keeps. A name that neither mentions is wanted whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from gossipd.core.errors import ExitCode, LocalError
from gossipd.parts.want import EVERYTHING, Want, WantError, both, parse_want, read_want

ALL = "all"
ORDERS_MAX = 512  # names; with the longest wants their file has half of its 64 MB


class WantOrdersError(LocalError):
    """The file of orders cannot be read. Fault: this host's disk. State: unchanged. Retry: when the file was moved
    away; then say the wants again, because without them the host would take everything."""

    code = "E_WANT_ORDERS"
    exit_code = ExitCode.VERIFICATION


def parse_order(texts: Iterable[str]) -> Want:
    """The want of these terms; with ``all`` among them, everything. Raises WantError."""
    terms = [text.strip() for text in texts]
    return EVERYTHING if ALL in terms else parse_want(terms)


def unite(configured: Mapping[str, Want], ordered: Mapping[str, Want]) -> dict[str, Want]:
    """What is in force, by model name. Both together may be too long: then everything of that name is wanted, which
    costs bytes and lacks nothing."""
    wants = dict(configured)
    for name, want in ordered.items():
        try:
            wants[name] = both(wants[name], want) if name in wants else want
        except WantError:
            wants[name] = EVERYTHING
    return wants


def orders_to_bytes(ordered: Mapping[str, Want]) -> bytes:
    """The orders for the disk: a JSON object, for each name the canonical text of its want."""
    return json.dumps({name: want.text for name, want in ordered.items()}, indent=0).encode()


def orders_from_bytes(kept: bytes) -> dict[str, Want]:
    """Raises WantOrdersError."""
    try:
        table = json.loads(kept)
        return {str(name): read_want(text) for name, text in table.items()}
    except (ValueError, AttributeError, RecursionError, WantError) as error:
        cure = "move it away, then say the wants again (gossipd want)"
        raise WantOrdersError(f"state/wants cannot be read: {error}; {cure}") from None
