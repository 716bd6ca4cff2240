"""From which version ranks go on, and what happens when the host of one fails: threads as ranks, scripted daemons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from gossipd.api.client import DaemonUnreachableError
from gossipd.client import Client, EndedError, NotThereError, NotTrustedError, RankFailedError, Version
from gossipd.torch import checkpoints, newest

NOBODY = NotThereError("E_NOT_FOUND", "no version of run is known here", 3)
NONE_READY = EndedError("E_NOT_READY", "no version of run is complete or recoverable", 9)
GONE = DaemonUnreachableError("no daemon answers")


class _Host(Client):
    """A daemon that knows ``latest`` or raises it; of what it fetches its id is ``id_``, or it raises that."""

    def __init__(self, latest: int | Exception, id_: str | Exception = "aa") -> None:
        self._latest, self._id = latest, id_
        self.asked_before: int | None = None

    def latest(self, name: str, where: Any = "everywhere", *, before: int | None = None) -> Version:
        self.asked_before = before
        return self._version(self._latest, "aa")

    def wait(
        self, name: str, version: int | None = None, *, hosts: Any = "here", timeout: float | None = None
    ) -> Version:
        return self._version(version or 0, self._id)

    def _version(self, number: int | Exception, id_: str | Exception) -> Version:
        for one in (number, id_):
            if isinstance(one, Exception):
                raise one
        return Version("run", int(str(number)), str(id_), "complete", 1, 1, 1)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What each rank gets, or raises."""

    def ask(*hosts: _Host, **given: Any) -> list[Any]:
        told: dict[tuple[int, int], Any] = {}
        barrier = Barrier(len(hosts))

        def gather_of(rank: int) -> Callable[[Any], Sequence[Any]]:
            rounds = iter(range(10))

            def gather(value: Any) -> Sequence[Any]:
                turn = next(rounds)
                told[turn, rank] = value
                barrier.wait(30)
                return [told[turn, other] for other in range(len(hosts))]

            return gather

        def rank_of(rank: int) -> Any:
            try:
                return newest("run", client=hosts[rank], group=rank, **given)
            except Exception as error:  # noqa: BLE001 - the answer of this rank
                return error

        monkeypatch.setattr(checkpoints, "all_gather", gather_of)
        with ThreadPoolExecutor(len(hosts)) as pool:
            return list(pool.map(rank_of, range(len(hosts))))

    return ask


def test_all_go_on_from_the_highest_that_any_can_name(answers: Callable[..., list[Any]]) -> None:
    assert answers(_Host(7), _Host(9), _Host(NOBODY), _Host(NONE_READY)) == [9] * 4
    assert answers(_Host(NOBODY), _Host(NOBODY)) == [None, None]
    first = _Host(7)
    assert answers(first, _Host(7), before=9, fetch=False) == [7, 7]
    assert first.asked_before == 9


def test_a_run_is_not_begun_again_because_no_version_can_be_had_now(answers: Callable[..., list[Any]]) -> None:
    told = answers(_Host(NOBODY), _Host(NONE_READY))
    assert [type(one) for one in told] == [EndedError, EndedError]
    assert all("no version of run is complete or recoverable" in str(one) for one in told)


def test_no_version_below_another_is_no_new_run(answers: Callable[..., list[Any]]) -> None:
    told = answers(_Host(NOBODY), _Host(NOBODY), before=9)
    assert [type(one) for one in told] == [EndedError, EndedError]


@pytest.mark.parametrize("failing", [_Host(GONE), _Host(7, GONE)])
def test_no_rank_waits_for_another_whose_host_has_failed(answers: Callable[..., list[Any]], failing: _Host) -> None:
    good, bad = answers(_Host(7), failing)
    assert isinstance(good, RankFailedError) and "rank 1: E_DAEMON_UNREACHABLE: no daemon answers" in str(good)
    assert isinstance(bad, DaemonUnreachableError)


def test_hosts_with_different_contents_of_one_version_are_refused(answers: Callable[..., list[Any]]) -> None:
    assert {type(one) for one in answers(_Host(7), _Host(7, "bb"))} == {NotTrustedError}
