"""What is hidden stands in no ``repr``, and the rest as msgspec writes it."""

from __future__ import annotations

from msgspec import Struct

from gossipd.core.hiding_struct import HidingStruct


class _Key(HidingStruct, frozen=True):
    name: str
    secret: bytes = b"secret"

    hidden = ("secret",)


class _Shown(HidingStruct, frozen=True):
    name: str
    count: int


class _Plain(Struct):
    name: str
    count: int


def test_hidden_fields_are_left_out() -> None:
    assert repr(_Key("a")) == f"{_Key('a')}" == "_Key(name='a')"
    assert "secret" not in repr([_Key("a")])
    assert _Key("a").__rich_repr__() == [("name", "a")]


def test_hidden_fields_are_compared_and_hashed() -> None:
    assert _Key("a") == _Key("a") != _Key("a", b"other")
    assert hash(_Key("a")) == hash(_Key("a", b"secret"))


def test_the_rest_is_as_msgspec_writes_it() -> None:
    assert repr(_Shown("a", 2)).replace("_Shown", "_Plain") == repr(_Plain("a", 2))
