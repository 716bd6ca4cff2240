"""One planted bug: which text of which file becomes which other text, and the tests that must notice.

What lives here: the value and the replacement. What does not: copying and running (``trial``), and the bugs.

A replacement of exact text is crude on purpose: who changes the line sees the bug's name in the failing test, and
moves the bug along with the code or says why it cannot be made any more.
"""

from __future__ import annotations

from dataclasses import dataclass


class MutantError(Exception):
    """A planted bug that cannot be planted, or that breaks more than it says. Fault: the bug's author."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` must stand in ``path`` exactly once; ``tests`` are arguments of pytest, relative to the tree."""

    name: str
    says: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """``text`` with the bug in it. Raises MutantError when it does not fit or is no Python any more."""
        count = text.count(self.old)
        if count != 1:
            raise MutantError(f"{self.name}: its text stands {count} times in {self.path}, must be once")
        if self.old == self.new:
            raise MutantError(f"{self.name}: it changes nothing")
        wrong = text.replace(self.old, self.new)
        try:
            compile(wrong, self.path, "exec")
        except SyntaxError as error:
            raise MutantError(f"{self.name}: {self.path} is no Python with it: {error}") from None
        return wrong
