"""Attacks of the corpus against four real daemons: one at each way in. ``tests.attacks`` makes all of them."""

from __future__ import annotations

from tests.attacks.attack import REAL, load_corpus
from tests.attacks.real.run import run_real
from tests.attacks.report import words

SOME = (
    "boot-of-a-member-at-u64", "notice-suspect-at-last", "unsigned-event-at-the-last-version", "cancel-by-a-member",
    "manifest-of-a-stranger", "chunk-for-no-member", "trigger-cancel-by-a-member",
    "folder-of-the-refused-is-a-link-to-keys",
)  # fmt: skip


def test_one_attack_at_each_way_in_is_refused_also_by_a_cluster_that_is_restarted() -> None:
    attacks = [one for one in load_corpus() if one.name in SOME]
    assert len(attacks) == len(SOME)
    assert all(REAL in one.where for one in attacks)
    told: list[str] = []
    for outcome in run_real(attacks, say=told.append):
        assert outcome.is_refused, f"{words(outcome)}\n{told}"
        assert outcome.payload_bytes == 0
