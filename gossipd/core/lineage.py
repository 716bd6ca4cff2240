"""The ids that a version names as what it came from.

What lives here: reading them from ``about``. What does not: the other fields of it (``manifest.annotations``), and the
walk to parents of parents (``client.lineage``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PARENTS_MAX = 16
_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)


def is_id(value: object) -> bool:
    """Whether it is a deployment's id as people write it."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def parents_of(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids that it names as parents; what is no id is left out, because readers check nothing of it."""
    parents = about.get("parents")
    return tuple(filter(is_id, parents))[:PARENTS_MAX] if isinstance(parents, list) else ()
