"""What this host wants by order, beside what its configuration says: a host wants what either of them names.

What lives here: uniting both, and the orders as bytes. What does not: giving an order (``daemon.want_orders``).

An order may have a holder, such as one rank of a job: it stands beside the other orders for that name, its holder takes
it away alone, and it ends with the process that gave it: a job that is killed takes nothing away itself.

Rejected: an order that stands in place of the configuration, because a job could then take from a host what its
operator has said it keeps. A name that neither mentions is wanted whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from gossipd.core.errors import ExitCode, LocalError
from gossipd.parts.want import EVERYTHING, Want, WantError, both, parse_want, read_want

ALL = "all"
ORDERS_MAX = 512  # with the longest wants their file has half of its 64 MB
_HOLDER = re.compile("[0-9a-z-]{1,32}")
_PROCESS = re.compile("[1-9][0-9]{0,9}[.][0-9a-z]{1,8}")


class WantOrdersError(LocalError):
    """The file of orders cannot be read. Fault: this host's disk. State: unchanged. Retry: when the file was moved
    away; then say the wants again, because without them the host would take everything."""

    code = "E_WANT_ORDERS"
    exit_code = ExitCode.VERIFICATION


def parse_order(texts: Iterable[str]) -> Want:
    """The want of these terms; with ``all`` among them, everything. Raises WantError."""
    terms = [text.strip() for text in texts]
    return EVERYTHING if ALL in terms else parse_want(terms)


def order_key(name: str, holder: str, process: str = "") -> str:
    """The key of an order for a model: its words; no name has a space. Raises WantError."""
    if holder and not _HOLDER.fullmatch(holder):
        raise WantError("the holder of an order is 1 to 32 of the characters 0-9, a-z and -")
    return " ".join(filter(None, (name, holder, process if holder else "")))


def changed_orders(
    ordered: Mapping[str, Want], name: str, added: Want | None, *, clear: bool, holder: str, process: str = ""
) -> dict[str, Want]:  # fmt: skip
    """The orders with one more.

    Args:
        clear: without the earlier ones of this holder; without a holder, of all.
        process: ``PID.BOOT`` of who orders, with whose end an order that has a holder ends; empty is unknown.
    Raises: WantError.
    """
    key, whose = order_key(name, holder, process), [name, holder] if holder else [name]
    after = {one: want for one, want in ordered.items() if not (clear and one.split(" ")[: len(whose)] == whose)}
    if added is not None:
        after[key] = both(after[key], added) if key in after else added
    if len(after) > ORDERS_MAX:
        raise WantError(f"{ORDERS_MAX} orders are kept; take some away with gossipd want NAME --clear")
    return after


def processes_of(ordered: Mapping[str, Want]) -> set[str]:
    """The processes with which orders end."""
    words = (key.split(" ") for key in ordered)
    return {one[2] for one in words if len(one) == 3 and _PROCESS.fullmatch(one[2])}


def without_process(ordered: Mapping[str, Want], process: str) -> dict[str, Want]:
    """The orders that are left when this process has ended."""
    return {key: want for key, want in ordered.items() if key.split(" ")[2:] != [process]}


def unite(configured: Mapping[str, Want], ordered: Mapping[str, Want]) -> dict[str, Want]:
    """What is in force, by model name. All together may be too long: then everything of that name is wanted, which
    costs bytes and lacks nothing."""
    wants = dict(configured)
    for key, want in ordered.items():
        name = key.partition(" ")[0]
        try:
            wants[name] = both(wants[name], want) if name in wants else want
        except WantError:
            wants[name] = EVERYTHING
    return wants


def orders_to_bytes(ordered: Mapping[str, Want]) -> bytes:
    """The orders for the disk: a JSON object, for each key the canonical text of its want."""
    return json.dumps({name: want.text for name, want in ordered.items()}, indent=0).encode()


def orders_from_bytes(kept: bytes) -> dict[str, Want]:
    """Raises WantOrdersError."""
    try:
        table = json.loads(kept)
        return {str(name): read_want(text) for name, text in table.items()}
    except (ValueError, AttributeError, RecursionError, WantError) as error:
        cure = "move it away, then say the wants again (gossipd want)"
        raise WantOrdersError(f"state/wants cannot be read: {error}; {cure}") from None
