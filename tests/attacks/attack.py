"""One attack as data, the file of all of them, and the verdict on one.

What lives here: reading and checking ``corpus.toml``. What does not: making an attack's bytes (``builders``), and
delivering them (``pure``, ``real``).
"""

from __future__ import annotations

import importlib
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).with_name("corpus.toml")
ACTORS = ("stranger", "keyholder", "member", "publisher", "storage", "local")
PURE, REAL = "pure", "real"


class CorpusError(Exception):
    """``corpus.toml`` is wrong. Fault: the file. Retry: corrected."""


@dataclass(frozen=True, slots=True)
class Attack:
    """``expect``: codes or counters of which one must be seen. ``persists``: were it believed, it would be on the disk.

    ``open``: why it is not refused today; empty for all others. ``story``: the finding that it repeats (S1 to S16).
    """

    name: str
    family: str
    actor: str
    surface: str
    builder: Callable[..., Any]
    arguments: dict[str, Any]
    expect: tuple[str, ...]
    where: tuple[str, ...]
    persists: bool
    story: str = ""
    open: str = ""

    def build(self, stage: Any) -> Any:
        """What is to be delivered."""
        return self.builder(stage, **self.arguments)


@dataclass(slots=True)
class Outcome:
    """What came of one attack at one place."""

    attack: Attack
    where: str
    seen: Counter[str] = field(default_factory=Counter)
    """Codes and counters that rose."""
    changed: str = ""
    """What the attack has changed in the state, in words."""
    changed_after_restart: str = ""
    traceback: str = ""
    payload_bytes: int = 0

    @property
    def is_expected(self) -> bool:
        """Whether one of the codes or counters was seen."""
        return any(self.seen[one] > 0 for one in self.attack.expect)

    @property
    def is_refused(self) -> bool:
        """Whether it was answered as it should be, and left no trace."""
        return self.is_expected and not (self.changed or self.changed_after_restart or self.traceback)


def load_corpus(path: Path = CORPUS) -> list[Attack]:
    """All attacks, in order. Raises CorpusError."""
    found: list[Attack] = []
    for group in tomllib.loads(path.read_text())["group"]:
        rows = group.pop("attacks")
        found += [_attack(group, row) for row in rows]
    twice = [name for name, count in Counter(one.name for one in found).items() if count > 1]
    if twice:
        raise CorpusError(f"names given twice: {', '.join(twice)}")
    return found


def _attack(group: dict[str, Any], row: dict[str, Any]) -> Attack:
    fields: dict[str, Any] = {"where": [PURE], "persists": False} | group | row
    name = fields.pop("name", "")
    expect = fields.pop("expect", [])
    module, _, function = fields.pop("builder").partition(":")
    try:
        builder = getattr(importlib.import_module(f"tests.attacks.builders.{module}"), function)
        attack = Attack(
            name=name, builder=builder, arguments=fields.pop("with", {}),
            expect=(expect,) if isinstance(expect, str) else tuple(expect), where=tuple(fields.pop("where")), **fields,
        )  # fmt: skip
    except (ImportError, AttributeError, TypeError) as error:
        raise CorpusError(f"{name}: {error}") from error
    if attack.actor not in ACTORS or not set(attack.where) <= {PURE, REAL} or not attack.expect:
        raise CorpusError(f"{name}: an unknown actor or place, or nothing is expected")
    return attack


def chosen(attacks: Iterable[Attack], only: str) -> list[Attack]:
    """Those of a family or story, or the one of that name; all for an empty word."""
    return [one for one in attacks if not only or only in (one.name, one.family, one.story)]
