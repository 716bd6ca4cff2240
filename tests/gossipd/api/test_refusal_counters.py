"""A counter of refusals rises only when something was turned away."""

from __future__ import annotations

import pytest

from gossipd.api.refusal_counters import control_bytes, control_events, refused, uploads_failed

CONTROL = {
    "link_sent_bytes": 7805, "entrance_received_bytes": 16244, "zap_accepted": 14, "link_dialed": 5, "link_sent": 9,
    "zap_refused": 2, "control_refused_stranger": 3, "follow_gaps": 1,
    "control_bad_delta": 4,
}  # fmt: skip
BULK = {"E_HANDSHAKE": 6, "E_RELAY_ENDED": 7}


def test_traffic_and_failures_are_no_refusals() -> None:
    assert refused(BULK, CONTROL, {"dropped_unsealed": 8, "pings": 99}) == {
        "E_HANDSHAKE": 6, "control_zap_refused": 2, "control_refused_stranger": 3, "control_bad_delta": 4,
        "dropped_unsealed": 8,
    }  # fmt: skip


def test_every_counter_is_in_exactly_one_metric() -> None:
    assert control_bytes(CONTROL) == {"sent": 7805, "received": 16244}
    assert control_events(CONTROL) == {"zap_accepted": 14, "link_dialed": 5, "link_sent": 9, "follow_gaps": 1}
    assert uploads_failed(BULK) == {"E_RELAY_ENDED": 7}
    assert len(refused({}, CONTROL, {})) + len(control_events(CONTROL)) + 2 == len(CONTROL)


@pytest.mark.parametrize(
    "counter",
    ["dropped_replays", "boots_refused", "statements_refused_judge", "members_refused_address", "forgets_kept_back",
     "statements_kept_back", "accusations_disbelieved"],
)  # fmt: skip
def test_what_gossip_brought_and_was_not_taken_is_shown_as_refused(counter: str) -> None:
    assert refused({}, {}, {counter: 1}) == {counter: 1}


@pytest.mark.parametrize("counter", ["datagrams_in", "events_kept_back", "members_live", "contradictions"])
def test_what_was_taken_or_is_a_size_is_not(counter: str) -> None:
    assert refused({}, {}, {counter: 1}) == {}
