"""The manual as pages of the web server: the Markdown that ships with the program, rendered when somebody reads it.

What lives here: the order of the pages, rendering, links between them. What does not: the text (``gossipd/manual``),
and printing it in a terminal (``cli.help``).

A page is one document without a script. Markup in the text is shown as text. An address elsewhere is text too: a
cluster without internet has no use for a link, and no request leaves this server.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# In the order to read them.
TOPICS = (
    "install", "operations", "runbook", "reasons", "training", "upgrade", "architecture", "modules", "security",
    "protocol", "decisions", "glossary",
)  # fmt: skip
PREFIX = "/manual/"
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_LINK = re.compile(r"([a-z]+)\.md(#[\w-]+)?")
_HELP = re.compile(r"gossipd help ([a-z]+)")


def manual_page(path: str) -> bytes | None:
    """The document at a path of the server, or None where there is none. No path reaches the file system: a topic is
    one of ``TOPICS``."""
    topic = path.removeprefix(PREFIX) if path.startswith(PREFIX) else None
    return _document(topic) if topic == "" or topic in TOPICS else None


def text_of(topic: str) -> str:
    """The Markdown text of one of ``TOPICS``, from the installed package."""
    return (files("gossipd") / "manual" / f"{topic}.md").read_text(encoding="utf-8")


@lru_cache(maxsize=len(TOPICS) + 1)
def _document(topic: str) -> bytes:
    titles = {one: text_of(one).partition("\n")[0].removeprefix("# ") for one in TOPICS}
    if topic:
        body = _rendered(text_of(topic))
    else:
        rows = "".join(f'<li><a href="{PREFIX}{one}">{html.escape(said)}</a></li>' for one, said in titles.items())
        body = f"<h1>Manual</h1>\n<ul>{rows}</ul>"
    trail = f'<a href="/">gossipd</a><span>›</span><a href="{PREFIX}">manual</a>'
    others = "".join(f'<a href="{PREFIX}{one}">{one}</a>' for one in TOPICS if one != topic)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(titles.get(topic, 'Manual'))} – gossipd</title>\n"
        '<link rel="icon" href="/icon.svg">\n<link rel="stylesheet" href="/page.css">\n</head>\n<body>\n'
        f'<header><nav id="trail" aria-label="Pages">{trail}</nav></header>\n'
        f'<main class="manual">\n<nav class="topics" aria-label="Manual">{others}</nav>\n{body}</main>\n'
        "</body>\n</html>\n"
    ).encode()


def _rendered(text: str) -> str:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(_COMMENT.sub("", text))
    for at, token in enumerate(tokens):
        token.attrs.pop("style", None)  # the policy lets no element bring its own
        if token.type == "heading_open":
            token.attrSet("id", _anchor(tokens[at + 1].content))
        if token.children:
            token.children = _with_own_links(parser, token.children)
    return _scrolling(parser.renderer.render(tokens, parser.options, {}))


def _with_own_links(parser: MarkdownIt, tokens: Sequence[Token]) -> list[Token]:
    """Links to other pages lead there; those elsewhere become their text, with the address behind it. The name of a
    page in a command becomes a link."""
    found: list[Token] = []
    away = ""
    for token in tokens:
        if token.type == "link_open":
            own = _LINK.fullmatch(str(token.attrGet("href")))
            if own and own[1] in TOPICS:
                token.attrSet("href", f"{PREFIX}{own[1]}{own[2] or ''}")
            else:
                away = str(token.attrGet("href"))
                continue
        elif token.type == "link_close" and away:
            before, *address = parser.parseInline(f"(`{away}`)")[0].children or []
            before.content = " ("
            found += [before, *address]
            away = ""
            continue
        named = _HELP.fullmatch(token.content) if token.type == "code_inline" else None
        if named and named[1] in TOPICS:
            link, *_, end = parser.parseInline(f"[x]({PREFIX}{named[1]})")[0].children or []
            found += [link, token, end]
        else:
            found.append(token)
    return found


def _anchor(heading: str) -> str:
    """As GitHub's: lower case, hyphens for spaces, and no other punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _scrolling(rendered: str) -> str:
    """Tables scroll by themselves, as those of the other pages do."""
    return rendered.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
