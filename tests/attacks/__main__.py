"""``python -m tests.attacks [--json] [--pure|--real] [--only NAME|FAMILY|STORY] [--list]``.

Exit code 1 unless every attack is refused, with the code or counter that the corpus names, and without a trace.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence

from tests.attacks.attack import PURE, REAL, Attack, Outcome, chosen, load_corpus
from tests.attacks.pure.parts import SURFACES
from tests.attacks.pure.surface import attacked
from tests.attacks.report import summary, words


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON and nothing else on standard output")
    parser.add_argument("--only", default="", metavar="NAME|FAMILY|STORY")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--pure", action="store_true", help="only against parts in this process")
    parser.add_argument("--real", action="store_true", help="only against four daemons")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    attacks = chosen(load_corpus(), options.only)
    if options.list:
        for one in attacks:
            print(f"{one.family:9} {one.story:4} {one.actor:9} {','.join(one.where):9} {one.name}: {one.expect[0]}")
        return 0
    outcomes = [] if options.real else run_pure(attacks)
    if not options.pure:
        from tests.attacks.real.run import run_real

        outcomes += run_real([one for one in attacks if REAL in one.where], say=_say)
    for outcome in outcomes:
        if said := words(outcome):
            _say(said)
    total = summary(outcomes)
    print(json.dumps(total) if options.json else json.dumps(total, indent=1))
    return 0 if outcomes and all(one.is_refused for one in outcomes) else 1


def run_pure(attacks: Sequence[Attack]) -> list[Outcome]:
    """Each against a part of its own."""
    outcomes = []
    for one in attacks:
        if PURE in one.where:
            surface = SURFACES[one.surface]()
            try:
                outcomes.append(attacked(one, surface))
            finally:
                surface.close()
    return outcomes


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
