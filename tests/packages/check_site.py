"""The manual as a site, by mkdocs-material in a fresh environment: no dead link, nothing loaded from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "config" / "site" / "mkdocs.yml"


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([tmp_path / "venv" / "bin" / "pip", "install", "-q", "mkdocs-material"], check=True)
    build: list[str | Path] = [tmp_path / "venv" / "bin" / "mkdocs", "build", "--strict", "-q"]
    subprocess.run([*build, "-f", SITE, "-d", tmp_path / "site"], check=True, timeout=300)
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "install/index.html", "runbook/index.html"} <= {
        str(page.relative_to(tmp_path / "site")) for page in pages
    }
    for page in pages:
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="((?:https?:)?//[^"]+)"', page.read_text())
        assert not loaded, page
