"""How the attacks of each surface reach a real daemon, and how its answer is seen.

What lives here: one function for each surface. What does not: the cluster (``hosts``), the order of attacks (``run``).
Each gives what was seen: codes of replies and reasons, and counters that rose.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import zmq

from gossipd.api.socket_name import short_path
from gossipd.identity.keys import SecretKey
from gossipd.runtime.zmq_trio import secure
from gossipd.wire.control_frame import FRAME_BYTES_MAX, FrameError, decode
from tests.attacks.attack import Attack
from tests.attacks.builders.bulk import Said
from tests.attacks.builders.control import Frames
from tests.attacks.builders.inbox import Plant
from tests.attacks.pure.bulk import converse
from tests.attacks.pure.inbox import reasons_in
from tests.attacks.pure.status import code_of
from tests.attacks.real.hosts import AttackedCluster
from tests.e2e.cluster import Daemon

PATIENCE_S = 60.0  # on a busy machine, behind others
Later: TypeAlias = Callable[[], Counter[str]]
"""What was seen, once it is there: many may be waited for together."""


def gossip(made: list[bytes | float], cluster: AttackedCluster, daemon: Daemon, attack: Attack) -> Counter[str]:
    """Datagrams, a few at a time, so that none is lost in a full socket. Pauses are left out."""
    elsewhere = attack.actor in ("stranger", "keyholder")
    for number, datagram in enumerate(one for one in made if isinstance(one, bytes)):
        cluster.insider.send(datagram, ("127.0.0.1", daemon.port), from_elsewhere=elsewhere)
        if number % 32 == 31:
            cluster.insider.live(0.05)
    return Counter()


def order(made: bytes, cluster: AttackedCluster, daemon: Daemon, attack: Attack) -> Later:
    """A file in the inbox, and the reason beside it when it was refused."""
    inbox = daemon.home / "inbox"
    (inbox / f"{attack.name}.gmf").write_bytes(made)
    accepted, reason = inbox / "accepted" / f"{attack.name}.gmf", inbox / "rejected" / f"{attack.name}.gmf.reason"

    def collect() -> Counter[str]:
        cluster.insider.live(PATIENCE_S, lambda: accepted.exists() or (reason.exists() and reason.read_text()))
        return Counter([reason.read_text().partition(":")[0] if reason.exists() else "accepted"])

    return collect


def inbox(made: Plant, cluster: AttackedCluster, daemon: Daemon, attack: Attack) -> Later:
    """What another user plants; the inbox's own word, or its trouble in the status."""
    before = reasons_in(daemon.home / "inbox")

    def told() -> Counter[str]:
        trouble = (daemon.try_status() or {"inbox": {}})["inbox"].get("trouble") or ""
        return reasons_in(daemon.home / "inbox") - before + Counter([trouble.partition(":")[0]] if trouble else [])

    made.plant(daemon.home)

    def collect() -> Counter[str]:
        cluster.insider.live(PATIENCE_S, told)
        seen = told()
        made.clear(daemon.home)
        cluster.insider.live(PATIENCE_S, lambda: not daemon.client.status()["inbox"]["trouble"])
        return seen

    return collect


def status(made: bytes, cluster: AttackedCluster, daemon: Daemon, attack: Attack) -> Counter[str]:
    """Bytes to the status socket, or to the one that takes no orders."""
    answer = b""
    name = "gossipd-read.sock" if attack.surface == "read" else "gossipd.sock"
    with socket.socket(socket.AF_UNIX) as sock, short_path(daemon.home / name) as path:
        sock.settimeout(PATIENCE_S)
        sock.connect(path)
        try:
            sock.sendall(made)
            while part := sock.recv(1 << 16):
                answer += part
        except OSError:
            answer = answer or b""
    return Counter([code_of(answer)])


def bulk(made: Said, cluster: AttackedCluster, daemon: Daemon, attack: Attack) -> Counter[str]:
    """One connection to the bulk port."""
    key = cluster.insider.ring.keys[0]
    keys = {"member": key, "stranger": key, "foreign": b"\x66" * 32}
    return converse(("127.0.0.1", daemon.port + 1), made, cluster.insider.secret, keys)


def control(made: Frames, cluster: AttackedCluster, daemon: Daemon, attack: Attack) -> Counter[str]:
    """One connection to the control port: codes of the replies, or that the key was not let in."""
    secret = {"liar": cluster.insider.secret, "client": cluster.client}.get(made.who) or SecretKey(b"n" * 32)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sock = context.socket(zmq.DEALER)
    secure(sock, handshake_s=1.0, message_bytes_max=FRAME_BYTES_MAX)
    sock.setsockopt(zmq.CURVE_SECRETKEY, secret.curve_secret)
    sock.setsockopt(zmq.CURVE_PUBLICKEY, secret.public.curve25519)
    sock.setsockopt(zmq.CURVE_SERVERKEY, cluster.records()[daemon.name].transport_key)
    sock.connect(f"tcp://127.0.0.1:{daemon.port}")
    seen: Counter[str] = Counter()
    try:
        before = cluster.counters(daemon)
        for frame in made.frames:
            sock.send(frame)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not (seen + (cluster.counters(daemon) - before)).keys() & set(
            attack.expect
        ):
            cluster.insider.live(0.02)
            while sock.poll(0):
                seen[_code(sock.recv())] += 1
    finally:
        sock.close(0)
        context.term()
    return seen


def _code(frame: bytes) -> str:
    try:
        decoded = decode(frame)
    except FrameError:
        return "not our protocol"
    return "unknown" if decoded is None else getattr(decoded[0], "code", "") or type(decoded[0]).__name__


DELIVER: dict[str, Any] = {
    "gossip": gossip, "order": order, "inbox": inbox, "status": status, "read": status, "bulk": bulk,
    "control": control,
}  # fmt: skip
