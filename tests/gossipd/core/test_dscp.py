"""Names of marks and the numbers that they stand for."""

from __future__ import annotations

import pytest

from gossipd.core.dscp import parse_dscp, priority_of


@pytest.mark.parametrize(
    ("text", "dscp"),
    [
        ("cs0", 0), ("le", 1), ("cs1", 8), ("af11", 10), ("af43", 38), ("af41", 34), ("va", 44), ("ef", 46),
        ("CS7", 56), ("0", 0), ("63", 63),
    ],
)  # fmt: skip
def test_a_mark_is_a_name_of_an_rfc_or_a_number(text: str, dscp: int) -> None:
    assert parse_dscp(text) == dscp


@pytest.mark.parametrize("text", ["", "64", "-1", "cs8", "af51", "af14", "0x8", "le ", "1.0", "٣", "best"])
def test_any_other_word_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(ValueError, match="must be cs0 to cs7, le"):
        parse_dscp(text)


def test_what_yields_in_the_network_yields_in_the_queues_of_this_host_too() -> None:
    assert [priority_of(parse_dscp(name)) for name in ("le", "cs1", "af11", "cs0", "af21", "cs4", "ef")] == [
        2, 2, 2, 0, 0, 6, 6,
    ]  # fmt: skip
