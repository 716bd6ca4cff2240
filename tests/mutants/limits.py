"""Bugs of what a host may use: its disk, storage, and the network by the clock."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "only-one-end-is-marked",
        "Bodies, which are nearly all bytes, go unmarked: the listener is not prepared as the dialler is.",
        "gossipd/transfer/listener.py",
        "            prepare(listener, self._settings)\n",
        "",
        ("tests/gossipd/transfer/test_marks.py",),
    ),
    Mutant(
        "accepted-connections-wait-in-the-quick-queue",
        "Bodies have the mark, but this host's own queue serves them as if they had none.",
        "gossipd/transfer/listener.py",
        "            mark(sock, settings.dscp)\n",
        "            pass\n",
        ("tests/gossipd/transfer/test_marks.py",),
    ),
    Mutant(
        "a-pace-grows-while-packets-wait",
        "Background transfers push others aside the more, the longer the queue is.",
        "gossipd/transfer/giving_way.py",
        "        if has_lost or excess > 0:\n",
        "        if has_lost or excess < 0:\n",
        ("tests/gossipd/transfer/test_giving_way.py",),
    ),
    Mutant(
        "evicts-what-is-kept",
        "A full disk deletes the model that a job reads, or that the operator has pinned.",
        "gossipd/deployment/eviction_plan.py",
        "        if not one.kept and (is_too_full or (is_prune and not one.is_current)):\n",
        "        if is_too_full or (is_prune and not one.is_current):\n",
        ("tests/gossipd/deployment/test_eviction_plan.py",),
    ),
    Mutant(
        "evicts-the-current-version-first",
        "A full disk deletes what jobs load by its name, and keeps what nobody does.",
        "gossipd/deployment/eviction_plan.py",
        "key=lambda one: (one.is_current, one.last_used_s, one.label)",
        "key=lambda one: (one.last_used_s, one.label)",
        ("tests/gossipd/deployment/test_eviction_plan.py",),
    ),
    Mutant(
        "evicts-what-is-open",
        "A model is deleted between the files that a job opens.",
        "gossipd/store/models/eviction.py",
        '            return kept or (OPEN if self._is_open(replica) else "")\n',
        "            return kept\n",
        ("tests/gossipd/store/models/test_eviction.py",),
    ),
    Mutant(
        "newer-versions-evict-what-is-pinned",
        "keep_versions deletes the version that the operator keeps.",
        "gossipd/store/models/eviction.py",
        "        if self._is_pinned(model.name, model.version):\n            yield PINNED\n",
        "        if model is None:\n            yield PINNED\n",
        ("tests/gossipd/store/models/test_eviction.py",),
    ),
    Mutant(
        "a-lost-file-of-pins-pins-nothing",
        "A disk that does not give the file for a moment has all that was pinned evicted.",
        "gossipd/store/models/pins.py",
        "        return self._is_lost or f",
        "        return f",
        ("tests/gossipd/store/models/test_pins.py",),
    ),
    Mutant(
        "a-budget-counts-this-host-only",
        "Each seed spends the whole budget.",
        "gossipd/deployment/source_budget.py",
        "    return table.source_bytes(key) + max(0, since)\n",
        "    return record.counters.source_bytes\n",
        ("tests/gossipd/deployment/test_source_budget.py",),
    ),
    Mutant(
        "a-budget-that-is-spent-is-read-over",
        "Reads go on, and the bill with them.",
        "gossipd/daemon/executor.py",
        "        elif refusal is not None:\n",
        "        elif refusal is None and refusal is not None:\n",
        ("tests/gossipd/daemon/test_executor.py",),
    ),
    Mutant(
        "limits-change-only-at-borders-of-entries",
        "The status promises an end that a clock's jump has moved.",
        "gossipd/core/limit_schedule.py",
        "    found = set(_clock_changes(zone, wall_s))\n",
        "    found = set[float]()\n",
        ("tests/gossipd/core/test_limit_schedule.py",),
    ),
)
