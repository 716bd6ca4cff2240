"""Wants as texts: one canonical form, and refusals that name the term."""

from __future__ import annotations

import pytest

from gossipd.parts.want import EVERYTHING, TERMS_MAX, RangesWanted, WantError, both, parse_want, read_want


def test_terms_in_another_order_and_spelling_are_one_want() -> None:
    one = parse_want(["pp:0-3&ep:1/4", "files:*.json", "ranges:a.bin:5-9,0-5"])
    other = parse_want([" files:*.json", "ranges:a.bin:0-9", "ep:1/4&pp:0-3", "files:*.json"])
    assert one == other and one.text == "ep:1/4&pp:0-3\nfiles:*.json\nranges:a.bin:0-9"
    assert read_want(one.text) == one and one.mark == other.mark and len(one.mark) == 8


def test_a_canonical_text_reads_back_with_its_terms() -> None:
    want = read_want("ranges:dir/a:b.distcp:0-4,8-9")
    assert want.terms == (RangesWanted("dir/a:b.distcp", ((0, 4), (8, 9))),)


def test_no_terms_are_everything_and_so_is_a_union_with_it() -> None:
    assert parse_want([]) == EVERYTHING == read_want("") and EVERYTHING.is_everything
    assert both(EVERYTHING, parse_want(["ep:0/2"])) == EVERYTHING
    assert both(parse_want(["ep:0/2"]), parse_want(["ep:1/2"])).text == "ep:0/2\nep:1/2"


@pytest.mark.parametrize(
    "text",
    [
        "", "ep", "ep:", "ep:3", "ep:3/3", "ep:-1/4", "ep:0/99999", "pp:3-1", "pp:a-b", "tp:0/4", "ranges:a.bin",
        "ranges::0-4", "ranges:a.bin:4-4", "ranges:a.bin:0-4,x", "tensors:", "files:", "files:a\x1b[2J",
        "ep:0/2&files:a",
        "ranges:a:0-99999999999999999999", "ep:0/2&ep:0/3&ep:0/4&ep:0/5&ep:0/6",
    ],
)  # fmt: skip
def test_a_term_that_cannot_be_read_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(WantError, match="want"):
        parse_want([text])


def test_wants_are_bounded_in_terms_and_bytes() -> None:
    with pytest.raises(WantError, match="terms"):
        parse_want([f"files:{number}" for number in range(TERMS_MAX + 1)])
    with pytest.raises(WantError, match="bytes"):
        parse_want([f"files:{number:0200}" for number in range(TERMS_MAX)])
