"""The table of figures: every row is read and written as it stands, and a row is measured by its own command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.results import RESULTS, ResultsError, figure_of, main, measured, rewritten, rows_of

FAKE = (
    "# Results\n\n| name | what | command | fields | figure | date | machine |\n|---|---|---|---|---|---|---|\n"
    '| fake | a row | `python -c \'print(chr(123) + chr(34) + "rate" + chr(34) + ":1.25}")\'` | rate '
    "| 1 | then | one |\n"
    "| next | another | `python -c pass` | rate | | | |\n\nThe end.\n"
)


def test_a_named_row_is_run_and_rewritten_and_the_rest_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text(FAKE)
    assert main(["fake"], path=path) == 0
    before, after = FAKE.splitlines(), path.read_text().splitlines()
    assert [*after[:4], *after[5:]] == [*before[:4], *before[5:]]
    row = rows_of(path.read_text())["fake"]
    assert row.figure == "rate 1.25"
    assert row.date.startswith("20")
    assert "cores" in row.machine
    assert capsys.readouterr().out.strip() == after[4]


def test_an_unknown_row_and_a_command_without_a_figure_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text(FAKE)
    assert main(["other"], path=path) == 2
    assert main(["next"], path=path) == 1
    assert path.read_text() == FAKE


def test_a_command_that_fails_is_no_result() -> None:
    row = rows_of(FAKE.replace("-c pass", "-c 'raise SystemExit(3)'"))["next"]
    with pytest.raises(ResultsError, match="ended with 3"):
        measured(row, date="now", machine="here")


def test_a_figure_has_the_range_of_each_group() -> None:
    objects = [
        {"system": "ours", "last_s": 1.0, "hosts": 16},
        {"system": "ours", "last_s": 1.5, "hosts": 16},
        {"system": "theirs", "last_s": 12_345.6, "ignored": 1},
    ]
    assert figure_of(["system", "last_s", "hosts"], objects) == ("ours last_s 1 to 1.5, hosts 16; theirs last_s 12,346")
    with pytest.raises(ResultsError, match="no missing"):
        figure_of(["missing"], objects)


def test_every_row_of_the_file_is_written_as_it_is_read() -> None:
    text = RESULTS.read_text()
    rows = rows_of(text)
    assert len(rows) > 50
    for row in rows.values():
        assert rewritten(text, row) == text, row.name
        assert (row.figure == "") == (row.date == ""), row.name
