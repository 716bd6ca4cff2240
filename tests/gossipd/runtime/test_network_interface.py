"""The interface of an address and its counters, as this host's kernel tells them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gossipd.runtime import network_interface
from gossipd.runtime.network_interface import bytes_of, interface_of

DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 123 1 0 0 0 0 0 0 456 1 0 0 0 0 0 0
  eth0:7000 5 0 0 0 0 0 0 9000 6 0 0 0 0 0 0
"""  # noqa: E501
ROUTE = "Iface\tDestination\tGateway\nlo\t0000007F\t0\neth0\t00000000\t0101A8C0\n"
ADDRESSES_6 = (
    "00000000000000000000000000000001 01 80 10 80       lo\nfd000000000000000000000000000001 02 40 00 80     eth1\n"
)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel tells, in files of the test's."""
    for name, text in (("_COUNTERS", DEV), ("_ROUTE", ROUTE), ("_ADDRESSES_6", ADDRESSES_6)):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(network_interface, name, tmp_path / name)
    return tmp_path


def test_the_interface_of_an_own_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"


def test_an_ipv6_address_is_found_among_all(tables: Path) -> None:
    assert interface_of("fd00::1") == "eth1"


def test_an_address_of_no_interface_is_the_default_routes(tables: Path) -> None:
    assert interface_of("192.0.2.77") == interface_of("fd00::99") == "eth0"


def test_without_any_route_there_is_no_interface(tables: Path) -> None:
    (tables / "_ROUTE").write_text(ROUTE.splitlines()[0])
    assert interface_of("192.0.2.77") is None


def test_a_kernel_that_does_not_tell_has_no_interface(tables: Path) -> None:
    (tables / "_ROUTE").unlink()
    assert interface_of("192.0.2.77") is None
    assert interface_of("no address") is None


def test_counters_are_those_of_the_named_interface(tables: Path) -> None:
    found = bytes_of("eth0")
    assert found is not None and (found.received, found.sent) == (7000, 9000)
    assert bytes_of("eth7") is None
    (tables / "_COUNTERS").unlink()
    assert bytes_of("eth0") is None


def test_what_goes_over_an_interface_is_in_its_counters() -> None:
    before = bytes_of("lo")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(bytes(5000), ("127.0.0.1", 9))
    now = bytes_of("lo")
    assert before is not None and now is not None and now.sent - before.sent >= 5000
