"""A rule about many things as one test, which names everything that breaks it.

What lives here: the decorator. What does not: rules. Rejected: a test for each module and rule, because thousands of
tests of a millisecond cost seven each: every worker collects them, and each result is told, sent and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar

_Thing = TypeVar("_Thing")


def rule_for(
    things: Iterable[_Thing], *, breaks: type[Exception] = AssertionError
) -> Callable[[Callable[[_Thing], None]], Callable[[], None]]:
    """The decorated function asserts something of one thing, or raises ``breaks``; the test calls it with all."""
    every = list(things)

    def rule(check: Callable[[_Thing], None]) -> Callable[[], None]:
        def test() -> None:
            broken = []
            for thing in every:
                try:
                    check(thing)
                except (AssertionError, breaks) as error:
                    broken.append(f"{thing}: {error}")
            assert every
            assert not broken, "\n".join(broken)

        wraps(check)(test)
        del test.__wrapped__  # type: ignore[attr-defined] # pytest would ask for the parameter of the wrapped one
        return test

    return rule
