"""A Struct that shows only some of its fields: no secrets, and no bytes that no reader can use.

What lives here: what ``repr``, logs and tracebacks show, also those that rich prints. What does not: which fields.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct


class HidingStruct(Struct, frozen=True):
    """The base of such Structs. Encoding and comparing take all fields."""

    hidden: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that are not shown."""

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.hidden]
