"""Errors that membership raises on purpose, each with whose fault it is, the state, and whether to retry.

What lives here: the base class and its children. What does not: effects of a hostile datagram, which is dropped and
counted (``Swim.statistics``), because an exception per packet would help its sender.
"""

from __future__ import annotations


class MembershipError(Exception):
    """Base of all. ``code`` is stable. Fault: see the subclass. State: unchanged."""

    code = "E_MEMBERSHIP"


class SettingsError(MembershipError):
    """A setting is out of its range or contradicts another. Fault: the operator. Retry: corrected."""

    code = "E_MEMBERSHIP_SETTINGS"


class WireError(MembershipError):
    """Bytes that are not what the format says. Fault: the sender. Retry: never with the same bytes."""

    code = "E_MEMBERSHIP_WIRE"


class SealError(MembershipError):
    """A datagram that no key of ours opens, or for another node. Fault: the sender, or a rotated key. Retry: no."""

    code = "E_MEMBERSHIP_SEAL"


class RecordError(MembershipError):
    """A member record with a field too long or out of range. Fault: its author. Retry: corrected."""

    code = "E_MEMBERSHIP_RECORD"


class PayloadRefusedError(MembershipError):
    """An application event too large or too many. Fault: the caller. Retry: smaller, or later."""

    code = "E_MEMBERSHIP_PUBLISH"


class TooManyStatementsError(PayloadRefusedError):
    """As many statements are told as may be. Fault: who announces without end. Retry: when some are removed."""

    code = "E_GOSSIP_FULL"
