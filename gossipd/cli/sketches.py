"""``gossipd status --sketch``: which chunks hosts have, a character for each bin of adjacent ones.

What lives here: drawing. What does not: where the shares come from (``api.sketch_row``).
"""

from __future__ import annotations

import shutil
from base64 import b64decode
from typing import Any

from gossipd.cli.layout import Part, TextTable
from gossipd.cli.options import time_words
from gossipd.core.sketch import BINS, NOTHING_WANTED, SHARE_MAX
from gossipd.core.units import show_count
from gossipd.core.versions import label_words

_PARTLY = "░▒▓"
_LEGEND = "█ all of its chunks, ▓▒░ some of them, · none, blank: none is wanted there"


def sketch_lines(answer: dict[str, Any]) -> list[Part]:
    """A line for each host whose chunks are known, then how many are not. On a narrow terminal a character stands for
    two bins."""
    rows = answer["hosts"]
    columns = shutil.get_terminal_size().columns
    widest = max((len(row["name"]) + len(row["rack"]) for row in rows), default=0)
    is_narrow = widest + len("  " * 4) + len("100m 10s") + len(str(answer["chunks_total"])) + BINS > columns
    chunks = show_count(answer["chunks_total"], "chunk")
    title = f"{label_words(answer)}  {chunks}, from the first to the last; {_LEGEND}"
    cells = [
        (row["name"], row["rack"], str(row["chunks_held"]), time_words(row["age_s"]), drawn(row["shares"], is_narrow))
        for row in rows
    ]
    lines: list[Part] = [title, TextTable(("HOST", "RACK", "CHUNKS", "AGE", "WHICH"), cells, "  ")]
    if unknown := answer["hosts_total"] - len(rows):
        whose = "host has" if unknown == 1 else "hosts have"
        lines.append(f"  {unknown} more {whose} some; {answer['told_by']} has not heard which: ask there")
    return lines


def drawn(shares: str, is_narrow: bool = False) -> str:
    """The bins of base64 text as characters, two as one where ``is_narrow``."""
    bins = b64decode(shares)
    step = 2 if is_narrow else 1
    return "".join(_character(bins[at : at + step]) for at in range(0, len(bins), step))


def _character(bins: bytes) -> str:
    wanted = [one for one in bins if one != NOTHING_WANTED]
    if not wanted:
        return " "
    if min(wanted) >= SHARE_MAX:
        return "█"
    part = sum(wanted) / len(wanted) / SHARE_MAX
    return _PARTLY[min(2, int(3 * part))] if part else "·"
