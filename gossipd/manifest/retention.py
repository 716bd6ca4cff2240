"""Which versions of a name live, by what the newest manifest says: ``keep``.

What lives here: the pure rule. What does not: which versions are known, and what is done with those that do not live
(``deployment.supersession``).

Live are the ``last`` highest, and those whose step is a multiple of ``every``. A version above the lowest of the last
ones lives, whatever it is; so a cancelled one, which is not counted, keeps its last word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gossipd.core.versions import split_version
from gossipd.manifest.annotations import Retention


def live_rule(versions: Collection[int], keep: Retention) -> Callable[[int], bool]:
    """Whether a version lives, given those of the name that count. All of them do while there are at most ``last``."""
    last = sorted(versions)[-keep.last :]
    lowest = last[0] if len(last) == keep.last else 0

    def is_live(version: int) -> bool:
        return version >= lowest or (keep.every > 0 and split_version(version)[0] % keep.every == 0)

    return is_live
