"""The ``repr`` of a Struct without some of its fields: secrets, and bytes that no reader can use.

What lives here: the text. What does not: which fields; each Struct says that in its own ``__repr__``.
"""

from __future__ import annotations

from msgspec import Struct


def repr_without(value: Struct, *hidden: str) -> str:
    """As msgspec writes it, less the fields ``hidden``."""
    shown = (f"{name}={getattr(value, name)!r}" for name in value.__struct_fields__ if name not in hidden)
    return f"{type(value).__name__}({', '.join(shown)})"
