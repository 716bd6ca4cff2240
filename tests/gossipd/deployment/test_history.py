"""The course of a deployment, by values: columns, joining, reasons, silences, closing, and the bound on all of it."""

from __future__ import annotations

from typing import Any

import pytest

from gossipd.core.reasons import HostReason
from gossipd.deployment.history import (
    COLUMNS,
    HISTORIES_MAX,
    HOSTS_MAX,
    NOTHING,
    REASONS_MAX,
    SETTLED_S,
    SHARE_MAX,
    Histories,
    History,
    HistoryFormatError,
    Told,
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
    assert list(history.hosts[A].shares(history.used)) == [NOTHING, half, half, half, half]
    assert list(history.hosts[B].shares(history.used)) == [NOTHING] * 4 + [SHARE_MAX]
    assert history.moved[1] == (10, 0, 0)
    assert history.moved[4] == (0, 5, 6)


def test_any_length_fits_and_no_byte_is_lost() -> None:
    history = History(began_wall_s=0.0)
    for at in range(1000):
        history.heard(A, float(at), Told(at / 1000, (1, 2, 3)))
    assert history.step_s == 16.0
    assert history.used <= COLUMNS
    assert [sum(one[at] for one in history.moved) for at in range(3)] == [1000, 2000, 3000]
    shares = list(history.hosts[A].shares(history.used))
    assert shares == sorted(shares)
    assert shares[-1] == int(SHARE_MAX * 0.999)


def test_a_clock_that_is_set_back_or_far_ahead_does_no_harm() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 50.0, Told(0.5, (1, 0, 0)))
    history.heard(A, -3.0, Told(0.6, (1, 0, 0)))
    history.heard(A, 1e9, Told(0.7, (1, 0, 0)))
    assert history.used <= COLUMNS
    assert sum(one[0] for one in history.moved) == 3


def test_reasons_are_kept_when_they_change_and_the_oldest_give_way() -> None:
    history = History(began_wall_s=0.0)
    for at, word in enumerate(["", "all_busy", "all_busy", ""]):
        history.heard(A, float(at), Told(0.0, word=word))
    assert history.hosts[A].reasons == [(1.0, "all_busy"), (3.0, "")]
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
    step_s = history.step_s
    history.heard(A, 1e6, Told(0.9, (5, 0, 0), is_open=True))
    history.heard(B, 1e6, Told(0.1, (5, 0, 0)))
    assert history.step_s == step_s
    assert B not in history.hosts


def test_one_that_is_not_at_its_end_goes_on_after_any_pause() -> None:
    history = History(began_wall_s=0.0)
    history.heard(A, 0.0, Told(0.5))
    history.heard(A, 1e5, Told(1.0, (7, 0, 0), is_open=False))
    assert sum(one[0] for one in history.moved) == 7


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
    history = histories.by_key[KEY]
    assert [one[0] for one in history.moved[:2]] == [100, 50]
    assert list(history.hosts[A].shares(2)) == [SHARE_MAX // 2, SHARE_MAX]
    assert not history.hosts[B].is_open
    assert history.hosts[B].is_final
    assert list(history.hosts[B].shares(3)) == [NOTHING, NOTHING, 0]


def test_what_had_ended_before_it_was_heard_has_no_course() -> None:
    histories = Histories()
    histories.heard(KEY, A, None, told(HostState.COMPLETE, 10), chunk_count=10, wall_s=1000.0)
    assert not histories.by_key


def test_only_the_latest_histories_are_kept() -> None:
    histories = Histories()
    for number in range(HISTORIES_MAX + 1):
        histories.heard(bytes([number]), A, None, told(chunks=1), chunk_count=2, wall_s=1000.0 + number)
    assert len(histories.by_key) == HISTORIES_MAX
    assert b"\0" not in histories.by_key


def test_histories_are_the_same_after_a_restart() -> None:
    histories = Histories()
    histories.heard(KEY, A, None, told(chunks=5, source_bytes=9), chunk_count=10, wall_s=1000.0)
    again = Histories.from_bytes(histories.to_bytes())
    assert again.by_key == histories.by_key
    again.heard(KEY, A, told(chunks=5, source_bytes=9), told(chunks=6, source_bytes=12), chunk_count=10, wall_s=1003.0)
    assert again.by_key[KEY].moved[3] == (3, 0, 0)


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_damaged_files_are_refused_or_harmless(at: int) -> None:
    histories = Histories()
    histories.heard(KEY, A, None, told(chunks=5, source_bytes=9), chunk_count=10, wall_s=1000.0)
    kept = bytearray(histories.to_bytes())
    kept[at % len(kept)] ^= 0xFF
    try:
        again = Histories.from_bytes(bytes(kept))
    except HistoryFormatError:
        return
    again.heard(KEY, A, None, told(chunks=6), chunk_count=10, wall_s=1001.0)
    for history in again.by_key.values():
        for host in history.hosts.values():
            host.shares(history.used)


def test_a_file_cut_short_is_refused() -> None:
    histories = Histories()
    histories.heard(KEY, A, None, told(chunks=5), chunk_count=10, wall_s=1000.0)
    kept = histories.to_bytes()
    for length in range(len(kept)):
        with pytest.raises(HistoryFormatError):
            Histories.from_bytes(kept[:length])
