"""Judges a run from outside the daemons: bytes on disk against the original, books against bytes, words against deeds.

What lives here: what a stopped host's disk says, what its log says it did, and the comparison of the two. What does
not: stopping it. Chunks are read from the files of the host's store and compared with the original's bytes; the journal
is read with the store's own ``replay``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossipd.audit.chain_file import verify_audit
from gossipd.demo.compare import differences
from gossipd.demo.hosts import DemoHost
from gossipd.manifest.manifest import Manifest
from gossipd.store.journal.journal import replay
from gossipd.store.models import layout

PROBLEMS_MAX = 20


@dataclass
class Verdict:
    """Counts of what must be none, and sentences about each."""

    requested_again: int = 0
    corrupted_accepted: int = 0
    wrong_peer_blamed: int = 0
    hosts_not_identical: int = 0
    problems: list[str] = field(default_factory=list)

    def say(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


@dataclass(frozen=True)
class Death:
    """A host's process has ended: these chunks were completely written, and its log was so long."""

    host: str
    completed: frozenset[int]
    log_bytes: int


class Oracle:
    """One run's. ``damaged``: chunks that were damaged on the rotten host's disk, so that it may fetch them again."""

    def __init__(self, manifest: Manifest, original: Path) -> None:
        self._manifest = manifest
        self._files = [(original / entry.path).read_bytes() for entry in manifest.files]
        self._original = original
        self.verdict = Verdict()
        self.deaths: list[Death] = []
        self.damaged: dict[str, set[int]] = {}

    # ---- a host that does not run ----------------------------------------------------------------

    def look_at_dead(self, host: DemoHost) -> None:
        """Just after its process has ended, before it is started again."""
        claimed, begun = self._journal(host)
        excused = self.damaged.get(host.name, set())
        right = {chunk for chunk in claimed | begun if self._is_right(host, chunk)}
        false = claimed - right - excused
        if false:
            self.verdict.corrupted_accepted += len(false)
            self.verdict.say(f"{host.name} claims chunks whose bytes are wrong: {sorted(false)[:10]}")
        if self._published(host).exists() and not excused and differences(self._original, self._published(host)):
            self.verdict.hosts_not_identical += 1
            self.verdict.say(f"{host.name} had published what is not whole when it was killed")
        size = host.log.stat().st_size if host.log.exists() else 0
        self.deaths.append(Death(host.name, frozenset(right - excused), size))

    def _journal(self, host: DemoHost) -> tuple[set[int], set[int]]:
        """Chunks that are claimed for ever, and those whose writing had begun."""
        try:
            body = (host.models / layout.journal(self._manifest.id)).read_bytes()
        except FileNotFoundError:
            return set(), set()
        said = replay(body, self._manifest.id)
        return set(said.held), set(said.suspects)

    def _is_right(self, host: DemoHost, chunk: int) -> bool:
        incoming = host.models / layout.incoming(self._manifest.id)
        tree = incoming if incoming.exists() else self._published(host)
        for part in self._manifest.segments(chunk):
            wanted = self._files[part.file_index][part.offset : part.offset + part.length]
            try:
                with (tree / self._manifest.files[part.file_index].path).open("rb") as file:
                    file.seek(part.offset)
                    if file.read(part.length) != wanted:
                        return False
            except FileNotFoundError:
                return False
        return True

    def _published(self, host: DemoHost) -> Path:
        return host.models / layout.version(self._manifest.name, self._manifest.version)

    # ---- the end ---------------------------------------------------------------------------------

    def is_published(self, host: DemoHost) -> bool:
        """As its users see it."""
        return self._published(host).exists()

    def compare(self, hosts: list[DemoHost]) -> None:
        """Every published byte of every host, its books, and what it did after each death."""
        for host in hosts:
            tree = self._published(host)
            wrong = differences(self._original, tree) if tree.exists() else ["nothing is published"]
            if wrong:
                self.verdict.hosts_not_identical += 1
                self.verdict.say(f"{host.name}: {'; '.join(wrong[:3])}")
            if tree.exists() and any("differs" in one for one in wrong):
                self.verdict.corrupted_accepted += 1
        by_name = {host.name: host for host in hosts}
        for death in self.deaths:
            asked = requested(by_name[death.host].log, death.log_bytes)
            again = (set(asked) & death.completed) - self.damaged.get(death.host, set())
            if again:
                self.verdict.requested_again += len(again)
                self.verdict.say(f"{death.host} asked again for chunks it had written: {sorted(again)[:10]}")

    def check_audit(self, hosts: list[DemoHost], accusable: set[str]) -> None:
        """Every chain holds, also where the daemon was killed while it wrote, and names nobody but ``accusable``."""
        for host in hosts:
            log = host.directory / "audit.jsonl"
            if (problem := verify_audit(log).problem) is not None:
                self.verdict.say(f"the audit log of {host.name}: {problem}")
            for entry in log_entries(log):
                if entry["event"] == "quarantined" and entry["subject"] not in accusable:
                    self.verdict.wrong_peer_blamed += 1
                    self.verdict.say(f"the audit log of {host.name} accuses {entry['subject']}")

    def judge_blame(self, hosts: list[DemoHost], injected: dict[str, Counter[tuple[str, int]]]) -> int:
        """Whether each accusation is true.

        Args:
            injected: by liar, how often each receiver was sent each chunk damaged.
        Returns: how many accusations there were.
        """
        count = 0
        for host in hosts:
            for entry in log_entries(host.log):
                if entry.get("event") == "chunk has rotted" and entry["chunk"] not in self.damaged.get(host.name, ()):
                    self.verdict.wrong_peer_blamed += 1
                    self.verdict.say(f"{host.name} says that its good chunk {entry['chunk']} has rotted")
                if entry.get("event") != "corrupt chunk":
                    continue
                count += 1
                peer, chunk = str(entry["peer"]), int(entry["chunk"])
                sent = injected.get(peer, Counter())
                if sent[host.name, chunk] > 0:
                    sent[host.name, chunk] -= 1
                elif chunk not in self.damaged.get(peer, ()):
                    self.verdict.wrong_peer_blamed += 1
                    self.verdict.say(f"{host.name} blames {peer} for chunk {chunk}, which was sent as it should be")
        return count


def requested(log: Path, after: int) -> Iterator[int]:
    """Chunks that a host has asked a peer or storage for, by its log from byte ``after`` on."""
    for entry in log_entries(log, after):
        if entry.get("event") == "fetch":
            yield int(entry["chunk"])
        elif entry.get("event") == "read":
            yield from (int(chunk) for chunk in entry["chunks"])


def log_entries(log: Path, after: int = 0) -> Iterator[dict[str, Any]]:
    """Its JSON lines; what is not one (a traceback, half a line of a killed process) is passed over."""
    with log.open("rb") as file:
        file.seek(after)
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry
