"""One-time tokens that open unencrypted connections, one per connection, bound to the node that received them.

What lives here: issuing, keeping and redeeming. What does not: the authenticated control channel that carries them.

A node asks for a token, or receives some ahead with the holdings of a peer that it subscribes to: a node that first
learns a peer's holdings is about to fetch from it, and asking would cost a turn of two event loops.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b

from gossipd.runtime.quotas import Quotas
from gossipd.wire.transfer import TOKEN_BYTES
from membership.member import NodeId

TOKEN_LIFE_S = 10.0  # a token is used at once, and control answers in milliseconds
TOKENS_PER_NODE_MAX = 16  # above the connections that a peer opens at once, and the tokens issued ahead
TOKENS_MAX = 4096  # a burst of 256 peers with all their connections
TOKENS_ASKED_BURST, TOKENS_ASKED_PER_S = 64, 16  # of one node: each opens a connection, which lives for many fetches
TOKENS_AHEAD = 2  # one fetch and one beside it
# The share of its life that a token issued ahead has at the receiver: it may have spent the rest on the way.
_AHEAD_SHARE = 0.5


class IssuedTokens:
    """Tokens that were issued and not redeemed. Thread-safe; bounded: the oldest make room. Only hashes of tokens are
    kept, so that the time of a look-up reveals nothing about similar tokens.
    """

    def __init__(self, *, life_s: float = TOKEN_LIFE_S) -> None:
        self._life_s = life_s
        self._lock = threading.Lock()
        self._issued: OrderedDict[bytes, tuple[NodeId, float]] = OrderedDict()
        self._by_node: dict[NodeId, list[bytes]] = {}
        self._ahead: dict[NodeId, tuple[bytes, ...]] = {}
        self._asked = Quotas[NodeId](burst=TOKENS_ASKED_BURST, per_s=TOKENS_ASKED_PER_S)

    def issue_ahead(self, node: NodeId) -> tuple[bytes, ...]:
        """Issue tokens that ``node`` did not ask for, in place of the ones issued ahead before. The node keeps only the
        last ones, and a returning host receives the holdings of many deployments at once.
        """
        with self._lock:
            for mark in self._ahead.pop(node, ()):
                if mark in self._issued:
                    self._drop(mark)
        tokens = tuple(self.issue(node) for _ in range(TOKENS_AHEAD))
        with self._lock:
            self._ahead[node] = tuple(_mark(token) for token in tokens)
        return tokens

    def issue_asked(self, node: NodeId) -> bytes | None:
        """``issue`` for a node that asks; None when it asks too often."""
        with self._lock:
            is_granted = self._asked.take(node, time.monotonic())
        return self.issue(node) if is_granted else None

    def issue(self, node: NodeId) -> bytes:
        """A fresh token with which ``node`` may open one connection within ``life_s``."""
        token = secrets.token_bytes(TOKEN_BYTES)
        with self._lock:
            self._expire(time.monotonic())
            own = self._by_node.setdefault(node, [])
            if len(own) >= TOKENS_PER_NODE_MAX:
                self._drop(own[0])
            elif len(self._issued) >= TOKENS_MAX:
                self._drop(next(iter(self._issued)))
            self._issued[_mark(token)] = (node, time.monotonic() + self._life_s)
            self._by_node.setdefault(node, []).append(_mark(token))
        return token

    def redeem(self, token: bytes) -> NodeId | None:
        """The node of this token; None if it was never issued, has expired or was used."""
        with self._lock:
            self._expire(time.monotonic())
            found = self._issued.get(_mark(token))
            if found is None:
                return None
            self._drop(_mark(token))
            return found[0]

    def __len__(self) -> int:
        return len(self._issued)

    def _expire(self, now: float) -> None:
        while self._issued:
            mark, (_, until) = next(iter(self._issued.items()))
            if until > now:
                return
            self._drop(mark)

    def _drop(self, mark: bytes) -> None:
        node, _ = self._issued.pop(mark)
        own = self._by_node[node]
        own.remove(mark)
        if not own:
            del self._by_node[node]
            self._ahead.pop(node, None)


class ReceivedTokens:
    """Tokens that peers issued ahead. Thread-safe; bounded: the oldest make room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: OrderedDict[NodeId, tuple[float, list[bytes]]] = OrderedDict()

    def put(self, node: NodeId, tokens: Iterable[bytes], valid_s: float) -> None:
        """Replace a peer's tokens by these, just issued and valid for ``valid_s``."""
        with self._lock:
            self._given.pop(node, None)
            self._given[node] = (time.monotonic() + valid_s * _AHEAD_SHARE, list(tokens)[:TOKENS_PER_NODE_MAX])
            if len(self._given) > TOKENS_MAX // TOKENS_PER_NODE_MAX:
                self._given.popitem(last=False)

    def take(self, node: NodeId) -> bytes | None:
        """A token that is probably still valid, or None."""
        with self._lock:
            until, tokens = self._given.get(node, (0.0, []))
            if not tokens or until <= time.monotonic():
                self._given.pop(node, None)
                return None
            return tokens.pop()

    def forget(self, node: NodeId) -> None:
        with self._lock:
            self._given.pop(node, None)


def _mark(token: bytes) -> bytes:
    return blake2b(token, digest_size=32).digest()
