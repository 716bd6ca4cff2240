"""The commented configuration file, made from the descriptions of the settings.

What lives here: writing. What does not: reading (``load``); a test reads the result back. Default settings are
commented out, so that a later version's better default reaches old files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap

from gossipd.config.section import Setting
from gossipd.config.sections import SECTIONS

_WIDTH = 100
_INTRO = """\
# gossipd configuration. Every setting is here, with its meaning; lines that are commented out show the default.
# Sizes and times may have units in quotes: "64MiB" is 64 x 1024 x 1024 bytes, "64MB" 64 x 1000 x 1000; "500ms",
# "30s", "5m", "12h", "14d". Paths are relative to this file's directory. An environment variable
# GOSSIPD_SECTION__KEY overrides a setting, e.g. GOSSIPD_NET__PORT=7950. SIGHUP (systemctl reload gossipd) applies
# settings marked (reload); the others need a restart. Unknown and wrong settings stop the daemon before it starts.
"""


def render_config(values: Mapping[str, Mapping[str, object]]) -> str:
    """The file's text, with ``values`` (section -> key -> typed value) set and all others at their defaults. Settings
    without a default must be among ``values``."""
    parts = [_INTRO]
    for name, section in SECTIONS.items():
        given = values.get(name, {})
        unknown = set(given) - {item.name for item in section.settings}
        assert not unknown, f"no such settings in [{name}]: {sorted(unknown)}"
        parts.append(f"\n# {section.__doc__}\n[{name}]\n")
        parts += [_setting(item, given) for item in section.settings]
    return "".join(parts)


def _setting(item: Setting, given: Mapping[str, object]) -> str:
    *words, is_reloaded = described(item)
    notes = [*words, "(reload)" if is_reloaded else ""]
    lines = [f"# {line}" for line in wrap(" ".join(note for note in notes if note), _WIDTH)]
    assignment = f"{item.name} = {toml_value(item, given.get(item.name, item.default))}"
    lines.append(assignment if item.name in given else f"#{assignment}")
    return "\n" + "\n".join(lines) + "\n"


def described(item: Setting) -> tuple[str, str, str, bool]:
    """A setting in words: what it means, which values it takes, its default or nothing; whether a reload applies it."""
    kind = item.kind
    comment = item.comment.replace("\n", " ")
    default = "" if item.is_required else f"Default {kind.show(_plain(item.default))}."
    return comment, f"{kind.wanted[:1].upper()}{kind.wanted[1:]}.", default, item.reload


def toml_value(item: Setting, value: object) -> str:
    """The value of a setting as it is written in the file."""
    return item.kind.show(_plain(value))


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(str(entry) if isinstance(entry, Path) else entry for entry in value)
    return str(value) if isinstance(value, Path) else value
