"""The manual in a browser: every page, links that lead somewhere, and nothing that leaves the origin or runs."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from gossipd.web import manual_pages
from gossipd.web.manual_pages import PREFIX, TOPICS, manual_page
from gossipd.web.static_files import static_files, words


class Document(HTMLParser):
    """What a browser would find in it."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        found = manual_page(PREFIX + topic)
        assert found is not None
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(found.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.attributes |= given.keys()
        self.links += [value for name in ("href", "src") if (value := given.get(name)) is not None]
        self.anchors |= {value for name in ("id",) if (value := given.get(name)) is not None}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("topic", ["", *TOPICS])
def test_every_link_leads_to_a_page_or_file_of_this_server(topic: str) -> None:
    document = Document(topic)
    for link in document.links:
        path, _, anchor = link.partition("#")
        assert path in static_files() or manual_page(path) is not None, link
        assert not anchor or anchor in Document(path.removeprefix(PREFIX)).anchors, link
    assert document.tags.isdisjoint({"script", "style", "img", "iframe", "object", "form"})
    assert not [name for name in document.attributes if name == "style" or name.startswith("on")]
    assert not re.search(r"^(<!--|\|---)", document.text, re.MULTILINE), "a comment, or a table that is none"


def test_every_alarm_has_the_section_to_which_the_page_leads() -> None:
    assert {code.lower() for code in words()["alarms"]} <= Document("runbook").anchors


def test_pages_lead_to_each_other_and_addresses_elsewhere_are_text() -> None:
    assert PREFIX + "reasons" in Document("runbook").links, "gossipd help reasons"
    assert PREFIX + "modules" in Document("architecture").links
    decisions = Document("decisions")
    assert "(https://github.com/uber/kraken)" in decisions.text
    assert not [link for link in decisions.links if "//" in link]


def test_markup_in_the_text_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "# T\n\n<script>alert(1)</script> [x](javascript:alert(1)) ![y](https://e.example/z.png) `<b>`\n"
    monkeypatch.setattr(manual_pages, "text_of", lambda topic: hostile)
    manual_pages._document.cache_clear()
    try:
        document = Document("install")
    finally:
        manual_pages._document.cache_clear()
    assert "script" not in document.tags and "<script>" in document.text and "<b>" in document.text
    assert not re.search("javascript:|example", " ".join(document.links))


@pytest.mark.parametrize("path", ["/manual", "/manual/none", "/manual/../server", "/manual/install.md", "/manual//"])
def test_another_path_has_no_page(path: str) -> None:
    assert manual_page(path) is None
