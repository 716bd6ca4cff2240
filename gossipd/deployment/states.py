"""The two tables of a deployment's life on this host: its states, and the steps inside them.

What lives here: both tables, and the command of each step. What does not: what is done in a step
(``deployment_steps``).

Theory of operation. A **state** is what others see (``HostState``). A **step** is what this host does about it, and
each step has at most one piece of work under way: reading, pulling and verifying the manifest, keeping it, reserving
space, publishing, deleting. What the store does cannot be cut short, so a step that is abandoned still holds its
deployment until its work has ended; then what is to be deleted is deleted, and only then the next life begins.

=========  ===========  =====================================  ==========================================
step       state        its work                               leads to
=========  ===========  =====================================  ==========================================
IDLE       any          none                                   READ or RESERVE (begin), DELETE
READ       INIT         the manifest in our own files          OPEN, PULL
PULL       INIT         the manifest from a holder, repeated   OPEN
OPEN       INIT         verify the manifest, repeated          KEEP, REGISTER, RESERVE, PULL
KEEP       INIT         make the manifest durable, repeated    REGISTER, RESERVE
REGISTER   INIT         make what is trusted durable           RESERVE
RESERVE    INIT         open the store, repeated               FETCH, IDLE (complete already)
FETCH      DOWNLOADING  none: the planner fetches              PUBLISH, RESERVE (another part is wanted)
PUBLISH    VERIFYING    sync, rename, ``current``, repeated    IDLE
DELETE     final        delete what is not published           IDLE
=========  ===========  =====================================  ==========================================

From every step a failure, a cancel and a removal lead to IDLE. ``PAUSED`` is what others see of INIT and DOWNLOADING
while the last word is to pause; it is no state here.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from gossipd.deployment import commands
from gossipd.deployment.progress_record import DELETED, HostState


class Step(Enum):
    """What this host is doing about a deployment; see the module."""

    IDLE = "idle"
    READ = "read"
    PULL = "pull"
    OPEN = "open"
    KEEP = "keep"
    REGISTER = "register"
    RESERVE = "reserve"
    FETCH = "fetch"
    PUBLISH = "publish"
    DELETE = "delete"


STEPS: dict[Step, frozenset[Step]] = {
    Step.IDLE: frozenset({Step.READ, Step.RESERVE, Step.DELETE, Step.IDLE}),
    Step.READ: frozenset({Step.OPEN, Step.PULL, Step.IDLE}),
    Step.PULL: frozenset({Step.PULL, Step.OPEN, Step.IDLE}),
    Step.OPEN: frozenset({Step.OPEN, Step.KEEP, Step.REGISTER, Step.RESERVE, Step.PULL, Step.IDLE}),
    Step.KEEP: frozenset({Step.KEEP, Step.REGISTER, Step.RESERVE, Step.IDLE}),
    Step.REGISTER: frozenset({Step.REGISTER, Step.RESERVE, Step.IDLE}),
    Step.RESERVE: frozenset({Step.RESERVE, Step.FETCH, Step.IDLE}),
    Step.FETCH: frozenset({Step.PUBLISH, Step.RESERVE, Step.IDLE}),
    Step.PUBLISH: frozenset({Step.PUBLISH, Step.IDLE}),
    Step.DELETE: frozenset({Step.DELETE, Step.IDLE}),
}

COMMANDS: dict[Step, Callable[..., commands.Work]] = {
    Step.READ: commands.ReadManifest,
    Step.PULL: commands.PullManifest,
    Step.OPEN: commands.OpenManifest,
    Step.KEEP: commands.KeepManifest,
    Step.RESERVE: commands.ReserveSpace,
    Step.PUBLISH: commands.PublishModel,
    Step.DELETE: commands.DeleteModel,
}
"""Of steps that have a command of their own."""

FINAL = (HostState.COMPLETE, HostState.FAILED, HostState.CANCELLED, HostState.EXPIRED, *DELETED)
_HERE = frozenset(HostState) - {HostState.PAUSED}

STATES: dict[HostState, frozenset[HostState]] = {
    HostState.INIT: _HERE - {HostState.VERIFYING},
    # A publication that finds chunks lost goes back to downloading, and may succeed from there.
    # One of which another part is wanted is opened again.
    HostState.DOWNLOADING: _HERE - {HostState.EXPIRED},
    HostState.VERIFYING: _HERE - {HostState.INIT, HostState.EXPIRED},
    # Removed or evicted here, or no longer trusted; a cancel leaves it as it is.
    HostState.COMPLETE: DELETED | {HostState.FAILED, HostState.INIT},  # another part of it is wanted
    HostState.FAILED: DELETED | {HostState.INIT, HostState.CANCELLED},
    HostState.CANCELLED: DELETED | {HostState.INIT},
    HostState.EXPIRED: DELETED | {HostState.INIT, HostState.CANCELLED},
    HostState.REMOVED: frozenset({HostState.INIT, HostState.EVICTED}),  # deployed again: what was evicted stays so
    HostState.EVICTED: frozenset({HostState.INIT, HostState.REMOVED}),
    HostState.PAUSED: frozenset(),
}
