"""What a source reader owns that another reader owned before, and from when on this host reads it.

What lives here, for one deployment: the former owner of each bucket, and the wait. What does not: who owns what
(``roles``), and when a successor takes over what its owner neglects (``source_read_planner``).

Readers judge each other by what each of them has seen, and so do not always agree on who owns a bucket. A former owner
that agrees begins no more reads there; one that does not agree goes on, and says so when it is asked. So a new owner
asks, waits for ``grace_s``, and waits as long again after each read that the former owner is heard to begin. Until then
the new owner counts as the first successor. Rejected: to begin after ``grace_s`` in any case, because both then read
the same extents in the same order, each before it hears of the other's reads.
"""

from __future__ import annotations

from membership.member import NodeId


class InheritedShare:
    """The buckets that this host has come to own."""

    def __init__(self, own: NodeId, grace_s: float) -> None:
        self._own = own
        self._grace_s = grace_s
        self._former_owners: dict[int, tuple[NodeId, ...]] = {}  # of each bucket; none where the rule has changed
        self._begins_s: dict[tuple[NodeId, ...], float] = {}  # former owner -> when this host begins with its buckets
        self._unasked: set[NodeId] = set()

    def take_unasked(self) -> set[NodeId]:
        """The former owners of what has become this host's since this was called last."""
        unasked, self._unasked = self._unasked, set()
        return unasked

    def changed(
        self, lines: tuple[tuple[NodeId, ...], ...], before: tuple[tuple[NodeId, ...], ...], now: float,
        *, is_other_rule: bool,
    ) -> None:  # fmt: skip
        """The preference list of each bucket, and that before. ``is_other_rule``: extents belong to other buckets than
        before."""
        own, formers = (self._own,), set[tuple[NodeId, ...]]()
        for bucket, (line, line_before) in enumerate(zip(lines, before, strict=True)):
            if line[:1] != own:
                self._former_owners.pop(bucket, None)
            elif line_before[:1] != own or is_other_rule:
                former = () if is_other_rule else line_before[:1]
                self._former_owners[bucket] = former
                formers.add(former)
        self._begins_s.update(dict.fromkeys(formers, now + self._grace_s))
        for former in self._begins_s.keys() - set(self._former_owners.values()):
            del self._begins_s[former]
        self._unasked.update(*formers)

    def begun(self, peer: NodeId, bucket: int, now: float) -> None:
        """A peer is heard to have begun a read in this bucket."""
        if now < self._begins_s.get((peer,), now) and self._former_owners.get(bucket) == (peer,):
            self._begins_s[peer,] = now + self._grace_s

    def awaited_owner(self, bucket: int, now: float) -> tuple[NodeId, ...] | None:
        """The former owner of a bucket with which this host does not begin yet, empty if it is not one host; None when
        it may."""
        former = self._former_owners.get(bucket)
        return former if former is not None and now < self._begins_s[former] else None
