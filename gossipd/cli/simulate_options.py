"""Sizes, rates, shares and finite numbers of the options of ``gossipd simulate``.

What lives here: parsing, and refusing meaningless values. What does not: sizes of the configuration (``core.units``).
"""

from __future__ import annotations

import math
import re
from typing import Any

import click

_SIZES = {
    "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_BITS = {"bit": 1.0, "kbit": 1e3, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}


class SizeParam(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """``500GB``, ``256MiB``; decimal and binary units; gives bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value))
        size = float(found[1]) * _SIZES[found[2]] if found and found[2] in _SIZES else 0.0
        if not 1 <= size < math.inf:
            self.fail(f"'{value}' is no size; write for example 500GB or 256MiB", param, ctx)
        return int(size)


class RateParam(click.ParamType):  # type: ignore[type-arg]
    """``10Gbit``, ``100Mbit/s``; gives bytes per second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+?)(?:ps|/s)?", str(value))
        rate = float(found[1]) * _BITS[found[2]] / 8 if found and found[2] in _BITS else 0.0
        if not 0 < rate < math.inf:
            self.fail(f"'{value}' is no rate; write for example 10Gbit or 100Mbit", param, ctx)
        return rate


class Share(click.ParamType):  # type: ignore[type-arg]
    """``3%@0.25`` or ``10%@30%``; gives two fractions, the second below 1, because 1 would have no effect."""

    name = "share@value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)%@(\d+(?:\.\d+)?)(%?)", str(value))
        if not found:
            self.fail(f"'{value}' must look like 3%@0.25 or 10%@30%", param, ctx)
        second = float(found[2]) / (100 if found[3] else 1)
        if float(found[1]) > 100 or not 0 < second < 1:
            limits = "at most 100 % of the hosts, and after the @ between 0 and 1 (100 %), which would have no effect"
            self.fail(f"'{value}' is out of range: {limits}", param, ctx)
        return float(found[1]) / 100, second


class FiniteRange(click.FloatRange):
    """A finite float in a range; click accepts ``nan`` in every range, because no comparison with it is true."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"'{value}' is no number; write one from {self.min:g} to {self.max:g}", param, ctx)
        return number
