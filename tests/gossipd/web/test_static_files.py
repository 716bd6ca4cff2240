"""The files of the page: their weight, their colours, the words that they show, and what they may not contain."""

from __future__ import annotations

import re
from itertools import combinations
from math import dist

import pytest

from gossipd.cli.help import page
from gossipd.core.reasons import HostReason
from gossipd.web.static_files import static_files, words

WEIGHT_BYTES_MAX = 60_000
CONTRAST_MIN = 3.0
FILES = static_files()
SCRIPTS = {path: body.decode() for path, (kind, body) in FILES.items() if "javascript" in kind}
# What a person without the middle cones sees: Viénot, Brettel and Mollon 1999, in linear RGB.
DEUTERANOPIA = ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0))


def linear(colour: str) -> tuple[float, ...]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)


def contrast(one: str, other: str) -> float:
    low, high = sorted(
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True)) for x in (one, other)
    )
    return (high + 0.05) / (low + 0.05)


def seen(colour: str) -> tuple[float, ...]:
    """In about even steps of perception, 0 to 1."""
    red_green_blue = [sum(w * c for w, c in zip(row, linear(colour), strict=True)) for row in DEUTERANOPIA]
    return tuple(max(0.0, part) ** (1 / 2.2) for part in red_green_blue)


def colours_of_sources() -> list[str]:
    found = re.search(r"COLOURS = \{(.*?)\}", SCRIPTS["/grid.js"])
    assert found is not None
    return re.findall(r"#[0-9a-f]{6}", found[1])


def test_the_page_weighs_under_60_kb_and_has_one_html() -> None:
    page_files = {path: body for path, (_, body) in FILES.items() if path != "/words.json"}
    assert sum(map(len, page_files.values())) < WEIGHT_BYTES_MAX
    assert [path for path, (kind, _) in FILES.items() if "html" in kind] == ["/"]


def test_no_file_names_another_origin_or_reads_markup_from_a_string() -> None:
    banned = re.compile(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|srcdoc|eval\(|new Function|DOMParser|createContextual"
        r"|cookie|localStorage|sessionStorage|\bstyle=|onclick="
    )
    for path, (_, body) in FILES.items():
        text = body.decode()
        if path != "/words.json":
            assert not banned.search(text), f"{path}: {banned.search(text)}"
            assert set(re.findall(r"\w+://[\w./]*", text)) <= {"http://www.w3.org/2000/svg"}, path


def test_every_module_that_is_imported_is_there() -> None:
    for text in SCRIPTS.values():
        for name in re.findall(r'from "\./([\w.]+)"', text):
            assert f"/{name}" in FILES


def test_sources_differ_for_all_eyes_and_from_the_ground() -> None:
    colours = colours_of_sources()
    assert len(colours) == 3
    for colour in colours:
        assert contrast(colour, "#ffffff") >= CONTRAST_MIN, colour
    for one, other in combinations(colours, 2):
        assert dist(seen(one), seen(other)) > 0.3, (one, other)


@pytest.mark.parametrize("ink", ["#16202c", "#55606e", "#a32a00", "#0b5394"])
@pytest.mark.parametrize("ground", ["#ffffff", "#fdeee7", "#f4f6f9", "#e3e9f0"])
def test_text_is_legible_on_every_ground(ink: str, ground: str) -> None:
    assert contrast(ink, ground) >= 4.5
    assert any(ink in body.decode() for _, body in FILES.values())


def test_every_reason_and_every_alarm_has_its_cure() -> None:
    known = words()
    assert set(known["reasons"]) == {reason.value for reason in HostReason}
    table = page("operations").partition("\n## Alarms\n")[2].partition("\n## ")[0]
    assert set(known["alarms"]) == set(re.findall(r"^\| `(E_\w+)`", table, re.MULTILINE))
    assert len(known["alarms"]) > 10
    assert all(alarm["cure"] for alarm in known["alarms"].values())
