"""One run of a cluster with liars, and what came of it.

What lives here: putting it together, playing it, and the figures of its bars. What does not: who says or does what
(``words``, ``host``).

Two models are delivered, one when the lies begin and one later. A few honest hosts die meanwhile, so that one sees how
soon a true death is known among false ones. Signatures of statements and progress are real. Each is checked, and each
event and record of progress read and written, once for all hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest import mock

from gossipd.core.events import Event as PlannerEvent
from gossipd.core.events import PeerSeen
from gossipd.core.model import PeerView
from gossipd.daemon import member_directory, progress_publisher
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment import signed_progress
from gossipd.deployment import statement as statement_module
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.identity.keys import verify
from gossipd.transfer import slots
from membership import wire
from membership.events import Event, MemberDown, MemberUp
from membership.member import NodeId
from tests.gossipd.daemon.listeners import QuietListener
from tests.sim.campaign.daemon import Daemon
from tests.sim.campaign.deployment_runner import WALL_S
from tests.sim.campaign.oracle import Oracle
from tests.sim.campaign.world import World, _NoLog
from tests.sim.liars.host import CHUNK_SORTS, LiarDaemon
from tests.sim.liars.words import LyingWords

LIES_FROM_S = 1.0
DEATHS, DEATHS_S = 5, (6.0, 20.0)
_ORDERS_S = (2.0, 16.0)
_STEP_S = 1.0
WORDS = "words"
SORTS = (WORDS, *CHUNK_SORTS)
_TOLD = ("stalled", "trickled")
_PATIENCE_S = 300.0
_KEPT = 65_536  # events and views that are made once for all hosts


class QuietOracle(Oracle):
    """Without the comparison of announcements, which a liar's would fail, and which is quadratic in hosts."""

    def planned(self, daemon: Daemon) -> None:
        """See Oracle."""

    def commanded(self, daemon: Daemon, command: Any) -> None:
        """See Oracle."""

    def upload_began(self, daemon: Daemon, node: NodeId) -> None:
        """See Oracle: slots are the real ones."""


class LiarWorld(World):
    """``is_lying``: whether the lies have begun; without liars it is a run to compare with."""

    daemons: list[LiarDaemon]  # type: ignore[assignment]

    def __init__(self, seed: int, *, hosts: int, liars: int, seconds: float, sorts: Sequence[str]) -> None:
        super().__init__(seed, hosts=hosts, seconds=seconds, kinds=())
        self.oracle = QuietOracle(self)
        wires = self.wires
        wires._checkers, wires._trace = (), None
        wires.sign_progress = True
        self.latest_boot = wires.rules.latest_boot
        self.daemons = [LiarDaemon(self, index) for index in range(hosts)]
        rng = Random(f"{seed} liars")
        self.liars = sorted(rng.sample(range(1, hosts), liars))
        self.honest = [index for index in range(hosts) if index not in set(self.liars)]
        for number, index in enumerate(self.liars):
            chosen = [sort for sort in CHUNK_SORTS if sort in sorts]
            self.daemons[index].lies = chosen[number % len(chosen)] if chosen else ""
        self.words = LyingWords(self, self.liars, rng)
        self._dying = rng.sample(self.honest[1:], min(DEATHS, len(self.honest) // 10))
        self._sorts = sorts
        self.is_lying = False
        self.false_verdicts = 0
        self.death_known_s: dict[int, dict[int, float]] = {index: {} for index in self._dying}
        self.died_s: dict[int, float] = {}
        self.false_complete = self.rows_looked_at = 0
        self.complete_s: dict[Any, float] = {}
        self._bytes_before: list[int] = []
        wires.on_event = self._heard

    def add_nobody(self, node: NodeId) -> None:
        """A member that does not exist: a host that asks it for something finds no machine."""
        nobody = LiarDaemon.__new__(LiarDaemon)
        Daemon.__init__(nobody, self, 0)
        nobody.index, nobody.node, nobody.is_powered = len(self.daemons), node, False
        self.index_of[node] = nobody.index
        self.nodes.append(node)
        self.daemons.append(nobody)

    # ---- the run ---------------------------------------------------------------------------------

    def play(self) -> None:
        """Until all honest hosts have both models, and the time is over."""
        for daemon in self.daemons[: self.host_count]:
            daemon.boot(join=(), roster=[])
        self._acquaint()
        if self.liars:
            self.at(LIES_FROM_S, self._begin_to_lie)
        for when, deployment in zip(_ORDERS_S, self.models, strict=True):
            self.at(when, self._order, deployment)
        rng = Random(f"{self.seed} deaths")
        for index in self._dying:
            self.at(rng.uniform(*DEATHS_S), self._let_die, index)
        while self.now < self.seconds or (not self._is_done() and self.now < _PATIENCE_S):
            self.wires.run(self.now + _STEP_S)
            self._look()

    def _acquaint(self) -> None:
        """As in the campaign. What each host hears of each of the others comes in one piece, which all share."""
        wires, indexes = self.wires, range(self.host_count)
        first = wires.swim(0)
        first.adopt_view([wires.swim(index) for index in indexes])
        for index in indexes[1:]:
            wires.swim(index).adopt_view([first])
        everybody = MemberDirectory(NodeId(b"nobody"))
        seen: list[PlannerEvent] = []
        for member in first.members():
            everybody.hear(MemberUp(member), QuietListener(seen.append))
        views = {event.peer.node: event.peer for event in seen if isinstance(event, PeerSeen)}
        for daemon in self.daemons[: self.host_count]:
            wires.flush(daemon.index)
            daemon.acquaint(everybody, views)

    def _begin_to_lie(self) -> None:
        self.is_lying = True
        if WORDS in self._sorts:
            self.words.begin()
        for index in self.liars:
            self.daemons[index].begin_to_lie()

    def _let_die(self, index: int) -> None:
        self.died_s[index] = self.now
        self.die(self.daemons[index], power=True)

    def _heard(self, index: int, event: Event) -> None:
        if isinstance(event, MemberDown) and index not in self.liars:
            subject = self.index_of.get(event.member.node, -1)
            if subject in self.died_s:
                self.death_known_s[subject].setdefault(index, self.now - self.died_s[subject])
            elif 0 <= subject < self.host_count and subject not in self.liars:
                self.false_verdicts += 1
        self.daemons[index].hear(event)

    # ---- what is looked at -----------------------------------------------------------------------

    def _alive(self) -> list[int]:
        return [index for index in self.honest if self.daemons[index].is_up]

    def _is_done(self) -> bool:
        return all(deployment in self.complete_s for deployment in self.models)

    def _look(self) -> None:
        alive = self._alive()
        for deployment in self.opened:
            short = progress_key(deployment)
            done: set[NodeId] = set()
            for index in self.honest:
                record = self.daemons[index].deployments.records.get(deployment)
                if record is not None and record.state is HostState.COMPLETE:
                    done.add(self.daemons[index].node)
            if deployment not in self.complete_s and all(self.daemons[index].node in done for index in alive):
                self.complete_s[deployment] = self.now
            subjects = [self.daemons[index].node for index in self.honest]
            for index in alive:
                rows = self.daemons[index].deployments.progress._rows.get(short, {})
                for node in subjects:
                    row = rows.get(node)
                    if row is not None and row.progress.state is HostState.COMPLETE:
                        self.rows_looked_at += 1
                        self.false_complete += node not in done

    def figures(self) -> dict[str, Any]:
        """One line of JSON."""
        alive = self._alive()
        lost = [
            (index, deployment)
            for index in alive
            for deployment in self.opened
            if not self._holds(self.daemons[index], deployment)
        ]
        waits = [max(waits.values()) for waits in self.death_known_s.values() if len(waits) >= len(alive)]
        full = len(self.honest) + len(self.liars) - len(self.died_s)
        views = [
            sum(member.node in self.index_of and self.index_of[member.node] < self.host_count
                for member in self.wires.swim(index).members() if member.state.value != "dead")
            for index in alive
        ]  # fmt: skip
        sent = [self.wires.hosts[index].sent_bytes / self.now for index in alive]
        refused: dict[str, int] = {}
        for index in alive:
            for name, count in self.wires.swim(index).statistics().items():
                if "refused" in name or name.startswith("dropped"):
                    refused[name] = refused.get(name, 0) + count
        return {
            "hosts": self.host_count, "liars": len(self.liars), "simulated_s": self.now,
            "lies": dict(sorted(self.words.told.items())), "false_deaths": self.false_verdicts,
            "forged_accepted": self.words.forged_accepted(), "false_complete": self.false_complete,
            "complete_rows": self.rows_looked_at, "deployments_lost": len({one for _, one in lost}),
            "hosts_without_model": len(lost),
            "complete_s": [
                round(self.complete_s.get(one, -1.0) - when, 1)
                for when, one in zip(_ORDERS_S, self.models, strict=True)
            ],
            "deaths_known": f"{len(waits)} of {len(self.died_s)}",
            "death_known_s_median": round(median(waits), 1) if waits else None,
            "death_known_s_max": round(max(waits), 1) if waits else None,
            "members_missed_max": full - min(views), "sybils": len(self.words.sybils),
            "sybils_held_max": self.words.sybils_held(), "sybils_counted": self.words.sybils_counted(),
            "third_party_datagrams": self.words.third_party_datagrams(),
            "membership_bytes_per_s": round(sum(sent) / len(sent)),
            "unproven_max": max(len(list(self.daemons[index].deployments.records)) for index in alive),
            "looked": {name: count for name, count in self.oracle.looked.items() if " " in name or name in _TOLD},
            "refused": refused,
        }  # fmt: skip

    def _holds(self, daemon: LiarDaemon, deployment: Any) -> bool:
        record = daemon.deployments.records.get(deployment)
        is_complete = record is not None and record.state is HostState.COMPLETE
        return is_complete and daemon.store.is_published(deployment)


def _sharing_split(split: Callable[[bytes, int], list[bytes]]) -> Callable[[bytes, int], list[bytes]]:
    """The same, but that all hosts keep the same bytes of an item."""
    kept: dict[bytes, bytes] = {}

    def items(body: bytes, at: int) -> list[bytes]:
        if len(kept) > _KEPT:
            kept.clear()
        return [kept.setdefault(one, one) for one in split(body, at)]

    return items


def play(seed: int, *, hosts: int, liars: int, seconds: float, sorts: Sequence[str] = SORTS) -> dict[str, Any]:
    """One run, from its number to its figures."""
    with mock.patch.object(member_directory, "log", _NoLog()):
        world = LiarWorld(seed, hosts=hosts, liars=liars, seconds=seconds, sorts=sorts)
        wires, quick = world.wires, cache(verify)
        with (
            mock.patch.object(slots, "time", SimpleNamespace(monotonic=lambda: wires.now)),
            mock.patch.object(progress_publisher, "trio", SimpleNamespace(current_time=lambda: wires.now)),
            mock.patch.object(progress_publisher, "time", SimpleNamespace(time=lambda: WALL_S + wires.now)),
            mock.patch.object(wire, "split_items", _sharing_split(wire.split_items)),
            mock.patch.object(wire, "parse_event", lru_cache(_KEPT)(wire.parse_event)),
            mock.patch.object(member_directory, "PeerView", lru_cache(_KEPT)(PeerView)),
            mock.patch.object(signed_progress, "verify", quick),
            mock.patch.object(statement_module, "verify", quick),
            mock.patch.object(Progress, "from_body", staticmethod(cache(Progress.from_body))),
            mock.patch.object(Progress, "to_body", cache(Progress.to_body)),
            mock.patch.object(Progress, "to_bytes", cache(Progress.to_bytes)),
        ):
            world.play()
            return world.figures()
