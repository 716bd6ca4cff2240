"""Every attack that can be made from outside, against four real daemons; then all are restarted and looked at again.

What lives here: the order, and the verdicts. What does not: delivery, and what is looked at. Attacks by gossip that
repeat a finding go to all four hosts, the others to one host each, in turn. An attack that the corpus says is open is
not made: what it does would be taken for the work of those that follow it. What uses up the liar's share of the table
of statements comes last: from then on half of its words are refused for want of room, whatever is wrong with them.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.attacks.attack import REAL, Attack, Outcome
from tests.attacks.pure.surface import differences
from tests.attacks.real.delivery import DELIVER, PATIENCE_S
from tests.attacks.real.hosts import HOSTS, AttackedCluster

Say = Callable[[str], None]
_SHOWN = "what is shown above"
_FULL = "statements_refused_full"
_LATER = ("order", "inbox")  # files: the inbox looks at all of them together
_EVERY = 20  # attacks between two comparisons of everything that must not change


def run_real(attacks: Sequence[Attack], *, say: Say) -> list[Outcome]:
    """Outcomes in order."""
    wanted = sorted((one for one in attacks if not one.open), key=lambda one: _FULL in one.expect)
    if not wanted:
        return []
    with tempfile.TemporaryDirectory(prefix="gossipd-attacks-") as directory:
        cluster = None
        try:
            began_s = time.monotonic()
            cluster = AttackedCluster(Path(directory) / "cluster")
            cluster.admit()
            say(f"four daemons and an insider after {time.monotonic() - began_s:.0f} s; {len(wanted)} attacks")
            return _Run(cluster, say).all_of(wanted)
        finally:
            if cluster is not None:
                cluster.close()


class _Run:
    def __init__(self, cluster: AttackedCluster, say: Say) -> None:
        self._cluster = cluster
        self._say = say
        self._before = self._states()
        self._received = cluster.received_bytes()

    def all_of(self, attacks: Sequence[Attack]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for batch in _batches(attacks):
            begun = [self._begin(attack, at) for at, attack in enumerate(batch)]
            ended = [end() for end in begun]
            self._compare(ended)
            outcomes += ended
            self._say(f"{len(outcomes)} of {len(attacks)}")
        self._restart(outcomes)
        return outcomes

    def _begin(self, attack: Attack, number: int) -> Callable[[], Outcome]:
        """Deliver it; what is returned looks at what has come of it."""
        cluster = self._cluster
        is_for_all = attack.surface == "gossip" and attack.story
        targets = [*range(len(cluster.daemons))] if is_for_all else [number % len(cluster.daemons)]
        before = {at: cluster.counters(cluster.daemons[at]) for at in targets}
        replies: dict[int, Counter[str]] = {}

        def seen_at(at: int) -> Counter[str]:
            return replies[at] + (cluster.counters(cluster.daemons[at]) - before[at])

        def end() -> Outcome:
            for at, made in delivered.items():
                replies[at] = made() if callable(made) else made
            cluster.insider.live(
                PATIENCE_S, lambda: all(any(seen_at(at)[one] for one in attack.expect) for at in targets)
            )
            found = [seen_at(at) for at in targets]
            return Outcome(
                attack, REAL, Counter({name: min(one[name] for one in found) for name in set().union(*found)})
            )

        delivered: dict[int, Any] = {}
        for at in targets:
            made = attack.build(cluster.stage(at, attack.name))
            delivered[at] = DELIVER[attack.surface](made, cluster, cluster.daemons[at], attack)
        if attack.surface in _LATER:
            return end
        outcome = end()
        return lambda: outcome

    def _states(self) -> list[dict[str, Any]]:
        return [self._cluster.state(daemon) for daemon in self._cluster.daemons]

    def _settled_difference(self) -> str:
        """What has changed on any host; a short while is given, because hosts tell of themselves now and then."""
        found = ""

        def is_same() -> bool:
            nonlocal found
            now = self._states()
            parts = [
                f"{daemon.name}: {words}"
                for daemon, before, after in zip(self._cluster.daemons, self._before, now, strict=True)
                if (words := differences(before, after, in_full=True))
            ]
            found = "; ".join(parts)
            return not parts

        self._cluster.insider.live(PATIENCE_S, is_same)
        return found

    def _compare(self, batch: list[Outcome]) -> None:
        changed, received = self._settled_difference(), self._cluster.received_bytes()
        if changed or received != self._received:
            names = ", ".join(one.attack.name for one in batch)
            self._say(f"after {names}: {changed or 'bytes were fetched'}")
            self._before = self._states()
        for one in batch:
            one.changed = one.changed or (changed and _SHOWN)
        batch[0].payload_bytes = received - self._received
        self._received = received

    def _restart(self, outcomes: list[Outcome]) -> None:
        try:
            self._cluster.restart_all()
            changed = self._settled_difference()
            self._say(f"restarted: {changed or 'nothing has changed'}")
            self._cluster.deploy(2)
            self._say("a good model is delivered")
        except AssertionError as error:
            changed = str(error)
            self._say(f"the cluster does not come back: {changed}")
        for one in outcomes:
            one.changed_after_restart = _SHOWN if changed and one.attack.persists else ""
        outcomes[-1].changed_after_restart = changed and _SHOWN
        outcomes[-1].traceback = "\n".join(self._cluster.tracebacks())


def _batches(attacks: Sequence[Attack]) -> Iterator[list[Attack]]:
    """Neighbours of one surface; of those that change a host's inbox itself, one for each host."""
    for surface, group in groupby(attacks, lambda one: one.surface):
        rows = list(group)
        size = HOSTS if surface == "inbox" else _EVERY
        yield from (rows[at : at + size] for at in range(0, len(rows), size))
