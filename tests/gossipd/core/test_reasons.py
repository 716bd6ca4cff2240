"""The table of reasons, and the page of the manual that is made of it.

``python -m tests.gossipd.core.test_reasons`` writes the table of the page again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossipd.core.errors import LocalError
from gossipd.core.events import StallReason
from gossipd.core.reasons import (
    FORMAT_1_LAST,
    NUMBER_MAX,
    READERS,
    CuredBy,
    Heals,
    HostReason,
    reason_of_code,
    reason_of_number,
    reason_of_refusal,
    reason_of_word,
)
from gossipd.runtime import ports
from gossipd.sources import errors as source_errors
from gossipd.store import errors as store_errors

PAGE = Path(__file__).parents[3] / "gossipd" / "manual" / "reasons.md"
HEAD = "| reason | what it means | who can cure it, and how | goes on |\n|---|---|---|---|\n"
# What hosts of 0.1.0 read; never changed.
FORMAT_1 = (
    "", "other", "no_holder", "all_busy", "disk", "storage", "verification", "membership", "no_space", "disk_read_only",
    "disk_failing", "source_auth", "source_gone", "source_changed", "source_unreachable", "source_forbidden", "removed",
    "refused_rollback", "refused", "memory", "holder_silent",
)  # fmt: skip


def table() -> str:
    """The rows of the page."""
    told = [reason for reason in HostReason if reason is not HostReason.NONE]
    return HEAD + "".join(
        f"| `{one.value}` | {one.sentence} | {one.cured_by.value}: {one.cure} | {one.heals.value} |\n" for one in told
    )


def test_the_manual_lists_exactly_the_reasons_there_are() -> None:
    text = PAGE.read_text()
    assert table() in text, "python -m tests.gossipd.core.test_reasons writes it"
    assert re.findall(r"^\| `(\w+)`", text, re.MULTILINE) == [one.value for one in HostReason if one.value]


def test_numbers_on_the_wire_never_change() -> None:
    assert tuple(reason_of_number(number).value for number in range(FORMAT_1_LAST + 1)) == FORMAT_1
    assert [reason.number for reason in HostReason] == list(range(len(HostReason))), "append only"
    assert len(HostReason) <= NUMBER_MAX + 1


@pytest.mark.parametrize("reason", HostReason)
def test_every_reason_has_words_and_a_number_for_older_hosts(reason: HostReason) -> None:
    assert reason.number_in_format_1 <= FORMAT_1_LAST
    assert reason.sentence and reason.cure and not reason.sentence.endswith(".")
    assert reason_of_number(reason.number) is reason


def test_a_later_number_is_some_other_reason() -> None:
    assert reason_of_number(NUMBER_MAX) is HostReason.OTHER


def test_every_reason_of_a_stall_is_a_reason() -> None:
    for stall in StallReason:
        reason = reason_of_word(stall.value)
        assert reason.value == stall.value
        assert reason.heals is Heals.BY_ITSELF


def test_every_failure_of_storage_gives_a_reason() -> None:
    kinds = [one for one in vars(source_errors).values() if isinstance(one, type)]
    for kind in kinds:
        if issubclass(kind, source_errors.SourceError) and kind.code != "E_CANCELLED":
            assert reason_of_code(kind.code, HostReason.OTHER) is not HostReason.OTHER, kind


def test_a_manifest_that_breaks_a_rule_is_not_told_as_a_setting_of_its_host() -> None:
    for code in ("E_SOURCE_FORBIDDEN", "E_INDEX", "E_PATH_CHAR"):
        assert reason_of_refusal(code) is HostReason.REFUSED
    assert reason_of_refusal("E_KEY_UNKNOWN") is HostReason.REFUSED_KEY
    assert reason_of_code("E_SOURCE_FORBIDDEN", HostReason.STORAGE) is HostReason.SOURCE_FORBIDDEN, "of a reader"


def test_a_broken_connection_is_not_told_as_permanent() -> None:
    for code in ("E_SOURCE_SHORT", "E_SOURCE_SLOW", "E_SOURCE_BUSY", "E_SOURCE", "E_SOURCE_UNREACHABLE"):
        assert reason_of_code(code, HostReason.OTHER).heals is Heals.BY_ITSELF


def test_every_failure_that_only_another_object_or_server_ends_is_told_by_its_own_reason() -> None:
    kinds = [one for one in vars(source_errors).values() if isinstance(one, type)]
    for kind in kinds:
        if issubclass(kind, source_errors.SourceError) and kind.is_permanent:
            reason = reason_of_code(kind.code, HostReason.STORAGE)
            assert reason in READERS, "every host shows the reader's"
            assert reason.ends_waits or reason.cured_by is CuredBy.PUBLISHER, kind


def test_no_trouble_with_an_object_in_storage_ends_the_deployment() -> None:
    of_storage = [reason for reason in HostReason if reason.is_of_storage]
    assert {HostReason.OBJECT_SHORT, HostReason.NO_RANGES, HostReason.SOURCE_CHANGED} < set(of_storage)
    assert not [reason for reason in of_storage if reason.heals is Heals.NEVER]
    assert HostReason.OBJECT_SHORT.ends_waits, "though not at once: its upload may be under way"
    assert HostReason.SOURCE_CHANGED.ends_waits


def test_no_failure_of_the_store_is_told_as_the_publishers() -> None:
    for kind in (*vars(store_errors).values(), *vars(ports).values()):
        if isinstance(kind, type) and issubclass(kind, LocalError) and kind.code.startswith("E_"):
            assert reason_of_code(kind.code, HostReason.DISK).cured_by is not CuredBy.PUBLISHER, kind


def test_only_a_reader_blames_the_storage() -> None:
    assert {one for one in READERS if one.cured_by is CuredBy.DISK} == set()
    assert HostReason.STORAGE not in READERS, "a host that may not read says it, too"


def write_page() -> None:
    text = PAGE.read_text()
    begin = text.index(HEAD)
    end = text.index("\n\n", begin) + 1
    PAGE.write_text(text[:begin] + table() + text[end:])


if __name__ == "__main__":
    write_page()
