"""Membership inside the daemon: heard while the turn loop is awake as while it sleeps."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from gossipd.config.keys import Keys
from gossipd.config.load import parse_config
from gossipd.daemon import settings_mapping
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.membership_host import MembershipHost
from gossipd.identity.keys import SecretKey
from gossipd.runtime.turn_loop import Phase, TurnLoop
from membership.errors import TooManyStatementsError
from membership.events import PayloadKind
from membership.host_rules import LenientRules, Verdict
from membership.seal import KeyRing
from tests.servers import free_port


class Refusing(LenientRules):
    """Lets nobody say anything while ``refuses`` holds."""

    refuses = False

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        return None if self.refuses else super().judge(kind, key, version, payload)


class Audit:
    def record(self, event: str, *, code: str, reason: str) -> None:
        """Nobody asks."""


def membership_host_at(port: int, tmp_path: Path, *, more: str = "") -> MembershipHost:
    text = f'[node]\nname = "a"\nrack = "r"\n[net]\nbind = "127.0.0.1"\nport = {port}\n{more}'
    config = parse_config(text, tmp_path / "gossipd.toml", {})
    keys = Keys(SecretKey(b"s" * 32), KeyRing(b"c" * 16, (b"k" * 32,)), (), ())
    record = settings_mapping.own_record(config, keys, 1)
    return MembershipHost(
        LiveSettings(config, keys), record=record, roster=[], tombstones=[], alarms=Alarms(cast(Any, Audit())),
        rules=Refusing(),
    )  # fmt: skip


async def test_it_is_heard_while_the_beat_is_awake_and_does_not_keep_it_awake(tmp_path: Path) -> None:
    port = free_port()
    membership_host = membership_host_at(port, tmp_path)
    turn_loop = TurnLoop()
    is_busy = True

    async def heard(count: int, sock: socket.socket) -> None:
        sock.sendto(b"noise", ("127.0.0.1", port))
        with trio.fail_after(120):
            while membership_host.swim.statistics().get("dropped_unsealed", 0) < count:
                await trio.sleep(0.01)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        async with trio.open_nursery() as nursery:
            await membership_host.start(nursery, lambda event: None, turn_loop=turn_loop)
            with turn_loop.joined(Phase.DECIDE, lambda now: is_busy):
                nursery.start_soon(turn_loop.run)
                for count in (1, 2, 3):
                    await heard(count, plain)
                    assert turn_loop.awake() is not None
                is_busy = False
                awake = turn_loop.awake()
                if awake is not None:
                    await awake.wait()
                await heard(4, plain)
                assert turn_loop.awake() is None
            nursery.cancel_scope.cancel()


async def test_its_datagrams_carry_the_mark_of_control(tmp_path: Path) -> None:
    membership_host = membership_host_at(free_port(), tmp_path, more='dscp_control = "af21"\n')
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as contact:
        contact.bind(("127.0.0.1", 0))
        contact.setblocking(False)
        contact.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        membership_host.swim.join([("127.0.0.1", contact.getsockname()[1])], trio.current_time())
        async with trio.open_nursery() as nursery:
            turn_loop = TurnLoop()
            await membership_host.start(nursery, lambda event: None, turn_loop=turn_loop)
            nursery.start_soon(turn_loop.run)
            with trio.fail_after(120):
                await trio.lowlevel.wait_readable(contact)
            _, told, _, _ = contact.recvmsg(2048, 256)
            assert [value[0] for _, _, value in told] == [18 << 2]
            nursery.cancel_scope.cancel()


async def test_what_a_host_may_not_say_is_no_want_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = membership_host_at(free_port(), tmp_path)
    rules = cast(Refusing, host.swim._node.rules)
    alarms = host._alarms.rows
    rules.refuses = True
    with caplog.at_level("WARNING"):
        for version in (1, 2, 3):
            host.publish_progress(b"k" * 32, version, b"")
    assert [record.getMessage() for record in caplog.records] == ["told nobody"]
    assert not alarms
    rules.refuses = False

    def full(*args: object) -> None:
        raise TooManyStatementsError("5 statements are known already")

    with monkeypatch.context() as patched:
        patched.setattr(host.swim, "publish", full)
        host._publish(PayloadKind.STATEMENT, b"k" * 32, 1, b"")
    assert [row.code for row in alarms.values()] == ["E_GOSSIP_FULL"]
    host.publish_progress(b"k" * 32, 4, b"")
    assert alarms, "a host's own progress has its own room"
    host._publish(PayloadKind.STATEMENT, b"k" * 32, 1, b"")
    assert not alarms
