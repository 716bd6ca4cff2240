"""Which user of this host may publish which names through its daemon, and with which key.

What lives here: pure rules over the configuration's values. What does not: who asks (the socket's peer credentials),
and whether other hosts trust the key (``identity.trust``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from gossipd.core.errors import ExitCode, LocalError
from gossipd.identity.keys import SecretKey
from gossipd.identity.trust import may_sign

ROOT = 0


class MayNotPublishError(LocalError):
    """The user may not publish that name here. Fault: the caller, or the configuration. State: unchanged. Retry: after
    the remedy in the sentence. Codes: ``E_MAY_NOT_PUBLISH``; ``E_NO_SIGNING_KEY``, the daemon has no key for it."""

    code = "E_MAY_NOT_PUBLISH"
    exit_code = ExitCode.TRUST


def check_permit(
    user: int,
    name: str,
    *,
    own_user: int,
    permits: Sequence[tuple[str, tuple[str, ...]]],
    number_of: Callable[[str], int | None],
) -> None:
    """Raises MayNotPublishError. ``permits``: patterns of names for each user, by name or number; ``number_of``: the
    number of a user's name, None when this host does not know it."""
    if user in (ROOT, own_user):
        return
    patterns = [pattern for text, items in permits if _number(text, number_of) == user for pattern in items]
    if user < 0 or not may_sign(patterns, name):
        rule = f"publish.users allows it {', '.join(patterns[:5])}" if patterns else "publish.users does not name it"
        raise MayNotPublishError(f"user {user} may not publish {name} on this host: {rule}")


def signing_key(keys: Sequence[SecretKey], trusted: Mapping[bytes, Collection[str]], name: str) -> SecretKey:
    """The first key that this host itself trusts for the name. Raises MayNotPublishError ``E_NO_SIGNING_KEY``."""
    for key in keys:
        patterns = trusted.get(key.public.ed25519)
        if patterns is not None and may_sign(patterns, name):
            return key
    cure = "name a key in publish.keys whose public half is in security.trust of every host, and allowed that name"
    raise MayNotPublishError(f"this daemon has no key that may sign {name}; {cure}", code="E_NO_SIGNING_KEY")


def _number(text: str, number_of: Callable[[str], int | None]) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else number_of(text)
