"""Hears of writers that have to wait, so that a test can go on when one does instead of sleeping."""

from __future__ import annotations

from threading import Event

import pytest

from gossipd.store.journal import windows
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica


def hear_of_waits(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set as soon as the store makes any writer wait."""
    waits = Event()
    decide = windows._must_wait

    def watched(context: Context, replica: ModelReplica) -> bool:
        must = decide(context, replica)
        if must:
            waits.set()
        return must

    monkeypatch.setattr(windows, "_must_wait", watched)
    return waits
