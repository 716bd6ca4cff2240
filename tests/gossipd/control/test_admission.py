"""Who gets in: members and listed clients by their CURVE keys, joiners as soon as they are known, nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import trio
import zmq

from gossipd.control.authenticator import ZapAuthenticator
from gossipd.control.control_plane import ControlPlane
from gossipd.control.listener import BindError
from gossipd.control.monitor_report import monitor_report
from gossipd.control.self_check import SelfCheckError, self_check
from gossipd.core import events
from gossipd.core.errors import CheckUnansweredError
from gossipd.identity.keys import SecretKey
from gossipd.runtime.zmq_trio import SocketWakeup
from gossipd.wire import control
from gossipd.wire.control_frame import FRAME_BYTES_MAX, decode, encode
from tests.gossipd.control.nodes import DEPLOYMENT, QUICK, Node, nodes, secret_of, start, until

STRANGER = secret_of(200)
SUCCEEDED, DISCONNECTED = zmq.Event.HANDSHAKE_SUCCEEDED, zmq.Event.DISCONNECTED


class Visit:
    """A bare ZeroMQ client: what its monitor has seen, and what it was sent."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], port: int, secret: SecretKey | None, key: bytes, plain: bool
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, 300)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        if secret is not None:
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, secret.curve_secret)
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, secret.public.curve25519)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, key)
        if plain:
            self.socket.setsockopt(zmq.PLAIN_USERNAME, b"root")
            self.socket.setsockopt(zmq.PLAIN_PASSWORD, b"root")
        self.monitor = self.socket.get_monitor_socket()
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.seen: list[tuple[zmq.Event, int]] = []

    def look(self) -> list[zmq.Event]:
        while self.monitor.poll(0):
            report = monitor_report(self.monitor.recv_multipart())
            self.seen.append((report.event, report.value))
        return [event for event, _ in self.seen]

    def saw(self, event: zmq.Event) -> bool:
        return event in self.look()

    async def reply(self) -> control.Message:
        wakeup = SocketWakeup()
        with trio.fail_after(120):
            while True:
                try:
                    decoded = decode(self.socket.recv(zmq.NOBLOCK))
                    assert decoded is not None
                    return decoded[0]
                except zmq.Again:
                    await wakeup.wait(self.socket)

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)


@contextmanager
def visit(node: Node, secret: SecretKey | None, *, key: bytes | None = None, plain: bool = False) -> Iterator[Visit]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    identity = Visit(context, node.port, secret, key or node.host.secret.public.curve25519, plain)
    try:
        yield identity
    finally:
        identity.close()
        context.term()


async def test_a_strangers_key_is_never_let_in_and_its_words_are_never_heard() -> None:
    async with nodes(1) as (node,):
        with visit(node, STRANGER) as identity:
            identity.socket.send(encode(control.Ping(), number=1))
            await until(lambda: identity.saw(zmq.Event.HANDSHAKE_FAILED_AUTH))
            assert not identity.saw(SUCCEEDED)
        counted = node.plane.statistics()
        assert counted["zap_accepted"] == 0
        assert counted["entrance_received"] == 0
        assert ("unknown_key", "127.0.0.1") in node.host.refusals


async def test_an_unknown_key_hears_silence_twice_and_then_a_plain_no() -> None:
    async with nodes(1) as (node,):
        with visit(node, STRANGER) as identity:
            await until(lambda: identity.saw(zmq.Event.HANDSHAKE_FAILED_AUTH))
            failures = [report for report in identity.seen if "HANDSHAKE_FAILED" in str(report[0].name)]
            assert [event for event, _ in failures] == [
                zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
                zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
                zmq.Event.HANDSHAKE_FAILED_AUTH,
            ]
            assert failures[-1][1] == 400
        assert node.plane.statistics()["zap_refused_now"] == 2


async def test_a_key_is_asked_for_with_the_address_that_shows_it() -> None:
    async with nodes(1) as (node,):
        with visit(node, STRANGER) as identity:
            await until(lambda: identity.saw(zmq.Event.HANDSHAKE_FAILED_AUTH))
        assert "127.0.0.1" in node.host.shown_from


async def test_a_joiner_is_let_in_as_soon_as_its_record_arrives() -> None:
    async with nodes(2, acquainted=False) as (member, joiner):
        joiner.host.introduce(member.host, member.port)
        async with trio.open_nursery() as nursery:
            replies: list[control.Message] = []

            async def ask() -> None:
                replies.append(await joiner.plane.request(member.host.node, control.Ping(), 120))

            nursery.start_soon(ask)
            await until(lambda: member.plane.authenticator._held)
            member.host.introduce(joiner.host, joiner.port)
            member.plane.member_changed(joiner.host.node)
        assert replies == [control.Pong()]
        assert joiner.plane.statistics()["link_dialed"] == 1
        assert member.plane.statistics()["zap_refused_now"] == 0


async def test_a_joiner_whose_record_is_late_gets_in_without_being_told_to_try_again() -> None:
    async with nodes(2, settings=QUICK, acquainted=False) as (member, joiner):
        joiner.host.introduce(member.host, member.port)
        joiner.subscribe(member.host.node)  # a reason to keep dialing
        await until(lambda: member.plane.statistics()["zap_refused"] >= 1)  # it has had its 400 already
        member.host.introduce(joiner.host, joiner.port)
        await until(lambda: member.plane.statistics()["zap_accepted"] == 1)


async def test_a_listed_client_may_trigger_and_nothing_else() -> None:
    async with nodes(1) as (node,):
        client = secret_of(77)
        node.host.clients[client.public.curve25519] = client.public.ed25519
        node.host.answer = lambda _: control.TriggerState(b"", 0, "", 0)
        with visit(node, client) as identity:
            identity.socket.send(encode(control.TriggerQuery(b"", "qwen@1"), number=1))
            assert isinstance(await identity.reply(), control.TriggerState)
            for forbidden in (control.TokenWanted(), control.Ping(), control.Subscribe(DEPLOYMENT)):
                identity.socket.send(encode(forbidden, number=2))
                assert await identity.reply() == control.Refused("E_NOT_ALLOWED", "a client may only trigger")
        visitors = [who for who, _ in node.host.requests]
        assert [(who.node, who.client) for who in visitors] == [(None, client.public.ed25519)]
        assert node.host.events == []


async def test_a_member_that_is_forgotten_is_heard_no_more_on_its_old_connection() -> None:
    async with nodes(2) as (a, b):
        await a.plane.request(b.host.node, control.Ping(), 120)
        await until(lambda: b.greetings == 1)  # that of the connection
        del b.host.directory[a.host.node]
        a.plane.driver.put(b.host.node, control.Hello("still here"))
        await until(lambda: b.plane.statistics().get("control_not_a_member") == 1)
        assert b.greetings == 1


async def test_a_socket_without_encryption_is_cut_off() -> None:
    async with nodes(1) as (node,):
        with visit(node, None) as identity:
            identity.socket.send(encode(control.Ping(), number=1))
            await until(lambda: identity.saw(DISCONNECTED))
            assert not identity.saw(SUCCEEDED)
        await until(lambda: bool(node.host.refusals))
        assert {reason for reason, _ in node.host.refusals} <= {"handshake", "unfinished"}
        assert node.plane.statistics()["entrance_received"] == 0


async def test_a_connection_without_a_word_is_told_with_the_address_that_dialed() -> None:
    async with nodes(1) as (node,):
        with socket.create_connection(("127.0.0.1", node.port)):
            await until(lambda: node.plane.listener._accept_limit._peers)
        await until(lambda: bool(node.host.refusals))
        assert node.host.refusals == [("unfinished", "127.0.0.1")]
        assert node.plane.statistics()["control_refused_unfinished"] == 1


async def test_a_password_instead_of_a_key_is_cut_off() -> None:
    async with nodes(1) as (node,):
        with visit(node, None, plain=True) as identity:
            await until(lambda: identity.saw(DISCONNECTED))
            assert not identity.saw(SUCCEEDED)
        assert node.plane.statistics()["zap_accepted"] == 0


async def test_a_client_that_expects_another_server_key_is_cut_off() -> None:
    async with nodes(1) as (node,):
        with visit(node, STRANGER, key=STRANGER.public.curve25519) as identity:
            await until(lambda: identity.saw(DISCONNECTED))
            assert not identity.saw(SUCCEEDED)
        assert node.plane.statistics()["zap_accepted"] == 0


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\xff" + b"\x7f" * 8 + b"\xff\xff",
        bytes(64),
        # a ZMTP 3.1 greeting for NULL, then the header of a frame of 8 GiB
        b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(48) + b"\x02" + (8 << 30).to_bytes(8, "big"),
    ],
    ids=["http", "tls", "old", "zeros", "8GiB"],
)
async def test_what_is_not_zeromq_with_curve_is_disconnected(words: bytes) -> None:
    async with nodes(1, settings=QUICK) as (node,):
        heard = b""
        with trio.fail_after(120), suppress(trio.BrokenResourceError):
            async with await trio.open_tcp_stream("127.0.0.1", node.port) as stream:
                await stream.send_all(words)
                while part := await stream.receive_some(4096):
                    heard += part
        assert len(heard) <= 64 + 200  # ZeroMQ's greeting, and at most its word about an error
        assert node.plane.statistics()["entrance_received"] == 0


async def test_a_connection_that_says_nothing_is_closed_when_the_handshakes_time_is_up() -> None:
    async with nodes(1, settings=QUICK) as (node,):
        with trio.fail_after(120):
            stream = await trio.open_tcp_stream("127.0.0.1", node.port)
            async with stream:
                while await stream.receive_some(4096):
                    pass


async def test_a_frame_that_is_too_long_closes_the_connection_of_the_member_that_sent_it() -> None:
    async with nodes(2) as (a, b):
        with visit(b, a.host.secret) as identity:
            identity.socket.send(encode(control.Ping(), number=1))
            assert await identity.reply() == control.Pong()
            identity.socket.send(bytes(FRAME_BYTES_MAX + 1))
            await until(lambda: identity.saw(DISCONNECTED))
        assert b.plane.statistics()["entrance_received"] == 1


async def test_further_parts_of_a_message_are_dropped() -> None:
    async with nodes(2) as (a, b):
        with visit(b, a.host.secret) as identity:
            identity.socket.send_multipart([encode(control.Ping(), number=1), b"more", b"and more"])
            assert await identity.reply() == control.Pong()
        assert b.plane.statistics()["entrance_extra_parts"] == 2


async def test_identity_is_the_keys_and_not_the_messages() -> None:
    async with nodes(3) as (a, _, c):
        with visit(c, a.host.secret) as identity:
            c.open()
            identity.socket.send(encode(control.Subscribe(DEPLOYMENT)))
            await until(lambda: c.host.events)
        assert c.host.events == [events.SubscribeHeard(a.host.node, DEPLOYMENT)]


async def test_memory_for_refused_keys_is_bounded() -> None:
    async with nodes(1) as (node,):
        keeper: ZapAuthenticator = node.plane.authenticator
        for number in range(3000):
            keeper._refuse([b"", b"", b"1.0", b"1"], number.to_bytes(32, "big"), "10.0.0.1", "unknown_key")
        assert len(keeper._refusals) == 1024
        assert len(node.host.refusals) < 1000  # the audit is told some in a second; the rest is counted
        assert node.plane.statistics()["control_refused_unknown_key"] == 3000


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, 1)
        with pytest.raises(ExceptionGroup) as caught:
            async with trio.open_nursery() as inner:
                await start(inner, 2, port=node.port)
        assert caught.group_contains(BindError, match=str(node.port))
        nursery.cancel_scope.cancel()


async def test_the_self_check_passes_on_a_good_port() -> None:
    async with nodes(1) as (node,):
        await self_check(node.plane, "127.0.0.1", node.port, own=node.host.secret, stranger=STRANGER)


async def test_the_self_check_fails_when_a_stranger_would_be_let_in() -> None:
    async with nodes(1) as (node,):
        node.host.known[STRANGER.public.curve25519] = node.host.node
        with pytest.raises(SelfCheckError, match="an unknown key was accepted"):
            await self_check(node.plane, "127.0.0.1", node.port, own=node.host.secret, stranger=STRANGER)


async def test_the_self_check_fails_when_admission_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZapAuthenticator, "bind", lambda _: None)
    async with nodes(1) as (node,):
        with pytest.raises(CheckUnansweredError, match="our own key"):
            await self_check(node.plane, "127.0.0.1", node.port, own=node.host.secret, stranger=STRANGER)


async def test_the_self_check_knows_a_port_that_nobody_serves_from_one_that_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossipd.control.self_check._PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with nodes(1) as (node,):
            with pytest.raises(CheckUnansweredError):
                await self_check(node.plane, "127.0.0.1", port, own=node.host.secret, stranger=STRANGER)


async def test_the_self_check_fails_on_a_port_that_lets_everybody_talk() -> None:
    async with nodes(1) as (node,):
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        open_to_all = context.socket(zmq.ROUTER)
        port = open_to_all.bind_to_random_port("tcp://127.0.0.1")
        try:
            with pytest.raises(SelfCheckError):
                await self_check(node.plane, "127.0.0.1", port, own=node.host.secret, stranger=STRANGER)
        finally:
            open_to_all.close(0)
            context.term()


async def test_secrets_do_not_show_in_what_a_plane_says_of_itself() -> None:
    async with nodes(1) as (node,):
        plane: ControlPlane = node.plane
        shown = repr(plane.statistics()) + repr(vars(plane)) + repr(node.host.refusals)
        assert node.host.secret.seed.hex() not in shown
        assert repr(node.host.secret.seed) not in shown
