"""A report as one file: the page's own code and style with the report inside, which opens from a disk.

What lives here: joining the files. What does not: what is in a report (``diagnosis.report``), and how it is shown
(``static/report.js``).

A browser imports no modules from ``file:``, so they are joined into one script in the order in which they need each
other. Rejected: a second set of scripts for files, which would show another thing than the page. The file's policy
names the hashes of its script and style and allows nothing else: no request can leave it, and no text in it becomes
code.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from gossipd.web.static_files import static_files, words

MODULES = ("dom.js", "samples.js", "grid.js", "pages.js", "report.js", "report_file.js")
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[\w.]+";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def report_html(shown: Mapping[str, Any]) -> str:
    """``shown``: what ``--json`` prints, the report and its summary."""
    files = static_files()
    script = "\n".join(_scope(files[f"/{name}"][1].decode()) for name in MODULES)
    style = files["/page.css"][1].decode()
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}"
    title = f"{shown['summary']['label']} – gossipd"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
        f'<style>{style}</style>\n</head>\n<body>\n<header><nav id="trail">gossipd report</nav></header>\n'
        f'<main id="main"></main>\n<script type="application/json" id="report">{_inside(shown)}</script>\n'
        f'<script type="application/json" id="words">{_inside(words())}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _scope(module: str) -> str:
    """A module's text for the joined script: names of the others are in scope."""
    return _EXPORT.sub("", _IMPORT.sub("", module))


def _inside(value: object) -> str:
    """JSON in a script element: what could end the element is written as an escape."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
