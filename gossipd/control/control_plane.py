"""The control plane's front: what the daemon calls, and the parts put together.

What lives here: construction, requests, and the way to the sessions. What does not: sockets (``dialer``,
``listener``), admission (``authenticator``), from frames to messages (``dispatcher``), what two hosts have told each
other (``gossipd.sessions``), what any of it means to the node (``delegate``).

Traffic. Everything that a node says of itself goes over the link it dials to a peer; answers come back on the
connection the question came on. Identity is the CURVE key's: of the link we dialed, or of the connection that the ZAP
handler let in; no message names its sender.

All calls are made on the trio loop and none blocks; ``request_from_thread`` serves worker threads.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import trio
import zmq

from gossipd.control.authenticator import ZapAuthenticator
from gossipd.control.delegate import ControlPort
from gossipd.control.dialer import ControlDialer
from gossipd.control.dispatcher import FrameDispatcher
from gossipd.control.listener import ControlListener
from gossipd.control.requests import PeerUnreachableError, RequestTable
from gossipd.control.session_driver import SessionDriver
from gossipd.control.settings import ControlSettings
from gossipd.identity.keys import SecretKey
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.sessions.channel_table import LinkCounts
from gossipd.sessions.events import EndpointChanged, RequestChanged, SessionWord, StandingLinksChosen
from gossipd.wire import control
from membership.member import NodeId


class ControlPlane:
    """One per daemon. Made and used on the trio loop; ``serve`` runs it."""

    def __init__(
        self, *, secret: SecretKey, host: ControlPort, settings: ControlSettings, rng: Random, turn_loop: TurnLoop
    ) -> None:
        self._host, self._control_settings, self._turn_loop = host, settings, turn_loop
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 64)  # eight are used; libzmq reserves memory for all
        self._requests = RequestTable(limit=settings.requests_max)
        self._audit_allowance, self._audit_s = settings.audit_per_s, 0.0
        self._token: trio.lowlevel.TrioToken | None = None
        self._counters: Counter[str] = Counter()
        self.authenticator = ZapAuthenticator(self._context, settings=settings, keys=host, on_refused=self._refused)
        self.driver = SessionDriver(host=host, requests=self._requests, settings=settings, rng=rng, turn_loop=turn_loop)
        dispatcher = FrameDispatcher(host=host, requests=self._requests, driver=self.driver, counters=self._counters)
        self.listener = ControlListener(
            self._context, secret=secret, settings=settings, turn_loop=turn_loop, dispatcher=dispatcher,
            directory=host, on_refused=self._refused,
        )  # fmt: skip
        self.dialer = ControlDialer(
            self._context, secret=secret, settings=settings, turn_loop=turn_loop, dispatcher=dispatcher,
            driver=self.driver,
        )  # fmt: skip

    async def serve(
        self, bind_host: str, bind_port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen and dial until cancelled. Started with the port; raises BindError when the address cannot be had.

        The authenticator's address is taken before the port is: there is no moment without admission.
        """
        self._token = trio.lowlevel.current_trio_token()
        try:
            self.authenticator.bind()
            port = self.listener.bind(bind_host, bind_port)
            sockets = (self.listener.serve, self.listener.watch, self.dialer.serve, self.dialer.watch)
            async with trio.open_nursery() as nursery:
                for task in (self.authenticator.serve, *sockets, self._turn_loop.run):
                    nursery.start_soon(task)
                task_status.started(port)
        finally:
            self.dialer.close()
            self.listener.close()
            self.authenticator.close()
            self._requests.fail_all()
            self._context.term()  # returns at once: every socket is closed and lingers for nothing

    def hear(self, word: SessionWord) -> None:
        """Give the sessions a command of the planner, or an event that the planner has heard already."""
        self.driver.feed(word)

    def member_changed(self, node: NodeId) -> None:
        """A member's record is new or has changed: let it in, dial it where it is now."""
        self.authenticator.look_again()
        self.driver.feed(EndpointChanged(node))

    def clients_changed(self) -> None:
        """The configured clients have changed."""
        self.authenticator.look_again()

    def keep_links(self, nodes: frozenset[NodeId], *, dials_max: int) -> None:
        """Keep links to these from now on. At most ``dials_max`` of those that are missing are dialed: call again."""
        self.driver.feed(StandingLinksChosen(nodes, dials_max))

    async def request(self, node: NodeId, message: control.Message, timeout_s: float) -> control.Message:
        """Ask a member and wait for its reply, which is of the kind that ``REPLY_TO`` names for the request.

        Raises:
            PeerUnreachableError: its address is unknown, its link failed, or its queue is full.
            PeerSilentError: no reply within ``timeout_s``.
            RequestRefusedError: it answered that it will not.
        """
        with self._requests.opened(node, control.REPLY_TO[type(message)]) as pending:
            self.driver.feed(RequestChanged(node, is_open=True))
            try:
                if not self.driver.put(node, message, number=pending.number):
                    pending.fail("it is unknown or does not read")
                return await pending.wait(timeout_s)
            finally:
                self.driver.feed(RequestChanged(node, is_open=False))

    def request_from_thread(self, node: NodeId, message: control.Message, timeout_s: float) -> control.Message:
        """``request`` for a worker thread; raises the same, and PeerUnreachableError when the plane has stopped."""
        if self._token is None:
            raise PeerUnreachableError("the control plane is not running")
        try:
            return trio.from_thread.run(self.request, node, message, timeout_s, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise PeerUnreachableError("the control plane has stopped") from None

    def statistics(self) -> dict[str, int]:
        """Counters since the start, by name."""
        parts = {
            "link": self.dialer.counters,
            "entrance": self.listener.counters,
            "zap": self.authenticator.counters,
            "control": self._counters,
        }
        own = {f"{part}_{name}": value for part, counters in parts.items() for name, value in counters.items()}
        return own | self.driver.sessions.statistics()

    def links(self) -> LinkCounts:
        """How many links this host dials, and how many are up, now."""
        return self.driver.sessions.links()

    def _refused(self, reason: str, address: str, key: bytes = b"") -> None:
        self._counters[f"refused_{reason}"] += 1
        now, rate = trio.current_time(), self._control_settings.audit_per_s
        self._audit_allowance = min(rate, self._audit_allowance + (now - self._audit_s) * rate)
        self._audit_s = now
        if self._audit_allowance >= 1:
            self._audit_allowance -= 1
            self._host.on_refused(reason, address, key)
