"""The page in a real Chromium: over real daemons, and over answers that no honest daemon gives."""

from __future__ import annotations

import json
import os
import re
import shutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from gossipd.api.client import READ_SOCKET_NAME
from gossipd.api.report_row import CELLS_MAX
from gossipd.cli.report import as_object, write
from gossipd.diagnosis.fluid_bound import fluid_bound
from gossipd.web.server import PageServer, Protection
from tests.e2e.cluster import PATIENCE_S, Daemon, cluster, set_up, until
from tests.e2e.toy import make_model
from tests.gossipd.web.unix_daemon import UnixDaemon, answers_about, page_server, status_of, unix_daemon

pytestmark = pytest.mark.needs("chromium")
SIZES = ((1280, 800), (390, 844))
PAINT_MS_MAX = 50
FIRST_PAINT_MS_MAX = 2000
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
SHOTS = os.environ.get("GOSSIPD_SCREENSHOTS")  # a directory: the pictures are left there, to be looked at


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None
    with sync_playwright() as playwright:
        # No sandbox: tests often run as root. Only our own page is opened.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched(browser: Browser, server: PageServer | str, size: tuple[int, int] = SIZES[0]) -> Iterator[Page]:
    """A page in which every request stays at the server, or below that address, and nothing is an error."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    away: list[str] = []
    wrong: list[str] = []

    def requested(request: Request) -> None:
        if not request.url.startswith(server if isinstance(server, str) else server.url):
            away.append(request.url)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            wrong.append(message.text)

    page.on("request", requested)
    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    try:
        yield page
        assert not away
        assert not wrong
        assert context.cookies() == []
    finally:
        context.close()


def picture(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}-{page.viewport_size['width']}.png", full_page=True)  # type: ignore[index]


def wait_painted(page: Page, times: int) -> None:
    """Not Playwright's own waiting for a function, which the page's policy forbids."""
    painted = "performance.getEntriesByName('paint').length"
    until(f"{times} answers are painted", lambda: page.evaluate(painted) >= times)


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def rows_of(daemon: Daemon) -> set[tuple[str, str, str]]:
    """Name, state and reason of each host of the deployment."""
    row: dict[str, Any] = daemon.deployment("org/m", 1) or {"hosts": []}
    return {(one["name"], one["state"], one["reason"]) for one in row["hosts"]}


def fine_sketch(daemon: Daemon, host: str) -> tuple[str, list[str]]:
    """What became of asking the host, and by whose word its chunks are known."""
    _, body = daemon.client.answer_to(f"/v1/sketch?name=org/m&version=1&host={host}&bins=256")
    answer = json.loads(body)
    return answer["asked"], [row["known_by"] for row in answer["hosts"]]


def test_a_killed_host_and_one_without_the_key_are_shown_with_their_reasons(tmp_path: Path, browser: Browser) -> None:
    model = make_model(tmp_path / "model", shards=1)
    allowed = json.dumps([f"file://{tmp_path}"])
    with cluster(tmp_path / "four", environment={"GOSSIPD_SOURCES__ALLOW": allowed}) as made:
        set_up("keygen", tmp_path / "other.key")
        for number in range(1, 5):
            host = made.add(f"node-{number}", f"rack-{(number + 1) // 2}")
            if number == 3:
                text = host.config.read_text()
                trusted = next(line for line in text.splitlines() if line.startswith("trust "))
                host.config.write_text(text.replace(trusted, f'trust = ["{tmp_path / "other.key"}.pub"]'))
            host.start()
        made.wait_together()
        made[4].kill()
        made.drop(made.publish(model, "org/m", 1), made[1])
        made.wait_complete("org/m", 1, at=made[1], hosts=2)
        until("it is dead", lambda: {"dead"} & {one["state"] for one in made[1].client.status()["members"]})
        until("the other says why", lambda: ("node-3", "failed", "refused_key") in rows_of(made[1]))
        until("one that is asked tells its chunks", lambda: fine_sketch(made[1], "node-2") == ("answered", ["answer"]))
        until("one without the manifest does not", lambda: fine_sketch(made[1], "node-3") == ("declined", ["progress"]))
        with page_server(made[1].home / READ_SOCKET_NAME, kept_s=0.9) as server:
            for size in SIZES:
                with watched(browser, server, size) as page:
                    read_real_pages(page, server)


def read_real_pages(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.get_by_text("As node-1 has heard it").wait_for()
    page.get_by_text("3 / 4").wait_for()
    page.get_by_text(re.compile("rack-2.*1 of 2 alive.*node-4 dead")).wait_for()
    assert fits(page)
    picture(page, "cluster")
    page.get_by_role("link", name="org/m@1").click()
    page.get_by_role("heading", name="org/m@1").wait_for()
    page.get_by_text("2 / 4").wait_for()
    slowest = page.get_by_role("table", name="The slowest hosts")
    refused = slowest.get_by_role("row").filter(has_text="node-3").inner_text()
    assert "failed" in refused
    assert "refused_key" in refused
    assert "add the key to security.trust there, then gossipd reload" in refused
    dead = slowest.get_by_role("row").filter(has_text="node-4").inner_text()
    assert "dead: the host is dead" in dead
    page.get_by_text(re.compile("oldest row [0-9]+ s")).wait_for()
    page.get_by_text("All hosts as a table").click()
    everybody = page.get_by_role("table", name="All hosts")
    everybody.wait_for()
    assert everybody.get_by_role("row").count() == 5
    assert fits(page)
    picture(page, "deployment")
    page.get_by_role("link", name="Report and replay").click()
    page.get_by_role("heading", name="Report of org/m@1").wait_for()
    late = page.get_by_role("table", name="Late hosts")
    assert "refused_key" in late.get_by_role("row").filter(has_text="node-3").inner_text()
    racks = page.get_by_role("table", name="Racks").get_by_role("row")
    assert "2/2" in racks.filter(has_text="rack-1").inner_text()
    page.get_by_role("heading", name="Replay of org/m@1").wait_for()
    assert fits(page)
    picture(page, "report")
    page.goto(f"{server.url}#/host/node-1")
    peers = page.get_by_role("table", name=re.compile("Traffic with each peer"))
    peers.get_by_role("link", name="node-2").wait_for()
    assert fits(page)
    picture(page, "host")
    page.goto(f"{server.url}#/host/node-3")
    over_time = page.get_by_role("table", name="Reasons over time")
    over_time.get_by_role("row").filter(has_text="refused_key").wait_for()
    page.get_by_text("It declines: it has not accepted this model").wait_for()
    assert fits(page)
    picture(page, "host-refused")


@contextmanager
def told(tmp_path: Path, status: dict[str, Any], protection: Protection | None = None) -> Iterator[PageServer]:
    answers = answers_about(status) | {"/v1/members": {"members": status["members"]}, "/v1/peers": {"peers": {}}}
    for row in status["deployments"]:
        which = f"?name={row['name']}&version={row['version']}"
        answers[f"/v1/sketch{which}"] = {"name": row["name"], "version": row["version"], "hosts": []}
        answers[f"/v1/report{which}"] = {"report": {"deployment": row, "traffic": [], "timeline": None}}
    with unix_daemon(tmp_path / "s", answers), page_server(tmp_path / "s", protection) as server:
        yield server


def test_names_and_reasons_of_other_hosts_stay_text(tmp_path: Path, browser: Browser) -> None:
    status = status_of(4, 2)
    row = status["deployments"][0]
    for at, word in enumerate((HOSTILE, "__proto__", "constructor")):
        row["hosts"][at] |= {"name": HOSTILE, "rack": HOSTILE, "reason": word, "subject": HOSTILE, "state": word}
        status["members"][at] |= {"name": HOSTILE, "rack": HOSTILE, "state": word, "version": HOSTILE, "address": word}
    row["name"], status["node"]["name"], row["stall"] = HOSTILE, HOSTILE, HOSTILE
    status["alarms"] = [{"code": "__proto__", "sentence": HOSTILE, "since": HOSTILE}]
    status["store"] |= {"condition": HOSTILE, "detail": HOSTILE}
    with told(tmp_path, status) as server, watched(browser, server) as page:
        page.goto(server.url)
        page.get_by_text(HOSTILE).first.wait_for()
        page.get_by_role("link", name=f"{HOSTILE}@3").click()
        page.get_by_role("heading", name=f"{HOSTILE}@3").wait_for()
        page.get_by_text("All hosts as a table").click()
        page.get_by_role("table", name="The slowest hosts").get_by_role("link", name=HOSTILE).first.click()
        page.get_by_role("heading", name=HOSTILE, exact=True).wait_for()
        assert page.locator("img").count() == 0
        assert page.title() != "taken"
        assert page.evaluate("({}).sentence === undefined")


@pytest.mark.parametrize(("told", "shown"), [("300.2", "org/llama@300.2"), (None, f"org/llama@{(2 << 32) + 300}")])
def test_a_step_is_shown_as_commands_show_it(tmp_path: Path, browser: Browser, told: str | None, shown: str) -> None:
    """A daemon of 0.1 tells no label."""
    status = status_of(2, 1)
    row = status["deployments"][0]
    row |= {"version": (2 << 32) + 300, "version_label": told}
    which = f"?name=org/llama&version={row['version']}"
    for host in row["hosts"]:
        host |= {"state": "downloading", "chunks_verified": 2000}
    answers = answers_about(status) | {f"/v1/sketch{which}&host=gpu-0001&bins=256": sketch_of([])}
    answers[f"/v1/sketch{which}&host=gpu-0001&bins=256"] |= {"version": row["version"], "asked": "silent", "hosts": []}
    report = report_of_many(2, 1)
    report["deployment"] |= {"version": row["version"], "version_label": told or ""}
    answers[f"/v1/report{which}"] = {"report": report}
    with (
        unix_daemon(tmp_path / "s", answers),
        page_server(tmp_path / "s") as server,
        watched(browser, server) as page,
    ):
        page.goto(server.url)
        page.get_by_role("link", name=shown, exact=True).click()
        page.get_by_role("heading", name=shown, exact=True).wait_for()
        page.get_by_role("link", name="Report and replay").click()
        page.get_by_role("heading", name=f"Replay of {shown}", exact=True).wait_for()
        page.get_by_role("heading", name=shown, exact=True).wait_for()
        page.goto(f"{server.url}#/host/gpu-0001")
        page.get_by_text(f"Of {shown} it is not known").wait_for()


def test_a_thousand_hosts_are_painted_fast_and_racks_open_by_key(tmp_path: Path, browser: Browser) -> None:
    with told(tmp_path, status_of(1000, 20)) as server, watched(browser, server) as page:
        page.goto(f"{server.url}#/deployment/org%2Fllama/3")
        grid = page.get_by_role("application")
        grid.focus()
        page.keyboard.press("End")  # perhaps before the first answer: no error
        wait_painted(page, 1)
        page.keyboard.press("End")
        page.get_by_text(re.compile("^Rack rack-20: ")).wait_for()
        for _ in range(20):
            page.keyboard.press("Enter")
            page.keyboard.press("ArrowUp")
        page.keyboard.press("End")
        page.get_by_text(re.compile("^gpu-0999: ")).wait_for()
        painted = "performance.getEntriesByName('paint').slice(2).map((one) => one.duration)"
        # The quickest: what a busy machine adds to the others says nothing of the page, which is painted each second.
        until("a repaint of 1,000 rows is quick", lambda: min(page.evaluate(painted), default=999) < PAINT_MS_MAX)
        picture(page, "thousand")


COLUMNS = CELLS_MAX // 1000  # as a daemon tells of so many hosts


def report_of_many(hosts: int, racks: int) -> dict[str, Any]:
    """A report of hosts that got a model evenly, one after another; a third of them has less in the end."""
    row = status_of(hosts, racks)["deployments"][0]
    shares = {}
    for at, host in enumerate(row["hosts"]):
        end = int(254 * host["chunks_verified"] / row["chunks_total"])
        shares[host["name"]] = b64encode(bytes(min(end, column + at % 7) for column in range(COLUMNS))).decode()
    moved = {"source_bytes": 10**9, "peer_bytes_same_rack": 10**10, "peer_bytes_cross_rack": 0, "duplicate_bytes": 0,
             "corrupt_chunks": 0, "started_s": 1000}  # fmt: skip
    traffic = [
        {**moved, "name": one["name"], "rack": one["rack"], "elapsed_s": 260 * (one["state"] == "complete")}
        for one in row["hosts"]
    ]
    slow = row["hosts"][-1]["name"]
    timeline = {"began_s": 1000.0, "step_s": 1.0, "moved": [[10**9, 10**10, 10**8]] * COLUMNS, "shares": shares,
                "reasons": {slow: [[3.0, "all_busy"]]}, "silences": {slow: [31.0, 3.0]}, "told_s": 262.0}  # fmt: skip
    return {"told_by": "gpu-0000", "told_at": "2026-11-25T10:00:00Z", "money_per_gb": 0.09, "deployment": row,
            "traffic": traffic, "timeline": timeline}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_a_report_of_a_thousand_hosts_is_one_file_that_replays(
    tmp_path: Path, browser: Browser, size: tuple[int, int]
) -> None:
    told = report_of_many(1000, 20)
    told["deployment"]["hosts"][7] |= {"name": HOSTILE, "reason": HOSTILE, "state": "failed"}
    write(tmp_path / "report.html", as_object(told))
    with watched(browser, f"file://{tmp_path}/", size) as page:
        page.goto(f"file://{tmp_path}/report.html")
        page.get_by_role("heading", name="Replay of org/llama@3").wait_for()
        page.get_by_text("4m 22s of 4m 22s").wait_for()
        assert page.get_by_text("The links allowed").count() == 1
        assert page.get_by_role("table", name="Late hosts").get_by_text(HOSTILE).count() == 2
        assert page.title() != "taken"

        def first_paint_ms() -> float:
            page.reload()
            page.get_by_text("4m 22s of 4m 22s").wait_for()
            return float(page.evaluate("performance.getEntriesByName('paint')[0].duration"))

        until("the first paint of 1,000 hosts is quick", lambda: first_paint_ms() < FIRST_PAINT_MS_MAX)
        page.get_by_label("Time of the replay").focus()
        page.keyboard.press("Home")
        page.get_by_text("1 s of 4m 22s").wait_for()
        complete = (
            page.locator("dt", has_text=re.compile("^Hosts complete$")).locator("xpath=following-sibling::dd").last
        )
        assert complete.inner_text() == "0 / 1000"
        page.keyboard.press("End")
        for _ in range(4):  # to play all of it would take as long as this machine is slow
            page.keyboard.press("ArrowLeft")
        page.get_by_text("4m 18s of 4m 22s").wait_for()
        page.get_by_role("button", name="Play").click()
        page.get_by_text("4m 22s of 4m 22s").wait_for()
        assert complete.inner_text() != "0 / 1000"
        assert fits(page)
        picture(page, "report-file")


def test_a_replay_shows_which_chunks_came_when(tmp_path: Path, browser: Browser) -> None:
    told = report_of_many(2, 1)
    first, _ = (one["name"] for one in told["deployment"]["hosts"])
    quarters = [10] * 4 * 16 + [20] * 4 * 32 + [20, 20, 65535, 65535] * 16
    sketch = b"".join(one.to_bytes(2, "big") for one in quarters)
    told["timeline"]["sketches"] = {first: b64encode(sketch).decode()}
    write(tmp_path / "report.html", as_object(told))
    with watched(browser, f"file://{tmp_path}/") as page:
        page.goto(f"file://{tmp_path}/report.html")
        page.get_by_role("button", name="By chunk").click()
        page.get_by_text(re.compile("8000 chunks.* in 64 columns; .* has: 1 of 2")).wait_for()
        assert [pixel(page, x, 30) for x in (400, 800)] == [DARKEST, DARKEST]
        assert pixel(page, 943, 30) not in (DARKEST, GREY), "half of it"
        page.get_by_role("button", name="Time it came").click()
        assert [pixel(page, x, 30) for x in (400, 800, 943)] == [LIGHTEST, DARKEST, GREY]
        page.get_by_role("button", name="By chunk").click()
        page.get_by_label("Time of the replay").fill("12")
        page.get_by_text("12 s of 4m 22s").wait_for()
        assert [pixel(page, x, 30) for x in (400, 800)] == [DARKEST, GREY], "as it was then"
        picture(page, "replay-chunks")


def test_the_chart_of_rates_has_a_line_at_what_the_links_carry(tmp_path: Path, browser: Browser) -> None:
    report = report_of_many(2, 1)
    report["deployment"]["bytes_total"] = 10**10
    report["timeline"]["moved"] = [[10**7, 5 * 10**7, 0]] * COLUMNS
    write(tmp_path / "report.html", as_object(report))
    bound = fluid_bound(report)
    assert bound is not None
    with watched(browser, f"file://{tmp_path}/") as page:
        page.goto(f"file://{tmp_path}/report.html")
        page.get_by_text(re.compile(r"The line: 2 links of [0-9.]+ MiB/s$")).wait_for()
        found = """() => { const chart = document.querySelector('canvas.chart'), red = String([0xa3, 0x2a, 0]);
            const is = (x, y) => String([...chart.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3)) === red;
            return Array.from({ length: chart.height }, (_, y) => y).filter((y) => is(3, y) && is(99, y)) }"""
        red = page.evaluate(found)
        assert 2 * bound.link_bytes_per_s > 6 * 10**7, "above all bars"
        assert red == [6, 7]
        picture(page, "links")


def test_a_replay_without_sketches_has_one_mode(tmp_path: Path, browser: Browser) -> None:
    write(tmp_path / "report.html", as_object(report_of_many(2, 1)))
    with watched(browser, f"file://{tmp_path}/") as page:
        page.goto(f"file://{tmp_path}/report.html")
        page.get_by_role("heading", name="Replay of org/llama@3").wait_for()
        assert page.get_by_role("button", name="By chunk").count() == 0


def test_the_grids_pixels_are_the_share_that_a_host_has(tmp_path: Path, browser: Browser) -> None:
    status = status_of(2, 1)
    for host, chunks in zip(status["deployments"][0]["hosts"], (0, 8000), strict=True):
        host |= {"chunks_verified": chunks, "age_s": 1.0, "reason": ""}
    status["deployments"][0]["hosts"][1]["state"] = "complete"
    with told(tmp_path, status) as server, watched(browser, server) as page:
        page.goto(f"{server.url}#/deployment/org%2Fllama/3")
        wait_painted(page, 2)
        at = "[...document.querySelector('.grid canvas').getContext('2d').getImageData(600, %d, 1, 1).data].slice(0, 3)"
        assert page.evaluate(at % 30) == [0xE9, 0xED, 0xF2], "nothing: grey"
        assert page.evaluate(at % 50) == [8, 48, 107], "all: the darkest"


def test_complete_hosts_stay_in_the_grid_while_other_pages_leave_them_out(tmp_path: Path, browser: Browser) -> None:
    status, which = status_of(2, 1), "?name=org/llama&version=3"
    status["deployments"][0]["hosts_complete"] = 1
    for host, chunks in zip(status["deployments"][0]["hosts"], (0, 8000), strict=True):
        host |= {"chunks_verified": chunks, "state": "complete" if chunks else "downloading", "reason": ""}
    answers = {f"/v1/report{which}": {"report": report_of_many(2, 1)}, f"/v1/sketch{which}": sketch_of([0] * 64)}
    with (
        unix_daemon(tmp_path / "s", answers | answers_about(status)) as daemon,
        page_server(tmp_path / "s") as server,
        watched(browser, server) as page,
    ):
        page.goto(f"{server.url}#/deployment/org%2Fllama/3")
        wait_painted(page, 2)
        for away, asked in (("", "hosts_max=0"), ("host/gpu-0001", "host=gpu-0001")):
            page.evaluate(f"location.hash = '#/{away}'")
            question = f"/v1/status?{asked}"
            enough = daemon.asked.count(question) + 2
            until("the other page asks twice", partial(_is_asked, daemon, question, enough))
        page.evaluate("location.hash = '#/deployment/org%2Fllama/3'")
        page.get_by_text(re.compile("s a column")).wait_for()
        wait_painted(page, 8)
        assert [pixel(page, x, 50) for x in (290, 900)] == [DARKEST, DARKEST], "first and last"
        assert {str(pixel(page, x, 50)) for x in range(400, 900, 25)} <= {str(DARKEST), str(WHITE)}, "or not looked at"
        assert "/v1/status" not in daemon.asked, "nobody asks for all hosts of all deployments"


@pytest.mark.parametrize("complete", [450, 440])
def test_racks_of_complete_hosts_are_dark_when_one_comes_from_the_cluster(
    tmp_path: Path, browser: Browser, complete: int
) -> None:
    """The first page has no rows of complete hosts; the grid of so many hosts has racks alone, each a mean."""
    status = status_of(450, 5)
    row = status["deployments"][0]
    for at, host in enumerate(row["hosts"]):
        is_done = at < complete
        host |= {"state": "complete" if is_done else "downloading", "chunks_verified": 8000 * is_done, "reason": ""}
    row["hosts_complete"] = complete
    with told(tmp_path, status) as server, watched(browser, server) as page:
        page.goto(server.url)
        wait_painted(page, 3)
        page.get_by_role("link", name="org/llama@3").click()
        page.get_by_text(re.compile("s a column")).wait_for()
        until("the racks that are complete are dark", lambda: pixel(page, 290, 10) == DARKEST)
        last = pixel(page, 290, 90)  # of whose 90 hosts ten have nothing
        assert last == DARKEST if complete == 450 else last not in (DARKEST, GREY, WHITE)
        assert pixel(page, 280, 90) == last, "from the first column"


def test_a_page_says_nothing_of_hosts_that_it_has_not_asked_for(tmp_path: Path, browser: Browser) -> None:
    status = status_of(6, 2)
    with page_server(tmp_path / "s") as server:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        with unix_daemon(tmp_path / "s", answers_about(status)):
            page.goto(server.url)
            page.get_by_role("link", name="org/llama@3").wait_for()
        (tmp_path / "s").unlink()
        page.get_by_text("no daemon answers at").wait_for()
        for hash_ in ("#/host/gpu-0000", "#/deployment/org%2Fllama/3"):
            page.evaluate(f"location.hash = '{hash_}'")
            page.get_by_text(re.compile(r"another by --config or --socket\.$")).wait_for()  # it was asked for in vain
            assert page.get_by_text("It is a target of none").count() == 0
            assert page.get_by_text("Every target has what it wants").count() == 0
            assert page.get_by_role("table").count() == 0
        page.go_back()
        with unix_daemon(tmp_path / "s", answers_about(status)):
            page.get_by_role("table", name="Deployments on this host").wait_for()
        context.close()


def _is_asked(daemon: UnixDaemon, question: str, times: int) -> bool:
    return daemon.asked.count(question) >= times


DARKEST, LIGHTEST, GREY, WHITE = [8, 48, 107], [167, 203, 237], [0xE9, 0xED, 0xF2], [255, 255, 255]


def pixel(page: Page, x: int, y: int) -> list[int]:
    at = """([x, y]) => [...document.querySelector('.grid canvas').getContext('2d')
        .getImageData(x, y, 1, 1).data].slice(0, 3)"""
    found: list[int] = page.evaluate(at, [x, y])
    return found


def sketch_of(bins: list[int], known_by: str = "announcements", asked: str = "") -> dict[str, Any]:
    """The answer about two hosts, of which the chunks of the first are known."""
    row = {"name": "gpu-0000", "rack": "rack-01", "known_by": known_by, "age_s": 0.0, "chunks_held": 4000}
    hosts = [row | {"shares": b64encode(bytes(bins)).decode()}]
    return {"name": "org/llama", "version": 3, "asked": asked, "hosts": hosts}


def test_by_chunk_each_column_is_a_bin_in_its_share_or_in_the_time_it_came(tmp_path: Path, browser: Browser) -> None:
    status = status_of(2, 1)
    for host in status["deployments"][0]["hosts"]:
        host |= {"state": "downloading", "chunks_verified": 2000, "age_s": 1.0, "reason": ""}
    asked, report = "/v1/sketch?name=org/llama&version=3", report_of_many(2, 1)
    answers = answers_about(status) | {asked: sketch_of([254] * 32 + [0] * 32)}
    report["deployment"]["bytes_total"] = 10**10
    answers |= {"/v1/report?name=org/llama&version=3": {"report": report}}
    with (
        unix_daemon(tmp_path / "s", answers) as daemon,
        page_server(tmp_path / "s") as server,
        watched(browser, server) as page,
    ):
        page.goto(f"{server.url}#/deployment/org%2Fllama/3")
        bound = fluid_bound(report)
        assert bound is not None
        limited = page.locator("dt", has_text="Limited by").locator("xpath=following-sibling::dd")
        until("what limits it is said", lambda: limited.all_inner_texts() == [bound.limiting_resource])
        page.get_by_role("button", name="By chunk").click()
        page.get_by_text(re.compile("8000 chunks.* in 64 columns; .* has: 1 of 2")).wait_for()
        assert pixel(page, 400, 30) == DARKEST, "the first half is there"
        assert pixel(page, 900, 30) == GREY, "the second is not"
        page.get_by_role("button", name="Time it came").click()
        page.get_by_text(re.compile("the later these chunks came")).wait_for()
        daemon.answers[asked] = sketch_of([254] * 48 + [0] * 16)
        until("a quarter comes", lambda: pixel(page, 721, 30) == LIGHTEST)
        daemon.answers[asked] = sketch_of([254] * 56 + [0] * 8)
        until("an eighth comes later", lambda: pixel(page, 854, 30) == DARKEST)
        assert pixel(page, 721, 30) == LIGHTEST, "what came before"
        assert pixel(page, 388, 30) == WHITE, "what was there before this browser looked"
        assert pixel(page, 943, 30) == GREY, "what has not come"
        assert fits(page)
        picture(page, "arrivals")
        page.get_by_role("button", name="Over time").click()
        page.get_by_text(re.compile("s a column")).wait_for()


def test_a_deployments_page_has_its_price_and_its_waste_by_reason(tmp_path: Path, browser: Browser) -> None:
    status = status_of(2, 1)
    status["deployments"][0] |= {"cancelled_bytes": 3 << 20, "corrupt_bytes": 1 << 20}
    answers = answers_about(status)
    answers |= {"/v1/report?name=org/llama&version=3": {"report": report_of_many(2, 1)}}
    with (
        unix_daemon(tmp_path / "s", answers),
        page_server(tmp_path / "s") as server,
        watched(browser, server) as page,
    ):
        page.goto(f"{server.url}#/deployment/org%2Fllama/3")
        figures = {"Price of that": "45.01", "Fetched twice": "0 B", "Cut off": "3.0 MiB", "Damaged": "1.0 MiB"}
        for name, shown in figures.items():
            box = page.locator(".figures div").filter(has_text=name)
            box.get_by_text(shown, exact=True).wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_a_hosts_page_shows_the_256_bins_that_the_host_tells_or_why_not(
    tmp_path: Path, browser: Browser, size: tuple[int, int]
) -> None:
    status = status_of(2, 1)
    for host in status["deployments"][0]["hosts"]:
        host |= {"state": "downloading", "chunks_verified": 2000, "age_s": 1.0, "reason": ""}
    asked = "/v1/sketch?name=org/llama&version=3&host=gpu-0001&bins=256"
    told = sketch_of([254] * 64 + [254, 0] * 32 + [0] * 128, "answer", "answered")
    report = {"/v1/report?name=org/llama&version=3": {"report": report_of_many(2, 1)}}
    with (
        unix_daemon(tmp_path / "s", answers_about(status) | {asked: told, **report}) as daemon,
        page_server(tmp_path / "s") as server,
        watched(browser, server, size) as page,
    ):
        page.goto(f"{server.url}#/host/gpu-0001")
        page.get_by_text("4000 of org/llama@3, in 256 columns").wait_for()
        inside = 300
        assert [pixel(page, inside, y) for y in (10, 70)] == [DARKEST, GREY], "a row for each quarter"
        assert pixel(page, inside, 30) in (DARKEST, GREY)
        assert page.get_by_text("by its own answer, 0 s ago").count() == 1
        assert fits(page)
        picture(page, "host-bins")
        daemon.answers[asked] = sketch_of([0] * 64, asked="silent")
        page.get_by_text("in 64 columns").wait_for()
        assert page.get_by_text("It does not answer, as gossipd 0.1").count() == 1
        until("one row is left", lambda: pixel(page, inside, 10) == GREY)
        daemon.answers[asked] = {**sketch_of([]), "asked": "declined", "hosts": []}
        page.get_by_text("it is not known here which. It declines").wait_for()


def test_a_hosts_page_shows_its_reasons_over_time_and_its_own_alarms(tmp_path: Path, browser: Browser) -> None:
    status, report = status_of(2, 1), report_of_many(2, 1)
    status["alarms"] = [{"code": "E_ALONE", "sentence": "hears nobody", "since": "2027-01-15T08:00:00Z"}]
    status["node"]["name"] = "gpu-0000"
    report["timeline"]["reasons"] = {"gpu-0001": [[3.0, "all_busy"], [95.0, HOSTILE]], "gpu-0000": []}
    answers = {"/v1/members": {"members": status["members"]}, "/v1/peers": {"peers": {}}}
    for name in ("gpu-0000", "gpu-0001"):
        answers[f"/v1/sketch?name=org/llama&version=3&host={name}&bins=256"] = sketch_of([0] * 64)
    answers |= answers_about(status) | {"/v1/report?name=org/llama&version=3": {"report": report}}
    with (
        unix_daemon(tmp_path / "s", answers),
        page_server(tmp_path / "s") as server,
        watched(browser, server) as page,
    ):
        page.goto(f"{server.url}#/host/gpu-0001")
        told = page.get_by_role("table", name="Reasons over time").get_by_role("row")
        told.filter(has_text="3 s").filter(has_text="all_busy").wait_for()
        assert told.filter(has_text="1m 35s").filter(has_text=HOSTILE).count() == 1, "as text"
        assert page.get_by_text("hears nobody").count() == 0, "another host's"
        page.goto(f"{server.url}#/host/gpu-0000")
        page.get_by_text("hears nobody").wait_for()
        page.get_by_text(re.compile("org/llama@3.*: none")).wait_for()
        assert fits(page)


def test_a_row_that_is_old_is_hatched_and_said(tmp_path: Path, browser: Browser) -> None:
    status = status_of(2, 1)
    for host, age in zip(status["deployments"][0]["hosts"], (3.0, 95.0), strict=True):
        host |= {"state": "downloading", "chunks_verified": 100, "age_s": age}
    with told(tmp_path, status) as server, watched(browser, server) as page:
        page.goto(f"{server.url}#/deployment/org%2Fllama/3")
        page.get_by_text(re.compile("oldest row 1m 3[5-9]s")).wait_for()
        assert page.locator("tr.old").filter(has_text="gpu-0001").count() == 1
        assert page.locator("tr.old").filter(has_text="gpu-0000").count() == 0
        colours = """(top) => new Set(new Uint32Array(document.querySelector('.grid canvas').getContext('2d')
            .getImageData(500, top, 60, 1).data.buffer)).size"""
        assert page.evaluate(colours, 30) == 1
        assert page.evaluate(colours, 50) > 2


def test_a_daemon_that_is_gone_is_said_and_what_was_heard_stays(tmp_path: Path, browser: Browser) -> None:
    with page_server(tmp_path / "s") as server:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        with unix_daemon(tmp_path / "s", answers_about(status_of(4, 2))):
            page.goto(server.url)
            page.get_by_text("3 / 4").or_(page.get_by_text("4 / 4")).wait_for()
        (tmp_path / "s").unlink()
        page.get_by_text(re.compile("no daemon answers at .* What is shown is [0-9]+ s old")).wait_for()
        assert page.get_by_role("link", name="org/llama@3").count() == 1
        with unix_daemon(tmp_path / "s", answers_about(status_of(4, 2))):
            page.get_by_role("alert").wait_for(state="hidden")
        context.close()


def test_a_page_with_a_token_asks_for_it_or_takes_it_from_its_address(tmp_path: Path, browser: Browser) -> None:
    token = "a-token-of-many-characters"
    with told(tmp_path, status_of(4, 2), Protection(token=token)) as server:
        with watched(browser, server) as page:
            page.goto(f"{server.url}#token={token}")
            page.get_by_text("As gpu-0000 has heard it").wait_for()
            assert token not in page.url
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        page.goto(server.url)
        page.get_by_label("Token of this page").fill(token)
        page.get_by_role("button", name="Open").click()
        page.get_by_text("As gpu-0000 has heard it").wait_for()
        page.get_by_role("alert").wait_for(state="hidden")
        context.close()
