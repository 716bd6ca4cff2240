"""``python -m gossipd`` is the same as ``gossipd``."""

from __future__ import annotations

import sys

from gossipd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
