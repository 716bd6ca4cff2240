"""What a section of the configuration is: a frozen value, each of whose fields is a setting.

What lives here: the base of all sections, and what is kept of each setting. What does not: how one is declared
(``setting``), the kinds of values (``kinds``) and the settings themselves (the modules ``*_sections``).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from msgspec import NODEFAULT, Struct, StructMeta, structs


class SettingKind(Protocol):
    """Reads the value of one setting."""

    @property
    def wanted(self) -> str:
        """What a value must be, for people: "a port, 1 to 65535"."""

    def read(self, value: object) -> object:
        """The typed value. Raises WrongValueError, which says what is wrong but not where."""

    def show(self, value: object) -> str:
        """``value`` as TOML."""


class Setting(Struct, frozen=True):
    """One setting. ``comment``: what it means. ``reload``: SIGHUP applies a new value."""

    kind: SettingKind
    comment: str
    default: Any
    """``NODEFAULT`` where the file must set it."""
    reload: bool
    name: str = ""
    annotation: str = ""
    """The type of its values, as the section has it."""

    @property
    def is_required(self) -> bool:
        """Whether the file must set it."""
        return self.default is NODEFAULT


class _SectionMeta(StructMeta):
    """Makes a field of each setting that the body of a class assigns."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _SectionMeta:
        types = namespace.get("__annotations__", {})
        found = tuple(
            structs.replace(made, name=key, annotation=types[key])
            for key, made in namespace.items()
            if isinstance(made, Setting)
        )
        fields = {one.name: one.default for one in found if not one.is_required}
        rest = {key: made for key, made in namespace.items() if not isinstance(made, Setting)}
        return super().__new__(mcs, name, bases, {**rest, **fields, "settings": found}, **options)


class Section(Struct, frozen=True, kw_only=True, metaclass=_SectionMeta):
    """The base of all sections, and of the entries of tables of one form."""

    settings: ClassVar[tuple[Setting, ...]] = ()
    """In the order of the file."""
