"""Bugs of membership: seals, replays, verdicts, those who are gone."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_VALUES = "tests/membership/test_values.py"

MUTANTS = (
    Mutant(
        "reuses-a-nonce",
        "The counter that is the nonce stands still.",
        "membership/seal.py",
        "        self._counter += 1\n",
        "        self._counter = 1\n",
        (_VALUES,),
    ),
    Mutant(
        "a-new-key-begins-its-nonces-anew",
        "After a rotation the counter starts again, so a key that comes back meets its nonces again.",
        "membership/seal.py",
        "        self._tag = key_tag(ring.cluster_id, ring.keys[0])\n",
        "        self._tag = key_tag(ring.cluster_id, ring.keys[0])\n        self._counter = 0\n",
        (_VALUES,),
    ),
    Mutant(
        "replay-window-off",
        "A datagram counts as often as it is sent.",
        "membership/replay.py",
        "        if -ahead >= _WINDOW or bits & bit:\n",
        "        if -ahead >= _WINDOW:\n",
        (_VALUES,),
    ),
    Mutant(
        "hears-an-earlier-life",
        "A datagram of an older boot is as good as one of this boot.",
        "membership/replay.py",
        "            if boot < last_boot:\n                return False\n",
        "",
        (_VALUES,),
    ),
    Mutant(
        "one-accuser-is-a-verdict",
        "A single accuser makes a corroborated suspicion.",
        "membership/suspicion.py",
        "        if len(self.accusers) < 2:\n            return False\n",
        "        if len(self.accusers) == 1:\n            return True\n",
        (_VALUES,),
    ),
    Mutant(
        "a-tombstone-forgets",
        "A late rumour brings back the very life that was taken off the roster.",
        "membership/tombstones.py",
        "        return boot <= stone[0]\n",
        "        return boot < stone[0]\n",
        (_VALUES,),
    ),
    Mutant(
        "believes-any-signature",
        "Accusations and signs of life are taken for their subject's or accuser's own.",
        "membership/verified_cache.py",
        "            verdict = self._verify(public_key, signature, message)\n",
        "            verdict = True\n",
        ("tests/membership/test_merging.py",),
    ),
    Mutant(
        "judges-while-cut-off",
        "A member that hears nobody goes on passing verdicts.",
        "membership/judge.py",
        "        if node.settings.isolation_freeze and is_doubtful:\n",
        "        if node.settings.isolation_freeze and node.has_left:\n",
        ("tests/membership/test_simulation.py", "tests/membership/test_planted_bugs.py"),
    ),
    Mutant(
        "a-boot-number-comes-back",
        "After its clock was set back a host starts with a boot number that it had before.",
        "gossipd/daemon/state_dir.py",
        "        boot = max(last + 1",
        "        boot = max(last",
        ("tests/gossipd/daemon/test_state_dir.py",),
    ),
    Mutant(
        "a-statement-waits-for-its-round",
        "A statement that is news is passed on when the next round of gossip is due.",
        "membership/event_store.py",
        "        if kind is PayloadKind.STATEMENT and relay:\n",
        "        if kind is PayloadKind.PROGRESS and relay:\n",
        ("tests/membership/test_swim.py",),
    ),
    Mutant(
        "says-anew-what-it-heard",
        "A host that hears a statement publishes it as its own word.",
        "gossipd/daemon/dissemination.py",
        "        if heard is Heard.NEWS:\n            self._act(statement)\n",
        "        if heard is Heard.NEWS:\n            self._tell(statement)\n",
        ("tests/gossipd/daemon/test_dissemination.py",),
    ),
    Mutant(
        "asks-anybody-for-the-manifest",
        "Who told of a deployment is not the first to be asked for its manifest.",
        "gossipd/daemon/dissemination.py",
        "        node = known[0] if known and is_first else self._rng.choice(candidates)\n",
        "        node = self._rng.choice(candidates)\n",
        ("tests/gossipd/daemon/test_dissemination.py",),
    ),
    Mutant(
        "answers-before-the-manifest-is-here",
        "A host that is pulling a manifest itself says that it has none.",
        "gossipd/daemon/state_dir.py",
        "            if envelope is not None or left_s <= 0 or not is_coming(deployment):\n",
        "            if envelope is not None or left_s > 0 or not is_coming(deployment):\n",
        ("tests/gossipd/daemon/test_state_dir.py",),
    ),
)
