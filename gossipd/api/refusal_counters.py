"""Which counters of the ports count what was refused, and which count traffic and failures.

What lives here: the split, by the counters' names, so that ``gossipd_refused_total`` rises only when something was
turned away. What does not: counting, and the names of metrics (``metrics``).
"""

from __future__ import annotations

from collections.abc import Mapping

# Of the bulk server: the connection or the request was turned away; other codes are transfers that began and failed.
_BULK_REFUSALS = frozenset(
    {"E_CONNECTIONS", "E_HANDSHAKE", "E_REFUSED", "E_LENGTH", "E_HANDLES", "E_THREADS", "E_TOO_MANY_ASKS"}
)
_CONTROL_REFUSALS = frozenset(
    {
        "zap_refused", "zap_refused_now", "zap_malformed", "entrance_malformed", "entrance_extra_parts",
        "control_not_a_member", "control_refused_to_client", "control_unknown_kind", "control_unasked_reply",
        "control_bad_holdings", "control_bad_delta", "control_misplaced", "follow_unasked",
    }
)  # fmt: skip
_CONTROL_REFUSAL_PREFIXES = ("control_refused_", "control_undecodable_")
_CONTROL_BYTES = {"link_sent_bytes": "sent", "entrance_received_bytes": "received"}
_KEPT_BACK = ("statements_kept_back", "forgets_kept_back", "accusations_disbelieved")


def refused(bulk: Mapping[str, int], control: Mapping[str, int], membership: Mapping[str, int]) -> dict[str, int]:
    """What was turned away, by reason. Reasons of the control port begin with ``control_``, those of datagrams with
    ``dropped_`` mostly, those of the bulk port with ``E_``."""
    found = {code: count for code, count in bulk.items() if code in _BULK_REFUSALS}
    for name, count in control.items():
        if _is_refusal(name):
            found[name if name.startswith("control_") else f"control_{name}"] = count
    return found | {name: count for name, count in membership.items() if _is_of_membership(name)}


def uploads_failed(bulk: Mapping[str, int]) -> dict[str, int]:
    """Transfers from here that began and did not end well, by code."""
    return {code: count for code, count in bulk.items() if code not in _BULK_REFUSALS}


def control_bytes(control: Mapping[str, int]) -> dict[str, int]:
    """Bytes of control messages, by ``sent`` and ``received``."""
    return {word: control.get(name, 0) for name, word in _CONTROL_BYTES.items()}


def control_events(control: Mapping[str, int]) -> dict[str, int]:
    """Everything else that the control links count: dialled, accepted, gaps, messages."""
    return {name: count for name, count in control.items() if not _is_refusal(name) and name not in _CONTROL_BYTES}


def _is_refusal(name: str) -> bool:
    return name in _CONTROL_REFUSALS or name.startswith(_CONTROL_REFUSAL_PREFIXES)


def _is_of_membership(name: str) -> bool:
    """Whether a counter of membership's is of words that it did not take."""
    return name.startswith("dropped_") or "_refused" in name or name in _KEPT_BACK
