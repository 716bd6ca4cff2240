"""Names that people give: models, versions of them, nodes and racks.

What lives here: which names are allowed. What does not: paths inside a model (``paths``).

A model is ``name`` or ``org/name``. A part is 1 to 128 of letters, digits, ``.``, ``_`` and ``-``, and begins with a
letter, a digit or ``_``, because a name becomes a directory (``.``, ``..`` and hidden names must not) and an argument
of commands (``-x`` must not). In ``org/name`` the second part must not be ``current`` nor only digits: ``models/org/7``
would be version 7 of a model named ``org``.
"""

from __future__ import annotations

import re

from gossipd.core.versions import parse_version
from gossipd.manifest.errors import ManifestError, shown

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_GLOB = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,128}", re.ASCII)
_RULE = "must be 1 to 128 of letters, digits, '.', '_' and '-', beginning with a letter, a digit or '_'"


def check_label(text: str, field: str) -> str:
    """Returns a node's or rack's name unchanged. Raises ManifestError ``E_NAME``."""
    if not _PART.fullmatch(text) or text.endswith("."):
        raise ManifestError(f"{field} {shown(text)} {_RULE}", code="E_NAME")
    return text


def check_model_name(text: str, field: str = "name") -> str:
    """Returns a model's name unchanged. Raises ManifestError ``E_NAME``."""
    parts = text.split("/")
    if len(parts) > 2:
        raise ManifestError(f"{field} {shown(text)} must be NAME or ORG/NAME", code="E_NAME")
    for part in parts:
        check_label(part, field)
    if parts[0] == "current" or (len(parts) == 2 and (parts[1] == "current" or parts[1].isdigit())):
        raise ManifestError(f"{field} {shown(text)} would be taken for a version or for 'current'", code="E_NAME")
    return text


def check_name_glob(text: str, field: str) -> str:
    """Returns a pattern over node names unchanged. Raises ManifestError ``E_NAME``."""
    if not _GLOB.fullmatch(text):
        raise ManifestError(f"{field} {shown(text)} must be a pattern over node names (*, ?, [...])", code="E_NAME")
    return text


def split_model(text: str) -> tuple[str, int | None]:
    """``NAME`` or ``NAME@VERSION`` as a name, and a version or None. Raises ManifestError ``E_NAME``."""
    name, at, version = text.partition("@")
    check_model_name(name)
    if not at:
        return name, None
    try:
        return name, parse_version(version)
    except ValueError:
        raise ManifestError(
            f"version {shown(version)} must be a non-negative integer, or STEP.ATTEMPT", code="E_NAME"
        ) from None
