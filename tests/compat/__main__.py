"""``python -m tests.compat [--json] [--old COMMIT]``: exits with 1 when old and new daemons do not deliver."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.compat.mixed import OLD, BuildError, NoSuchCommitError, run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--old", default=OLD, metavar="COMMIT", help=f"the older code  [default: {OLD}]")
    parser.add_argument("--json", action="store_true", help="one object")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="compat-") as base:
        try:
            outcome = run(options.old, Path(base))
        except (BuildError, NoSuchCommitError) as error:
            print(error, file=sys.stderr)
            return 2
    for name, value in outcome.to_json().items():
        if not options.json:
            print(f"{name:16} {value}")
    if options.json:
        print(json.dumps(outcome.to_json()))
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
