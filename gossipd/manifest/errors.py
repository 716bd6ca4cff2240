"""Why a manifest, a statement or a signature on either is refused.

What lives here: the one class, so that every rule module can raise it. What does not: the rules.

Codes (rows of ``tests/bad_inputs``): ``E_SIG_MISSING``, ``E_SIG_INVALID``, ``E_SIG_THRESHOLD``,
``E_KEY_UNKNOWN``, ``E_SCHEMA_VERSION``, ``E_DECODE``, ``E_LIMIT``, ``E_EMPTY``, ``E_NAME``, ``E_EXPIRED``,
``E_ROLLBACK``, ``E_EQUIVOCATION``, ``E_PATH_ABSOLUTE``, ``E_PATH_COMPONENT``, ``E_PATH_CHAR``,
``E_PATH_UNICODE``, ``E_PATH_COLLISION``, ``E_PATH_RESERVED``, ``E_PATH_LENGTH``, ``E_PATH_PREFIX``,
``E_FILE_TYPE``, ``E_CHUNK_LAYOUT``, ``E_HASH_LENGTH``, ``E_ROOT_HASH``, ``E_SOURCE_FORBIDDEN``, ``E_FIELD``.
"""

from __future__ import annotations

from typing import ClassVar

from gossipd.core.errors import ExitCode, RemoteError

SHOWN_CHARS_MAX = 80  # a refused path may be a kilobyte long; one line on a terminal is enough to find it


class ManifestError(RemoteError):
    """A manifest or statement that must not be acted upon; ``code`` names the rule that it breaks.

    Fault: its author, or a host that altered it. State: unchanged, nothing was fetched. Retry: with a corrected one.
    """

    code = "E_DECODE"
    exit_code: ClassVar[ExitCode] = ExitCode.TRUST

    def __init__(self, message: str, *, code: str | None = None, subject: bytes = b"") -> None:
        """``subject``: the id of the key that the refusal is about, if it is about one."""
        super().__init__(message, code=code)
        self.subject = subject


def shown(text: str) -> str:
    """``text`` in quotes, cut, with every character escaped that could move a terminal's cursor."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."
    return ascii(cut)
