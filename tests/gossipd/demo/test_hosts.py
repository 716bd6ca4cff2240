"""A host of the demo whose ports are taken between their choice and its start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gossipd.demo.hosts import ADDRESS, DemoHost, make_hosts
from gossipd.demo.play import DemoError, wait_together
from gossipd.identity.key_files import write_key_pair
from gossipd.identity.keys import SecretKey


def made(base: Path, count: int) -> list[DemoHost]:
    write_key_pair(base / "publisher.key", SecretKey(b"p" * 32))
    return make_hosts(base, hosts=count, racks=1, trust=[base / "publisher.key.pub"], sources=[])


def test_hosts_whose_ports_others_have_taken_meanwhile_start_at_others_and_find_each_other(tmp_path: Path) -> None:
    hosts = made(tmp_path, 3)
    before = [host.port for host in hosts]
    # The first, which the others join through, by its control port; another by its bulk port.
    with socket.create_server((ADDRESS, before[0])), socket.create_server((ADDRESS, before[1] + 1)):
        try:
            for host in hosts:
                host.start()
            wait_together(hosts)
            assert [host.port == port for host, port in zip(hosts, before, strict=True)] == [False, False, True]
        finally:
            for host in hosts:
                host.ask_to_stop()
            for host in hosts:
                host.stop()


def test_a_host_that_ends_for_another_reason_is_told_with_its_log(tmp_path: Path) -> None:
    (host,) = hosts = made(tmp_path, 1)
    (host.directory / "node.key").unlink()
    host.start()
    with pytest.raises(DemoError, match=r"(?s)node-1 ended while it started.*node\.key"):
        wait_together(hosts)
