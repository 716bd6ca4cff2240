"""``python -m tests.mutants [--json] [--only NAME ...] [--list]``: which test catches which planted bug.

One line per bug on stdout, then one with ``mutants`` and ``caught``; progress on stderr. Exits with 1 when a bug
survives, with 2 when one cannot be planted or the tests fail without any.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, MutantError
from tests.mutants.trial import Outcome, Verdict, baseline, copied_tree, try_mutant


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", choices=sorted(MUTANTS), help="this one; repeatable")
    parser.add_argument("--list", action="store_true", help="say what there is and run nothing")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args(arguments)
    chosen = [MUTANTS[name] for name in options.only] if options.only else list(MUTANTS.values())
    if options.list:
        for mutant in chosen:
            row = {"mutant": mutant.name, "says": mutant.says, "path": mutant.path, "tests": list(mutant.tests)}
            print(json.dumps(row) if options.json else f"{mutant.name:40} {mutant.says}")
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the copy is removed
    try:
        return run(chosen, as_json=options.json)
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2


def run(mutants: Sequence[Mutant], *, as_json: bool) -> int:
    """Try each; the exit code. Raises MutantError."""
    outcomes: dict[str, Outcome] = {}
    with copied_tree() as tree:
        for mutant in mutants:
            mutant.applied((tree / mutant.path).read_text())
        say("without any bug")
        clean = baseline(tree, mutants)
        if clean.verdict is not Verdict.SURVIVED:
            raise MutantError(f"without any bug these do not pass: {', '.join(clean.caught_by)}\n{clean.said}")
        for number, mutant in enumerate(mutants, start=1):
            outcome = outcomes[mutant.name] = try_mutant(tree, mutant)
            say(f"{number}/{len(mutants)} {mutant.name}: {outcome.verdict.value} in {outcome.seconds} s")
            if outcome.said and outcome.verdict is not Verdict.CAUGHT:
                say(outcome.said)
            print(_line(mutant, outcome, as_json=as_json), flush=True)
    survivors = [name for name, outcome in outcomes.items() if outcome.verdict is not Verdict.CAUGHT]
    total = {"mutants": len(outcomes), "caught": len(outcomes) - len(survivors), "survivors": survivors}
    print(json.dumps(total) if as_json else f"{total['caught']} of {total['mutants']} caught; not: {survivors}")
    return 1 if survivors else 0


def say(words: str) -> None:
    """Progress, for people."""
    print(words, file=sys.stderr, flush=True)


def _line(mutant: Mutant, outcome: Outcome, *, as_json: bool) -> str:
    if not as_json:
        return f"{outcome.verdict.value:9} {mutant.name:40} {', '.join(outcome.caught_by)}"
    row = {"mutant": mutant.name, "says": mutant.says, "path": mutant.path, "verdict": outcome.verdict.value}
    return json.dumps(row | {"caught_by": list(outcome.caught_by), "seconds": outcome.seconds})


if __name__ == "__main__":
    sys.exit(main())
