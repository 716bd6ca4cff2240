"""What the manual says of one word that a host has shown: an alarm, an alert, a reason or a setting.

What lives here: finding it, and the page of all settings, which is made from their descriptions. What does not: the
pages and their display (``help``), and what words mean (the runbook, ``core.reasons``, ``config.sections``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gossipd.core.reasons import HostReason

_SETTINGS_HEAD = """\
# Settings: every setting of gossipd.toml, its values and its default

`gossipd config show --origin` prints those in force on this host and where each comes from; `gossipd help
store.replicas` one of this page. An environment variable GOSSIPD_SECTION__KEY overrides a setting. What is marked with
*Reload* follows `gossipd reload`; the others need a restart.
"""


def entry(word: str, page: Callable[[str], str]) -> str | None:
    """In Markdown; None for a word that nothing is said of. ``page``: the text of a page of the manual."""
    return _of_runbook(word, page("runbook")) or _of_reason(word) or dict(_settings()).get(word)


def words(page: Callable[[str], str]) -> list[str]:
    """Every word for which there is an ``entry``."""
    told = re.findall(r"(?m)^### (\S+)$", page("runbook"))
    return [*told, *(one.value for one in HostReason if one.value), *dict(_settings())]


def settings_page() -> str:
    """All settings, by section."""
    from gossipd.config.sections import SECTIONS

    parts = [_SETTINGS_HEAD]
    for name, section in SECTIONS.items():
        parts.append(f"\n## {name}\n\n{section.__doc__}\n")
        parts += [f"\n{text}" for setting, text in _settings() if setting.startswith(f"{name}.")]
    return "".join(parts)


def _of_runbook(word: str, runbook: str) -> str | None:
    found = re.search(rf"(?ms)^### {re.escape(word)}\n.*?(?=^##|\Z)", runbook)
    return None if found is None else found[0].rstrip() + "\n"


def _of_reason(word: str) -> str | None:
    found = next((one for one in HostReason if one.value == word and word), None)
    if found is None:
        return None
    return (
        f"### {word}\n\nA host's reason: {found.sentence}. Cured by {found.cured_by.value}: {found.cure}. "
        f"Heals once the cause is gone: {found.heals.value}. "
        f"`gossipd wait` and `gossipd why` exit with {int(found.exit_code)}.\n"
    )


def _settings() -> Iterator[tuple[str, str]]:
    from gossipd.config.sections import SECTIONS
    from gossipd.config.template import described

    for section, made in SECTIONS.items():
        for item in made.settings:
            comment, wanted, default, is_reloaded = described(item)
            notes = [comment, wanted, default, "*Reload.*" if is_reloaded else ""]
            yield f"{section}.{item.name}", f"### {section}.{item.name}\n\n{' '.join(filter(None, notes))}\n"
