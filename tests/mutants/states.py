"""Bugs of states: removed, cancelled, paused, and a clock that is wrong."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STEPS = "tests/gossipd/deployment/test_deployment_steps.py"
_TABLE = "tests/gossipd/deployment/test_deployment_table.py"
_PROGRESS = "tests/gossipd/deployment/test_progress_record.py"
_CLOCK = "tests/gossipd/deployment/test_cluster_clock.py"
_RULES = "tests/gossipd/daemon/test_gossip_rules.py"

MUTANTS = (
    Mutant(
        "a-removed-host-holds-its-chunks",
        "The chunks that a host had before an operator removed the model count as held.",
        "gossipd/deployment/progress_table.py",
        "    if row.progress.state is HostState.REMOVED:\n        return 0\n",
        "    if row.progress.state is HostState.INIT:\n        return 0\n",
        (_PROGRESS,),
    ),
    Mutant(
        "a-removed-host-ends-the-deployment",
        "A host from which it was removed counts when the state of the deployment is told.",
        "gossipd/deployment/progress_table.py",
        "    states = [state for state in states if state is not HostState.REMOVED]\n",
        "    states = list(states)\n",
        (_PROGRESS,),
    ),
    Mutant(
        "a-cancel-hides-what-is-published",
        "A host that publishes when a cancel comes says cancelled, and users see the model.",
        "gossipd/deployment/deployment_steps.py",
        "        if state is HostState.CANCELLED and self.step is Step.PUBLISH and self._work is not None:\n",
        "        if state is HostState.INIT and self.step is Step.PUBLISH and self._work is not None:\n",
        (_STEPS,),
    ),
    Mutant(
        "a-cancel-deletes-verified-chunks",
        "What is cancelled is deleted at once, and read again when it is deployed again.",
        "gossipd/deployment/deployment_steps.py",
        "                self._deletes_next = was_open and not record.chunks_verified\n",
        "                self._deletes_next = was_open\n",
        (_STEPS,),
    ),
    Mutant(
        "cancelled-chunks-are-never-deleted",
        "A model that does not fit waits for ever beside the chunks of one that was cancelled.",
        "gossipd/deployment/deployment_steps.py",
        "                self._context.is_space_wanted = True\n",
        "                self._context.is_space_wanted = False\n",
        (_STEPS,),
    ),
    Mutant(
        "cancels-what-all-have",
        "A cancel of what is complete everywhere is told, and stops nothing.",
        "gossipd/deployment/orders.py",
        "        if complete and complete + removed == hosts and not is_forced:\n",
        "        if complete and complete + removed > hosts and not is_forced:\n",
        (_TABLE,),
    ),
    Mutant(
        "anybody-may-pause",
        "A pause needs no right.",
        "gossipd/deployment/statement_rules.py",
        "    stops = statement.verb in (Verb.CANCEL, Verb.PAUSE)\n",
        "    stops = statement.verb is Verb.CANCEL\n",
        ("tests/gossipd/deployment/test_orders.py",),
    ),
    Mutant(
        "a-pause-has-the-rank-of-a-deploy",
        "A pause and a deploy of two hosts at once have one rank, and hosts differ for ever.",
        "gossipd/deployment/statement.py",
        "    return last + 1 if (last + 1) % 2 == is_odd else last + 2\n",
        "    return last + 1 + 0 * is_odd\n",
        ("tests/gossipd/deployment/test_statement.py",),
    ),
    Mutant(
        "a-paused-host-reads-on",
        "Reads of storage begin while a deployment is paused.",
        "gossipd/swarm/deployment_swarm.py",
        "        if knows and now >= allowed_s and self.replica.missing_count and not self.is_paused:\n",
        "        if knows and now >= allowed_s and self.replica.missing_count:\n",
        ("tests/gossipd/swarm/test_planner.py",),
    ),
    Mutant(
        "a-paused-host-fetches-on",
        "Fetches begin while a deployment is paused.",
        "gossipd/swarm/deployment_swarm.py",
        "        return not self.is_paused and bool(self.demand.near or self.demand.imports)\n",
        "        return bool(self.demand.near or self.demand.imports)\n",
        ("tests/gossipd/swarm/test_planner.py",),
    ),
    Mutant(
        "equal-chunks-come-twice",
        "A chunk that is equal to an earlier one is asked for beside it.",
        "gossipd/swarm/deployment_swarm.py",
        "        self.demand.want(self.replica.missing() - ChunkSet(size, self._copies))\n",
        "        self.demand.want(self.replica.missing())\n",
        ("tests/gossipd/swarm/test_planner.py",),
    ),
    Mutant(
        "equal-chunks-are-read-twice",
        "A chunk that is equal to an earlier one is read from storage beside it.",
        "gossipd/swarm/deployment_swarm.py",
        "        self.reader.rebuild(event.held.bits | self._copies)\n",
        "        self.reader.rebuild(event.held.bits)\n",
        ("tests/gossipd/swarm/test_planner.py",),
    ),
    Mutant(
        "copies-that-never-come-are-waited-for",
        "A host whose disk does not copy waits for ever.",
        "gossipd/swarm/deployment_swarm.py",
        "        self.demand.want(copies)\n",
        "        self.demand.want(())\n",
        ("tests/gossipd/swarm/test_planner.py",),
    ),
    Mutant(
        "one-liar-sets-the-clock",
        "The host that differs most decides what time it is.",
        "gossipd/deployment/cluster_clock.py",
        "        self.offset_s, self.hosts = min(both, key=abs), len(self._epochs)\n",
        "        self.offset_s, self.hosts = max((*differences, *both), key=abs), len(self._epochs)\n",
        (_CLOCK,),
    ),
    Mutant(
        "forged-records-set-the-clock",
        "A record counts as its host's word on the time, whoever signed it.",
        "gossipd/deployment/signed_progress.py",
        "        return (key.node, version / 1000) if is_signed else None\n",
        "        return (key.node, version / 1000) if is_signed or version else None\n",
        (_RULES,),
    ),
    Mutant(
        "a-wrong-clock-closes-a-deployment",
        "What only this host's wrong clock forbids is expired for good.",
        "gossipd/deployment/context.py",
        '        if error.code != "E_EXPIRED" or not self.clock.is_wrong:\n',
        '        if error.code != "E_EXPIRED" or self.clock.hosts:\n',
        (_TABLE,),
    ),
    Mutant(
        "a-wrong-clock-revives-what-has-expired",
        "A host with a wrong clock waits for what has expired by every clock.",
        "gossipd/deployment/context.py",
        "            manifest.check_time(self.clock.true_s(wall_s))\n",
        "            manifest.check_time(manifest.created_s)\n",
        (_TABLE,),
    ),
    Mutant(
        "a-clock-that-ran-ahead-silences-its-host",
        "After a record from the future a host tells nothing that others believe.",
        "gossipd/deployment/progress_table.py",
        "            self._rows[key][node] = replace(row, version=0)\n",
        "            self._rows[key][node] = replace(row, version=row.version)\n",
        (_PROGRESS,),
    ),
)
