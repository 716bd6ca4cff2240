"""``gossipd report``: for people, as JSON, and as one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.cli.layout import laid_out
from gossipd.cli.main import main
from gossipd.cli.report import lines_of, why_late
from gossipd.diagnosis.report import Straggler, summarise
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running
from tests.gossipd.diagnosis.test_report import GB, report


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setenv("GOSSIPD_SOCKET", str(tmp_path / "gossipd.sock"))
    with running(tmp_path / "gossipd.sock", FakeDaemon()) as made:
        yield made


def test_a_person_reads_times_price_racks_and_late_hosts(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "org/toy"]) == 0
    page = capsys.readouterr().out
    for words in (
        "org/toy@3  distributing  2/4 hosts  256 MiB",
        "complete after  first 4 s, half 14 s, p95 -, last -",
        "from storage    256 MiB (1.000x), 0.13 in money at 0.5 a GB",
        "read storage    node-1",
        "not heard for 5 s, from 0 s on",
    ):
        assert words in page
    assert [line.split()[0] for line in page.splitlines() if line.startswith("node-")] == [
        "node-3", "node-4", "node-2",
    ]  # fmt: skip


def test_json_has_the_summary_and_all_that_the_daemon_told(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "org/toy@3", "--price-per-gb", "1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema_version"] == 1
    assert shown["summary"]["money"] == 0.2684
    assert shown["report"]["timeline"]["moved"][1] == [7, 0, 0]
    assert {one["name"] for one in shown["summary"]["racks"]} == {"r0", "r1"}


def test_a_file_is_a_page_or_json_by_its_name(
    daemon: FakeDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "org/toy", "--out", str(tmp_path / "toy.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'toy.html'}: org/toy@3, as node-1 has heard it\n"
    assert (tmp_path / "toy.html").read_text().startswith("<!doctype html>")
    assert main(["report", "org/toy", "--out", str(tmp_path / "toy.json"), "--json"]) == 0
    assert json.loads((tmp_path / "toy.json").read_text()) == json.loads(capsys.readouterr().out)


def test_what_is_not_known_is_not_found_and_an_unwritable_file_is_told(
    daemon: FakeDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "other"]) == 3
    assert "no deployment other is known here" in capsys.readouterr().err
    assert main(["report", "org/toy", "--out", str(tmp_path / "no" / "toy.html")]) == 2
    assert "name a file in a directory that exists" in capsys.readouterr().err


def test_many_racks_and_readers_are_cut_and_counted() -> None:
    hosts = [{"name": f"h{n:02d}", "rack": f"r{n:02d}", "source_bytes": GB} for n in range(50)]
    page = "\n".join(laid_out(lines_of(summarise(report(hosts))), None))
    assert "and 42 more" in page
    assert "and 10 more; --json has all" in page


def test_a_late_host_without_a_word_has_no_hindrance() -> None:
    assert why_late(Straggler("a", "r", "complete", 9, "", ())) == "no hindrance told"
    said = why_late(Straggler("a", "r", "failed", None, "dead", (("all_busy", 70.0),)))
    assert said == "dead; all_busy for 1m 10s"
