"""What the sessions hear from the transport and from requests, and what they want done.

What lives here: frozen values. What does not: the planner's words, which the sessions hear and report as they are
(``core.events``): StartSubscription, EndSubscription, SendHoldings and SendDelta; DeploymentOpened, DeploymentClosed
and PeerLost.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gossipd.core import events
from gossipd.core.ids import DeploymentId
from gossipd.sessions.peer_channel import Endpoint
from gossipd.wire.control import Message
from membership.member import NodeId

# ---- events ------------------------------------------------------------------------------------


class LinkUp(Struct, frozen=True):
    """The handshake of a connection that was dialed has succeeded."""

    peer: NodeId


class LinkDown(Struct, frozen=True):
    """A dialed connection has failed, or could not be made. ``reason``: one word, for the counters."""

    peer: NodeId
    reason: str


class MessageHeard(Struct, frozen=True):
    """A member has sent a message of its own initiative: no request, and no reply."""

    peer: NodeId
    message: Message
    number: int


class EndpointChanged(Struct, frozen=True):
    """A member's record is new or has changed, or it has answered from where its record says."""

    peer: NodeId


class RequestChanged(Struct, frozen=True):
    """A request to a peer is about to be sent, so that its connection is wanted, and soon; or it has ended."""

    peer: NodeId
    is_open: bool


class StandingLinksChosen(Struct, frozen=True):
    """Keep connections to these from now on; each such event has at most ``dials_max`` of the missing ones dialed."""

    peers: frozenset[NodeId]
    dials_max: int


SessionWord: TypeAlias = (
    events.StartSubscription | events.EndSubscription | events.SendHoldings | events.SendDelta
    | events.DeploymentOpened | events.DeploymentClosed | events.PeerLost
)  # fmt: skip
"""What the planner wants said, and what it is told itself."""

SessionEvent: TypeAlias = (
    LinkUp | LinkDown | MessageHeard | EndpointChanged | RequestChanged | StandingLinksChosen | SessionWord
)

# ---- commands ----------------------------------------------------------------------------------


class Dial(Struct, frozen=True):
    """Begin a connection; end with LinkUp or LinkDown."""

    peer: NodeId
    endpoint: Endpoint


class AskPeer(Struct, frozen=True):
    """Nobody has answered from this peer's address yet: have membership ask there, with one small datagram. The record
    may name a third party's address, which must not be dialed. EndpointChanged follows when it has answered."""

    peer: NodeId


class HangUp(Struct, frozen=True):
    """The connection to this peer is over: close what there is of it, and fail the requests that went over it."""

    peer: NodeId
    reason: str


class SendReady(Struct, frozen=True):
    """Something can be sent to this peer: take messages until there are no more."""

    peer: NodeId


class KeepTokens(Struct, frozen=True):
    """A peer has sent tokens with its holdings, good for ``valid_s`` seconds."""

    peer: NodeId
    tokens: tuple[bytes, ...]
    valid_s: int


class ReportEvent(Struct, frozen=True):
    """Tell the planner."""

    event: events.Event


class RefuseSubscriber(Struct, frozen=True):
    """A peer that is no target of the deployment asks for its holdings: it is told nothing, the log is."""

    peer: NodeId
    deployment: DeploymentId


SessionCommand: TypeAlias = Dial | AskPeer | HangUp | SendReady | KeepTokens | ReportEvent | RefuseSubscriber
