"""Taking secrets out of text that leaves the host.

What lives here: which values are secrets by where they stand, and removing every piece of them. What does not: reading
them (``cli.support``), and addresses with credentials in them (``runtime.logs``).

A secret is removed by its pieces of ``PIECE`` characters, so that a cut, wrapped or half-printed one goes as well.
Rejected: looking for what looks like a secret; ids and digests look the same, and are what a reader needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

PIECE = 8
REMOVED = "*"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|SAS|CREDENTIAL|SIGNATURE|COOKIE|AUTH", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9+/=_.~:-]{16,}")


def secrets_of_environment(environment: Mapping[str, str], is_path: Callable[[str], bool]) -> list[str]:
    """Values of the variables that hold credentials by their names; a path is none, what lies there may be."""
    return [value for name, value in environment.items() if _SECRET_NAME.search(name) and not is_path(value)]


def secrets_of_file(text: str) -> list[str]:
    """Every long word of a file that is secret as a whole."""
    return _WORD.findall(text)


class Redactor:
    """Removes these secrets, as they are and as JSON shows them, and any piece of ``PIECE`` characters of one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._pieces = {
            form[start : start + PIECE]
            for secret in secrets
            for form in (secret, json.dumps(secret)[1:-1])
            for start in range(len(form) - PIECE + 1)
        }  # fmt: skip

    def redact(self, text: str) -> str:
        """The text at the same length, with ``*`` where a secret was. Linear in the text."""
        if not self._pieces:
            return text
        hidden = bytearray(len(text))
        for start in range(len(text) - PIECE + 1):
            if text[start : start + PIECE] in self._pieces:
                hidden[start : start + PIECE] = b"\x01" * PIECE
        if not any(hidden):
            return text
        return "".join(REMOVED if hide else letter for letter, hide in zip(text, hidden, strict=True))
