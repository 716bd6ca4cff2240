"""One setting: a field with its kind, comment and default, and the kinds that several sections use.

What lives here: ``setting``, by which every section declares its fields; names, groups, paths and rates. What does not:
the settings (the modules ``*_sections``), and how a kind reads TOML (``kinds``).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import NODEFAULT

from gossipd.config import kinds
from gossipd.config.section import Setting, SettingKind
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.names import check_label

GIB = 1024**3
MIB = 1024**2
_LABEL_RULE = "letters, digits, '.', '_' and '-', beginning with a letter, a digit or '_'"


def setting(kind: SettingKind, comment: str, default: Any = NODEFAULT, *, reload: bool = False) -> Any:
    """A field of a section. Without a default the file must set it. ``reload``: SIGHUP applies a new value."""
    return Setting(kind, comment, default, reload)


def check_label_within(text: str, *, chars_max: int) -> None:
    """``chars_max``: the room in a member record."""
    try:
        check_label(text, "name")
        if len(text) <= chars_max:
            return
    except ManifestError:
        pass
    raise ValueError(f"{text[:80]!r} must be 1 to {chars_max} of {_LABEL_RULE}")


def check_account(text: str, *, what: str) -> None:
    """``what``: a user or a group."""
    if len(text) > 64 or any(character.isspace() or character in ":/" for character in text):
        raise ValueError(f"{text[:80]!r} must be the name or the number of {what}")


RATE = kinds.ByteSize(0, 1024**4)
PATH = kinds.Text("a path", kinds.check_path)
GROUP = kinds.Text("a group", partial(check_account, what="a group"), may_be_empty=True)
