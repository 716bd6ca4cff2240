"""``/v1/events`` over the real socket: at once, after a wait, and as a stream."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from gossipd.api.client import RefusedByDaemonError, StatusClient
from gossipd.api.events import ConfigEvent
from gossipd.cli.events import line_of
from gossipd.cli.main import main
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running


def test_a_reader_gets_each_event_once_and_waits_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()) as daemon:
        client = StatusClient(path)
        daemon.ring.append(ConfigEvent(what="one"), "2026-11-25T12:00:00Z")
        answer = client.events(None)
        assert [row["id"] for row in answer["events"]] == [1]
        assert (answer["boot"], answer["last"]) == (7, 1)
        assert client.events("7:1")["events"] == []
        timer = threading.Timer(0.3, lambda: daemon.ring.append(ConfigEvent(what="two"), "x"))
        timer.start()
        [row] = client.events("7:1", wait_s=5)["events"]
        assert (row["id"], row["body"]) == (2, {"type": "config", "what": "two", "reason": ""})
        [gap, *rest] = client.events("6:9")["events"]
        assert (gap["body"], len(rest)) == ({"type": "gap", "after": "6:9"}, 2)


@pytest.mark.parametrize("since", ["x", "1", "1:y"])
def test_a_wrong_position_or_wait_is_refused_with_a_sentence(tmp_path: Path, since: str) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()):
        with pytest.raises(RefusedByDaemonError, match="BOOT:ID"):
            StatusClient(path).events(since)
        with pytest.raises(RefusedByDaemonError, match="at most 60"):
            StatusClient(path).events(None, wait_s=61)


def test_a_stream_has_ids_to_go_on_from(tmp_path: Path) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()) as daemon, socket.socket(socket.AF_UNIX) as reader:
        daemon.ring.append(ConfigEvent(what="one"), "x")
        reader.settimeout(120)
        reader.connect(str(path))
        reader.sendall(b"GET /v1/events HTTP/1.1\r\nHost: gossipd\r\nAccept: text/event-stream\r\n\r\n")
        text = b""
        while b"\n\n" not in text.partition(b"\r\n\r\n")[2]:
            text += reader.recv(4096)
        assert b"text/event-stream" in text
        assert b"id: 7:1\nevent: config\ndata: {" in text


def test_who_follows_is_told_once_that_no_daemon_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("gossipd.cli.events.time.sleep", wait)
    assert main(["events", "--follow", "--socket", str(tmp_path / "s")]) == 130
    told = capsys.readouterr().err
    assert told.count("E_DAEMON_UNREACHABLE: no daemon answers") == 1
    assert "waiting for it" in told


def test_the_command_prints_a_line_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()) as daemon:
        daemon.ring.append(ConfigEvent(what="trust changed"), "2026-11-25T12:00:00Z")
        assert main(["events", "--socket", str(path)]) == 0
        assert capsys.readouterr().out == "2026-11-25T12:00:00Z  config      what=trust changed\n"
    assert line_of({"at": "", "body": {"type": "gap", "after": "1:2"}}).startswith("-")
