"""Progress that members told before they had spoken to this host themselves: it waits until they do.

What lives here: the waiting words, bounded. What does not: who has spoken (``member_directory``). Others pass on what a
member says, so a word proves no host: one host may make up members and tell progress of each, which would count in all
sums of a deployment. Rejected: to drop such words, because a host that has just started would learn minutes later what
it is told of a large cluster in its first second.
"""

from __future__ import annotations

from collections import OrderedDict

from membership.events import PayloadHeard
from membership.member import NodeId

AUTHORS_MAX = 4_096
WORDS_PER_AUTHOR_MAX = 64  # deployments; a host tells again of those that are over


class UnheardWords:
    """One per daemon. The latest word under each key counts."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[NodeId, dict[bytes, PayloadHeard]] = OrderedDict()

    def hold(self, author: NodeId, word: PayloadHeard) -> None:
        """The author has not spoken yet. Too many words push out the author's oldest, too many authors the oldest."""
        words = self._waiting.setdefault(author, {})
        words.pop(word.key, None)
        words[word.key] = word
        if len(words) > WORDS_PER_AUTHOR_MAX:
            del words[next(iter(words))]
        if len(self._waiting) > AUTHORS_MAX:
            self._waiting.popitem(last=False)

    def take(self, author: NodeId) -> list[PayloadHeard]:
        """The author has spoken, or is no member any more: its words, the oldest first."""
        return list(self._waiting.pop(author, {}).values())
