"""What a daemon tells of a deployment's course: names, shares, silences, and hosts that are off the roster."""

from __future__ import annotations

from base64 import b64decode

from gossipd.api.report_row import timeline_row, traffic_rows
from gossipd.core.ids import short
from gossipd.deployment.history import SHARE_MAX, History, Told
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from tests.gossipd.api.fake_daemon import TOY, node

KNOWN = {node(1): ("node-1", "r1"), node(2): ("node-2", "r2")}


def test_every_host_that_ever_told_has_its_traffic() -> None:
    table = ClusterProgress()
    for number in (1, 2, 3):
        told = Progress(state=HostState.COMPLETE, source_bytes=number, started_s=1000, elapsed_s=8)
        table.record(node(number), progress_key(TOY), 1, told, now=0.0)
    table.forget(node(3))
    rows = traffic_rows(table.everybody(progress_key(TOY)), KNOWN)
    assert [(one.name, one.rack, one.source_bytes) for one in rows] == [
        (short(node(3)), "", 3), ("node-1", "r1", 1), ("node-2", "r2", 2),
    ]  # fmt: skip
    assert (rows[1].started_s, rows[1].elapsed_s) == (1000, 8)


def test_a_course_has_a_byte_for_each_host_and_column() -> None:
    history = History(began_wall_s=500.0)
    history.heard(node(1), 0.0, Told(0.5, (3, 0, 0)))
    history.heard(node(1), 2.0, Told(1.0, (4, 0, 0), is_open=False, is_final=True))
    history.heard(node(2), 1.0, Told(0.0, word="all_busy"))
    history.heard(node(3), 1.0, Told(0.0, (9, 0, 0)))
    history.sketched(node(2), 1.0, 1, bytes([127]))
    row = timeline_row(history, KNOWN, 560.0)
    assert row.moved == [(3, 0, 0), (0, 0, 0), (13, 0, 0)]
    assert row.told_s == 60.0
    assert set(row.shares) == {"node-1", "node-2"}
    assert list(b64decode(row.shares["node-1"])) == [SHARE_MAX // 2, SHARE_MAX // 2, SHARE_MAX]
    sketches = {name: list(b64decode(one)) for name, one in row.sketches.items()}
    assert sketches == {"node-2": [0, 2, 0, 2, 255, 255, 255, 255]}
    assert row.reasons == {"node-2": [(2.0, "all_busy")]}
    assert row.silences == {"node-2": (58.0, 2.0)}, "it lacks something, and says nothing"


def test_a_short_silence_is_told_where_the_host_was_started_again() -> None:
    history = History(began_wall_s=500.0)
    for boot, at_s in ((7, 0.0), (7, 1.0), (8, 3.0), (7, 3.5), (8, 4.0)):
        history.heard(node(1), at_s, Told(at_s / 10, (1, 0, 0), boot=boot))
        history.heard(node(2), at_s, Told(at_s / 10, (1, 0, 0), boot=5))
    row = timeline_row(history, KNOWN, 504.0)
    assert row.silences == {"node-1": (2.0, 1.0)}


def test_a_start_after_the_end_is_no_silence_of_the_deployment() -> None:
    history = History(began_wall_s=500.0)
    history.heard(node(1), 0.0, Told(1.0, (1, 0, 0), is_open=False, is_final=True, boot=1))
    history.heard(node(1), 3.0, Told(1.0, is_open=False, is_final=True, boot=2))
    assert timeline_row(history, KNOWN, 504.0).silences == {}
