"""Whether a version is where it is needed, and which version is the newest that is.

What lives here: pure functions over rows of the status page. What does not: waiting (``long_poll``), and the rows.

Every host has the same records of all hosts, so every host gives the same answer. A host that is dead or has left does
not count, unless it is named: a job that names its hosts gets no answer on either side of a broken network, where each
side would else find the other one dead and go on by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gossipd.api.schema import DeploymentRow, HostRow
from gossipd.core.errors import ExitCode, GossipdError, NotFoundError, UsageError

HERE, ANYWHERE, EVERYWHERE = "here", "anywhere", "everywhere"
NAMES_MAX = 64  # hosts that a question may name; it has to fit into one request
_AWAY = ("dead", "left")
_OVER = ("failed", "expired", "removed", "evicted")
_TAKEN_BACK = ("roll_back", "remove")
_FORBIDDEN = "source_forbidden"


class NotReadyError(GossipdError):
    """No version is complete on the hosts that were asked for. Fault: nobody. Retry: later; the sentence says what is
    missing."""

    code = "E_NOT_READY"
    exit_code: ClassVar[ExitCode] = ExitCode.PARTIAL


class DeploymentEndedError(GossipdError):
    """What is waited for cannot come any more. Fault: see the sentence. Retry: after it is deployed again. Codes:
    ``E_CANCELLED``; ``E_PARTIAL``, it has ended on too few hosts; ``E_GONE``, it was removed from this host."""

    code = "E_PARTIAL"
    exit_code: ClassVar[ExitCode] = ExitCode.PARTIAL


@dataclass(frozen=True, slots=True)
class HostsNeeded:
    """How many hosts must be complete: this one, a share of the targets, or a number of them."""

    is_here: bool = False
    share: float = 0.0
    """In percent; 0 where ``count`` says it."""
    count: int = 0

    @classmethod
    def parse(cls, text: str) -> HostsNeeded:
        """``here``, ``90%`` or ``4``. Raises UsageError."""
        if text == HERE:
            return cls(is_here=True)
        try:
            if text.endswith("%") and 0 < float(text[:-1]) <= 100:
                return cls(share=float(text[:-1]))
            if text.isascii() and text.isdigit() and int(text) >= 1:
                return cls(count=int(text))
        except ValueError:
            pass
        raise UsageError(f"hosts {text[:40]!r} is neither 'here', a share such as 90% nor a number of hosts")

    def met_by(self, row: DeploymentRow, here: str) -> bool:
        """Whether the row has enough complete hosts; ``here`` is this host's name."""
        if self.is_here:
            return any(host.name == here and host.state == "complete" for host in row.hosts)
        needed = row.hosts_total * self.share / 100 if self.share else self.count
        return row.hosts_total > 0 and row.hosts_complete >= needed


def check_possible(row: DeploymentRow, needed: HostsNeeded, here: str) -> None:
    """Raises DeploymentEndedError when the hosts that are needed will not become complete any more."""
    label = f"{row.name}@{row.version}"
    if row.state == "cancelled":
        raise DeploymentEndedError(f"{label} was cancelled", code="E_CANCELLED")
    if needed.is_here:
        own = [host for host in row.hosts if host.name == here]
        if not own:
            raise DeploymentEndedError(f"{here} is not among the targets of {label}")
        if own[0].state in (*_OVER, "cancelled"):
            code = "E_GONE" if own[0].reason in ("removed", "evicted") else "E_PARTIAL"
            raise DeploymentEndedError(f"{label} has ended on this host: {_words(own[0], row)}", code=code)
    elif row.state in _OVER:
        raise DeploymentEndedError(f"{label} has ended; {lacking(row, row.hosts)}")
    if row.hosts and all(host.reason == _FORBIDDEN for host in row.hosts):
        raise DeploymentEndedError(f"no host may read the source of {label}; add it to sources.allow")


def newest(rows: Sequence[DeploymentRow], name: str, where: str, here: str) -> DeploymentRow:
    """The newest version of ``name`` that is complete where it is needed.

    Args:
        rows: of that name, in any order.
        where: ``here``, ``anywhere`` (on one living host), ``everywhere`` (on every living target), or the names of
            hosts, separated by commas: on these, and they live.
        here: this host's name.
    Raises:
        NotFoundError: no version of the name is known. UsageError: ``where``.
        NotReadyError: none is complete there; it says what the newest lacks.
    """
    names = _named(where)
    candidates = sorted((row for row in rows if is_wanted(row)), key=lambda row: -row.version)
    if not candidates:
        raise NotFoundError(f"no version of {name} is known here")
    for row in candidates:
        if not _missing(row, where, names, here):
            return row
    first = candidates[0]
    place = where if where != HERE else f"here, on {here}"
    missing = _missing(first, where, names, here)
    raise NotReadyError(f"no version of {name} is complete {place}: {first.name}@{first.version} lacks {missing}")


def is_wanted(row: DeploymentRow) -> bool:
    """Whether a version is to be used: neither cancelled nor taken back."""
    return row.state != "cancelled" and row.word not in _TAKEN_BACK


def lacking(row: DeploymentRow, hosts: Iterable[HostRow]) -> str:
    """The hosts that are not complete, the furthest behind first, in words."""
    behind = sorted((host for host in hosts if host.state != "complete"), key=lambda host: host.chunks_verified)
    shown = ", ".join(_words(host, row) for host in behind[:3])
    more = f" and {len(behind) - 3} more" if len(behind) > 3 else ""
    return f"complete on {row.hosts_complete} of {row.hosts_total} hosts" + (
        f"; behind: {shown}{more}" if shown else ""
    )


def _named(where: str) -> frozenset[str]:
    if where in (HERE, ANYWHERE, EVERYWHERE):
        return frozenset()
    names = frozenset(filter(None, where.split(",")))
    if not 1 <= len(names) <= NAMES_MAX:
        raise UsageError(f"where must be here, anywhere, everywhere or the names of 1 to {NAMES_MAX} hosts")
    return names


def _missing(row: DeploymentRow, where: str, names: frozenset[str], here: str) -> str:
    """What the row lacks to be complete there; empty when it is."""
    if where == HERE:
        names = frozenset((here,))
    living = [host for host in row.hosts if host.reason not in _AWAY]
    if names:
        absent = sorted(names - {host.name for host in row.hosts})
        wanted = [host for host in row.hosts if host.name in names]
        words = [f"{name} (not among its targets)" for name in absent]
        words += [_words(host, row) for host in wanted if host.state != "complete" or host.reason in _AWAY]
        return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
    complete = [host for host in living if host.state == "complete"]
    if where == ANYWHERE:
        return "" if complete else "a living host that has it whole"
    behind = [_words(host, row) for host in living if host.state != "complete"]
    if not living:
        return "living targets"
    return ", ".join(behind[:5]) + (f" and {len(behind) - 5} more" if len(behind) > 5 else "")


def _words(host: HostRow, row: DeploymentRow) -> str:
    percent = host.chunks_verified * 1000 // row.chunks_total / 10 if row.chunks_total else 0.0
    details = " ".join(filter(None, (host.state, f"{percent:g} %", host.reason)))
    return f"{host.name} ({details})"
