"""The kinds of values that settings have: each reads a TOML value and shows one.

What lives here: reading, ranges, showing. What does not: the settings (``sections``).
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, tzinfo
from pathlib import Path

from msgspec import Struct

from gossipd.config.section import Section
from gossipd.core.errors import GossipdError
from gossipd.core.units import parse_bytes, parse_seconds

_HOST_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
LIST_ITEMS_MAX = 1024


class WrongValueError(ValueError):
    """A value that a setting cannot have; its sentence continues the setting's name. Fault: the operator."""


class Text(Struct, frozen=True):
    """A text that ``check`` accepts; ``check`` raises GossipdError or ValueError."""

    wanted: str
    check: Callable[[str], object] = str
    may_be_empty: bool = False

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise WrongValueError(f"must be {self.wanted}, in quotes")
        if value == "" and self.may_be_empty:
            return value
        try:
            if value == "" or not value.isprintable():
                raise WrongValueError(f"must be {self.wanted}")
            self.check(value)
        except GossipdError as error:
            raise WrongValueError(error.args[0]) from None
        return value

    def show(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=False)  # a TOML basic string has JSON's escapes


class Texts(Struct, frozen=True):
    """A list of texts, each as ``item`` says."""

    item: Text

    @property
    def wanted(self) -> str:
        return f"a list, each {self.item.wanted}"

    def read(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise WrongValueError(f"must be {self.wanted}")
        if len(value) > LIST_ITEMS_MAX:
            raise WrongValueError(f"has {len(value)} entries, at most {LIST_ITEMS_MAX}")
        found = []
        for position, entry in enumerate(value):
            try:
                found.append(self.item.read(entry))
            except ValueError as error:
                raise WrongValueError(f"entry {position + 1}: {error}") from None
        if len(set(found)) != len(found):
            raise WrongValueError("has an entry twice")
        return tuple(found)

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return "[" + ", ".join(self.item.show(entry) for entry in value) + "]"


class Table(Struct, frozen=True):
    """A list of texts for each of some names; kept as pairs, so that it can be compared. ``check``: of a whole list, as
    that of a text."""

    key: Text
    item: Text
    check: Callable[[tuple[str, ...]], object] = tuple

    @property
    def wanted(self) -> str:
        return f"a table: {self.key.wanted} = a list, each {self.item.wanted}"

    def read(self, value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
        if not isinstance(value, dict) or len(value) > LIST_ITEMS_MAX:
            raise WrongValueError(f"must be {self.wanted}")
        return tuple((self.key.read(key), self._list(items)) for key, items in value.items())

    def _list(self, items: object) -> tuple[str, ...]:
        texts = Texts(self.item).read(items)
        try:
            self.check(texts)
        except GossipdError as error:
            raise WrongValueError(error.args[0]) from None
        return texts

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        rows = (f"{self.key.show(key)} = {Texts(self.item).show(items)}" for key, items in value)
        return "{" + ", ".join(rows) + "}"


class Records(Struct, frozen=True):
    """Tables of one form, each kept as a value of ``made``."""

    made: type[Section]
    what: str
    """The setting's full name: the tables are written ``[[what]]``."""
    most: int

    @property
    def wanted(self) -> str:
        return f"tables [[{self.what}]] with {', '.join(item.name for item in self.made.settings)}"

    def read(self, value: object) -> tuple[object, ...]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise WrongValueError(f"must be {self.wanted}")
        if len(value) > self.most:
            raise WrongValueError(f"has {len(value)} tables, at most {self.most}")
        found = []
        for position, entry in enumerate(value):
            try:
                found.append(self._one(entry))
            except ValueError as error:
                raise WrongValueError(f"table {position + 1}: {error}") from None
        return tuple(found)

    def _one(self, entry: dict[str, object]) -> object:
        known = {item.name: item for item in self.made.settings}
        for key in entry:
            if key not in known:
                raise WrongValueError(f"{key[:40]} is not a setting, of {', '.join(known)}")
        values = {}
        for name, item in known.items():
            if name not in entry:
                if item.is_required:
                    raise WrongValueError(f"{name} is missing: {item.kind.wanted}")
                continue
            try:
                values[name] = item.kind.read(entry[name])
            except ValueError as error:
                raise WrongValueError(f"{name} {error}") from None
        return self.made(**values)

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return "[" + ", ".join(map(self._shown, value)) + "]"

    def _shown(self, record: object) -> str:
        given = [(item, getattr(record, item.name)) for item in self.made.settings]
        rows = [f"{item.name} = {item.kind.show(one)}" for item, one in given if one != item.default]
        return "{" + ", ".join(rows) + "}"


class Choice(Struct, frozen=True):
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return " or ".join(f'"{word}"' for word in self.words)

    def read(self, value: object) -> str:
        if value not in self.words:
            raise WrongValueError(f"must be {self.wanted}")
        return str(value)

    def show(self, value: object) -> str:
        return json.dumps(value)


class Flag(Struct, frozen=True):
    wanted: str = "true or false"

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise WrongValueError(f"must be {self.wanted}")
        return value

    def show(self, value: object) -> str:
        return "true" if value else "false"


class Whole(Struct, frozen=True):
    """A whole number from ``least`` to ``most``."""

    least: int
    most: int

    @property
    def wanted(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def read(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or _is_absurd(value):
            raise WrongValueError(f"must be {self.wanted}")
        if not self.least <= value <= self.most:
            raise WrongValueError(f"is {value}, must be {self.wanted}")
        return value

    def show(self, value: object) -> str:
        return str(value)


class ByteSize(Struct, frozen=True):
    """A number of bytes, or a text such as "64MiB"."""

    least: int
    most: int

    @property
    def wanted(self) -> str:
        return f'a size such as "64MiB", from {_size(self.least)} to {_size(self.most)}'

    def read(self, value: object) -> int:
        if isinstance(value, str):
            value = parse_bytes(value)
        if isinstance(value, bool) or not isinstance(value, int) or _is_absurd(value):
            raise WrongValueError(f"must be {self.wanted}")
        if not self.least <= value <= self.most:
            raise WrongValueError(f"is {_size(value)}, must be {self.wanted}")
        return value

    def show(self, value: object) -> str:
        assert isinstance(value, int)
        return json.dumps(_size(value)) if value else "0"


class Seconds(Struct, frozen=True):
    """A number of seconds, or a text such as "30s" or "14d"."""

    least: float
    most: float

    @property
    def wanted(self) -> str:
        return f'a time such as "30s", from {_seconds(self.least)} to {_seconds(self.most)}'

    def read(self, value: object) -> float:
        if isinstance(value, str):
            value = parse_seconds(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or _is_absurd(value):
            raise WrongValueError(f"must be {self.wanted}")
        if not self.least <= value <= self.most:
            raise WrongValueError(f"is {_seconds(value)}, must be {self.wanted}")
        return float(value)

    def show(self, value: object) -> str:
        assert isinstance(value, float)
        return json.dumps(_seconds(value))


class Amount(Struct, frozen=True):
    """A number, whole or not."""

    least: float
    most: float

    @property
    def wanted(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or _is_absurd(value):
            raise WrongValueError(f"must be {self.wanted}")
        if not self.least <= value <= self.most:
            raise WrongValueError(f"is {value:g}, must be {self.wanted}")
        return float(value)

    def show(self, value: object) -> str:
        assert isinstance(value, float)
        return repr(value)


def check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise WrongValueError("must be an IP address, without a port") from None


def check_path(text: str) -> None:
    """A path whose ~ can be resolved."""
    try:
        Path(text).expanduser()
    except RuntimeError:
        raise WrongValueError(f"{text[:80]!r} begins with an unknown home directory") from None


def time_zone(text: str) -> tzinfo:
    """The zone of that name; UTC needs no file of zones. Raises WrongValueError."""
    if text == "UTC":
        return UTC
    # Imported by the few configurations that name a zone: it brings sysconfig and its table of build variables.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise WrongValueError(
            f"{text[:40]!r} is not a time zone that this host knows, such as Europe/Berlin: install tzdata, if it lacks"
        ) from None


def check_host(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        labels = text.removesuffix(".").split(".")
        if len(text) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
            raise WrongValueError("must be an IP address or a host name, without a port") from None


def split_contact(text: str) -> tuple[str, int]:
    """The host and port of HOST:PORT. Raises WrongValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        check_address(host)
    elif ":" in host:
        raise WrongValueError("must be HOST:PORT, an IPv6 address in brackets")
    if not colon or not (port.isascii() and port.isdigit()) or not 1 <= int(port[:6]) <= 65_535:
        raise WrongValueError("must be HOST:PORT with a port from 1 to 65535")
    check_host(host)
    return host, int(port)


def _is_absurd(value: float) -> bool:
    """Not finite, or too long to be shown: TOML's hexadecimal numbers have no limit."""
    return value.bit_length() > 64 if isinstance(value, int) else not math.isfinite(value)


def _size(count: int) -> str:
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{unit}"
    return str(count)


def _seconds(count: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if count and count % size == 0:
            return f"{count / size:g}{unit}"
    return f"{count:g}s" if count >= 1 or count == 0 else f"{count * 1000:g}ms"
