"""When the manifest of one deployment is asked for, and of whom: turns, growing pauses, and an end of refusals.

What lives here: the next host and size to ask for, how long it may be silent, and the time of the next turn. What does
not: the order of hosts (``manifest_holders``), each signer's share of pulls (``unproven.PullShares``), and what is done
with a manifest that has come (``deployment_steps``).
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.deployment.context import BrainContext
from gossipd.deployment.manifest_holders import Holders
from gossipd.deployment.statement import Statement
from gossipd.deployment.unproven import PullShare
from membership.member import NodeId

_PATIENCE_MAX = 1 << 10  # longer than any answer may take
_PAUSE_LEAST = 8  # a pause ends early at an eighth of it: made-up holders must not have a host ask all the time


class PullTurns:
    """Of one deployment. The time of the next turn is kept among the context's ``retries``."""

    def __init__(self, context: BrainContext, deployment: DeploymentId, holders: Holders) -> None:
        self._context = context
        self._deployment = deployment
        self._holders = holders
        self._delay_s = 0.0
        self._soonest_s: float | None = None
        """When the pause that is under way may end early."""
        self._patience = 1
        """How many times the first peer's time the next one has to begin its answer."""
        self._begun = 0
        self._asked: NodeId | None = None
        self._counted_as: PullShare | None = None
        """Of the pull that is under way."""
        self._refused_count = 0

    def begin(self) -> None:
        """A new life: short pauses, nothing refused."""
        self._delay_s, self._refused_count = self._context.settings.pull_retry_first_s, 0
        self._patience = 1
        self._asked = self._soonest_s = None

    def take(self, last: Statement, now: float) -> tuple[NodeId, int, float] | None:
        """The host to ask now, the bytes that its manifest may have, and the seconds that it has to begin its answer;
        None when that must wait.

        Args:
            last: the deployment's last statement that is believed or told, for when none is unproven.
        """
        context = self._context
        unproven = context.unproven
        self._soonest_s = None
        words = unproven.of(self._deployment) or [last]
        busy = context.pulls.busy()
        live, answered = context.roster.live(), context.roster.answered()
        if busy:
            live, answered = live - busy, answered - busy
        givers = context.givers.among(live)
        peer = self._holders.choose(live, answered, givers)
        if peer is None:
            self.wait(now)
            return None
        names = [*unproven.vouchers(self._deployment), *(one.signer for one in words)]
        self._counted_as = context.pulls.begin(names, peer, context.standings())
        if self._counted_as is None:
            context.retries[self._deployment] = now + context.settings.pull_turn_s
            return None
        self._asked = peer
        self._begun += 1  # signers may differ about the size, and one of them lie
        answer_s = self._answer_s(is_stranger=bool(givers) and peer not in givers)
        return peer, words[self._begun % len(words)].manifest_bytes, answer_s

    def _answer_s(self, *, is_stranger: bool) -> float:
        settings = self._context.settings
        first_s = settings.pull_answer_stranger_s if is_stranger else settings.pull_answer_first_s
        answer_s = min(self._patience * first_s, settings.pull_answer_max_s)
        self._patience = min(2 * self._patience, _PATIENCE_MAX)
        return answer_s

    def verified(self) -> None:
        """What was asked for, if anything was, has come and is a publisher's."""
        if self._asked is not None:
            self._context.givers.gave(self._asked)
            self._asked = None

    def wait(self, now: float) -> None:
        """Nobody has it: another turn after a pause, which doubles."""
        if self._asked is not None:
            self._context.unproven.not_had(self._deployment, self._asked)
            self._context.givers.failed(self._asked)
        self._asked = None
        self._soonest_s = now + self._delay_s / _PAUSE_LEAST
        self._context.retries[self._deployment] = now + self._delay_s
        self._delay_s = min(2 * self._delay_s, self._context.settings.pull_retry_max_s)

    def holder_found(self, node: NodeId) -> None:
        """A host tells that it has the manifest. If that is news, a pause that is under way ends early."""
        is_news, context = self._holders.add(node), self._context
        if is_news and self._soonest_s is not None and node in context.roster.answered():
            due_s = context.retries.get(self._deployment)
            if due_s is not None:
                context.retries[self._deployment] = min(due_s, self._soonest_s)

    def end(self) -> None:
        """What was asked for has come, or will not: free the signer's share."""
        if self._counted_as is not None:
            self._context.pulls.end(self._counted_as)
            self._counted_as = None

    def is_last_refusal(self, is_as_announced: bool) -> bool:
        """A manifest was refused: whether the deployment fails by it. Only those with the announced content count."""
        self._refused_count += is_as_announced
        return self._refused_count >= self._context.settings.pulls_refused_max
