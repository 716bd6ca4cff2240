"""The corpus against parts in this process: every attack is refused by its code and leaves no trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.attacks.attack import PURE, REAL, Attack, CorpusError, load_corpus
from tests.attacks.pure.parts import SURFACES
from tests.attacks.pure.surface import attacked
from tests.attacks.report import words

ATTACKS = load_corpus()
STORIES = {f"S{number}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16)}


@pytest.mark.parametrize("attack", [one for one in ATTACKS if PURE in one.where], ids=lambda one: one.name)
def test_an_attack_is_refused_by_its_code_and_leaves_no_trace(attack: Attack) -> None:
    surface = SURFACES[attack.surface]()
    try:
        outcome = attacked(attack, surface)
    finally:
        surface.close()
    if attack.open:
        assert not outcome.is_refused, "the corpus says that it is open: it is no more"
        pytest.xfail(attack.open)
    assert outcome.is_refused, words(outcome)
    assert outcome.payload_bytes == 0


def test_the_corpus_has_every_family_and_story_and_no_attack_twice() -> None:
    assert len(ATTACKS) >= 150
    assert {one.story for one in ATTACKS} >= STORIES
    made = Counter((one.builder, repr(sorted(one.arguments.items())), one.actor, one.surface) for one in ATTACKS)
    assert not [one for one, count in made.items() if count > 1], "one attack under two names"
    assert all(REAL in one.where or PURE in one.where for one in ATTACKS)


GOOD = 'name = "a", builder = "datagram:empty_body", expect = ["x"]'


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([GOOD, GOOD], "given twice"),
        ([GOOD.replace("empty_body", "none")], "none"),
        ([GOOD.replace('["x"]', "[]")], "nothing is expected"),
        ([GOOD + ', where = ["moon"]'], "an unknown actor or place"),
        ([GOOD + ', colour = "red"'], "colour"),
    ],
)
def test_a_row_that_cannot_be_is_an_error_that_names_it(tmp_path: Path, rows: list[str], says: str) -> None:
    path = tmp_path / "corpus.toml"
    listed = ", ".join(f"{{ {row} }}" for row in rows)
    path.write_text(f'[[group]]\nfamily = "x"\nactor = "member"\nsurface = "gossip"\nattacks = [{listed}]\n')
    with pytest.raises(CorpusError, match=says):
        load_corpus(path)
