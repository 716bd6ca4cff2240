"""The other end of ``gossipd trigger``: one synchronous conversation with one node.

What lives here: the conversation, and saying what is wrong when it does not come about. What does not: the command
line (``cli.trigger``), and the node's end (``trigger_server``).

CURVE answers a wrong key with silence, so the socket's monitor is watched beside the replies:

* refused by code 400: the node does not know our key. It takes a few attempts to get there: the node answers an
  unknown key with silence twice, in case that it is a member's that is just joining;
* closed during the handshake: the key that we expect of the node is not its key, or it is no gossipd at all;
* nothing listens, or nothing answers. A node greets before it looks at a key: what does not greet is stuck, or
  another program.

No trio: the command does one thing and ends.
"""

from __future__ import annotations

import errno
import socket
import time
from dataclasses import dataclass
from typing import TypeVar

import zmq

from gossipd.control.monitor_report import monitor_report
from gossipd.core.errors import ExitCode, RemoteError
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason, reason_of_code, reason_of_refusal
from gossipd.core.timing import CLOCKS_APART_MAX_S
from gossipd.deployment.progress_record import Budget
from gossipd.deployment.signed_budget import order_bytes, sign_budget
from gossipd.deployment.statement import Verb, epoch_after, sign_statement
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import deployment_id
from gossipd.runtime.zmq_trio import secure, tcp_address
from gossipd.wire import control
from gossipd.wire.control_frame import FRAME_BYTES_MAX, FrameError, decode, encode

_HANDSHAKE_S = 0.7  # longer than the node keeps an unknown key waiting (0.5 s), so that its answer is heard
_RECONNECT_MS = 100
_AT_ONCE_S = 0.25  # a wrong key is noticed by libzmq within a round trip; a refusal "for now" takes a handshake's time
_RESTARTS_MAX = 3  # of an upload that the node has forgotten
_Wanted = TypeVar("_Wanted", bound=control.Message)
_NOT_FOUND = ("E_NOT_FOUND", "E_UNKNOWN_MANIFEST")
_TRUST = ("E_SIG", "E_KEY", "E_EXPIRED", "E_ROLLBACK", "E_EQUIVOCATION", "E_NOT_ALLOWED")


class NodeUnreachableError(RemoteError):
    """Nothing listens there, or the connection broke. Fault: the address, the network, the node. Retry: later."""

    code = "E_NODE_UNREACHABLE"
    exit_code = ExitCode.DAEMON_UNREACHABLE


class KeyRefusedError(RemoteError):
    """One of the two does not know the other's key. Fault: the keys given. Retry: with the right ones."""

    code = "E_KEY_REFUSED"
    exit_code = ExitCode.TRUST


class NodeSilentError(RemoteError):
    """Connected, but no answer in time. Fault: the node is busy or stuck. Retry: yes, orders repeat harmlessly."""

    code = "E_NODE_SILENT"
    exit_code = ExitCode.TIMEOUT


class TriggerRefusedError(RemoteError):
    """The node has understood and will not; ``code`` is the node's. Fault: what was ordered. Retry: corrected."""

    code = "E_REFUSED"

    def __init__(self, message: str, *, code: str) -> None:
        reason = reason_of_code(code, HostReason.NONE)
        reason = reason_of_refusal(code) if reason.is_the_readers else reason  # nothing was read
        exit_code = ExitCode.OTHER if reason is HostReason.NONE else reason.exit_code
        if code.startswith(_NOT_FOUND):
            exit_code = ExitCode.NOT_FOUND
        elif code.startswith(_TRUST):
            exit_code = ExitCode.TRUST
        super().__init__(message, code=code, code_of_exit=exit_code)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The node has accepted the order."""

    deployment: DeploymentId
    epoch: int
    already: bool
    sentence: str


class Conversation:
    """A connection to one node as one key, for the length of a ``with`` block."""

    def __init__(self, host: str, port: int, *, secret: SecretKey, server_key: bytes, timeout_s: float) -> None:
        """``server_key``: the node's CURVE key. ``timeout_s``: for the whole conversation."""
        self._place, self._shown = (host, port), f"{host} port {port}"
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._number = 0
        self._connected = self._accepted = False
        self._connected_s = 0.0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        secure(self._socket, handshake_s=_HANDSHAKE_S, message_bytes_max=FRAME_BYTES_MAX)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.IPV6, 1 if ":" in host else 0)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret.curve_secret)
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, secret.public.curve25519)
        self._socket.setsockopt(zmq.CURVE_SERVERKEY, server_key)
        self._monitor = self._socket.get_monitor_socket()
        self._address = tcp_address(host, port)

    def __enter__(self) -> Conversation:
        try:
            self._socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close()
            raise NodeUnreachableError(f"{self._shown} is not an address: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        self._context.term()

    def ask(self, message: control.Message, wanted: type[_Wanted]) -> _Wanted:
        """The reply. Raises NodeUnreachableError, KeyRefusedError, NodeSilentError, TriggerRefusedError."""
        self._number += 1
        self._socket.send(encode(message, number=self._number))
        while True:
            reply = self._next()
            if reply is None or reply[1] != self._number:
                continue
            if isinstance(reply[0], control.Refused):
                raise TriggerRefusedError(reply[0].sentence or "the node refuses", code=reply[0].code)
            if isinstance(reply[0], wanted):
                return reply[0]

    def _next(self) -> tuple[control.Message, int] | None:
        """The next frame, or None when the wait brought something else."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        left_s = self._deadline - time.monotonic()
        ready = dict(poller.poll(int(left_s * 1000) + 1)) if left_s > 0 else {}
        if not ready:
            raise self._too_late()
        if self._socket in ready:
            try:
                return decode(self._socket.recv())
            except FrameError as error:
                raise NodeUnreachableError(f"{self._shown} sends messages that are not gossipd's: {error}") from None
        report = monitor_report(self._monitor.recv_multipart())
        self._hear_event(report.event, report.value)
        return None

    def _hear_event(self, event: zmq.Event, value: int) -> None:
        if event == zmq.Event.CONNECTED:
            self._connected, self._connected_s = True, time.monotonic()
        elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._accepted = True
        elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:
            raise KeyRefusedError(f"{self._shown} does not know your key: {_LIST_IT}")
        elif event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL or (
            event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
            and value in (errno.EPIPE, errno.ECONNRESET)
            and time.monotonic() - self._connected_s < _AT_ONCE_S
        ):
            raise KeyRefusedError(
                f"{self._shown} ended the handshake: it does not know your key ({_LIST_IT}), its key is not the "
                "one you expect of it (--server-key), or it is not a gossipd control port"
            )
        elif event == zmq.Event.CLOSED and not self._connected:
            raise NodeUnreachableError(f"nothing listens on {self._shown}")
        elif event == zmq.Event.DISCONNECTED and self._accepted:
            raise NodeUnreachableError(f"the connection to {self._shown} broke; the command may have been executed")

    def _too_late(self) -> RemoteError:
        if self._accepted:
            return NodeSilentError(f"{self._shown} gave no answer within {self._timeout_s:g} s")
        if self._connected and _is_silent(*self._place):
            return NodeSilentError(
                f"{self._shown} takes connections and says nothing: the daemon is stuck, or it is no gossipd control "
                "port"
            )
        if self._connected:
            return KeyRefusedError(f"{self._shown} does not let your key in: {_LIST_IT}")
        return NodeUnreachableError(f"{self._shown} did not answer within {self._timeout_s:g} s")


def _is_silent(host: str, port: int) -> bool:
    """Whether what listens there lets a caller wait. libzmq greets before it looks at any key."""
    try:
        with socket.create_connection((host, port), _HANDSHAKE_S) as connection:
            connection.recv(1)
    except TimeoutError:
        return True
    except OSError:
        pass  # it closes what it does not want
    return False


_LIST_IT = "list its .pub file under security.clients in the nodes' configuration, or use a node's own (--config)"


def trigger(
    conversation: Conversation, *, secret: SecretKey, order: bytes | str, verb: Verb, now_s: float,
    budget_bytes: int | None = None,
) -> Acknowledgement:  # fmt: skip
    """Have ``order`` (a manifest's envelope, or ``NAME@VERSION``) deployed or cancelled in the whole cluster.
    ``budget_bytes``: what may be read of it from storage, 0 for no limit; None leaves that as it is.

    Raises what ``ask`` raises, and ManifestError for an envelope that is none.
    """
    query = control.TriggerQuery(deployment_id(order)) if isinstance(order, bytes) else control.TriggerQuery(b"", order)
    state = conversation.ask(query, control.TriggerState)
    if state.code:
        raise TriggerRefusedError(state.sentence, code=state.code)
    deployment = DeploymentId(state.deployment)
    manifest_bytes = len(order) if isinstance(order, bytes) else state.manifest_bytes
    if manifest_bytes == 0:
        raise TriggerRefusedError(f"the node has no manifest of {order!r}; give the file", code="E_NOT_FOUND")
    budget = b"" if budget_bytes is None else _signed_budget(secret, deployment, state, budget_bytes, now_s)
    if isinstance(order, bytes) and verb is Verb.DEPLOY and state.manifest_bytes == 0:
        _upload(conversation, deployment, order)
    statement = sign_statement(
        secret, deployment, epoch=epoch_after(state.epoch, verb), verb=verb, manifest_bytes=manifest_bytes, now_s=now_s
    )
    reply = conversation.ask(control.TriggerOrder(statement.encode(), budget), control.TriggerReply)
    if reply.code:
        raise TriggerRefusedError(reply.sentence, code=reply.code)
    return Acknowledgement(deployment, reply.epoch, reply.already, reply.sentence)


def _signed_budget(
    secret: SecretKey, deployment: DeploymentId, state: control.TriggerState, budget_bytes: int, now_s: float
) -> bytes:
    """The budget, dated with the time that the node has told, if that is about the time here: a later order would not
    count before it."""
    if not state.budget_ms:
        raise TriggerRefusedError("the node is of a version without budgets; upgrade it", code="E_SCHEMA_VERSION")
    if abs(state.budget_ms / 1000 - now_s) > CLOCKS_APART_MAX_S:
        raise TriggerRefusedError("the node's clock and this one's are more than an hour apart", code="E_CLOCK")
    return order_bytes(sign_budget(secret, deployment, Budget(state.budget_ms, budget_bytes)))


def _upload(conversation: Conversation, deployment: DeploymentId, envelope: bytes) -> None:
    offset = restarts = 0
    while offset < len(envelope):
        part = envelope[offset : offset + control.MANIFEST_PART_BYTES]
        kept = conversation.ask(control.ManifestPart(deployment, len(envelope), offset, part), control.PartKept)
        restarts += kept.offset <= offset
        if kept.offset > len(envelope) or restarts > _RESTARTS_MAX:
            raise TriggerRefusedError("the node does not keep the manifest; try again", code="E_BUSY")
        offset = kept.offset
