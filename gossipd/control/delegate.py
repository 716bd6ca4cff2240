"""What the control plane asks of the daemon that it serves.

What lives here: the protocol. What does not: an implementation (``gossipd.daemon`` has it, the tests a fake).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gossipd.control.authenticator import Identity, KeyDirectory
from gossipd.core.events import Event
from gossipd.core.ids import DeploymentId
from gossipd.sessions.channel_table import EndpointDirectory
from gossipd.wire import control
from membership.member import NodeId

Reply = Callable[[control.Message], None]


class ControlPort(KeyDirectory, EndpointDirectory, Protocol):
    """What the plane asks of the daemon. All methods are quick and are called on the trio loop."""

    def is_member_address(self, address: str) -> bool:
        """Whether a member's record names this IP address."""

    def ask(self, node: NodeId) -> None:
        """Have membership ask whether the member is where its record says; ``EndpointChanged`` when it answers."""

    def greeting(self) -> control.Hello:
        """What to say first on a new link."""

    def tokens_for(self, node: NodeId) -> tuple[tuple[bytes, ...], int]:
        """Tokens for a member that is about to hear our holdings, and for how many seconds they are good."""

    def on_tokens(self, node: NodeId, tokens: tuple[bytes, ...], valid_s: int) -> None:
        """A member has sent tokens with its holdings."""

    def on_subscriber_refused(self, node: NodeId, deployment: DeploymentId) -> None:
        """A member asked for the holdings of a deployment of which it is no target."""

    def on_event(self, event: Event) -> None:
        """An event for the planner: announcements, subscriptions, reachability."""

    def on_request(self, identity: Identity, message: control.Message, reply: Reply) -> None:
        """A request; ``reply`` may be called once, now or later. Clients may only send trigger requests."""

    def on_refused(self, reason: str, address: str, key: bytes) -> None:
        """A stranger was turned away (sampled; ``statistics`` counts all): for the audit log. ``key``: the CURVE key
        that it showed, or empty. ``address`` is empty when its connection was gone before anybody could look.
        """
