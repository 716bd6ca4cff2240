"""Bugs of what jobs may publish, and of what they resume from."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "publishes-foreign-files-for-a-user",
        "A user publishes what only the daemon may read, through a hard link.",
        "gossipd/publish/adoption.py",
        "            if os.fstat(descriptor).st_uid != user:\n",
        "            if os.fstat(descriptor).st_uid < 0:\n",
        ("tests/gossipd/publish/test_adoption.py",),
    ),
    Mutant(
        "lets-every-user-publish-every-name",
        "publish.users decides nothing.",
        "gossipd/publish/permits.py",
        "    if user < 0 or not may_sign(patterns, name):\n",
        "    if user < 0:\n",
        ("tests/gossipd/publish/test_permits.py",),
    ),
    Mutant(
        "evicts-a-version-that-a-job-holds",
        "A newer version deletes the one that a job loads.",
        "gossipd/store/models/models.py",
        "            if lock is None:\n                continue",
        "            if lock is False:\n                continue",
        ("tests/gossipd/store/test_removal.py",),
    ),
    Mutant(
        "resumes-on-one-side-of-a-broken-network",
        "Named hosts that are dead still count as complete.",
        "gossipd/api/readiness.py",
        'if host.state != "complete" or host.reason in _AWAY]',
        'if host.state != "complete"]',
        ("tests/gossipd/api/test_readiness.py",),
    ),
    Mutant(
        "publishes-a-step-that-is-written-over",
        "The old .metadata is taken as the sign of the new shards.",
        "gossipd/publish/step_watch.py",
        "            if file.mtime_ns > sign.mtime_ns:\n",
        "            if file.mtime_ns > sign.mtime_ns + 10**18:\n",
        ("tests/gossipd/publish/test_step_watch.py",),
    ),
    Mutant(
        "takes-over-the-cache-entry-of-a-download",
        "Links are put into somebody's real download of the same repository.",
        "gossipd/store/hub_cache.py",
        "    return all(link.is_symlink()",
        "    return True or all(link.is_symlink()",
        ("tests/gossipd/store/test_hub_cache.py",),
    ),
    Mutant(
        "deletes-what-no-statement-tells-of",
        "A start deletes chunks that an operator keeps, because the register has forgotten the statement.",
        "gossipd/daemon/leftovers.py",
        "        for deployment in state.publications():\n",
        "        for deployment in [model.deployment for model in store.models()]:\n",
        ("tests/gossipd/daemon/test_leftovers.py",),
    ),
    Mutant(
        "deletes-a-publication-that-was-told",
        "A crash just after the offer costs the only copy of a version that the cluster fetches.",
        "gossipd/daemon/leftovers.py",
        "            if statements.statement(deployment) is None:\n                store.abandon",
        "            if True:\n                store.abandon",
        ("tests/gossipd/daemon/test_leftovers.py",),
    ),
)
