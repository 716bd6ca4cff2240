"""A report in one file: whole, without another origin, and with text that stays text."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

from gossipd.web.report_file import MODULES, report_html
from gossipd.web.static_files import static_files

HOSTILE = "</script><script>document.title='taken'</script>"


def shown(name: str = "m") -> dict[str, Any]:
    return {"schema_version": 1, "summary": {"label": f"{name}@1"}, "report": {"deployment": {"name": name}}}


def test_no_text_of_a_report_ends_its_element() -> None:
    page = report_html(shown(HOSTILE))
    held = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)
    assert held is not None
    assert json.loads(held[1]) == shown(HOSTILE)
    assert page.count("</script>") == 3
    assert "<title>&lt;/script&gt;" in page


def test_the_policy_allows_the_files_own_script_and_style_alone() -> None:
    page = report_html(shown())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    script = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert policy is not None and script is not None and style is not None
    for text in (script[1], style[1]):
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    assert "import " not in script[1].replace("imports", "")
    assert not re.search(r"^export ", script[1], re.MULTILINE)


def test_every_module_is_in_the_file_but_the_pages_own_start() -> None:
    scripts = {path[1:] for path, (kind, _) in static_files().items() if "javascript" in kind}
    assert set(MODULES) == scripts - {"main.js"}


def test_modules_stand_after_those_that_they_need() -> None:
    seen: set[str] = set()
    for name in MODULES:
        text = static_files()[f"/{name}"][1].decode()
        assert set(re.findall(r'from "\./([\w.]+)"', text)) <= seen, name
        seen.add(name)
