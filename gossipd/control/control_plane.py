"""The control plane's front: words of the planner out as frames, frames in as events and messages.

What lives here: the parts put together, and sending. What does not: sockets (``dialer``, ``listener``), admission
(``authenticator``), from frames to events (``dispatcher``), what any of it means to the node (``delegate``).

Traffic. Everything that a node says of itself goes over the link it dials to a peer; answers come back on the
connection the question came on. So two talking peers hold two connections, each with one direction of initiative, and
a link's failure is evidence about exactly one peer. Identity is the CURVE key's: of the link we dialed, or of the
visitor the ZAP handler let in; no message names its sender.

News. A follower asks with Subscribe; the planner answers with Holdings and includes it in every delta from then on.
After a lost link both ends repair by themselves: the follower asks again when its own link is up, and a node whose link
to a follower broke tells its planner that the follower asks anew. So a follower may get Holdings twice, never news with
a hole in it. A follower that asks before the deployment is known here is heard when it is opened.

All calls are made on the trio loop and none blocks; ``request_from_thread`` serves worker threads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from random import Random

import trio
import zmq

from gossipd.control.authenticator import ZapAuthenticator
from gossipd.control.delegate import ControlPort
from gossipd.control.dialer import PeerChannels
from gossipd.control.dispatcher import FrameDispatcher
from gossipd.control.listener import ControlListener
from gossipd.control.peer_channel import ChannelState, DeltaPayload
from gossipd.control.requests import PeerUnreachableError, RequestTable
from gossipd.control.settings import ControlSettings
from gossipd.control.subscribers import STREAMS_MAX, Subscribers
from gossipd.control.subscription import SubscriptionTable
from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.identity.keys import SecretKey
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.wire import control
from gossipd.wire.control_frame import encode
from membership.member import NodeId


class ControlPlane:
    """One per daemon. Made and used on the trio loop; ``serve`` runs it."""

    def __init__(
        self, *, secret: SecretKey, host: ControlPort, settings: ControlSettings, rng: Random, turn_loop: TurnLoop
    ) -> None:
        self._host, self._settings, self._turn_loop = host, settings, turn_loop
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 64)  # eight are used; libzmq reserves memory for all
        self._following = SubscriptionTable(resubscribe_s=settings.resubscribe_s)
        self._followers = Subscribers(first_stream=rng.randrange(STREAMS_MAX))
        self._requests = RequestTable(limit=settings.requests_max)
        self._reachable: dict[NodeId, bool] = {}
        self._kept: frozenset[NodeId] = frozenset()
        self._broken: set[NodeId] = set()  # followers whose link failed: they may have missed news
        self._audit_allowance, self._audit_s = settings.audit_per_s, 0.0
        self._token: trio.lowlevel.TrioToken | None = None
        self._counters: Counter[str] = Counter()
        self.authenticator = ZapAuthenticator(
            self._context,
            settings=settings,
            member_of=host.member_of,
            client_of=host.client_of,
            on_refused=self._refused,
        )
        self._dispatcher = FrameDispatcher(
            host=host,
            following=self._following,
            followers=self._followers,
            requests=self._requests,
            send=self.send_nowait,
            answer=self._answer,
            counters=self._counters,
        )
        self.listener = ControlListener(
            self._context,
            secret=secret,
            settings=settings,
            turn_loop=turn_loop,
            on_frame=self._dispatcher.from_identity,
            on_refused=self._refused,
        )
        self.channels = PeerChannels(
            self._context,
            secret=secret,
            settings=settings,
            rng=rng,
            turn_loop=turn_loop,
            endpoint_of=host.endpoint_of,
            is_wanted=self._is_wanted,
            on_frame=self._dispatcher.from_link,
            on_up=self._link_up,
            on_down=self._link_down,
            on_let_go=self._let_go,
        )

    # ---- life ------------------------------------------------------------------------------------

    async def serve(
        self, bind_host: str, bind_port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen and dial until cancelled. Started with the port that is listened on.

        The doorkeeper's address is taken before the port is: there is no moment without admission.

        Raises:
            BindError: the address cannot be had.
        """
        self._token = trio.lowlevel.current_trio_token()
        try:
            self.authenticator.bind()
            port = self.listener.bind(bind_host, bind_port)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.authenticator.serve)
                nursery.start_soon(self.listener.serve)
                nursery.start_soon(self.listener.watch)
                nursery.start_soon(self.channels.serve)
                nursery.start_soon(self.channels.watch)
                nursery.start_soon(self._turn_loop.run)
                nursery.start_soon(self._repeat_subscriptions)
                task_status.started(port)
        finally:
            self.channels.close()
            self.listener.close()
            self.authenticator.close()
            self._requests.fail_all("the daemon is stopping")
            self._context.term()  # returns at once: every socket is closed and lingers for nothing

    # ---- members ---------------------------------------------------------------------------------

    def member_changed(self, node: NodeId) -> None:
        """A member's record is new or has changed: let it in, dial it where it is now."""
        self.authenticator.look_again()
        self.channels.moved(node)

    def member_gone(self, node: NodeId) -> None:
        """The cluster's verdict is that the member is dead, left or forgotten."""
        self._following.forget(node)
        self._followers.forget(node)
        self.channels.forget(node)
        self._broken.discard(node)
        self._reachable.pop(node, None)

    def clients_changed(self) -> None:
        """The configured clients have changed."""
        self.authenticator.look_again()

    def keep_links(self, nodes: frozenset[NodeId], *, dials_max: int) -> None:
        """From now on keep links to these, whether there is something to say or not.

        Args:
            dials_max: how many of those that are missing may be dialed now; call again for the others.
        """
        for node in self._kept - nodes:
            if (channel := self.channels.peek(node)) is not None:
                channel.used_s = trio.current_time()  # it may be wanted again in a moment: it is idle from now on
        self._kept = nodes
        missing = (node for node in nodes if self.channels.peek(node) is None)
        for node in islice(missing, dials_max):
            self.channels.channel_to(node)

    # ---- sending ---------------------------------------------------------------------------------

    def send_nowait(self, node: NodeId, message: control.Message) -> bool:
        """Queue a one-way message; False when the peer is unknown or its queue is full (counted by kind)."""
        return self._send(node, encode(message), type(message).__name__)

    def subscribe(self, peer: NodeId, deployment: DeploymentId) -> None:
        """Follow a peer's news of a deployment until ``unsubscribe``, whatever happens to the connection."""
        self._following.begin(peer, deployment, trio.current_time())
        channel = self.channels.channel_to(peer)
        if channel is not None and channel.state is ChannelState.UP:
            self.send_nowait(peer, control.Subscribe(deployment))  # else it is sent when the link is up

    def unsubscribe(self, peer: NodeId, deployment: DeploymentId) -> None:
        """Follow no more."""
        if self._following.end(peer, deployment):
            channel = self.channels.peek(peer)
            if channel is not None and channel.state is ChannelState.UP:
                self.send_nowait(peer, control.Unsubscribe(deployment))

    def send_holdings(self, peer: NodeId, deployment: DeploymentId, chunks: ChunkSet, free_slots: int) -> bool:
        """Answer a follower with everything held; deltas may follow from now on."""
        if not self._followers.follows(peer, deployment):
            return False
        stream = self._followers.stream(deployment)
        channel = self.channels.channel_to(peer)
        if channel is None:
            self._counters["dropped_Holdings"] += 1
            return False
        tokens, valid_s = self._host.tokens_for(peer)
        message = control.Holdings(
            deployment, stream, chunks.size, chunks.to_wire(), free_slots, tokens=tokens, valid_s=valid_s
        )
        if not channel.put_holdings(stream, message):
            self._counters["dropped_Holdings"] += 1
            return False
        self.channels.queued(channel)
        return True

    def send_delta(
        self,
        peers: Iterable[NodeId],
        deployment: DeploymentId,
        *,
        added: Sequence[int] = (),
        dropped: Sequence[int] = (),
        reading: Sequence[int] = (),
        free_slots: int = 0,
    ) -> None:
        """Tell followers the same news; packed once. Those who have not had Holdings are passed over."""
        stream = self._followers.stream(deployment)
        lists = [tuple(sorted(added)), tuple(sorted(dropped))]
        now_reading = tuple(sorted(reading))[: control.DELTA_ITEMS_MAX]  # on each piece: the last one counts
        pieces = max(1, *(math.ceil(len(items) / control.DELTA_ITEMS_MAX) for items in lists))
        news = []
        for piece in range(pieces):
            begin = piece * control.DELTA_ITEMS_MAX
            parts = [items[begin : begin + control.DELTA_ITEMS_MAX] for items in lists]
            news.append(DeltaPayload.of(stream, parts[0], parts[1], now_reading, free_slots))
        for peer in peers:
            channel = self.channels.peek(peer)
            if channel is None or not all(channel.put_news(stream, part) for part in news):
                self._counters["dropped_Delta"] += 1
                continue
            channel.used_s = trio.current_time()
            self.channels.queued(channel)

    def deployment_opened(self, deployment: DeploymentId) -> None:
        """The deployment is known from now on: hear those who asked for it too early, and have links to acquaintances
        without sitting out a pause."""
        for node in self._kept:
            self.channels.hurry(node)
        for peer in self._followers.take_early(deployment):
            self._dispatcher.follow(peer, deployment)

    def deployment_closed(self, deployment: DeploymentId) -> None:
        """Nobody is told of it any more."""
        stream = self._followers.stream(deployment)
        for peer in self._followers.close(deployment):
            channel = self.channels.peek(peer)
            if channel is not None:
                channel.drop_stream(stream)

    async def request(self, node: NodeId, message: control.Message, timeout_s: float) -> control.Message:
        """Ask a member and wait for its reply, which is of the kind that ``REPLY_TO`` names for the request.

        Raises:
            PeerUnreachableError: nobody knows where it is, its link failed, or its queue is full.
            PeerSilentError: no reply within ``timeout_s``.
            RequestRefusedError: it answered that it will not.
        """
        with self._requests.opened(node, control.REPLY_TO[type(message)]) as pending:
            if not self._send(node, encode(message, number=pending.number), type(message).__name__):
                pending.fail("it is unknown or does not read")
            self.channels.hurry(node)
            return await pending.wait(timeout_s)

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
            "link": self.channels.counters,
            "entrance": self.listener.counters,
            "zap": self.authenticator.counters,
            "follow": self._following.counters,
            "control": self._counters,
        }
        return {f"{part}_{name}": value for part, counters in parts.items() for name, value in counters.items()}

    # ---- inside ----------------------------------------------------------------------------------

    def _send(self, node: NodeId, frame: bytes, name: str) -> bool:
        channel = self.channels.channel_to(node)
        if channel is None or not channel.put(frame):
            self._counters[f"dropped_{name}"] += 1
            return False
        self.channels.queued(channel)
        return True

    def _answer(self, route: bytes, frame: bytes) -> bool:
        return self.listener.answer(route, frame)

    def _is_wanted(self, node: NodeId) -> bool:
        if node in self._kept:
            return True
        return bool(self._following.of(node) or self._followers.of(node) or self._requests.waits_for(node))

    def _link_up(self, node: NodeId) -> None:
        self._reach(node, True)
        self.send_nowait(node, self._host.greeting())
        for deployment in self._following.link_up(node, trio.current_time()):
            self.send_nowait(node, control.Subscribe(deployment))
        if node in self._broken:
            self._broken.discard(node)
            for deployment in self._followers.of(node):
                self._dispatcher.follow(node, deployment)

    def _link_down(self, node: NodeId, reason: str) -> None:
        self._counters[f"down_{reason}"] += 1
        self._requests.fail(node, reason)
        if self._followers.of(node):
            self._broken.add(node)
        if reason not in ("moved", "forgotten"):
            self._reach(node, False)

    def _let_go(self, node: NodeId) -> None:
        # Evidence that nothing will renew must not stand: the next deployment would never ask that peer.
        if self._reachable.pop(node, True) is False:
            self._host.on_event(events.PeerReachable(node, True))

    def _reach(self, node: NodeId, reachable: bool) -> None:
        if self._reachable.get(node) is not reachable:
            self._reachable[node] = reachable
            self._host.on_event(events.PeerReachable(node, reachable))

    async def _repeat_subscriptions(self) -> None:
        while True:
            await trio.sleep(self._settings.resubscribe_s / 5)
            for peer, deployment in self._following.due(trio.current_time()):
                channel = self.channels.channel_to(peer)
                if channel is not None and channel.state is ChannelState.UP:
                    self.send_nowait(peer, control.Subscribe(deployment))

    def _refused(self, reason: str, address: str) -> None:
        self._counters[f"refused_{reason}"] += 1
        now, rate = trio.current_time(), self._settings.audit_per_s
        self._audit_allowance = min(rate, self._audit_allowance + (now - self._audit_s) * rate)
        self._audit_s = now
        if self._audit_allowance >= 1:
            self._audit_allowance -= 1
            self._host.on_refused(reason, address)
