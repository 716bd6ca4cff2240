"""``gossipd help [TOPIC]``: the manual, which ships with the program so that a cluster without internet has it.

What lives here: finding the pages and printing one. What does not: the pages (``gossipd/manual``), and the options of
commands (``gossipd COMMAND --help``).
"""

from __future__ import annotations

import sys
from importlib.resources import files

import click

from gossipd.cli.options import examples, table
from gossipd.core.errors import UsageError

# In the order to read them.
TOPICS = (
    "install", "operations", "runbook", "reasons", "training", "upgrade", "architecture", "modules", "security",
    "protocol", "decisions", "glossary",
)  # fmt: skip
_PAGE_COLUMNS_MAX = 120  # longer lines are hard to read on a wide terminal


@click.command("help", epilog=examples("gossipd help", "gossipd help operations", "gossipd help security | less"))
@click.argument("topic", required=False)
def manual(topic: str | None) -> None:
    """Print a page of the manual; without TOPIC, say which pages there are.

    On a terminal the page is formatted; in a pipe it is the Markdown text as it was written.
    """
    if topic is None:
        rows = [(name, page(name).splitlines()[0].removeprefix("# ")) for name in TOPICS]
        click.echo("\n".join(table(("TOPIC", "WHAT IT SAYS"), rows)))
        click.echo("\nread one with: gossipd help TOPIC")
        return
    if topic not in TOPICS:
        raise UsageError(f"the manual has no topic {topic!r}; it has {', '.join(TOPICS)}")
    text = page(topic)
    if sys.stdout.isatty():
        _show(text)
    else:
        click.echo(text, nl=False)


def page(topic: str) -> str:
    """The Markdown text of one of ``TOPICS``, from the installed package."""
    return (files("gossipd") / "manual" / f"{topic}.md").read_text(encoding="utf-8")


def _show(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(text, hyperlinks=False), width=min(console.width, _PAGE_COLUMNS_MAX))
