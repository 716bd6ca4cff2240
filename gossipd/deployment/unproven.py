"""Statements on deployments whose manifest this host has not verified: kept in memory, for a while, fairly by signer.

What lives here: which of them are worth a pull now, and the shares of pulls. What does not: signatures (``statement``),
what is believed (``statement_store``), and pulling (``deployment_steps``).

Anybody who may sign can sign statements about nothing. So these are no deployments: they take no room, are not kept on
disk, are never signed again for others, and end after a time. Each signer has a few that are looked into; its others
wait for those. Where all are too many the signer with most of them loses its oldest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from gossipd.core.ids import DeploymentId
from gossipd.deployment.statement import Statement
from membership.member import NodeId

WORDS_MAX = 1_024  # as many as a host believes: a late joiner hears all of them at once
HOLDERS_MAX = 8


@dataclass(slots=True)
class _Word:
    statement: Statement
    until_s: float
    is_moot: bool
    holders: dict[NodeId, None] = field(default_factory=dict)


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
        self._words: dict[tuple[DeploymentId, bytes], _Word] = {}  # oldest first
        self.revision = 0
        """Grows with every change."""

    def add(self, statement: Statement, holder: NodeId, now: float, *, is_moot: bool = False) -> None:
        """A statement that its signer may make, heard from ``holder``. One that ``is_moot`` counts only beside others,
        such as a cancel by a member that has perhaps deployed it: alone it is not worth a pull.
        """
        key = statement.deployment, statement.signer
        word = self._words.get(key)
        if word is None:
            word = self._words[key] = _Word(statement, now + self._life_s, is_moot)
            if len(self._words) > WORDS_MAX:
                self._drop_one()
        elif word.statement.rank < statement.rank:
            word.statement = statement  # its time goes on, or a signer could make it last
            word.is_moot = is_moot
        if len(word.holders) < HOLDERS_MAX:
            word.holders[holder] = None
        self.revision += 1

    def _drop_one(self) -> None:
        [(loudest, _)] = Counter(signer for _, signer in self._words).most_common(1)
        del self._words[next(key for key in self._words if key[1] == loudest)]

    def wanted(self) -> dict[DeploymentId, Statement]:
        """Deployments to look into now, each with one of its statements: every signer's oldest first."""
        places: Counter[bytes] = Counter()
        ranked: list[tuple[int, Statement]] = []
        for word in self._words.values():
            signer = word.statement.signer
            if not word.is_moot and places[signer] < self._per_signer_max:
                ranked.append((places[signer], word.statement))
                places[signer] += 1
        ranked.sort(key=lambda one: one[0])
        return {one.deployment: one for _, one in ranked[: self._in_all_max]}

    def of(self, deployment: DeploymentId) -> list[Statement]:
        """All words on one deployment, lowest rank first."""
        words = (word.statement for (about, _), word in self._words.items() if about == deployment)
        return sorted(words, key=lambda one: one.rank)

    def holders(self, deployment: DeploymentId) -> list[NodeId]:
        """Hosts that have told of the deployment, first ones first."""
        return [holder for (about, _), word in self._words.items() if about == deployment for holder in word.holders]

    def take(self, deployment: DeploymentId) -> list[tuple[Statement, NodeId]]:
        """The same as ``of``, each with the host that brought it, and forget them: the manifest was verified, or
        refused for good.
        """
        taken = []
        for statement in self.of(deployment):
            word = self._words.pop((deployment, statement.signer))
            taken.append((statement, next(iter(word.holders))))
            self.revision += 1
        return taken

    def expire(self, now: float) -> None:
        """Drop what was not proven in time."""
        for key, word in list(self._words.items()):
            if word.until_s <= now:
                del self._words[key]
                self.revision += 1

    def next_deadline(self) -> float:
        """When ``expire`` is wanted next."""
        return min((word.until_s for word in self._words.values()), default=float("inf"))

    def __len__(self) -> int:
        return len(self._words)


class PullShares:
    """Pulls under way, of which no signer's statements hold more than a share."""

    def __init__(self, *, in_all_max: int, per_signer_max: int) -> None:
        self._in_all_max = in_all_max
        self._per_signer_max = per_signer_max
        self._held: Counter[bytes] = Counter()

    def begin(self, signers: Collection[bytes]) -> bytes | None:
        """Hold one pull for one of those who signed for it, who is returned; None while there is no room."""
        if self._held.total() >= self._in_all_max:
            return None
        found = next((one for one in signers if self._held[one] < self._per_signer_max), None)
        if found is not None:
            self._held[found] += 1
        return found

    def end(self, signer: bytes) -> None:
        """That pull has ended."""
        self._held[signer] -= 1
        if not self._held[signer]:
            del self._held[signer]
