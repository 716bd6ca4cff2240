"""``gossipd help [TOPIC]``: the manual, which ships with the program so that a cluster without internet has it.

What lives here: printing a page. What does not: the pages (``gossipd/manual``), their order (``web.manual_pages``),
what they say of one word (``manual_entries``), and the options of commands (``gossipd COMMAND --help``).
"""

from __future__ import annotations

import sys

import click

from gossipd.cli.layout import TextTable, show_lines
from gossipd.cli.manual_entries import entry, settings_page, words
from gossipd.cli.options import examples
from gossipd.core.errors import UsageError
from gossipd.web.manual_pages import TOPICS, text_of

SETTINGS = "settings"  # a page that is made from their descriptions
_PAGE_COLUMNS_MAX = 120  # longer lines are hard to read on a wide terminal


@click.command(
    "help",
    epilog=examples("gossipd help", "gossipd help operations", "gossipd help E_WATERMARK", "gossipd help no_space"),
)
@click.argument("topic", required=False)
def manual(topic: str | None) -> None:
    """Print a page of the manual, or what it says of one alarm, alert, reason or setting; without TOPIC, say which
    pages there are.

    On a terminal the page is formatted; in a pipe it is the Markdown text as it was written.
    """
    if topic is None:
        rows = [(name, page(name).splitlines()[0].removeprefix("# ")) for name in (*TOPICS, SETTINGS)]
        hint = "read one with: gossipd help TOPIC; of an alarm, alert, reason or setting: gossipd help E_WATERMARK"
        show_lines([TextTable(("TOPIC", "WHAT IT SAYS"), rows), "", hint])
        return
    text = page(topic) if topic in (*TOPICS, SETTINGS) else entry(topic, page)
    if text is None:
        from difflib import get_close_matches

        near = get_close_matches(topic, [*TOPICS, SETTINGS, *words(page)], n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"the manual has no topic {topic!r}; it has {', '.join((*TOPICS, SETTINGS))}, and each alarm, alert, "
            f"reason and setting by its name.{meant}"
        )
    if sys.stdout.isatty():
        _show_page(text)
    else:
        click.echo(text, nl=False)


def page(topic: str) -> str:
    """The Markdown text of one of ``TOPICS``, from the installed package, or of ``SETTINGS``."""
    return settings_page() if topic == SETTINGS else text_of(topic)


def _show_page(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(text, hyperlinks=False), width=min(console.width, _PAGE_COLUMNS_MAX))
