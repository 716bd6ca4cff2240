"""Places at a local socket: how many requests of one kind are answered at once, and how many of them one user's.

What lives here: who has a place, who gets the next one, and the sentence for those who get none. What does not: which
request needs which place, and for how long it waits for one (``request_guard``).

One user may have a part of the places, so that programs of one user do not lock out another. Root has as many beyond
the places of all others, so that no number of users locks it out. Of those who wait, the user who has the fewest places
is next, and of one user the first: a queue alone would let one user's long one stand before everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

ROOT = 0


class Place(Struct, eq=False):
    """Asked for, and perhaps had. ``told``: called when one who waits has it."""

    user: int
    told: Callable[[], None]
    is_had: bool = False


class Places:
    """Of one kind. Used on the trio loop."""

    def __init__(self, kind: str, places_max: int, of_one_max: int) -> None:
        """``kind``: in words, for the sentence."""
        self._kind = kind
        self._places_max, self._of_one_max = places_max, of_one_max
        self._of_user: Counter[int] = Counter()
        self._waiting: list[Place] = []

    @property
    def taken(self) -> int:
        """How many are taken now."""
        return self._of_user.total()

    @contextmanager
    def asked(self, user: int, told: Callable[[], None] = lambda: None) -> Iterator[Place]:
        """A place for this user until the block ends: at once, or during it when one is free. -1: an unknown user."""
        place = Place(user, told)
        self._waiting.append(place)
        self._hand_out()
        try:
            yield place
        finally:
            if place.is_had:
                self._of_user[user] -= 1
                self._of_user += Counter()  # forgets users who have none
                self._hand_out()
            else:
                self._waiting.remove(place)

    def refusal(self, user: int) -> str:
        """Which limit leaves none for this user."""
        if self._of_user[user] >= self._of_one_max:
            return f"one user may have {self._of_one_max} {self._kind} at the socket at once; end one, or try again"
        return f"the socket has {self._places_max} {self._kind}, and takes no more at once; try again"

    def _hand_out(self) -> None:
        while able := [place for place in self._waiting if self._may_have(place.user)]:
            place = min(able, key=lambda one: self._of_user[one.user])
            self._waiting.remove(place)
            self._of_user[place.user] += 1
            place.is_had = True
            place.told()

    def _may_have(self, user: int) -> bool:
        of_others = self.taken - self._of_user[ROOT]
        return self._of_user[user] < self._of_one_max and (user == ROOT or of_others < self._places_max)
