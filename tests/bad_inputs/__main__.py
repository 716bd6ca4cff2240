"""``python -m tests.bad_inputs [--json]``: the table, and how many of its rows apply."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tests.bad_inputs.rows import ROWS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bad_inputs", description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for row in ROWS:
        words = {"row": f"B{row.number}", "surface": row.surface, "given": row.given, "codes": list(row.codes)}
        if options.json:
            print(json.dumps(words | {"tests": list(row.tests), "absent": row.absent}))
        else:
            print(f"B{row.number:<3} {row.surface:16} {', '.join(row.codes)}")
            if row.absent:
                print(f"{'':21} not here: {row.absent}")
    total = {
        "rows": len(ROWS),
        "with_tests": sum(bool(row.tests) for row in ROWS),
        "in_part": sum(bool(row.tests and row.absent) for row in ROWS),
        "absent": sum(not row.tests for row in ROWS),
    }
    print(json.dumps(total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
