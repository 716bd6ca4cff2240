"""Which members doctor tries, and what a connection tells."""

from __future__ import annotations

import socket
from typing import Any

from gossipd.cli.peer_readings import chosen, connect
from tests.servers import free_port


def member(name: str, rack: str, state: str = "alive") -> dict[str, Any]:
    return {"id": name, "name": name, "rack": rack, "state": state, "address": f"{name}:1"}


def test_members_of_many_racks_are_tried_and_one_of_this_hosts_own() -> None:
    members = [member(f"{rack}-{number}", rack) for rack in ("a", "b", "c", "d", "own") for number in range(2)]
    status = {"node": {"id": "own-0", "rack": "own"}, "members": members}
    assert [each["name"] for each in chosen(status)] == ["own-1", "a-0", "b-0"]
    members[9]["state"] = "dead"
    assert [each["name"] for each in chosen(status)] == ["a-0", "b-0", "c-0"]


def test_a_connection_tells_how_far_its_host_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        why, rtt_s = connect("127.0.0.1", server.getsockname()[1])
    assert why == ""
    assert rtt_s is not None and 0 < rtt_s < 60
    why, rtt_s = connect("127.0.0.1", free_port())
    assert "refused" in why and rtt_s is None
