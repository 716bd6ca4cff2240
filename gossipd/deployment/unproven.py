"""Statements on deployments whose manifest this host has not verified: kept for a while, fairly by signer and bringer.

What lives here: which of them are worth a pull now, and the shares of pulls. What does not: signatures (``statement``),
what is believed (``statement_store``), and pulling (``deployment_steps``).

Anybody who may sign can sign statements about nothing. So these are no deployments: they take no room, are not kept on
disk, are never signed again for others, and end after a time. Each signer has a few that are looked into; its others
wait for those. Where all are too many, of the member that brought most of them the signer with most loses the oldest of
those that wait. Rejected: its oldest of all, because a signer that says more and more would begin and end a search with
every word.

A member can make up any number of signers. So signers whose words were proven before come first, then those that have
spoken to this host, and made-up ones hold half of the pulls at most. Among equals the members that brought the words
take turns, because a signer can be made up and who speaks to this host can not.

A member can also sign what others deploy before their word is here, and hide it among its own words on nothing: gossip
passes on the first of two words that say the same. Members that tell of their progress **vouch** for a deployment: its
word is looked into whatever else its signer has said, and the members that vouch take turns, too. They name the
deployment by the first bytes of its id, which many can share. So each vouches for a few, and one of which it has no
manifest after all gives way to the next.

What was asked for in vain gives way to what was not asked for, in steps that double: else as many words on nothing as
are looked into at once, each brought by another host, would keep a genuine one waiting until they end. Signers that may
be made up come last all the same, because there are always more of them that nobody was asked about.

A member can say thousands of such words in a second, so what each of them costs does not grow with their number.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field

from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import progress_key
from gossipd.deployment.statement import Statement
from membership.member import NodeId, node_id

WORDS_MAX = 1_024  # as many as a host believes: a late joiner hears all of them at once
HOLDERS_MAX = 8
VOUCHED_MAX = 8  # of the deployments whose ids begin alike
_FIRST_PULLS = 6  # in vain, after which a word gives way; then after twice as many


class Standing(IntEnum):
    """What this host knows of a signer."""

    PROVEN = 0
    """It has deployed what was verified here."""
    HEARD = 1
    """A configured client, or a member that has spoken to this host."""
    UNHEARD = 2
    """Another member may have made it up."""


class _Rank(NamedTuple):
    """Which words are looked into first: those of the lowest. Among equals members take turns."""

    is_made_up: bool
    times_given_way: int
    standing: Standing


class _Word(Struct, eq=False):
    number: int
    """In the order of hearing."""
    statement: Statement
    until_s: float
    is_moot: bool
    holders: dict[NodeId, None] = field(default_factory=dict)
    vouchers: dict[NodeId, None] = field(default_factory=dict)
    pulls_in_vain: int = 0

    @property
    def times_given_way(self) -> int:
        return (self.pulls_in_vain // _FIRST_PULLS).bit_length()

    def rank(self, standing: Callable[[bytes], Standing]) -> _Rank:
        known = standing(self.statement.signer)
        if self.vouchers:
            known = min(known, Standing.HEARD)
        return _Rank(known is Standing.UNHEARD, self.times_given_way, known)

    @property
    def sources(self) -> Collection[NodeId]:
        """The members whose turn it is when the word is looked into."""
        return self.vouchers or (self.bringer,)

    @property
    def bringer(self) -> NodeId:
        """The first holder."""
        return next(iter(self.holders))


class _Signer(Struct):
    """One signer's words, oldest first."""

    words: dict[DeploymentId, _Word] = field(default_factory=dict)
    open: dict[DeploymentId, _Word] = field(default_factory=dict)
    """Those of them that are not moot."""


class UnprovenStatements:
    """One signer's word on one deployment is one entry.

    Args:
        per_signer_max, in_all_max: how many deployments are looked into at once.
        life_s: after which a word is dropped.
    """

    def __init__(self, *, per_signer_max: int, in_all_max: int, life_s: float) -> None:
        self._per_signer_max = per_signer_max
        self._in_all_max = in_all_max
        self._life_s = life_s
        self._heard = 0
        self._gave_way = 0  # since what is wanted has changed for that
        # By number; all live equally long. The first is asked for at every event, and a dict searches for it.
        self._words: OrderedDict[int, _Word] = OrderedDict()
        self._signers: dict[bytes, _Signer] = {}
        self._about: dict[DeploymentId, dict[bytes, _Word]] = {}  # by signer
        self._keys: dict[bytes, dict[int, _Word]] = {}  # by progress key and number; those that gave way come last
        self._brought: dict[NodeId, dict[bytes, dict[int, _Word]]] = {}  # by bringer, signer and number
        self._brought_count: Counter[NodeId] = Counter()
        self._vouched: dict[int, _Word] = {}
        self.revision = 0
        """Grows with every change of what is wanted."""

    def add(self, statement: Statement, holder: NodeId, now: float, *, is_moot: bool = False) -> None:
        """A statement that its signer may make, heard from ``holder``. One that ``is_moot`` counts only beside others,
        such as a cancel by a member that has perhaps deployed it: alone it is not worth a pull.
        """
        word = self._about.get(statement.deployment, {}).get(statement.signer)
        if word is None:
            self._heard += 1
            word = _Word(self._heard, statement, now + self._life_s, is_moot, {holder: None})
            self._words[word.number] = word
            self._signers.setdefault(statement.signer, _Signer()).words[statement.deployment] = word
            self._about.setdefault(statement.deployment, {})[statement.signer] = word
            self._keys.setdefault(progress_key(statement.deployment), {})[word.number] = word
            self._brought.setdefault(holder, {}).setdefault(statement.signer, {})[word.number] = word
            self._brought_count[holder] += 1
            self._sort_in(word)
            if len(self._words) > WORDS_MAX:
                self._drop_one()
        elif word.statement.rank < statement.rank:
            word.statement = statement  # its time goes on, or a signer could make it last
            word.is_moot = is_moot
            self._sort_in(word)
        if len(word.holders) < HOLDERS_MAX:
            word.holders[holder] = None

    def _sort_in(self, word: _Word) -> None:
        """A word is new, or says something else."""
        statement = word.statement
        open_words = self._signers[statement.signer].open
        was_wanted = self._is_wanted(word)
        if word.is_moot:
            open_words.pop(statement.deployment, None)
            self._vouched.pop(word.number, None)
            word.vouchers.clear()
        else:
            open_words[statement.deployment] = word
        self.revision += was_wanted or self._is_wanted(word)

    def is_about(self, key: bytes) -> bool:
        """Whether there are words on a deployment of that progress key."""
        return key in self._keys

    def vouch(self, key: bytes, node: NodeId) -> None:
        """A member that has spoken to this host has the manifest of a deployment with that progress key."""
        for word in islice(self._keys.get(key, {}).values(), VOUCHED_MAX):
            is_own = node_id(word.statement.signer) == node
            if not (is_own or word.is_moot or node in word.vouchers) and len(word.vouchers) < HOLDERS_MAX:
                self.revision += not word.vouchers
                word.vouchers[node] = None
                self._vouched[word.number] = word

    def not_had(self, deployment: DeploymentId, node: NodeId) -> None:
        """That member does not give its manifest: it may have meant another deployment, or nothing."""
        for word in self._of(deployment):
            before = word.times_given_way
            word.pulls_in_vain += 1
            self._gave_way += word.times_given_way != before
            if node not in word.vouchers:
                continue
            del word.vouchers[node]
            if not word.vouchers:
                self.revision += 1
                del self._vouched[word.number]
                alike = self._keys[progress_key(deployment)]
                alike[word.number] = alike.pop(word.number)
        # Several together: each look at what is wanted goes through all candidates.
        if self._gave_way > self._in_all_max // 8:
            self._gave_way = 0
            self.revision += 1

    def _is_wanted(self, word: _Word) -> bool:
        return any(one is word for one in self._first(self._signers[word.statement.signer]))

    def _first(self, signer: _Signer) -> Iterator[_Word]:
        """The statements that are looked into, if all signers' are not too many."""
        return islice(signer.open.values(), self._per_signer_max)

    def _drop_one(self) -> None:
        bringer = max(self._brought_count, key=self._brought_count.__getitem__)
        loudest = max(self._brought[bringer].values(), key=len).values()
        waiting = (word for word in loudest if not (word.vouchers or self._is_wanted(word)))
        self._drop(next(waiting, next(iter(loudest))))

    def _drop(self, word: _Word) -> None:
        deployment, by = word.statement.deployment, word.statement.signer
        self.revision += self._is_wanted(word) or bool(word.vouchers)
        signer, key = self._signers[by], progress_key(deployment)
        self._vouched.pop(word.number, None)
        del (
            self._words[word.number],
            self._keys[key][word.number],
            signer.words[deployment],
            self._about[deployment][by],
        )
        signer.open.pop(deployment, None)
        self._forget_bringer(word)
        if not signer.words:
            del self._signers[by]
        if not self._about[deployment]:
            del self._about[deployment]
        if not self._keys[key]:
            del self._keys[key]

    def _forget_bringer(self, word: _Word) -> None:
        bringer, by = word.bringer, word.statement.signer
        brought = self._brought[bringer]
        del brought[by][word.number]
        if not brought[by]:
            del brought[by]
        if not brought:
            del self._brought[bringer]
        self._brought_count[bringer] -= 1
        if not self._brought_count[bringer]:
            del self._brought_count[bringer]

    def wanted(self, standing: Callable[[bytes], Standing]) -> dict[DeploymentId, Statement]:
        """Deployments to look into now, each with one of its statements, by the standing of its signer."""
        places = {word.number: 0 for word in self._vouched.values()}
        for signer in self._signers.values():
            for place, word in enumerate(self._first(signer)):
                places.setdefault(word.number, place)
        ranked = [(self._words[number].rank(standing), place, number) for number, place in places.items()]
        turns: Counter[tuple[_Rank, NodeId]] = Counter()
        in_turn: list[tuple[_Rank, int, bool, int]] = []
        for rank, _, number in sorted(ranked):
            word = self._words[number]
            in_turn.append((rank, min(turns[rank, node] for node in word.sources), not word.vouchers, number))
            turns.update((rank, node) for node in word.sources)
        chosen = [self._words[number].statement for *_, number in sorted(in_turn)[: self._in_all_max]]
        return {one.deployment: one for one in chosen}

    def of(self, deployment: DeploymentId) -> list[Statement]:
        """All words on one deployment, lowest rank first."""
        return sorted((word.statement for word in self._of(deployment)), key=lambda one: one.rank)

    def _of(self, deployment: DeploymentId) -> list[_Word]:
        return sorted(self._about.get(deployment, {}).values(), key=lambda one: one.number)

    def vouchers(self, deployment: DeploymentId) -> list[NodeId]:
        """Members that vouch for it."""
        return [node for word in self._of(deployment) for node in word.vouchers]

    def holders(self, deployment: DeploymentId) -> list[NodeId]:
        """Hosts that vouch for the deployment, then those that have told of it, first ones first."""
        return self.vouchers(deployment) + [holder for word in self._of(deployment) for holder in word.holders]

    def take(self, deployment: DeploymentId) -> list[tuple[Statement, NodeId]]:
        """The statements on a deployment, each with the host that brought it; they are forgotten here: the manifest was
        verified, or refused for good."""
        words = sorted(self._of(deployment), key=lambda one: one.statement.rank)
        for word in words:
            self._drop(word)
        return [(word.statement, word.bringer) for word in words]

    def expire(self, now: float) -> None:
        """Drop what was not proven in time."""
        while self.next_deadline() <= now:
            self._drop(next(iter(self._words.values())))

    def next_deadline(self) -> float:
        """When ``expire`` is wanted next."""
        return next((word.until_s for word in self._words.values()), math.inf)

    def __len__(self) -> int:
        return len(self._words)


class PullShare(NamedTuple):
    """One pull from ``peer`` for a statement of ``signer``, which may have been made up."""

    signer: bytes
    peer: NodeId
    is_unheard: bool


class PullShares:
    """Pulls under way, of which no signer's statements hold more than a share, all signers that may be made up no more
    than half, and no peer more than a few: one that says much and answers nothing would else hold all of them for as
    long as a request may last."""

    def __init__(self, *, in_all_max: int, per_signer_max: int, per_peer_max: int) -> None:
        self._in_all_max = in_all_max
        self._per_signer_max = per_signer_max
        self._per_peer_max = per_peer_max
        self._held: list[PullShare] = []

    def busy(self) -> set[NodeId]:
        """Peers of which no more is asked now."""
        asked = Counter(share.peer for share in self._held)
        return {peer for peer, count in asked.items() if count >= self._per_peer_max}

    def begin(
        self, signers: Collection[bytes], peer: NodeId, standing: Callable[[bytes], Standing]
    ) -> PullShare | None:
        """Hold one pull from ``peer`` for one of its signers; None while there is no room."""
        if len(self._held) >= self._in_all_max:
            return None
        held = Counter(share.signer for share in self._held)
        is_half = sum(share.is_unheard for share in self._held) >= self._in_all_max // 2
        for signer in signers:
            share = PullShare(signer, peer, standing(signer) is Standing.UNHEARD)
            if held[signer] < self._per_signer_max and not (share.is_unheard and is_half):
                self._held.append(share)
                return share
        return None

    def end(self, share: PullShare) -> None:
        """A pull has ended."""
        self._held.remove(share)
