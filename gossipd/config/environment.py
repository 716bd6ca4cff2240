"""Settings in the environment: the variables' names, what their values mean, and names that nothing reads.

What lives here: names and values. What does not: overriding a file's settings with them (``load``).

A value is TOML if it can be parsed so (``7946``, ``true``, ``["a:1", "b:1"]``), else plain text; ``a:1,b:1`` is a list
where a list is wanted. ``gossipd init --set`` reads values in the same way.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from typing import Any

from gossipd.config import kinds
from gossipd.config.section import SettingKind
from gossipd.config.sections import SECTIONS

PREFIX = "GOSSIPD_"
VALUE_CHARACTERS_MAX = 16 * 1024
_OTHER_VARIABLES = ("GOSSIPD_SOCKET",)  # read by commands that ask a daemon
# What Kubernetes sets for a Service that is called gossipd, or gossipd-x.
_SERVICE_LINK = re.compile(r"GOSSIPD_(\w+_)?(SERVICE_(HOST|PORT)\w*|PORT_\d+_(TCP|UDP)\w*)|GOSSIPD_PORT")


@cache
def kinds_of(section: str) -> dict[str, SettingKind]:
    """The settings of a section, and what their values are."""
    return {item.name: item.kind for item in SECTIONS[section].settings}


def setting_variables() -> list[str]:
    """Every variable that overrides a setting."""
    return [f"{PREFIX}{name}__{item}".upper() for name in SECTIONS for item in kinds_of(name)]


def unknown_variables(names: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each of ``names`` that looks like one of ours and is read by nothing. Names with two underscores
    are not among them: ``load`` refuses those that name no setting."""
    found = []
    for name in sorted(names):
        if not name.startswith(PREFIX) or "__" in name or name in _OTHER_VARIABLES or _SERVICE_LINK.fullmatch(name):
            continue
        hint = suggest(name, [*setting_variables(), *_OTHER_VARIABLES]) or "; settings are GOSSIPD_SECTION__KEY"
        found.append(f"environment variable {name} is ignored: it names no setting{hint}")
    return tuple(found)


def value_of(text: str, kind: SettingKind) -> object:
    """``text`` as the TOML value of a setting; ``kind`` has not judged it yet."""
    if isinstance(kind, kinds.Text | kinds.Choice):
        return text
    try:
        return parsed_toml(f"value = {text}")["value"]
    except ValueError:
        if isinstance(kind, kinds.Texts):
            return [part.strip() for part in text.split(",") if part.strip()]
        return text


def parsed_toml(text: str) -> dict[str, Any]:
    """Raises ValueError for all text that cannot be a setting, also TOMLDecodeError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def suggest(word: str, known: list[str]) -> str:
    """``; did you mean X?``, or nothing."""
    from difflib import get_close_matches  # only a misspelt word needs it

    near = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""
