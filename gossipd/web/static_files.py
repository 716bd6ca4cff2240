"""The files of the page, and what it must know of reasons and alarms.

What lives here: every answer that is the same for all daemons, made once. What does not: the daemon's answers
(``forwarding``), and the manual (``manual_pages``). No path of a request reaches the file system: a path is a key of a
table.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files

from gossipd.core.reasons import HostReason

HTML = "text/html; charset=utf-8"
_TYPES = {
    "html": HTML,
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_ALARM_ROW = re.compile(r"^\| `(E_[A-Z_]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)


def static_files() -> dict[str, tuple[str, bytes]]:
    """Content type and bytes, by path."""
    found = {}
    for file in (files("gossipd") / "web" / "static").iterdir():
        content_type = _TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            found[f"/{file.name}"] = (content_type, file.read_bytes())
    found["/"] = found.pop("/index.html")
    found["/words.json"] = ("application/json", json.dumps(words()).encode())
    return found


def words() -> dict[str, dict[str, dict[str, str]]]:
    """What each reason and each alarm means, and its cure: the table of reasons, and the manual's table of alarms."""
    reasons = {
        reason.value: {"sentence": reason.sentence, "cure": _plain(reason.cure), "who": reason.cured_by.value}
        for reason in HostReason
    }
    return {"reasons": reasons, "alarms": _alarms()}


def _alarms() -> dict[str, dict[str, str]]:
    text = (files("gossipd") / "manual" / "operations.md").read_text(encoding="utf-8")
    table = text.partition("\n## Alarms\n")[2].partition("\n## ")[0]
    return {code: {"sentence": _plain(said), "cure": _plain(cure)} for code, said, cure in _ALARM_ROW.findall(table)}


def _plain(markdown: str) -> str:
    return markdown.replace("`", "").replace(r"\|", "|")
