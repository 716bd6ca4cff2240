"""Bugs of progress and reasons: who is believed, what is told, what is judged again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SIGNED = "tests/gossipd/deployment/test_signed_progress.py"
_TABLE = "tests/gossipd/deployment/test_deployment_table.py"
_RECORD = "tests/gossipd/deployment/test_progress_record.py"
_PUBLISHER = "tests/gossipd/daemon/test_progress_publisher.py"
_ROW = "tests/gossipd/api/test_deployment_row.py"
_COMMANDS = "tests/gossipd/cli/test_commands.py"
_ATTACKS = "tests/membership/test_attacks.py"
_JUDGE = "gossipd/deployment/signed_progress.py"
_LIFE = "gossipd/deployment/deployment_table.py"

MUTANTS = (
    Mutant(
        "names-no-file",
        "A reason of storage does not say which file it is about.",
        "gossipd/deployment/deployment_record.py",
        "subject=self.source_file if is_trouble else self.subject,",
        "subject=self.subject,",
        ("tests/gossipd/deployment/test_deployment_table.py",),
    ),
    Mutant(
        "believes-progress-that-another-signed",
        "A signature of any bytes is good enough.",
        _JUDGE,
        "        return Belief.YES if is_signed else Belief.NO\n",
        "        return Belief.YES if is_signed or signature else Belief.NO\n",
        (_SIGNED,),
    ),
    Mutant(
        "believes-unsigned-progress-of-a-host-that-signs",
        "Old records are good enough for all.",
        _JUDGE,
        "        if writer.signs:\n",
        "        if writer.signs and version < 0:\n",
        (_SIGNED,),
    ),
    Mutant(
        "believes-progress-from-the-future",
        "A version may be as high as its type allows.",
        _JUDGE,
        "latest = int((wall_s + CLOCKS_APART_MAX_S) * 1000)\n",
        "latest = VERSION_MAX\n",
        (_SIGNED,),
    ),
    Mutant(
        "signs-progress-without-its-version",
        "A signed record can be said again under a later number.",
        _JUDGE,
        ' + version.to_bytes(8, "big") + body\n',
        " + body\n",
        (_SIGNED,),
    ),
    Mutant(
        "an-unsigned-record-displaces-a-signed-one",
        "Until the new member record has come, anybody speaks for the host.",
        _JUDGE,
        "        return row is None or not row.is_signed or row.version < writer.began_s * 1000\n",
        "        return row is None or version > 0\n",
        (_SIGNED,),
    ),
    Mutant(
        "a-forged-record-stays-until-its-hour-has-come",
        "A signed record with a lower number does not displace an unsigned one.",
        "gossipd/deployment/progress_table.py",
        "version <= old.version and old.is_signed >= is_signed:\n",
        "version <= old.version:\n",
        (_SIGNED,),
    ),
    Mutant(
        "one-host-fills-the-table-of-progress",
        "Rows of one host are not counted.",
        "gossipd/deployment/progress_table.py",
        "        if len(keys := self._keys[node]) >= ROWS_PER_HOST_MAX:\n",
        "        if len(keys := self._keys[node]) >= 2 * self._rows_max:\n",
        (_RECORD,),
    ),
    Mutant(
        "keeps-what-a-host-told-of-nothing",
        "A deployment of which no host tells any more stays in the table.",
        "gossipd/deployment/progress_table.py",
        "            if not self._rows[oldest]:\n",
        "            if oldest not in self._rows:\n",
        (_RECORD,),
    ),
    Mutant(
        "tells-more-than-others-look-at",
        "A host with many deployments tells all at once; others take the first, and never hear of the last.",
        "gossipd/daemon/progress_publisher.py",
        "and self.quotas.take(self.directory.own, now, amount):\n",
        "and amount:\n",
        (_PUBLISHER,),
    ),
    Mutant(
        "tells-the-first-again-and-again",
        "What was told longest ago has no turn before what was told lately.",
        "gossipd/daemon/progress_publisher.py",
        "        due.sort(key=lambda one: (not one.changed, self.told_s.get(one.id, -1e9)))\n",
        "        due.sort(key=lambda one: (not one.changed, one.id))\n",
        (_PUBLISHER,),
    ),
    Mutant(
        "one-host-fills-the-gossip-with-progress",
        "A host may tell as often as it likes, and all pass it on.",
        "gossipd/daemon/gossip_rules.py",
        "        if not is_own and not self._progress_quotas.has(writer, now, amount):\n",
        "        if not is_own and not amount:\n",
        ("tests/gossipd/daemon/test_gossip_rules.py",),
    ),
    Mutant(
        "one-writer-fills-the-table-of-events",
        "Progress of one writer pushes out that of others.",
        "membership/event_store.py",
        "        if len(written) > limit // _WRITERS_SHARE:\n",
        "        if len(written) > limit:\n",
        (_ATTACKS,),
    ),
    Mutant(
        "keeps-progress-of-nobody",
        "A record of a host that is not known is kept and passed on.",
        "membership/event_store.py",
        "        if not verdict.is_known:\n            if kind is PayloadKind.PROGRESS:\n",
        "        if not verdict.is_known and kind is not PayloadKind.PROGRESS:\n            if not kind:\n",
        (_ATTACKS,),
    ),
    Mutant(
        "a-refusal-for-want-of-a-key-is-final",
        "A reload that brings the key changes nothing.",
        _LIFE,
        "    HostReason.REFUSED_KEY, HostReason.REFUSED_EXPIRED, ",
        "    HostReason.REFUSED_EXPIRED, ",
        (_TABLE,),
    ),
    Mutant(
        "blames-no-reader",
        "Who waits for a reader says that nobody holds what is missing.",
        _LIFE,
        "        if not readers:\n            return told\n",
        "        if readers is not None:\n            return told\n",
        (_TABLE,),
    ),
    Mutant(
        "calls-a-damaged-model-complete",
        "While chunks are refilled the model is told as complete.",
        "gossipd/deployment/deployment_record.py",
        "        return HostState.DOWNLOADING if self.is_refilling else self.state\n",
        "        return self.state\n",
        (_TABLE,),
    ),
    Mutant(
        "shows-a-wait-instead-of-the-readers-reason",
        "The reason of the reader stays with the reader.",
        "gossipd/api/deployment_row.py",
        "        return said.progress.reason, reader.name, self._file(said.progress.subject)\n",
        "        return reason, reader.name, self._file(said.progress.subject)\n",
        (_ROW,),
    ),
    Mutant(
        "waits-for-what-cannot-come",
        "wait looks at states only.",
        "gossipd/api/readiness.py",
        "reason_of_word(host.reason).heals is Heals.NEVER]\n",
        "host.reason is Heals.NEVER]\n",
        (_COMMANDS,),
    ),
    Mutant(
        "a-rate-never-ends",
        "What stands still has a rate for a minute.",
        "gossipd/deployment/counters.py",
        "        if self._idle_s >= RATE_IDLE_S:\n",
        "        if self.bytes_per_s < 1:\n",
        ("tests/gossipd/deployment/test_counters.py",),
    ),
    Mutant(
        "a-course-never-ends",
        "A chunk that rots a month later stretches the course of its report to that month.",
        "gossipd/deployment/history.py",
        "        if self.is_closed(at_s):\n            return\n",
        "",
        ("tests/gossipd/deployment/test_history.py",),
    ),
    Mutant(
        "a-host-that-flaps-fills-a-course",
        "A host that tells another share each second makes the course of its deployment as long as it lasts.",
        "gossipd/deployment/history.py",
        "        if len(self.changes) > CHANGES_MAX * _CHANGE.size:\n",
        "        if len(self.changes) > COLUMN_MAX * _CHANGE.size:\n",
        ("tests/gossipd/deployment/test_history.py",),
    ),
    Mutant(
        "hosts-that-lie-of-their-bytes-make-a-sum-too-large-to-save",
        "Some dozen members that tell the largest number of bytes end every daemon when it saves what it has heard.",
        "gossipd/deployment/history.py",
        "            min(BYTES_MAX, had + more) for had,",
        "            had + more for had,",
        ("tests/gossipd/deployment/test_history.py",),
    ),
    Mutant(
        "the-log-is-for-everybody",
        "Every user who may ask questions reads the daemon's log.",
        "gossipd/api/routes.py",
        '        Route("/v1/tasks", pages.tasks),\n',
        '        Route("/v1/tasks", pages.tasks),\n        Route("/v1/log", pages.log),\n',
        ("tests/gossipd/api/test_routes.py",),
    ),
)
