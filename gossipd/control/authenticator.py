"""Which keys may connect: the ZAP handler (ZeroMQ RFC 27) that libzmq asks about every CURVE key.

What lives here: the loop that answers, and the memory of refusals. What does not: who is a member or a client;
a ``KeyDirectory`` says that. libzmq lets any key in when no handler is running, so ``bind`` comes before the server
socket binds, and ``self_check`` proves the result.

Answers: 200 with a User-Id (``m`` and a node id, ``c`` and a client's Ed25519 key, in hex) that libzmq attaches to
each message of the connection: identity comes from there and never from what a message says. A key that is
unknown may be that of a joiner whose member record is still on its way: its answer is held back for a moment, and
given as soon as ``look_again`` finds the record. Then 300, "not now": the connection ends in silence and the
dialer tries again. A key that keeps coming gets 400, which libzmq's client reports as such and after which it
never retries by itself. Anything but CURVE gets 400 (libzmq refuses those before it asks).

pyzmq's Authenticator knows neither 300 nor waiting and answers on a lock-step socket, hence this loop: six frames
in, six out, on a ROUTER, so that an answer that is held back delays no other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import trio
import zmq
from msgspec import Struct

from gossipd.control.settings import ControlSettings
from gossipd.runtime.zmq_trio import SocketWakeup
from membership.member import NodeId

ZAP_ADDRESS = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"gossipd"
_KEY_BYTES = 32
_MEMBER, _CLIENT = "m", "c"


class Identity(Struct, frozen=True):
    """Who is at the other end of an accepted connection: a member, or a client by its Ed25519 key."""

    node: NodeId | None = None
    client: bytes | None = None

    @classmethod
    def from_user_id(cls, user_id: str) -> Identity:
        """The identity whose User-Id the handler made."""
        body = bytes.fromhex(user_id[1:])
        return cls(node=NodeId(body)) if user_id[0] == _MEMBER else cls(client=body)


class _Held(Struct):
    head: list[bytes]
    key: bytes
    address: str
    until: float


class KeyDirectory(Protocol):
    """Whose key a CURVE key is. Quick lookups on the trio loop."""

    def member_of(self, curve_key: bytes, address: str = "") -> NodeId | None:
        """The member whose record carries this CURVE key; ourselves included. ``address``: from where it is shown, for
        a key that several members name."""

    def client_of(self, curve_key: bytes) -> bytes | None:
        """The Ed25519 key of the configured client with this CURVE key."""


class ZapAuthenticator:
    """Answers libzmq's questions about keys. One task runs ``serve``."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], *, settings: ControlSettings, keys: KeyDirectory,
        on_refused: Callable[[str, str, bytes], None],
    ) -> None:  # fmt: skip
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._control_settings = settings
        self._keys = keys
        self._on_refused = on_refused
        self._wakeup = SocketWakeup()
        self._held: list[_Held] = []
        self._refusals: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self.counters = {"accepted": 0, "refused_now": 0, "refused": 0, "malformed": 0}

    def bind(self) -> None:
        """Take the address at which libzmq asks. Before any server socket of this context binds."""
        self._socket.bind(ZAP_ADDRESS)

    def look_again(self) -> None:
        """The members or the clients have changed: answers held back may be given now."""
        if self._held:
            self._wakeup.ring()

    def refusals_of(self, key: bytes) -> int:
        """How often ``key`` was refused of late; for the self-check."""
        return self._refusals.get(key, (0, 0.0))[0]

    async def serve(self) -> None:
        """Answer until cancelled."""
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                self._settle_held()
                until = min((held.until for held in self._held), default=trio.current_time() + 60)
                await self._wakeup.wait(self._socket, seconds_max=until - trio.current_time())
            else:
                self._hear(frames)

    def close(self) -> None:
        """Release the socket."""
        self._socket.close(0)

    def _hear(self, frames: list[bytes]) -> None:
        # [routing id, empty, version, request id, domain, address, identity, mechanism, credentials...]
        if len(frames) < 8 or frames[2] != b"1.0":
            self.counters["malformed"] += 1
            return
        head, address = frames[:4], frames[5].decode("ascii", "replace")
        if frames[4] != ZAP_DOMAIN or frames[7] != b"CURVE" or len(frames) != 9 or len(frames[8]) != _KEY_BYTES:
            self._refuse(head, b"", address, "mechanism")
            return
        key = frames[8]
        if not self._accept(head, key, address):
            if len(self._held) < self._control_settings.zap_held_max and not self.refusals_of(key):
                self._held.append(_Held(head, key, address, trio.current_time() + self._control_settings.zap_hold_s))
            else:
                self._refuse(head, key, address, "unknown_key")

    def _accept(self, head: list[bytes], key: bytes, address: str) -> bool:
        node = self._keys.member_of(key, address.removeprefix("::ffff:"))
        client = None if node is not None else self._keys.client_of(key)
        if node is not None:
            user_id = _MEMBER + node.hex()
        elif client is not None:
            user_id = _CLIENT + client.hex()
        else:
            return False
        self.counters["accepted"] += 1
        self._refusals.pop(key, None)
        self._answer(head, b"200", user_id.encode())
        return True

    def _settle_held(self) -> None:
        now = trio.current_time()
        waiting = []
        for held in self._held:
            if self._accept(held.head, held.key, held.address):
                continue
            if held.until <= now:
                self._refuse(held.head, held.key, held.address, "unknown_key")
            else:
                waiting.append(held)
        self._held = waiting

    def _refuse(self, head: list[bytes], key: bytes, address: str, reason: str) -> None:
        now = trio.current_time()
        count, last = self._refusals.pop(key, (0, now))
        count = count + 1 if now - last < self._control_settings.refusal_memory_s else 1
        self._refusals[key] = (count, now)
        while len(self._refusals) > self._control_settings.refused_keys_max:
            self._refusals.popitem(last=False)
        temporary = bool(key) and count <= self._control_settings.temporary_refusals
        self.counters["refused_now" if temporary else "refused"] += 1
        self._answer(head, b"300" if temporary else b"400", b"")
        self._on_refused(reason, address, key)

    def _answer(self, head: list[bytes], status: bytes, user_id: bytes) -> None:
        try:
            self._socket.send_multipart([*head, status, b"", user_id, b""], zmq.NOBLOCK)
        except zmq.Again:  # libzmq's own end is full: it closes the connection when the handshake's time is up
            self.counters["malformed"] += 1
