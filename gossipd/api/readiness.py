"""Whether a version is where it is needed, and which version is the newest that is.

What lives here: pure functions over rows of the status page. What does not: waiting (``long_poll``), and the rows.

Every host has the same records of all hosts, so every host gives the same answer. A host that is dead or has left does
not count, unless it is named: a job that names its hosts gets no answer on either side of a broken network, where each
side would else find the other one dead and go on by itself.

Two hosts may have told of one version with different contents: both records go round, each host keeps the content that
it heard of first and refuses the other. What is complete on this host or on named ones is one of the two and is
answered; where any host would do, such a version is left out, because hosts would load different bytes.

A host's name is its own word, and another host may take this one's. So only the row that is marked ``here`` speaks for
this host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from gossipd.api.schema import DeploymentRow, HostRow
from gossipd.core.errors import ExitCode, GossipdError, NotFoundError, UsageError
from gossipd.core.reasons import TAKEN_BACK, Heals, HostReason, reason_of_word, told_reason
from gossipd.core.units import part_words, percent_words
from gossipd.core.versions import as_written

HERE, ANYWHERE, EVERYWHERE, RECOVERABLE = "here", "anywhere", "everywhere", "recoverable"
NAMES_MAX = 64  # hosts that a question may name; it has to fit into one request
NAMES_TOLD = 10  # of a refusal that says which hosts there are
_AWAY = ("dead", "left")
_OVER = ("failed", "expired", "removed", "evicted")
_FORBIDDEN = "source_forbidden"
_STOPPED = {"roll_back": "rolled back", "remove": "removed everywhere"}


class NotReadyError(GossipdError):
    """No version is complete on the hosts that were asked for. Fault: nobody. Retry: later; the sentence says what is
    missing. Code ``E_EQUIVOCATION``: the newest has two contents. Fault: both jobs. Retry: under a version above it."""

    code = "E_NOT_READY"
    exit_code: ClassVar[ExitCode] = ExitCode.PARTIAL


class DeploymentEndedError(GossipdError):
    """What is waited for cannot come any more, or not before somebody acts. Fault: see the sentence. Retry: after what
    it says, or after it is deployed again. Codes:
    ``E_CANCELLED``; ``E_PARTIAL``, it has ended on too few hosts; ``E_GONE``, it was removed from this host;
    ``E_EQUIVOCATION``, other hosts have another content of that version.
    ``code_of_exit``: of the reason, when no host can get it."""

    code = "E_PARTIAL"
    exit_code: ClassVar[ExitCode] = ExitCode.PARTIAL


class Goal(Struct, frozen=True):
    """What a host must have done to count."""

    words: str
    is_met: Callable[[DeploymentRow, HostRow], bool]


COMPLETE = Goal("complete on", lambda _, host: host.state == "complete")
REMOVED = Goal("removed from", lambda _, host: host.state == "removed")
GOALS: Mapping[str, Goal] = {
    "complete": COMPLETE,
    "current": Goal("current on", lambda row, host: host.current == row.version),
    "removed": REMOVED,
}


class HostsNeeded(Struct, frozen=True):
    """How many hosts must be complete, or what ``goal`` says: this one, a share of the targets, or a number of them."""

    is_here: bool = False
    share: float = 0.0
    """In percent; 0 where ``count`` says it."""
    count: int = 0
    goal: Goal = COMPLETE

    @classmethod
    def parse(cls, text: str, goal: str = "complete") -> HostsNeeded:
        """``here``, ``90%`` or ``4``; a key of ``GOALS``. Raises UsageError."""
        if goal not in GOALS:
            raise UsageError(f"goal {goal[:40]!r} must be one of {', '.join(GOALS)}")
        if text == HERE:
            return cls(is_here=True, goal=GOALS[goal])
        try:
            if text.endswith("%") and 0 < float(text[:-1]) <= 100:
                return cls(share=float(text[:-1]), goal=GOALS[goal])
            if text.isascii() and text.isdigit() and int(text) >= 1:
                return cls(count=int(text), goal=GOALS[goal])
        except ValueError:
            pass
        raise UsageError(f"hosts {text[:40]!r} is neither 'here', a share such as 90% nor a number of hosts")

    def met_by(self, row: DeploymentRow, here: str) -> bool:
        """Whether enough hosts of the row have done it; ``here`` is this host's name."""
        if self.is_here:
            return any(self.goal.is_met(row, host) for host in _of_names(row, {here}, here))
        return row.hosts_total > 0 and self._done(row) >= self._number(row)

    def is_hopeless(self, row: DeploymentRow) -> bool:
        """Whether so many hosts have refused, or have a reason that does not end by itself, that the others are too
        few. A version is current only where it is complete."""
        if self.is_here or self.goal is REMOVED:
            return False
        return row.hosts_total - len(_lost(row)) < min(self._number(row), row.hosts_total)

    def _done(self, row: DeploymentRow) -> int:
        return row.hosts_complete if self.goal is COMPLETE else sum(self.goal.is_met(row, host) for host in row.hosts)

    def _number(self, row: DeploymentRow) -> float:
        return row.hosts_total * self.share / 100 if self.share else self.count

    def so_far(self, row: DeploymentRow, here: str) -> str:
        """What holds now, in words; of the hosts that count, those furthest behind, and why."""
        label = _label(row)
        if self.is_here:
            return f"{label} is {lacking(row, _of_names(row, {here}, here))}"
        if not row.hosts_total:
            return f"no known host is among the targets of {label}"
        head = f"{label} is {self.goal.words} {self._done(row)} of {row.hosts_total} hosts"
        if self.goal is not COMPLETE:
            return f"{head}; not on: {_told(host for host in row.hosts if not self.goal.is_met(row, host))}"
        return head + _furthest_behind(row)


def why_ended(row: DeploymentRow, needed: HostsNeeded, here: str) -> DeploymentEndedError | None:
    """The error when the hosts that are needed will not become complete any more."""
    if needed.goal is not COMPLETE:
        return None
    if row.state == "cancelled":
        kept = f"; it is complete on {row.hosts_complete} of {row.hosts_total} hosts" if row.hosts_complete else ""
        return DeploymentEndedError(
            f"{_label(row)} was {_STOPPED.get(row.word, 'cancelled')}{kept}", code="E_CANCELLED"
        )
    if needed.is_here and (own := _ended_here(row, here)) is not None:
        return own
    if not needed.is_here and row.state in _OVER:
        return ended(row, [host for host in row.hosts if host.state != "complete"])
    return ended(row, row.hosts) if row.hosts and all(host.reason == _FORBIDDEN for host in row.hosts) else None


def _ended_here(row: DeploymentRow, here: str) -> DeploymentEndedError | None:
    own = _of_names(row, {here}, here)
    if not own:
        return DeploymentEndedError(f"{here} is not among the targets of {_label(row)}")
    if own[0].state not in (*_OVER, "cancelled"):
        return None
    code = "E_GONE" if own[0].reason in ("removed", "superseded", "evicted") else "E_PARTIAL"
    return DeploymentEndedError(f"{_label(row)} has ended on this host: {_words(own[0], row)}", code=code)


def ended(row: DeploymentRow, hosts: Sequence[HostRow] | None = None) -> DeploymentEndedError:
    """It ends without ``hosts``: by default those that no waiting brings any further. Where they go on by themselves as
    soon as somebody has acted, it does not say that they have ended."""
    lost = _lost(row) if hosts is None else hosts
    is_over, going_on = any(_is_over(host) for host in lost), row.hosts_total - row.hosts_complete - len(lost)
    how = "has ended" if not lost or is_over else "goes on when somebody acts"
    if is_over and going_on > 0:
        how += f" on {len(lost)}"
    reason = reason_of_word(lost[0].reason) if lost else HostReason.OTHER
    return DeploymentEndedError(
        f"{_label(row)} is complete on {row.hosts_complete} of {row.hosts_total} hosts and {how}: "
        f"{_told(lost)}{_explained(lost)}",
        code_of_exit=reason.exit_code if len(lost) == row.hosts_total else ExitCode.PARTIAL,
    )


def of_this_host(rows: Iterable[DeploymentRow]) -> DeploymentRow | None:
    """Of rows of one version, the newest first: the content that this host has not refused; else the first row."""
    first = None
    for row in rows:
        first = first or row
        if row.version != first.version:
            break
        if not any(host.here and host.state in _OVER for host in row.hosts):
            return row
    return first


def blamed(error: DeploymentEndedError, row: DeploymentRow, rows: Iterable[DeploymentRow]) -> DeploymentEndedError:
    """The error, or where hosts have another content of that version, that. ``rows``: of the version."""
    if others := [one for one in rows if one.id != row.id and _is_held(one)]:
        return DeploymentEndedError(_two_contents(row, *others), code="E_EQUIVOCATION", code_of_exit=ExitCode.TRUST)
    return error


def _is_held(row: DeploymentRow) -> bool:
    """Whether some host has that content, or may still get it."""
    return is_wanted(row) and (row.hosts_complete > 0 or row.state not in _OVER)


def _two_contents(*rows: DeploymentRow) -> str:
    contents = " and ".join(f"{row.id[:12]} on {row.hosts_complete}" for row in rows[:2])
    return (
        f"{_label(rows[0])} has two contents ({contents} hosts): two jobs have published it, or a key is stolen; "
        "publish again under a version above it"
    )


def _label(row: DeploymentRow) -> str:
    return f"{row.name}@{row.version_label or row.version}"


def _lost(row: DeploymentRow) -> list[HostRow]:
    """Hosts that no waiting brings any further before somebody acts."""
    behind = [host for host in row.hosts if host.state != "complete"]
    return [host for host in behind if host.state in _OVER or reason_of_word(host.reason).ends_waits]


def is_being_filled(row: DeploymentRow) -> bool:
    """Whether hosts wait for an object in storage that is too short, as during its upload."""
    return any(reason_of_word(host.reason) is HostReason.OBJECT_SHORT for host in row.hosts)


def _is_over(host: HostRow) -> bool:
    """Whether the host does not go on with this deployment, however storage changes."""
    return host.state in _OVER or reason_of_word(host.reason).heals is Heals.NEVER


def _reason(host: HostRow) -> str:
    return told_reason(host.reason, subject=host.subject, file=host.file)


def _told(hosts: Iterable[HostRow]) -> str:
    """Each with its state, its reason, and what its users see."""
    words = [
        f"{host.name} {host.state} {_reason(host) if host.reason != host.state else ''}".rstrip()
        + ("" if host.current is None else f" (current: {host.current})")
        for host in hosts
    ]
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def _explained(hosts: Iterable[HostRow]) -> str:
    """What the first three reasons mean, and their cures."""
    known = [reason_of_word(word) for word in list(dict.fromkeys(host.reason for host in hosts if host.reason))[:3]]
    return "".join(f"; {one.value}: {one.sentence} ({one.cured_by.value}: {one.cure})" for one in known)


def _furthest_behind(row: DeploymentRow) -> str:
    behind = _by_share(row, row.hosts)
    if not behind:
        return ", and more were asked for"
    words = [
        f"{host.name} {percent_words(host.chunks_verified, _wanted(host, row))}{_part(host)} {_reason(host)}".rstrip()
        for host in behind[:3]
    ]
    told = f"; furthest behind: {', '.join(words)}{_explained(behind[:3])}"
    gone = [host.name for host in behind if host.reason in _AWAY]
    if gone and not any(host.reason in _AWAY for host in behind[:3]):
        told += f"; {gone[0]} is gone and counts until `gossipd forget {gone[0]}`"
    return told


def newest(
    rows: Sequence[DeploymentRow], name: str, where: str, here: str, before: int | None = None
) -> DeploymentRow:  # fmt: skip
    """The newest version of ``name`` that is complete where it is needed.

    Args:
        rows: of that name, in any order.
        where: ``here``, ``anywhere`` (on one living host), ``everywhere`` (on every living target), or the names of
            hosts, separated by commas: on these, and they live. ``recoverable``: nowhere yet, but it can be had.
        here: this host's name.
        before: only versions below this one.
    Raises:
        NotFoundError: no version of the name is known, or all were taken back. UsageError: ``where``.
        NotReadyError: none is complete there; it says what the newest lacks. Or none is below ``before``, where others
            are known: a run that has saved something is not told to be a new one. ``E_EQUIVOCATION``: see the top.
    """
    names = _named(where)
    known = sorted((row for row in rows if is_wanted(row)), key=lambda row: -row.version)
    if not known:
        raise NotFoundError(_nothing_wanted(rows, name))
    candidates = [row for row in known if before is None or row.version < before]
    if not candidates:
        oldest = known[-1]
        told = None if before is None else as_written(before, oldest.version, oldest.version_label)
        raise NotReadyError(f"no version of {name} before {told} is known here; the oldest is {_label(oldest)}")
    is_any = where in (ANYWHERE, RECOVERABLE)
    held = Counter(row.version for row in candidates if is_any and _is_held(row))
    for row in candidates:
        if held[row.version] < 2 and not _missing(row, where, names, here):
            return row
    first = candidates[0]
    if held[first.version] > 1:
        sentence = _two_contents(*(row for row in candidates if row.version == first.version and _is_held(row)))
        raise NotReadyError(sentence, code="E_EQUIVOCATION", code_of_exit=ExitCode.TRUST)
    places = {HERE: f"here, on {here}", RECOVERABLE: "or recoverable", ANYWHERE: ANYWHERE, EVERYWHERE: EVERYWHERE}
    place = places.get(where, f"on {where}")
    missing = _missing(first, where, names, here)
    raise NotReadyError(f"no version of {name} is complete {place}: {_label(first)} lacks {missing}")


def _nothing_wanted(rows: Sequence[DeploymentRow], name: str) -> str:
    if not rows:
        return f"no version of {name} is known here"
    row = max(rows, key=lambda one: one.version)
    how = TAKEN_BACK.get(row.word, "cancelled")
    return f"no version of {name} is to be used: {_label(row)}, the newest known here, was {how}"


def refuse_strangers(where: str, rows: Iterable[DeploymentRow], known: Iterable[tuple[str, str]]) -> None:
    """Whether ``where`` names only hosts that there are: a name that is misspelt would be waited for without end.

    Args:
        rows: of the model that is asked for.
        known: pairs of ``name`` or ``rack``, and what is called so; others do not count.
    Raises:
        UsageError: no host is called so. Fault: the caller. It says which there are.
    """
    if not (wanted := _named(where)):
        return
    called: dict[str, set[str]] = {"name": {host.name for row in rows for host in row.hosts}, "rack": set()}
    for kind, word in known:
        called.get(kind, set()).add(word)
    strangers = sorted(wanted - called["name"])
    if not strangers:
        return
    word = strangers[0]
    racks = f"{word} is a rack, and no host is called so" if word in called["rack"] else f"no host is called {word}"
    hosts = sorted(called["name"])
    told = ", ".join(hosts[:NAMES_TOLD]) + (f" and {len(hosts) - NAMES_TOLD} more" if len(hosts) > NAMES_TOLD else "")
    raise UsageError(
        f"where: {racks}; name hosts (there are {told or 'none'}), or here, anywhere, everywhere, recoverable"
    )


def is_wanted(row: DeploymentRow) -> bool:
    """Whether a version is to be used: neither cancelled nor taken back."""
    return row.state != "cancelled" and row.word not in TAKEN_BACK


def lacking(row: DeploymentRow, hosts: Iterable[HostRow]) -> str:
    """The hosts that are not complete, the furthest behind first, in words."""
    behind = _by_share(row, hosts)
    shown = ", ".join(_words(host, row) for host in behind[:3])
    more = f" and {len(behind) - 3} more" if len(behind) > 3 else ""
    parts = sum(host.chunks_wanted is not None and host.state == "complete" for host in row.hosts)
    some = f" ({parts} of them want a part)" if parts else ""
    return f"complete on {row.hosts_complete} of {row.hosts_total} hosts{some}" + (
        f"; behind: {shown}{more}" if shown else ""
    )


def _named(where: str) -> frozenset[str]:
    if where in (HERE, ANYWHERE, EVERYWHERE, RECOVERABLE):
        return frozenset()
    names = frozenset(filter(None, where.split(",")))
    if not 1 <= len(names) <= NAMES_MAX:
        raise UsageError(
            f"where must be here, anywhere, everywhere, recoverable or the names of 1 to {NAMES_MAX} hosts"
        )
    return names


def _missing(row: DeploymentRow, where: str, names: frozenset[str], here: str) -> str:
    """What the row lacks to be complete there; empty when it is."""
    if where == HERE:
        names = frozenset((here,))
    if where == RECOVERABLE:
        return "" if row.recoverable else "a living holder of each chunk, and storage that can be read"
    living = [host for host in row.hosts if host.reason not in _AWAY]
    if names:
        wanted = _of_names(row, names, here)
        absent = sorted(names - {host.name for host in wanted})
        words = [f"{name} (not among its targets)" for name in absent]
        words += [_words(host, row) for host in wanted if host.state != "complete" or host.reason in _AWAY]
        return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
    complete = [host for host in living if host.state == "complete"]
    if where == ANYWHERE:
        return "" if complete else "a living host that has what it wants of it"
    behind = [_words(host, row) for host in living if host.state != "complete"]
    if not living:
        return "living targets"
    return ", ".join(behind[:5]) + (f" and {len(behind) - 5} more" if len(behind) > 5 else "")


def _of_names(row: DeploymentRow, names: Collection[str], here: str) -> list[HostRow]:
    """The hosts with these names; of this host's name only this host."""
    return [host for host in row.hosts if host.name in names and host.here == (host.name == here)]


def _words(host: HostRow, row: DeploymentRow) -> str:
    wanted = _wanted(host, row)
    percent = host.chunks_verified * 1000 // wanted / 10 if wanted else 0.0
    details = " ".join(filter(None, (host.state, f"{percent:g} %{_part(host)}", host.reason)))
    return f"{host.name} ({details})"


def _wanted(host: HostRow, row: DeploymentRow) -> int:
    """How many chunks the host wants."""
    return host.chunks_wanted or row.chunks_total


def _part(host: HostRow) -> str:
    return f" of {part_words(host.want)}" if host.chunks_wanted else ""


def _by_share(row: DeploymentRow, hosts: Iterable[HostRow]) -> list[HostRow]:
    """The hosts that are not complete, the furthest behind first."""
    behind = (host for host in hosts if host.state != "complete")
    return sorted(behind, key=lambda host: host.chunks_verified / max(1, _wanted(host, row)))
