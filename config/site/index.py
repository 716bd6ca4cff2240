"""The site's first page: where to begin. mkdocs calls ``on_files``."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

TEXT = """# gossipd

One daemon per host, and a model on every host in the time of one download.

Begin with [Install](install.md). When something rings: [Runbook](runbook.md), and the [reasons](reasons.md) that hosts
give.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of the manual, and this one."""
    files.append(File.generated(config, "index.md", content=TEXT))
    return files
