"""Sketches in 256 bins: told to members that ask, and asked of hosts that somebody looks at.

What lives here: which member is answered, which host is asked when, and what came of it. What does not: the sketch
(``core.sketch``), those in 64 bins of what is known without asking (``api.sketch_row``), and the messages' way
(``control``).

A question of the page is answered at once, with what the host said last; the host is asked beside that, once a second,
and only while somebody looks. Rejected: to hold the page's question until the host has answered, because a host that is
silent would hold up everything else that the page asks. A host of 0.1.0 does not know the message, and is silent.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import trio
from msgspec import Struct

from gossipd.control.control_plane import ControlPlane
from gossipd.control.requests import PeerSilentError, PeerUnreachableError, RequestRefusedError
from gossipd.core.ids import DeploymentId
from gossipd.core.sketch import FINE_BINS, sketch
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.runtime.quotas import Quotas
from gossipd.swarm.planner import Planner
from gossipd.wire import control
from membership.member import NodeId

ANSWERS_BURST, ANSWERS_PER_S = 3, 1.0  # to one member, which asks once a second
ALL_ANSWERS_BURST, ALL_ANSWERS_PER_S = 64, 32.0  # a sketch of a million chunks takes a millisecond
ASK_EVERY_S, ASK_TIMEOUT_S = 1.0, 3.0
FAILED_PAUSE_S = 5.0  # a host that declines or is silent is not pressed
LOOKED_S = 10.0  # the page looks each second: after this nobody does
QUESTIONS_MAX = 16  # at once through one daemon

Subject: TypeAlias = tuple[NodeId, DeploymentId]


class SketchAnswers:
    """Answers to members. One per daemon."""

    def __init__(self, planner: Planner, lifecycle: DeploymentTable, directory: MemberDirectory) -> None:
        self.planner = planner
        self.lifecycle = lifecycle
        self.directory = directory
        self._asked: Quotas[NodeId] = Quotas(burst=ANSWERS_BURST, per_s=ANSWERS_PER_S)
        self._all: Quotas[None] = Quotas(burst=ALL_ANSWERS_BURST, per_s=ALL_ANSWERS_PER_S)

    def answer(self, node: NodeId, deployment: DeploymentId, now: float) -> control.Sketch | control.Refused:
        """What this host has, for a member that is a target too: the others are told nothing of who holds what."""
        if not self._asked.take(node, now) or not self._all.take(None, now):
            return control.Refused("E_BUSY")
        manifest = self.lifecycle.manifest_of(deployment)
        if manifest is None or not self.directory.is_target(node, manifest.targets):
            return control.Refused("E_NOT_A_TARGET")
        known = self.planner.holdings(deployment, self.directory.own)
        if known is None:
            return control.Refused("E_NOT_FOUND")
        return control.Sketch(sketch(known.held, known.wanted, FINE_BINS), len(known.held & known.wanted))


class Asked(Enum):
    """What became of asking a host."""

    WAITING = "waiting"
    ANSWERED = "answered"
    DECLINED = "declined"
    """It is asked too often, does not have the model open, or this host is no target of it."""
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    FULL = "full"
    """It was not asked: ``QUESTIONS_MAX`` hosts are."""


class SketchQuestion(Struct, eq=False):
    """One host and deployment that somebody looks at. ``answer``: the last one, and ``heard_s`` when it came."""

    looked_s: float
    due_s: float
    outcome: Asked = Asked.WAITING
    is_open: bool = False
    answer: control.Sketch | None = None
    heard_s: float = 0.0


class SketchQuestions:
    """When hosts are asked. Pure; ``now`` in monotonic seconds."""

    def __init__(self) -> None:
        self._questions: dict[Subject, SketchQuestion] = {}

    def look(self, subject: Subject, now: float) -> tuple[SketchQuestion, bool]:
        """What is known of it, and whether the host is to be asked now; then ``ended`` follows."""
        found = self._questions.get(subject)
        if found is None:
            self._questions = {
                which: one for which, one in self._questions.items() if one.is_open or now - one.looked_s < LOOKED_S
            }
            if len(self._questions) >= QUESTIONS_MAX:
                return SketchQuestion(now, now, Asked.FULL), False
            found = self._questions[subject] = SketchQuestion(now, now)
        found.looked_s = now
        if found.is_open or now < found.due_s:
            return found, False
        # All questions to one host share its allowance.
        found.due_s = now + ASK_EVERY_S * sum(which[0] == subject[0] for which in self._questions)
        found.is_open = True
        return found, True

    def ended(self, subject: Subject, outcome: Asked, now: float, answer: control.Sketch | None = None) -> None:
        """A question that was asked has ended."""
        found = self._questions[subject]
        found.is_open, found.outcome = False, outcome
        if outcome is Asked.ANSWERED:
            found.answer, found.heard_s = answer, now
        else:
            found.due_s = now + FAILED_PAUSE_S


class FineSketches:
    """Asks hosts on behalf of those who look. On the trio loop."""

    def __init__(self, plane: ControlPlane, nursery: trio.Nursery) -> None:
        self.plane = plane
        self.nursery = nursery
        self._questions: SketchQuestions = SketchQuestions()

    def look(self, node: NodeId, deployment: DeploymentId) -> SketchQuestion:
        """What ``node`` said last, at once; it is asked again if it is time."""
        found, is_due = self._questions.look((node, deployment), trio.current_time())
        if is_due:
            self.nursery.start_soon(self._ask, (node, deployment))
        return found

    async def _ask(self, subject: Subject) -> None:
        outcome, answer = Asked.UNREACHABLE, None
        try:
            reply = await self.plane.request(subject[0], control.SketchWanted(subject[1]), ASK_TIMEOUT_S)
            if isinstance(reply, control.Sketch):
                outcome, answer = Asked.ANSWERED, reply
        except RequestRefusedError:
            outcome = Asked.DECLINED
        except PeerSilentError:
            outcome = Asked.SILENT
        except PeerUnreachableError:
            pass
        self._questions.ended(subject, outcome, trio.current_time(), answer)
