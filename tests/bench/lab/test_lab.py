"""The lab itself: kill orders, and a small fabric whose links have the rate they should."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from random import Random

import pytest

from tests.bench.lab.__main__ import main
from tests.bench.lab.control_traffic import control_meter
from tests.bench.lab.fabric import Counters, Fabric, LabError, Station, fabric
from tests.bench.lab.prediction import predict
from tests.bench.lab.report import BUSY_MAX, STOLEN_MAX, row, table
from tests.bench.lab.systems.base import Bench, KillOrder, Outcome
from tests.bench.lab.systems.plain import run_chain, run_checked_chain, run_single
from tests.servers import Nginx

SIZE = 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "who", "at"), [("node-3@30%", "node-3", 0.3), ("seed@0.5", "seed", 0.5), ("20%@100%", "20%", 1.0)]
)
def test_kill_orders_are_read(text: str, who: str, at: float) -> None:
    assert KillOrder.parse(text) == KillOrder(who, at)


@pytest.mark.parametrize("text", ["node-3", "@30%", "node-3@", "node-3@130%", "seed@half", "seed@nan"])
def test_kill_orders_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"WHO@PROGRESS|no share between"):
        KillOrder.parse(text)


def planned(tmp_path: Path, racks: list[int], kills: list[KillOrder]) -> Bench:
    """A bench of which nothing exists but its plan."""
    network = Fabric(racks, mbit=100, uplink_mbit=None)
    return Bench(network, tmp_path, tmp_path / "m", "http://storage/m", SIZE, kills, "none", 60.0, Random(1))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--slow", "node-0:25", "they are node-1 to node-4"),
        ("--slow", "5:3", "they are node-1 to node-4"), ("--slow", "node-3", "HOST:MBIT"),
        ("--slow", "node-3:0", "above 0"), ("--racks", "x,4", "the number of hosts in each rack"),
        ("--racks", "4,,4", "as 4,4,4,4"), ("--racks", "0", "as 4,4,4,4"), ("--systems", "rsync", "there are gossipd"),
        ("--kill", "node-9@30%", "'node-9' is neither seed nor a share such as 20% nor a host, node-1 to node-4"),
        ("--kill", "node-1", "WHO@PROGRESS"), ("--kill", "seed@130%", "'130%' is no share"),
        ("--kill", "150%@30%", "neither seed nor"), ("--kill", "10%@30%", "none of 4 hosts; one is 25%"),
        ("--kill", "100%@30%", "let one live"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_a_sentence_before_anything_runs(
    option: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.bench.lab.__main__.one_run", lambda *_: pytest.fail("it ran"))
    monkeypatch.setattr(sys, "argv", ["lab", "--racks", "2,2", option, value])
    assert main() == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith(f"{option} {value}: ")
    assert said in sentence


@pytest.mark.parametrize("right", ["--slow node-4:25", "--kill node-3@30%", "--kill seed@0.5", "--kill 25%@30%"])
def test_a_right_argument_runs(right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def one_run(given: Namespace, wanted: list[str], number: int) -> list[dict[str, object]]:
        ran.append(number)
        return []

    monkeypatch.setattr("tests.bench.lab.__main__.missing", lambda: None)
    monkeypatch.setattr("tests.bench.lab.__main__.one_run", one_run)
    monkeypatch.setattr(sys, "argv", ["lab", "--racks", "2,2", *right.split()])
    assert main() == 0
    assert ran == [0]


def test_the_simulator_predicts_the_cluster_that_the_lab_ran(tmp_path: Path) -> None:
    bench = planned(tmp_path, [2, 2], [])
    quiet = predict(bench, 0.4, mbit=100, external_mbit=None, uplink_mbit=None, slow_mbit={})
    assert quiet is not None
    assert (quiet.hosts, quiet.chunks) == (4, 16)
    assert quiet.bound_s == pytest.approx(0.4)
    slowed = predict(bench, 0.4, mbit=100, external_mbit=None, uplink_mbit=None, slow_mbit={"node-4": 25.0})
    assert slowed is not None
    assert slowed.seconds_last_slow is not None
    assert slowed.seconds_last_slow >= 1.6, "a quarter of the rate"
    killed = predict(
        planned(tmp_path, [2, 2], [KillOrder("node-3", 0.3)]), 0.4, mbit=100, external_mbit=None, uplink_mbit=None,
        slow_mbit={},
    )  # fmt: skip
    assert killed is not None
    assert (killed.hosts_alive, killed.hosts_complete) == (3, 3)


def test_the_last_of_the_hosts_that_are_not_slow_has_a_figure_of_its_own(tmp_path: Path) -> None:
    bench = planned(tmp_path, [2, 2], [])
    wire = Counters(external=SIZE, crossrack=2 * SIZE, hosts={})
    outcome = Outcome("gossipd", 10.0, {"node-1": 11.0, "node-2": 12.0, "node-4": 14.0}, wire, {}, 0.5, 3)
    found = row(bench, outcome, 1.0, wire, {"node-4": 25.0})
    assert (found["last_s"], found["healthy_last_s"], found["ratio_healthy_last"]) == (4.0, 2.0, 2.0)
    assert (found["ratio_at_25"], found["ratio_at_100"]) == (1.0, 2.0), "each over what its own link needs"
    assert "not slow took 2.00 s" in table([found])
    assert "not slow" not in table([row(bench, outcome, 1.0, wire, {})])


@pytest.mark.parametrize(
    ("busy", "stolen", "is_limited"), [(0.85, 0.005, False), (0.91, 0, True), (0.85, 0.0051, True)]
)
def test_a_run_counts_unless_the_machine_was_busy_or_stood_still(
    tmp_path: Path, busy: float, stolen: float, is_limited: bool
) -> None:
    bench = planned(tmp_path, [2, 2], [])
    wire = Counters(external=SIZE, crossrack=2 * SIZE, hosts={})
    outcome = Outcome("gossipd", 10.0, {"node-1": 11.0}, wire, {}, busy, 1, stolen=stolen)
    found = row(bench, outcome, 1.0, wire, {})
    assert (found["cpu_busy"], found["cpu_limited"]) == (busy, is_limited)
    assert ("do not count" in table([found])) is is_limited


def test_nothing_is_predicted_of_racks_that_the_simulator_does_not_have(tmp_path: Path) -> None:
    bench = planned(tmp_path, [3, 1], [])
    assert predict(bench, 0.4, mbit=100, external_mbit=None, uplink_mbit=None, slow_mbit={}) is None


@pytest.mark.needs("netns", "tc", "nginx")
def test_a_chain_over_two_racks_moves_each_byte_once_over_every_wire(tmp_path: Path) -> None:
    served = tmp_path / "www"
    served.mkdir()
    model = served / "model"
    model.write_bytes(Random(1).randbytes(SIZE))
    with fabric([2, 1], mbit=100) as network:
        server = Nginx(
            served, tmp_path / "nginx", address=network.storage.address, port=8080, command=network.storage.command
        )
        try:
            bench = Bench(network, tmp_path, model, f"{server.url}/model", SIZE, [], "none", 60.0, Random(1))
            single_s, single = run_single(bench)
            outcome, checked = run_chain(bench), run_checked_chain(bench)
        finally:
            server.stop()
    assert single_s >= 0.9 * SIZE * 8 / 100e6, "the links are slower than the loopback"
    assert row(bench, checked, single_s, single, {})["verified_hosts"] == 3
    result = row(bench, outcome, single_s, single, {})
    assert result["verified_hosts"] == 3
    assert 1.0 <= result["external_x"] <= 1.1
    assert 2.0 <= result["crossrack_x"] <= 2.2
    assert result["cpu_limited"] is (outcome.busy > BUSY_MAX or outcome.stolen > STOLEN_MAX)


@pytest.mark.needs("netns", "tc")
def test_every_namespace_has_the_congestion_control_that_was_named_and_the_machine_is_as_it_was() -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    before = allowed.read_text()
    with fabric([1], mbit=100) as network:
        for station in (network.storage, *network.hosts):
            command = [*station.command, "cat", "/proc/sys/net/ipv4/tcp_congestion_control"]
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            assert found.stdout.strip() == network.congestion == "cubic"
    assert allowed.read_text() == before
    refused = pytest.raises(LabError, match="no TCP congestion control 'bbr9'; it has ")
    with refused, fabric([1], mbit=100, congestion="bbr9"):
        raise AssertionError("there is no such algorithm")


@pytest.mark.needs("netns", "tc")
def test_control_bytes_are_what_a_host_sends_to_or_from_the_port_whole_frames_and_nothing_else(tmp_path: Path) -> None:
    def say(station: Station, payload: int, count: int, port: int, *, bound: int = 0) -> None:
        text = (
            "import socket; udp = socket.socket(type=socket.SOCK_DGRAM); "
            f"udp.bind(('{station.address}', {bound})); "
            f"[udp.sendto(bytes({payload}), ('10.77.1.1', {port})) for _ in range({count})]"
        )
        subprocess.run([*station.command, sys.executable, "-c", text], check=True, timeout=60)

    def refused(station: Station, port: int) -> None:
        text = f"import socket; assert socket.socket().connect_ex(('10.77.1.1', {port}))"
        subprocess.run([*station.command, sys.executable, "-c", text], check=True, timeout=60)

    with fabric([2, 1], mbit=100) as network, control_meter(network, 7946, tmp_path / "meter.log") as meter:
        first, second, third = network.hosts
        say(second, 100, 1, 7946)
        assert set(meter.sent().values()) == {0}, "what was before the first question"
        say(second, 100, 5, 7946)
        say(third, 1000, 3, 9999, bound=7946)
        say(third, 1000, 7, 7947)
        assert meter.sent() == {first.name: 0, second.name: 5 * (100 + 42), third.name: 3 * (1000 + 42)}
        refused(third, 7947)
        refused(third, 7946)
        sent = meter.sent()
    headers = 14 + 20 + 20
    assert sent[first.name] == headers, "its refusal"
    assert headers < sent[third.name] - 3 * (1000 + 42) < headers + 41, "one SYN with its options"
