"""Bugs of what one member may have, be and ask: targets, identities, shares of this host's work, the audit log."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SERVER = "tests/gossipd/transfer/test_server_and_client.py"
_SESSIONS = "tests/gossipd/sessions/test_sessions.py"

_CHECKS = "tests/gossipd/daemon/test_self_checks.py"

_CLONES = "tests/membership/test_clones.py"
_WATCH = "tests/gossipd/daemon/test_identity_watch.py"

_WITNESS = "tests/gossipd/audit/test_witness.py"
_HEADS = "tests/gossipd/daemon/test_audit_gossip.py"

_ATTACKS = "tests/membership/test_attacks.py"

MUTANTS = (
    Mutant(
        "probes-for-one-member-without-a-bound",
        "One member may have all the probes that this node makes for others.",
        "membership/indirect_prober.py",
        "not self._shares.take(sender.handle, now)",
        "not self._shares.take(handle, self._relay_at + 1e9 * now)",
        (_ATTACKS,),
    ),
    Mutant(
        "synchronises-with-one-member-without-a-bound",
        "One member may have all the lists that this node sends.",
        "membership/sync_server.py",
        "(is_scarce and not self._shares.take(peer.handle, now, count))",
        "(is_scarce and not peer.handle)",
        (_ATTACKS,),
    ),
    Mutant(
        "answers-every-question-of-a-peer",
        "A peer is told the holdings as often as it asks.",
        "gossipd/sessions/exchange.py",
        "        may = left >= 1\n        self._asks_left",
        "        may = left >= -1e9\n        self._asks_left",
        (_SESSIONS,),
    ),
    Mutant(
        "believes-anybodys-head-of-an-audit-log",
        "A head of a host's audit chain counts whoever signed it.",
        "gossipd/audit/witness.py",
        "        if len(payload) != HEAD_BYTES or not verify(public_key, signature, _LABEL + body):\n",
        "        if len(payload) != HEAD_BYTES or verify(public_key, signature, _LABEL):\n",
        (_WITNESS,),
    ),
    Mutant(
        "believes-an-old-head-again",
        "A head that is sent again accuses its host of having cut its log.",
        "gossipd/audit/witness.py",
        "        return known is None or issued_ms >= known.issued_ms + TELL_MS_MIN\n",
        "        return known is None or issued_ms != known.issued_ms\n",
        (_WITNESS,),
    ),
    Mutant(
        "overlooks-a-log-that-shrank",
        "Fewer records than before are nothing to report.",
        "gossipd/audit/witness.py",
        "        if head.records < most or is_other:\n",
        "        if is_other:\n",
        (_WITNESS,),
    ),
    Mutant(
        "overlooks-a-rewritten-end",
        "A log of as many records with another hash is the same log.",
        "gossipd/audit/witness.py",
        "        if head.records < most or is_other:\n",
        "        if head.records < most:\n",
        (_WITNESS,),
    ),
    Mutant(
        "forgets-a-cut-at-a-restart",
        "A witness that starts again knows of no log that was cut.",
        "gossipd/audit/witness.py",
        "                ended = None if cut is None else",
        "                ended = None if cut else",
        (_WITNESS,),
    ),
    Mutant(
        "believes-a-head-of-yesterday",
        "A head counts whatever the clock says.",
        "gossipd/daemon/audit_gossip.py",
        "        if record is None or not now_ms - STALE_MS <= version <= now_ms + AHEAD_MS:\n",
        "        if record is None or not 0 <= version <= now_ms + AHEAD_MS:\n",
        (_HEADS,),
    ),
    Mutant(
        "tells-a-head-before-the-log-is-read",
        "A daemon that has not read its log yet says that it is empty.",
        "gossipd/audit/log.py",
        "if self._file.is_opened else None",
        "if self._file else None",
        ("tests/gossipd/audit/test_log.py",),
    ),
    Mutant(
        "gives-way-to-a-clone-in-silence",
        "A node that is outdone with its own key says nothing more of itself.",
        "membership/record_merger.py",
        "        if now >= self._outdo_s:\n",
        "        if now < self._outdo_s:\n",
        (_CLONES,),
    ),
    Mutant(
        "shouts-against-a-clone-without-a-pause",
        "Two processes with one key outdo each other as fast as records travel.",
        "membership/record_merger.py",
        "        self._outdo_s = now + self._outdo_pause_s\n",
        "        self._outdo_s = now\n",
        (_CLONES,),
    ),
    Mutant(
        "tells-a-replaced-process-nothing",
        "What still speaks from where a member was before is not told of the record that replaced it.",
        "membership/swim.py",
        "or self._record_merger.was_at(known.handle, address)",
        "or self._record_merger.was_at(known.handle, known.address)",
        (_CLONES,),
    ),
    Mutant(
        "takes-a-moved-host-for-two",
        "A host that moves once is an identity that is seen twice.",
        "gossipd/daemon/identity_watch.py",
        "        if came_back:\n",
        "        if moves:\n",
        (_WATCH,),
    ),
    Mutant(
        "takes-a-lost-state-for-a-clone",
        "A host that is outdone once, because it lost its state, is two.",
        "gossipd/daemon/identity_watch.py",
        "        if len(self._outdone) > 1 and",
        "        if len(self._outdone) > 0 and",
        (_WATCH,),
    ),
    Mutant(
        "lists-a-cloned-host-as-complete",
        "What one of two hosts with one key says counts for both.",
        "gossipd/api/deployment_row.py",
        "    single = [each.node for each in targets if not each.is_twice]\n",
        "    single = [each.node for each in targets]\n",
        ("tests/gossipd/api/test_deployment_row.py",),
    ),
    Mutant(
        "takes-silence-for-a-verdict",
        "A check at start that got no answer ends the daemon.",
        "gossipd/daemon/self_checks.py",
        "            if trio.current_time() >= end_s:\n",
        "            if end_s:\n",
        (_CHECKS,),
    ),
    Mutant(
        "reports-its-own-check-as-a-stranger",
        "The key that the check at start makes up is written into the audit log.",
        "gossipd/daemon/self_checks.py",
        "            return key == self._stranger.public.curve25519\n",
        "            return key == self._stranger.public.ed25519\n",
        (_CHECKS,),
    ),
    Mutant(
        "explains-every-refusal-away",
        "After a check at start no stranger on this host's address is reported.",
        "gossipd/daemon/self_checks.py",
        "        self._refusals_left -= may\n",
        "        self._refusals_left -= not may\n",
        (_CHECKS,),
    ),
    Mutant(
        "takes-a-hung-up-bulk-port-for-a-served-one",
        "The check of the bulk port takes no answer for a verdict.",
        "gossipd/transfer/self_check.py",
        "    if not answer:\n",
        "    if answer is None:\n",
        ("tests/gossipd/transfer/test_hostile_clients.py",),
    ),
    Mutant(
        "serves-chunks-to-any-member",
        "A member that the manifest does not name gets chunks.",
        "gossipd/transfer/server.py",
        "        if not self._port.may_have(node, request.deployment):\n",
        "        if not self._port.is_member(node):\n",
        (_SERVER,),
    ),
    Mutant(
        "takes-every-member-for-a-target",
        "The bulk port is told that every member is a target.",
        "gossipd/daemon/data_plane.py",
        "self._directory.is_target(node, manifest.targets)",
        "self._directory.is_member(node)",
        ("tests/gossipd/daemon/test_data_plane.py",),
    ),
    Mutant(
        "judges-targets-by-name-alone",
        "A host of the right name in another rack is a target.",
        "gossipd/daemon/member_directory.py",
        "targets.include(name=record.name, rack=record.rack)",
        "targets.include(name=record.name, rack=next(iter(targets.racks), record.rack))",
        ("tests/gossipd/daemon/test_alarms.py",),
    ),
    Mutant(
        "tells-holdings-to-any-member",
        "A member that the manifest does not name hears who holds which chunk.",
        "gossipd/sessions/exchange.py",
        "        if not self._directory.is_target(peer, self._targets[deployment]):\n            self._counters",
        "        if not self._directory.endpoint_of(peer):\n            self._counters",
        (_SESSIONS,),
    ),
    Mutant(
        "any-host-gives-a-budget",
        "One stolen host stops all reads of a deployment, by a budget of one byte.",
        "gossipd/deployment/followed_budgets.py",
        "            if not self._context.roster.may_cancel(signer, authors):\n",
        "            if False:\n",
        ("tests/gossipd/deployment/test_followed_budgets.py",),
    ),
    Mutant(
        "budget-needs-no-signature",
        "One stolen host stops all reads of a deployment, by a budget that it says a client has ordered.",
        "gossipd/deployment/followed_budgets.py",
        "            if told.signer and not has_its_signature(told, deployment):\n",
        "            if False:\n",
        ("tests/gossipd/deployment/test_followed_budgets.py",),
    ),
    Mutant(
        "trigger-gives-any-key-a-budget",
        "A client or member without the right stops all reads by trigger on a host that has it.",
        "gossipd/daemon/budget_orders.py",
        '        self._check_right(manifest, budget.signer, "this key")\n',
        '        self._check_right(manifest, manifest.signer, "this key")\n',
        ("tests/gossipd/daemon/test_budget_orders.py",),
    ),
)
