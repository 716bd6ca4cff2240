"""When flights that were foretold to end count as about to end."""

from __future__ import annotations

import math

from gossipd.core.ids import SOURCE
from gossipd.swarm.endings import Endings
from membership.member import NodeId

A = NodeId(b"a" * 16)


def test_what_is_expected_is_taken_at_its_time_and_once() -> None:
    endings = Endings()
    endings.expect(5, A, 2.0)
    endings.expect(4, SOURCE, 1.0)
    endings.expect(6, SOURCE, 2.0)
    assert endings.next_s == 1.0
    assert endings.take(0.5) == []
    assert endings.take(1.0) == [(4, SOURCE)]
    assert endings.take(9.0) == [(5, A), (6, SOURCE)], "equals in the order in which they were told"
    assert endings.take(9.0) == []
    assert endings.next_s == math.inf
