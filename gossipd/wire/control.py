"""The messages of the control plane, between two nodes, or between a client and a node.

What lives here: one struct per message, its number on the wire and its bounds. What does not: bytes
(``control_frame``), sockets, and which party may send what (``gossipd.control``).

Each struct is an array on the wire, fields in the order written here. New fields are only added at the end, with a
default, and are never maps: an older node ignores what follows the fields it knows, a newer one fills in what an older
one does not send. A message with an unknown number is ignored and counted. Payload bytes of models never travel here,
and no message carries a path, an offset in a file or an address to dial.

``number`` is not a field but stands in front of all fields. In a request it names the reply that is wanted, in a reply
it repeats that. In ``Holdings`` and ``Delta`` it counts the messages of one deployment; else it is zero.

A sender numbers its deployments (``stream``) as it likes and tells the number in ``Holdings``, because a delta is then
far shorter, and there are hundreds of them a second.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from gossipd.core.ids import DeploymentId
from gossipd.core.sketch import FINE_BINS

INTEGER_MAX = 2**53 - 1
CHUNKS_MAX = 1_000_000  # as in manifests
DELTA_ITEMS_MAX = 256  # per list; longer deltas are split. Also the longest array that a frame may hold
STATEMENT_BYTES_MAX = 512  # a statement is some 200 bytes; room for more fields
BUDGET_ORDER_BYTES_MAX = 256  # it is 78 bytes
MANIFEST_PART_BYTES = 128 * 1024
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
TOKEN_BYTES = 32
TOKENS_IN_MESSAGE_MAX = 8  # more bulk connections than are opened to one peer at once

Deployment = Annotated[DeploymentId, Meta(min_length=32, max_length=32)]
Count = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Small = Annotated[int, Meta(ge=0, le=65_535)]
Gaps = Annotated[tuple[Count, ...], Meta(max_length=DELTA_ITEMS_MAX)]
Label = Annotated[str, Meta(max_length=64)]
Code = Annotated[str, Meta(max_length=64)]
Sentence = Annotated[str, Meta(max_length=1024)]
ModelName = Annotated[str, Meta(max_length=300)]  # org/name@version, 128 + 1 + 128 + 1 + 16
Token_ = Annotated[bytes, Meta(min_length=TOKEN_BYTES, max_length=TOKEN_BYTES)]


class Hello(Struct, frozen=True, array_like=True):
    """First message on a connection: our software."""

    software: Label


class Subscribe(Struct, frozen=True, array_like=True):
    """Send your holdings of this deployment now, and deltas from now on."""

    deployment: Deployment


class Unsubscribe(Struct, frozen=True, array_like=True):
    """Send no more deltas of this deployment."""

    deployment: Deployment


class Holdings(Struct, frozen=True, array_like=True):
    """Everything held of a deployment; deltas of ``stream`` follow it, numbered from this one. ``tokens`` are worth the
    answers to as many ``TokenWanted``, good for ``valid_s`` seconds."""

    deployment: Deployment
    stream: Small
    chunk_count: Annotated[int, Meta(ge=1, le=CHUNKS_MAX)]
    chunks: Annotated[bytes, Meta(max_length=CHUNKS_MAX // 8 + 1)]
    free_slots: Small
    tokens: Annotated[tuple[Token_, ...], Meta(max_length=TOKENS_IN_MESSAGE_MAX)] = ()
    valid_s: Small = 0


class Delta(Struct, frozen=True, array_like=True):
    """Changes of one stream. Lists hold gaps: the first index, then each one's distance from the one before."""

    stream: Small
    added: Gaps
    dropped: Gaps
    reading: Gaps
    free_slots: Small


class TokenWanted(Struct, frozen=True, array_like=True):
    """Request: a token that opens one plain bulk connection from us to you."""


class Token(Struct, frozen=True, array_like=True):
    """Reply: the token, good once and for this many seconds."""

    token: Token_
    valid_s: Small


class Ping(Struct, frozen=True, array_like=True):
    """Request: does the receiver answer on TCP? Membership's last resort before suspicion."""


class Pong(Struct, frozen=True, array_like=True):
    """Reply to a ping."""


class TriggerQuery(Struct, frozen=True, array_like=True):
    """Request: what is the cluster's last statement on this deployment, named by id or as ``NAME@VERSION``? One of the
    two is given; the other is empty."""

    deployment: Annotated[bytes, Meta(max_length=32)]
    model: ModelName = ""


class TriggerState(Struct, frozen=True, array_like=True):
    """Reply: the id, the highest epoch heard, the last verb, and the size of the manifest if it is here. ``code`` is
    empty when the deployment is known or may be introduced; else it says why not. ``budget_ms``: the time, in
    milliseconds since 1970, that a budget must have which is ordered now; 0: the host knows no budgets."""

    deployment: Annotated[bytes, Meta(max_length=32)]
    epoch: Count
    verb: Code
    manifest_bytes: Count
    code: Code = ""
    sentence: Sentence = ""
    budget_ms: Count = 0


class ManifestPart(Struct, frozen=True, array_like=True):
    """Request: keep this part of the manifest that the next order will name. Parts come in order."""

    deployment: Deployment
    total: Annotated[int, Meta(ge=1, le=MANIFEST_BYTES_MAX)]
    offset: Count
    part: Annotated[bytes, Meta(min_length=1, max_length=MANIFEST_PART_BYTES)]


class PartKept(Struct, frozen=True, array_like=True):
    """Reply: the offset of the part that is wanted next."""

    offset: Count


class TriggerOrder(Struct, frozen=True, array_like=True):
    """Request: act on this signed statement and pass it on, with a signed budget for reads of storage, or none."""

    statement: Annotated[bytes, Meta(min_length=1, max_length=STATEMENT_BYTES_MAX)]
    budget: Annotated[bytes, Meta(max_length=BUDGET_ORDER_BYTES_MAX)] = b""


class TriggerReply(Struct, frozen=True, array_like=True):
    """Reply, always sent: ``code`` is empty when accepted, ``already`` set when nothing changed."""

    code: Code
    sentence: Sentence
    deployment: Annotated[bytes, Meta(max_length=32)]
    epoch: Count
    already: bool


class SketchWanted(Struct, frozen=True, array_like=True):
    """Request of a member: which shares of a deployment's chunks do you have? Somebody looks at your page."""

    deployment: Deployment


class Sketch(Struct, frozen=True, array_like=True):
    """Reply: a byte for each bin, as ``core.sketch`` has it, and how many of the chunks wanted are held."""

    shares: Annotated[bytes, Meta(min_length=1, max_length=FINE_BINS)]
    chunks_held: Annotated[int, Meta(ge=0, le=CHUNKS_MAX)]


class Refused(Struct, frozen=True, array_like=True):
    """Reply: the request was understood and is not granted. At most a code goes to a peer."""

    code: Code
    sentence: Sentence = ""


Message: TypeAlias = (
    Hello | Subscribe | Unsubscribe | Holdings | Delta | TokenWanted | Token | Ping | Pong | TriggerQuery
    | TriggerState | ManifestPart | PartKept | TriggerOrder | TriggerReply | Refused | SketchWanted | Sketch
)  # fmt: skip

# Numbers are for ever; a retired one is never given out again.
NUMBERS: dict[type[Message], int] = {
    Hello: 1,
    Subscribe: 2,
    Unsubscribe: 3,
    Holdings: 4,
    Delta: 5,
    TokenWanted: 6,
    Token: 7,
    Ping: 8,
    Pong: 9,
    TriggerQuery: 10,
    TriggerState: 11,
    ManifestPart: 12,
    PartKept: 13,
    TriggerOrder: 14,
    TriggerReply: 15,
    Refused: 16,
    SketchWanted: 17,
    Sketch: 18,
}
# Request -> its reply. ``Refused`` may answer any request too.
REPLY_TO: dict[type[Message], type[Message]] = {
    TokenWanted: Token,
    Ping: Pong,
    TriggerQuery: TriggerState,
    ManifestPart: PartKept,
    TriggerOrder: TriggerReply,
    SketchWanted: Sketch,
}
REQUESTS = tuple(REPLY_TO)
REPLIES = (*REPLY_TO.values(), Refused)
