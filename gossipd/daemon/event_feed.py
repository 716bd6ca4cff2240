"""Makes the events for readers (``gossipd events``) of audit records, alarms, members and progress.

What lives here: which type each becomes. What does not: the ring and the types (``api.events``), and what is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from gossipd.api import events
from gossipd.api.events import EventRing
from gossipd.api.paced_states import PacedStates
from gossipd.audit.chain_file import Scalar
from gossipd.core.reasons import CuredBy, HostReason
from gossipd.core.units import timestamp
from gossipd.deployment.progress_record import Progress
from gossipd.runtime.quotas import Quotas
from membership import events as membership_events
from membership.member import NodeId

# What the audit log is told, by the type of the event that it becomes; a test holds the list complete.
TYPE_OF_RECORD = {
    "refused": "deployment", "published": "deployment", "manifest refused": "deployment", "statement": "deployment",
    "manifest accepted": "deployment", "trigger accepted": "deployment", "cancelled": "deployment",
    "paused": "deployment", "resumed": "deployment",
    "removed": "deployment", "superseded": "deployment", "rolled back": "deployment",
    "rolled back everywhere": "deployment", "removed everywhere": "deployment",
    "source trouble": "source", "evicted": "store", "taken again": "store",
    "pinned": "store", "unpinned": "store",
    "chunk lost": "store", "chunk repaired": "store", "store condition": "store", "forgotten": "config",
    "cluster keys changed": "config", "trust changed": "config", "trust override": "security",
    "untrust": "security", "statement refused": "security", "stranger refused": "security",
    "deployed by several": "security",
    "quarantined": "security", "identity seen twice": "security", "started": "config",
    "limits changed": "config", "want ordered": "config", "want ended": "config", "budget ordered": "config",
    "not a target refused": "security", "seed claimed": "seed", "seed given up": "seed", "alarm": "alarm",
}  # fmt: skip
# Of one other host: the states of all deployments that it remembers, then twice those of a job that publishes a step
# every ten seconds. More would push the events of all others out of the ring.
HOST_EVENTS_BURST, HOST_EVENTS_PER_S = 1024.0, 1.0
_ID_DIGITS = 12  # of what has no name here yet, as the status calls it
_PER_CHUNK = ("chunk lost", "chunk repaired", "quarantined")  # a rotten disk or a bad sender must not fill the ring


class EventFeed:
    """One per daemon. Any thread may call it, but for what others have said, and ``tell_states``: the loop's alone."""

    def __init__(self, ring: EventRing, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.ring = ring
        self._clock = clock
        self._of_hosts: Quotas[NodeId] = Quotas(burst=HOST_EVENTS_BURST, per_s=HOST_EVENTS_PER_S)
        self._states = PacedStates()

    def recorded(self, kind: str, subject: str | None, fields: Mapping[str, Scalar], label: str = "") -> None:
        """What the audit log was told, of the deployment that ``status`` calls ``label``."""
        body = _of_record(kind, subject or "", {key: str(value) for key, value in fields.items()}, label)
        if body is not None:
            self._append(body)

    def alarm_ended(self, code: str, sentence: str) -> None:
        self._append(events.AlarmEvent(code=code, state="ended", reason=sentence))

    def member_heard(self, event: membership_events.Event) -> None:
        """What membership says of others; the rest is left to those whom it concerns."""
        match event:
            case membership_events.MemberUp(member):
                state, reason = "up", ""
            case membership_events.MemberSuspected(member):
                state, reason = "suspect", ""
            case membership_events.MemberDown(member, why):
                state, reason = "down", why.value
            case membership_events.MemberLeft(member):
                state, reason = "left", ""
            case membership_events.MemberForgotten(node, name):
                self._append_of(node, events.MemberEvent(name=name, state="forgotten"))
                return
            case _:
                return
        record = member.record
        self._append_of(record.node, events.MemberEvent(name=record.name, rack=record.rack, state=state, reason=reason))

    def host_progressed(
        self, node: NodeId | None, host: str, deployment: str, before: Progress | None, now: Progress
    ) -> None:  # fmt: skip
        """A record of a host's progress replaced another; told when its state, or what must be cured, is another.
        ``node``: None for this host."""
        told, known = _told(now), None if before is None else _told(before)
        if told != known:
            body = events.HostStateEvent(host=host, deployment=deployment, state=told[0], reason=told[1])
            self._append_of(node, body)

    def tell_states(self) -> None:
        """Tell what may be told now of those that waited; to be called each second."""
        for event in self._states.take(self._clock()):
            self._append(event)

    def _append_of(self, node: NodeId | None, body: events.Body) -> None:
        """What another host has said, or is said of it; what is beyond its bound is left out."""
        if node is None or self._of_hosts.take(node, self._clock()):
            if node is not None and isinstance(body, events.HostStateEvent):
                self._states.offer(body)
                self.tell_states()
            else:
                self._append(body)

    def _append(self, body: events.Body) -> None:
        self.ring.append(body, timestamp(time.time()) or "")


def _told(progress: Progress) -> tuple[str, str]:
    reason: HostReason = progress.reason
    return progress.state.value, "" if reason.cured_by is CuredBy.NOBODY else reason.value


def _of_record(kind: str, subject: str, fields: Mapping[str, str], label: str) -> events.Body | None:
    if not label and {"name", "version"} <= fields.keys():
        label = f"{fields['name']}@{fields['version']}"
    deployment, code = label or fields.get("deployment", subject)[:_ID_DIGITS], fields.get("code", "")
    reason = ": ".join(filter(None, (fields.get("file"), fields.get("reason") or fields.get("verb"))))
    body: events.Body | None
    match TYPE_OF_RECORD.get(kind):
        case _ if kind in _PER_CHUNK:
            body = None
        case "deployment":
            body = events.DeploymentEvent(what=kind, deployment=deployment, code=code, reason=reason)
        case "source":
            body = events.SourceEvent(deployment=subject, code=code, reason=reason)
        case "store":
            told = ": ".join(filter(None, (label or subject or fields.get("condition"), reason)))
            body = events.StoreStateEvent(what=kind, reason=told)
        case "seed":
            body = events.SeedEvent(what=kind, term=int(fields.get("term", "0")))
        case "alarm":
            body = events.AlarmEvent(code=code, state="begun", reason=reason)
        case "security":
            word = "undone" if fields.get("undone") == str(True) else ""
            who = subject or label or fields.get("what") or fields.get("name", "")
            body = events.SecurityEvent(what=kind, subject=who, reason=code or reason or word)
        case _:
            others = {key: value for key, value in fields.items() if not label or key not in ("name", "version")}
            changed = " ".join(filter(None, (label or subject, *(f"{key}={value}" for key, value in others.items()))))
            body = events.ConfigEvent(what=kind, reason=changed[:500])
    return body
