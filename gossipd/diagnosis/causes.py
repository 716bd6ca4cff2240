"""Why a deployment is not complete on a host or anywhere: ordered causes with evidence, from one status page.

What lives here: grouping hosts by their reason, the order, who cures it, and what is tried next. What does not: the
reasons (``core.reasons``), the page (``api.schema``, here as the JSON object that any daemon answers), and display.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossipd.core.errors import ExitCode
from gossipd.core.reasons import TAKEN_BACK, CuredBy, Heals, HostReason, reason_of_word
from gossipd.core.units import show_count
from gossipd.core.versions import label_words

OLD_S = 30.0  # a host that is heard of less often than this is said to be so
SILENT_NAMED = 3  # the peers that most hosts have asked in vain
_GONE = (HostReason.DEAD, HostReason.LEFT)
_ALARMS = ("E_ALONE", "E_ISOLATED", "E_JOIN_REFUSED", "E_NAME_CONFLICT", "E_STATE_WRITE")  # of the answering host
# What each part of the swarm does while a host has the reason; the others are tried within the announced second.
_NEXT = {
    HostReason.NO_SPACE: "the host looks for free space every ten seconds",
    HostReason.NO_INODES: "the host looks for free space every ten seconds",
    HostReason.DISK: "the host tries to write again every few seconds",
    HostReason.DISK_READ_ONLY: "the host tries to write again every few seconds",
    HostReason.DISK_FAILING: "the host tries to write again every few seconds",
    HostReason.DISK_SILENT: "the host goes on when the disk answers",
    HostReason.DISK_SLOW: "the host goes on with each write that ends",
    HostReason.HOLDER_SILENT: "another holder is asked at once",
    HostReason.ALL_BUSY: "each holder is asked again within a second",
    HostReason.NO_HOLDER: "it goes on when a host that reads storage, or a holder, is back",
    HostReason.NO_COPY: "it goes on when a host that holds it, or storage, is back",
    HostReason.SUSPECT: "the cluster decides within some ten seconds whether it is dead",
    HostReason.DEAD: "it is probed every two seconds, and goes on when it answers",
    HostReason.LEFT: "it goes on when it is started",
    HostReason.ISOLATED: "it asks its contacts again every few seconds",
    HostReason.NOT_HEARD: "its record comes within a minute, if it can be heard",
    HostReason.NOT_TARGET: "nothing: it is not meant to get it",
    HostReason.PAUSED: "nothing, until somebody resumes it",
    HostReason.OBJECT_SHORT: "its size is looked at every half minute",
    HostReason.SOURCE_CHANGED: "its tag and date are looked at every half minute, and it is read when they are others; "
    "else ever more seldom, at last once an hour",
    HostReason.READ_LIMIT: "it goes on at that rate",
    HostReason.REFILLING: "damaged chunks are fetched at once",
}
_NEXT_BY_HEALING = {
    Heals.BY_ITSELF: "it is tried again every few seconds, and later every minute",
    Heals.ON_RELOAD: "nothing, until that is done there",
    Heals.NEVER: "nothing: another deployment must be begun",
}
_UNDER_WAY = ("init", "downloading")
_NO_SEED = "no living host is a seed, so nobody reads storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that holds hosts up. ``code``: a word of ``core.reasons``, or an alarm's code."""

    code: str
    sentence: str
    hosts: tuple[str, ...]
    """All that it concerns, those that cause it first."""
    evidence: tuple[str, ...]
    since_s: float | None
    cured_by: str
    cure: str
    next: str
    exit_code: ExitCode
    waits: bool = False
    """Nobody need do anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Of one deployment. No causes: nothing is wrong."""

    label: str
    state: str
    hosts_complete: int
    hosts_total: int
    causes: tuple[Cause, ...]

    @property
    def exit_code(self) -> ExitCode:
        """0 when nothing is wrong, 9 while hosts only wait, else that of the first cause."""
        pressing = [cause for cause in self.causes if not cause.waits]
        if pressing:
            return pressing[0].exit_code
        return ExitCode.PARTIAL if self.causes else ExitCode.DONE


def diagnose(page: Mapping[str, Any], row: Mapping[str, Any], host: str | None = None) -> Diagnosis:
    """Why the deployment of ``row`` is not complete, on all its hosts or on one. Each host costs one step."""
    members = {each["name"]: each for each in page["members"] if each["state"] != "unheard"}
    asked = [each for each in row["hosts"] if host in (None, each["name"])]
    behind = [each for each in asked if each["state"] != "complete"]
    if row["state"] == "cancelled" or (row["state"] == "complete" and host is None):
        behind = []  # a host that it was removed from is asked for by name
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in behind:
        groups.setdefault(_key(each), []).append(each)
    causes = [_of_group(key, hosts, row, members) for key, hosts in groups.items()]
    causes += _of_nobody_reading(page, row, behind)
    if not row["hosts"] and host is None and row["state"] not in ("cancelled", "complete"):
        causes.append(_of_no_target())
    if row["state"] == "cancelled" and (host is None or any(each["state"] != "complete" for each in asked)):
        causes.append(_of_a_word(row))
    causes.sort(key=_order)
    if behind or host in (None, page["node"]["name"]):
        causes = _of_alarms(page, has_work=bool(behind)) + causes
    return Diagnosis(
        label=label_words(row), state=row["state"],
        hosts_complete=row["hosts_complete"], hosts_total=row["hosts_total"], causes=tuple(causes),
    )  # fmt: skip


def _key(host: Mapping[str, Any]) -> tuple[str, str]:
    """Hosts that wait for one reader are with it: its reason is theirs. So are those that have asked silent peers."""
    reason = reason_of_word(host["reason"])
    is_one = reason.is_the_readers or reason is HostReason.HOLDER_SILENT
    return host["reason"], "" if is_one else host.get("subject", "")


def _of_group(
    key: tuple[str, str], hosts: Sequence[Mapping[str, Any]], row: Mapping[str, Any], members: Mapping[str, Any]
) -> Cause:
    word, subject = key
    reason = reason_of_word(word)
    readers = sorted({each["subject"] for each in hosts if reason.is_the_readers and each.get("subject")})
    own = [each["name"] for each in hosts if not (reason.is_the_readers and each.get("subject"))]
    waiting = [each["name"] for each in hosts if each["name"] not in readers and each["name"] not in own]
    names = list(dict.fromkeys([*(readers or own), *own, *waiting]))
    is_quiet = reason is HostReason.NONE
    return Cause(
        code=word or "under_way",
        sentence="chunks arrive" if is_quiet else _sentence(reason, word, subject),
        hosts=tuple(names),
        evidence=tuple(_evidence(hosts, row, members, len(waiting))),
        since_s=_since_s(reason, hosts, members),
        cured_by=reason.cured_by.value,
        cure="nothing" if is_quiet else reason.cure,
        next="the rest is fetched" if is_quiet else _next(reason, hosts, members),
        exit_code=ExitCode.PARTIAL if is_quiet else reason.exit_code,
        waits=reason.cured_by is CuredBy.NOBODY and not any(each["state"] == "failed" for each in hosts),
    )


def _next(reason: HostReason, hosts: Sequence[Mapping[str, Any]], members: Mapping[str, Any]) -> str:
    told = _NEXT.get(reason, _NEXT_BY_HEALING[reason.heals])
    silent = Counter(each["subject"] for each in hosts if reason is HostReason.HOLDER_SILENT and each.get("subject"))
    if not silent:
        return told
    named = [f"{name} ({members[name]['address']})" if name in members else name for name, _ in
             sorted(silent.items(), key=lambda one: (-one[1], one[0]))[:SILENT_NAMED]]  # fmt: skip
    more = f" and {len(silent) - len(named)} more" if len(silent) > len(named) else ""
    return f"{told}; if it stays, look at {', '.join(named)}{more}"


def _sentence(reason: HostReason, word: str, subject: str) -> str:
    told = reason.sentence if reason is not HostReason.OTHER or word == "other" else f"a later version says {word}"
    if not subject:
        return told
    return f"{told} ({subject})" if reason is HostReason.WAITS_FOR_READER else f"{told} (key {subject[:12]})"


def _evidence(
    hosts: Sequence[Mapping[str, Any]], row: Mapping[str, Any], members: Mapping[str, Any], waiting: int
) -> list[str]:
    chunks = [each["chunks_verified"] for each in hosts]
    least, most = min(chunks), max(chunks)
    held = str(least) if least == most else f"{least} to {most}"
    of = show_count(row["chunks_total"], "chunk")
    if any(each.get("chunks_wanted") for each in hosts):
        wanted = [each.get("chunks_wanted") or row["chunks_total"] for each in hosts]
        of = f"the {min(wanted)} to {max(wanted)} chunks that they want"
    told = [f"{len(hosts)} of {row['hosts_total']} hosts hold {held} of {of}"]
    if waiting:
        told.append(f"{waiting} of them wait{'s' if waiting == 1 else ''} for the host that reads storage")
    ages = [each["age_s"] for each in hosts if each["age_s"] is not None]
    if len(ages) < len(hosts):
        told.append(f"of {len(hosts) - len(ages)} of them nothing has been heard in this deployment")
    if ages and max(ages) > OLD_S:
        told.append(f"the oldest record is {max(ages):.0f} s old")
    states = sorted({str(members[each["name"]]["state"]) for each in hosts if each["name"] in members} - {"alive"})
    if states:
        told.append(f"members are {', '.join(states)}")
    racks = sorted({each["rack"] for each in hosts})
    if len(racks) == 1 and len(hosts) > 1:
        told.append(f"all of them are in rack {racks[0]}")
    return told


def _since_s(reason: HostReason, hosts: Sequence[Mapping[str, Any]], members: Mapping[str, Any]) -> float | None:
    if reason in _GONE or reason is HostReason.SUSPECT:
        since = [members[each["name"]]["since_s"] for each in hosts if each["name"] in members]
    else:
        since = [each.get("reason_s") for each in hosts]
    return max((one for one in since if one is not None), default=None)


def _order(cause: Cause) -> tuple[bool, bool, bool, int]:
    """What ends hosts or a wait comes first, then what most hosts wait for; the dead after it, and what only waits
    last."""
    reason = reason_of_word(cause.code)
    is_quick = reason.heals is Heals.BY_ITSELF and not reason.ends_waits
    return cause.waits, reason in _GONE, is_quick, -len(cause.hosts)


def _of_nobody_reading(
    page: Mapping[str, Any], row: Mapping[str, Any], behind: Sequence[Mapping[str, Any]]
) -> list[Cause]:
    """No seed among the living, and no full copy yet. A host that is told why it cannot read storage is none any more,
    and that is the cause; and nobody reads what has ended."""
    has_seed = any(each["seed"] and each["state"] == "alive" for each in page["members"])
    reasons = {reason_of_word(each["reason"]) for each in behind if each["state"] in _UNDER_WAY}
    if not reasons or has_seed or row["hosts_complete"] or any(one.is_of_storage for one in reasons):
        return []
    reason = HostReason.STORAGE
    return [
        Cause(
            code=reason.value, sentence=_NO_SEED, hosts=(), since_s=None, cured_by=reason.cured_by.value,
            evidence=(f"{len(page['members'])} members, none of them a seed", f"{row['source_bytes']} bytes were read"),
            cure="`sources.enabled` must be true on a host that is alive", exit_code=reason.exit_code,
            next="a seed is chosen as soon as a host may read storage",
        )
    ]  # fmt: skip


def _of_no_target() -> Cause:
    """Nobody is to have it, as far as this host knows the hosts."""
    reason = HostReason.NOT_TARGET
    return Cause(
        code=reason.value, sentence="no known host is among its targets", hosts=(), evidence=(), since_s=None,
        cured_by=reason.cured_by.value, exit_code=reason.exit_code,
        cure="see the names and racks of its targets; publish with other targets, or start those hosts",
        next="a host that comes and is among them gets it",
    )  # fmt: skip


def _of_a_word(row: Mapping[str, Any]) -> Cause:
    """Somebody has said that it shall not go on."""
    return Cause(
        code="cancelled", sentence=f"it was {TAKEN_BACK.get(row.get('word', ''), 'cancelled')}", hosts=(), since_s=None,
        evidence=(f"{row['hosts_complete']} of {row['hosts_total']} hosts have it complete",),
        cured_by=CuredBy.HOST.value, cure="deploy it again, if it shall go on",
        next="nothing: no host fetches it", exit_code=ExitCode.OTHER,
    )  # fmt: skip


def _of_alarms(page: Mapping[str, Any], *, has_work: bool) -> list[Cause]:
    """What makes the answering host a poor witness, or holds it up."""
    name = page["node"]["name"]
    return [
        Cause(
            code=alarm["code"], sentence=alarm["sentence"], hosts=(name,),
            evidence=(f"alarm of {name} since {alarm['since']}",), since_s=None, cured_by=CuredBy.HOST.value,
            cure=f"see `gossipd help runbook`, {alarm['code']}", next="the alarm ends by itself when it is cured",
            exit_code=ExitCode.PARTIAL,
        )
        for alarm in page["alarms"]
        if alarm["code"] in _ALARMS and has_work
    ]  # fmt: skip


def diagnose_refused(page: Mapping[str, Any], label: str) -> Diagnosis:
    """On a host that does not know the model: what it has refused, whose names it could not read."""
    name = page["node"]["name"]
    causes = []
    for row in page.get("refused", []):
        reason = reason_of_word(row["reason"])
        told = f"deployment {row['id'][:12]} of the cluster was refused here; its name is unknown without the key"
        causes.append(
            Cause(
                code=row["reason"], sentence=_sentence(reason, row["reason"], row["subject"]), hosts=(name,),
                evidence=(told, row["sentence"]) if row["sentence"] else (told,), since_s=None,
                cured_by=reason.cured_by.value, cure=reason.cure, next=_NEXT_BY_HEALING[reason.heals],
                exit_code=reason.exit_code,
            )
        )  # fmt: skip
    return Diagnosis(label=label, state="not known here", hosts_complete=0, hosts_total=0, causes=tuple(causes))
