"""Which counters of membership are shown as refusals; the pages are asked of real daemons (``tests.e2e``)."""

from __future__ import annotations

import pytest

from gossipd.daemon.status_view import _is_refusal


@pytest.mark.parametrize(
    "counter",
    ["dropped_replays", "boots_refused", "statements_refused_judge", "members_refused_address", "forgets_kept_back",
     "statements_kept_back", "accusations_disbelieved"],
)  # fmt: skip
def test_what_gossip_brought_and_was_not_taken_is_shown_as_refused(counter: str) -> None:
    assert _is_refusal(counter)


@pytest.mark.parametrize("counter", ["datagrams_in", "events_kept_back", "members_live", "contradictions"])
def test_what_was_taken_or_is_a_size_is_not(counter: str) -> None:
    assert not _is_refusal(counter)
