"""What is hidden stands in no ``repr``, and the rest as msgspec writes it."""

from __future__ import annotations

from msgspec import Struct

from gossipd.core.struct_repr import repr_without


class _Key(Struct, frozen=True):
    name: str
    secret: bytes = b"secret"

    def __repr__(self) -> str:
        return repr_without(self, "secret")


class _Plain(Struct):
    name: str
    count: int


def test_hidden_fields_are_left_out() -> None:
    assert repr(_Key("a")) == f"{_Key('a')}" == "_Key(name='a')"
    assert "secret" not in repr([_Key("a")])


def test_the_rest_is_as_msgspec_writes_it() -> None:
    plain = _Plain("a", 2)
    assert repr_without(plain) == repr(plain)
