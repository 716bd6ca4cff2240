"""``python -m tests.bench.loaded N COMMAND [ARGUMENT ...]``: run a command beside N processes that spin.

What lives here: those processes around one command, whose output and exit code are its own. What does not: the command;
the lab has its own ``--load``, because its hosts are made first.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tests.bench.lab.process import spinning

USAGE = "python -m tests.bench.loaded N COMMAND [ARGUMENT ...]"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's exit code; 2 where there is no number or no command. ``gossipd`` and ``python`` are those of this
    interpreter."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) < 2 or not given[0].isdecimal():
        print(USAGE, file=sys.stderr)
        return 2
    count, program, *rest = given
    own = {"python": [sys.executable], "gossipd": [sys.executable, "-m", "gossipd"]}
    with spinning(int(count)):
        return subprocess.run([*own.get(program, [program]), *rest], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
