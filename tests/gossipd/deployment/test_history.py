"""The course of a deployment, by values: columns, reasons, silences, closing, packing, and the bound on all of it."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from gossipd.core.reasons import HostReason
from gossipd.core.sketch import BINS, NOTHING_WANTED
from gossipd.deployment.history import (
    BYTES_MAX,
    CHANGES_MAX,
    COLUMN_MAX,
    HISTORIES_MAX,
    HOSTS_MAX,
    LIVE_MAX,
    MOVED_MAX,
    NOT_WANTED,
    NOT_YET,
    NOTHING,
    REASONS_MAX,
    SETTLED_S,
    SHARE_MAX,
    Histories,
    History,
    HistoryFormatError,
    HostHistory,
    Told,
    begins_s,
    column_at,
)
from gossipd.deployment.progress_record import HostState, Progress
from membership.member import NodeId

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)
KEY = b"k" * 8


def test_a_column_without_news_is_filled_from_the_one_before() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 1.2, Told(0.5, (10, 0, 0)))
    history.heard(B, 4.0, Told(1.0, (0, 5, 6), is_open=False))
    half = SHARE_MAX // 2
    step_s, places = history.columns(64)
    assert (step_s, places) == (1.0, [0, 1, 2, 3, 4])
    assert list(history.hosts[A].shares(places)) == [NOTHING, half, half, half, half]
    assert list(history.hosts[B].shares(places)) == [NOTHING] * 4 + [SHARE_MAX]
    assert history.moved_by(places) == [(0, 0, 0), (10, 0, 0), (0, 0, 0), (0, 0, 0), (0, 5, 6)]


def test_ten_minutes_are_kept_to_the_second_and_the_rest_to_ten() -> None:
    assert [column_at(at) for at in (0.0, 0.9, 599.9, 600.0, 609.9, 610.0)] == [0, 0, 599, 600, 600, 601]
    assert [begins_s(column) for column in (0, 599, 600, 601)] == [0, 599, 600, 610]
    history = History(began_wall_s=0.0)
    for at in (598.0, 599.0, 601.0, 609.0, 613.0):
        history.heard(A, at, Told(at / 1000, (1, 0, 0)))
    step_s, places = history.columns(10_000)
    assert (step_s, places[597:]) == (1.0, [597, 598, 599, 600, 610])
    shares, moved = history.hosts[A].shares(places), history.moved_by(places)
    assert [at for at, one in enumerate(moved) if one[0]] == [598, 599, 600, 610]
    assert [shares[at] for at in (597, 598, 609, 610)] == [
        NOTHING, *(int(SHARE_MAX * share) for share in (0.598, 0.609, 0.613)),
    ]  # fmt: skip


def test_any_length_is_shown_in_few_columns_and_no_byte_is_lost() -> None:
    history = History(began_wall_s=0.0)
    for at in range(1000):
        history.heard(A, float(at), Told(at / 1000, (1, 2, 3)))
    step_s, places = history.columns(64)
    assert (step_s, places[-1]) == (16.0, 61)
    assert [sum(one[at] for one in history.moved_by(places)) for at in range(3)] == [1000, 2000, 3000]
    shares = list(history.hosts[A].shares(places))
    assert shares == sorted(shares)
    assert shares[-1] == int(SHARE_MAX * 0.999)


def test_a_host_that_loses_and_gains_for_ever_is_kept_coarser() -> None:
    history = History(began_wall_s=0.0)
    for at in range(10 * CHANGES_MAX):
        history.heard(A, 10.0 * at, Told(at % 2, (1, 0, 0)))
    host = history.hosts[A]
    assert len(host.changes) <= 3 * CHANGES_MAX
    assert list(host.changes[:3]) == [0, 0, 0], "the first is kept"
    assert host.share() == SHARE_MAX, "and the last"
    assert len(history.moved) <= MOVED_MAX
    assert sum(one[0] for one in history.moved_by(history.columns(64)[1])) == 10 * CHANGES_MAX


def test_a_clock_that_is_set_back_or_far_ahead_does_no_harm() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 50.0, Told(0.5, (1, 0, 0)))
    history.heard(A, -3.0, Told(0.6, (1, 0, 0)))
    history.heard(A, 1e300, Told(0.7, (1, 0, 0)))
    history.heard(A, 1.0, Told(0.8, (1, 0, 0)))
    assert history.used == COLUMN_MAX + 1
    places = history.columns(64)[1]
    assert places[-1] < 64
    assert sum(one[0] for one in history.moved_by(places)) == 4


def test_reasons_are_kept_when_they_change_and_the_oldest_give_way() -> None:
    history = History(began_wall_s=0.0)
    for at, word in enumerate(["", "all_busy", "all_busy", ""]):
        history.heard(A, float(at), Told(0.0, word=word))
    assert history.hosts[A].reasons == ((1.0, "all_busy"), (3.0, ""))
    for at in range(4, 100):
        history.heard(A, float(at), Told(0.0, word="all_busy" if at % 2 else ""))
    assert len(history.hosts[A].reasons) == REASONS_MAX
    assert history.hosts[A].reasons[-1] == (99.0, "all_busy")


def test_the_longest_silence_of_a_host_that_lacks_something_is_kept() -> None:
    history = History(began_wall_s=0.0)
    for at in (0.0, 1.0, 31.0, 32.0):
        history.heard(A, at, Told(0.1))
    assert history.hosts[A].silence(33.0) == (30.0, 1.0)
    assert history.hosts[A].silence(90.0) == (58.0, 32.0), "the one that lasts"
    history.heard(A, 34.0, Told(1.0, is_open=False, is_final=True))
    assert history.hosts[A].silence(1e6) == (30.0, 1.0), "a host that has all may be silent"


def test_what_comes_long_after_the_end_does_not_stretch_it() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 0.0, Told(0.5))
    history.heard(A, 20.0, Told(1.0, is_open=False))
    history.heard(A, 20.0 + SETTLED_S / 2, Told(0.9, is_open=True))
    history.heard(A, 21.0 + SETTLED_S / 2, Told(1.0, is_open=False))
    used = history.used
    history.heard(A, 1e6, Told(0.9, (5, 0, 0), is_open=True))
    history.heard(B, 1e6, Told(0.1, (5, 0, 0)))
    assert history.used == used
    assert B not in history.hosts


def test_one_that_is_not_at_its_end_goes_on_after_any_pause() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 0.0, Told(0.5))
    history.heard(A, 1e5, Told(1.0, (7, 0, 0), is_open=False))
    assert [one[0] for one in history.moved.values()] == [7]


def test_hosts_of_one_history_are_bounded() -> None:
    history = History(began_wall_s=0.0)
    for number in range(HOSTS_MAX + 2):
        history.heard(NodeId(number.to_bytes(16, "big")), 0.0, Told(0.1))
    assert len(history.hosts) == HOSTS_MAX


def told(state: HostState = HostState.DOWNLOADING, chunks: int = 0, **more: Any) -> Progress:
    return Progress(state=state, reason=HostReason.NONE, chunks_verified=chunks, **more)


def test_records_become_shares_and_differences_of_their_counters() -> None:
    histories = Histories()
    first = told(chunks=5, source_bytes=100)
    histories.heard(KEY, A, None, first, chunk_count=10, wall_s=1000.0)
    histories.heard(KEY, A, first, told(chunks=2, source_bytes=150, chunks_wanted=2), chunk_count=10, wall_s=1001.0)
    histories.heard(KEY, B, None, told(HostState.REMOVED, 10), chunk_count=10, wall_s=1002.0)
    history = histories.live[KEY]
    assert [one[0] for one in history.moved_by(history.columns(64)[1])][:2] == [100, 50]
    assert list(history.hosts[A].shares([0, 1])) == [SHARE_MAX // 2, SHARE_MAX]
    assert not history.hosts[B].is_open
    assert history.hosts[B].is_final
    assert list(history.hosts[B].shares([0, 1, 2])) == [NOTHING, NOTHING, 0]


def test_what_had_ended_before_it_was_heard_has_no_course() -> None:
    histories = Histories()
    histories.heard(KEY, A, None, told(HostState.COMPLETE, 10), chunk_count=10, wall_s=1000.0)
    assert not histories.live


def begun(histories: Histories, number: int) -> bytes:
    key = number.to_bytes(8, "big")
    histories.heard(key, A, None, told(chunks=1, source_bytes=number), chunk_count=2, wall_s=1000.0 + number)
    return key


def test_only_the_latest_histories_are_kept_and_those_that_change_no_more_are_packed() -> None:
    histories = Histories()
    keys = [begun(histories, number) for number in range(HISTORIES_MAX + 1)]
    assert (len(histories.live), len(histories.packed)) == (LIVE_MAX, HISTORIES_MAX - LIVE_MAX)
    found = [histories.find(key) for key in keys]
    assert [one is None for one in found] == [True] + [False] * HISTORIES_MAX
    packed = found[1]
    assert packed is not None and packed.moved == {0: (1, 0, 0)}
    assert packed.hosts[A].silence(1e6) == (16.0, 0.0), "of what is packed nobody is silent"
    histories.heard(keys[1], A, told(chunks=1), told(chunks=2), chunk_count=2, wall_s=5000.0)
    assert histories.find(keys[1]) == packed


def test_a_host_that_tells_of_all_old_deployments_pushes_out_no_history_of_others() -> None:
    histories, nodes = Histories(), (A, NodeId(b"b" * 16))
    keys = [number.to_bytes(8, "big") for number in range(LIVE_MAX + 4)]
    for number, key in enumerate(keys):
        for node in nodes:
            histories.heard(key, node, None, told(chunks=1), chunk_count=2, wall_s=1000.0 + number)
    for number in range(3 * HISTORIES_MAX):
        begun(histories, 10_000 + number)
        if number == HISTORIES_MAX:
            histories = Histories.from_bytes(histories.to_bytes())
    assert all(histories.find(key) is not None for key in keys)
    assert len(histories.live) + len(histories.packed) == HISTORIES_MAX
    assert set(keys[-LIVE_MAX + 1 :]) <= histories.live.keys(), "what is under way there goes on"


def test_the_newest_is_kept_when_the_clock_was_set_back() -> None:
    histories = Histories()
    for number in range(1, LIVE_MAX + 1):
        begun(histories, number)
    newest = begun(histories, 0)
    assert histories.live[newest].moved_by(histories.live[newest].columns(64)[1]) == [(0, 0, 0)]


def test_sums_of_liars_can_be_saved_and_shown() -> None:
    histories, most = Histories(), told(chunks=1, source_bytes=1 << 58)
    for number in range(100):
        node = NodeId(number.to_bytes(16, "big"))
        histories.heard(KEY, node, None, most, chunk_count=10, wall_s=1000.0)
    assert Histories.from_bytes(histories.to_bytes()).live[KEY].moved == {0: (BYTES_MAX, 0, 0)}


def test_one_that_is_closed_is_packed_before_one_that_changed_longer_ago() -> None:
    histories = Histories()
    older, done = begun(histories, 0), begun(histories, 1)
    complete = told(HostState.COMPLETE, 2)
    histories.heard(done, A, told(chunks=1), complete, chunk_count=2, wall_s=1002.0)
    begun(histories, int(SETTLED_S) + 3)
    assert (older in histories.live, list(histories.packed)) == (True, [done])


def test_histories_are_the_same_after_a_restart() -> None:
    histories = Histories()
    keys = [begun(histories, number) for number in range(LIVE_MAX + 1)]
    again = Histories.from_bytes(histories.to_bytes())
    assert [again.find(key) for key in keys] == [histories.find(key) for key in keys]
    before = told(chunks=1, source_bytes=LIVE_MAX)
    more = told(chunks=2, source_bytes=LIVE_MAX + 3)
    again.heard(keys[-1], A, before, more, chunk_count=10, wall_s=1003.0 + LIVE_MAX)
    assert again.live[keys[-1]].moved[3] == (3, 0, 0)


def kept(packed: bool) -> bytes:
    histories = Histories()
    for number in range(LIVE_MAX + 1 if packed else 1):
        begun(histories, number)
    return histories.to_bytes()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("at", range(0, 400, 7))
def test_damaged_files_are_refused_or_harmless(at: int, packed: bool) -> None:
    damaged = bytearray(kept(packed))
    damaged[-1 - at % len(damaged)] ^= 0xFF
    try:
        again = Histories.from_bytes(bytes(damaged))
    except HistoryFormatError:
        return
    again.heard(KEY, A, None, told(chunks=6), chunk_count=10, wall_s=1001.0)
    for key in [*again.live, *again.packed]:
        history = again.find(key)
        places = history.columns(64)[1] if history is not None else []
        for host in history.hosts.values() if history is not None and places else ():
            host.shares(places)


def test_a_file_cut_short_or_of_another_version_is_refused() -> None:
    whole = kept(packed=True)
    for length in range(0, len(whole), 3):
        with pytest.raises(HistoryFormatError):
            Histories.from_bytes(whole[:length])
    with pytest.raises(HistoryFormatError):
        Histories.from_bytes(msgspec.msgpack.encode({KEY: {"began_wall_s": 1.0, "step_s": 2.0}}))


def test_a_history_of_many_hosts_is_packed_in_four_mib() -> None:
    rng, history = Random(1), History(began_wall_s=0.0)
    for number in range(HOSTS_MAX):
        host = HostHistory(0.0)
        for column in range(CHANGES_MAX):
            host.note(column, rng.randrange(SHARE_MAX))  # nothing that could be packed
        history.hosts[NodeId(number.to_bytes(16, "big"))] = host
    histories = Histories({KEY: history})
    history.changed_s = -1e6
    for number in range(LIVE_MAX):
        key = begun(histories, number)
        histories.heard(key, NodeId(b"b" * 16), None, told(chunks=1), chunk_count=2, wall_s=1000.0 + number)
    assert len(histories.packed[KEY]) <= 4 << 20


def marks_of(history: History, node: NodeId) -> list[int]:
    places = history.columns(64)[1]
    marks = history.hosts[node].marks(places)
    return [int.from_bytes(marks[at : at + 2], "big") for at in range(0, len(marks), 2)]


def test_each_quarter_of_a_bin_has_the_column_at_which_it_came() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 0.0, Told(0.1))
    history.sketched(A, 1.0, 1, bytes([0, 64, NOTHING_WANTED]))
    history.sketched(A, 3.0, 2, bytes([128, 127, NOTHING_WANTED]))
    history.heard(A, 4.0, Told(0.3))
    history.sketched(A, 4.0, 2, bytes([SHARE_MAX] * 3))
    assert marks_of(history, A) == [3, 3, NOT_YET, NOT_YET, 1, 3, NOT_YET, NOT_YET] + [NOT_WANTED] * 4
    history.heard(A, 6.0, Told(1.0, is_open=False))
    assert marks_of(history, A) == [3, 3, 6, 6, 1, 3, 6, 6] + [NOT_WANTED] * 4, "who is whole announces nothing more"


def test_a_bin_that_lost_chunks_comes_again_later() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 0.0, Told(0.1))
    for at_s, share in ((1.0, SHARE_MAX), (2.0, 100), (3.0, SHARE_MAX)):
        history.sketched(A, at_s, int(at_s), bytes([share]))
        history.heard(A, at_s, Told(at_s / 10))
    assert marks_of(history, A) == [1, 3, 3, 3]


def test_sketches_cost_512_bytes_a_host_however_often_they_change() -> None:
    history, random = History(began_wall_s=0.0), Random(5)
    history.heard(A, 0.0, Told(0.1))
    for at_s in range(3_000):
        history.sketched(A, float(at_s), at_s, random.randbytes(BINS))
    history.sketched(B, 1.0, 1, bytes(BINS))
    assert (len(history.hosts[A].reached), B in history.hosts) == (512, False)
    history.sketched(A, 4_000.0, 1, bytes(BINS + 1))
    assert len(history.hosts[A].reached) == 512
