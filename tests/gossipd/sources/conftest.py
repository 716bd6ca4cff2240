"""Readers keep connections until they are closed: each test's are, at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gossipd.sources.reader import SourceReader


@pytest.fixture(autouse=True)
def _readers_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[SourceReader] = []
    begin = SourceReader.__init__

    def remember(reader: SourceReader, *args: Any, **named: Any) -> None:
        begin(reader, *args, **named)
        made.append(reader)

    monkeypatch.setattr(SourceReader, "__init__", remember)
    yield
    for reader in made:
        reader.close()
