"""What ranks do together: values go round, and the failure of one ends all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gossipd.api.client import DaemonUnreachableError
from gossipd.client import Client, Publication, RankFailedError
from gossipd.core.errors import GossipdError, UsageError
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import guarded


class Group:
    """Ranks in threads that exchange values."""

    def __init__(self, ranks: int, timeout_s: float = 120.0) -> None:
        self._barrier = threading.Barrier(ranks, timeout=timeout_s)
        self._values: list[Any] = [None] * ranks

    def gather_of(self, rank: int) -> Callable[[Any], list[Any]]:
        def all_gather(value: Any) -> list[Any]:
            self._values[rank] = value
            self._barrier.wait()
            values = list(self._values)
            self._barrier.wait()
            return values

        return all_gather


def run(sockets: list[Path], about: dict[str, Any] | None = None) -> list[Publication | GossipdError]:
    group = Group(len(sockets))

    def take_part(rank: int) -> Publication | GossipdError:
        try:
            return Client(sockets[rank]).publish_shards(
                sockets[0].parent / "saved", name="m", step=7, rank=rank, ranks=len(sockets),
                all_gather=group.gather_of(rank), keep_last=3, about=about,
            )  # fmt: skip
        except GossipdError as error:
            return error

    with ThreadPoolExecutor(len(sockets)) as pool:
        return list(pool.map(take_part, range(len(sockets))))


def test_ranks_exchange_parts_and_the_first_tells_when_all_hold_theirs(tmp_path: Path) -> None:
    first, second = FakeDaemon(), FakeDaemon()
    with guarded(tmp_path / "a", first), guarded(tmp_path / "b", second):
        made = run([tmp_path / "a", tmp_path / "b"])
    assert [one.version for one in made if isinstance(one, Publication)] == [7, 7]
    words = [(order[0], order[-1]) for order in first.orders]
    assert words == [("shards", 1 << 20), ("assemble", b"shards 1"), ("adopt-shards", False), ("adopt-shards", True)]
    assert first.orders[1][3:] == (None, 7, 3, None, b"shards 0", b"shards 1")
    assert first.orders[2][1] == "whole"
    assert [(order[0], order[-1]) for order in second.orders] == [("shards", 1 << 20), ("adopt-shards", False)]


def test_what_one_rank_gives_wrong_ends_all_of_them(tmp_path: Path) -> None:
    group = Group(2)

    def take_part(rank: int) -> str:
        wrong: dict[str, Any] = {"keep_last": 1.5} if rank == 0 else {}
        with pytest.raises(GossipdError) as caught:
            Client(tmp_path / "s").publish_shards(
                tmp_path / "saved",
                name="m",
                step=7,
                rank=rank,
                ranks=2,
                all_gather=group.gather_of(rank),
                **wrong,
            )
        return str(caught.value)

    with guarded(tmp_path / "s", FakeDaemon()), ThreadPoolExecutor(2) as pool:
        own, others = pool.map(take_part, range(2))
    assert own.startswith("keep_last is 1.5; it must be a whole number")
    assert others == f"rank 0: E_USAGE: {own}"


def test_the_origin_goes_to_the_daemon_that_signs_the_whole(tmp_path: Path) -> None:
    first, second = FakeDaemon(), FakeDaemon()
    with guarded(tmp_path / "a", first), guarded(tmp_path / "b", second):
        run([tmp_path / "a", tmp_path / "b"], {"run": "r", "parents": ["00"]})
    assert first.orders[1][7:] == ('{"run":"r","parents":["00"]}', b"shards 0", b"shards 1")
    assert [order[0] for order in second.orders] == ["shards", "adopt-shards"]


def test_an_origin_that_is_no_json_ends_all_ranks_before_anything_is_hashed(tmp_path: Path) -> None:
    daemon = FakeDaemon()
    with guarded(tmp_path / "a", daemon):
        made = run([tmp_path / "a"], {"run": object()})
    assert isinstance(made[0], UsageError) and not daemon.orders


def test_a_rank_without_a_daemon_ends_all_ranks(tmp_path: Path) -> None:
    first = FakeDaemon()
    with guarded(tmp_path / "a", first):
        made = run([tmp_path / "a", tmp_path / "none"])
    assert isinstance(made[0], RankFailedError)
    assert "rank 1: E_DAEMON_UNREACHABLE" in str(made[0])
    assert isinstance(made[1], DaemonUnreachableError)
    assert [order[0] for order in first.orders] == ["shards"]


def test_what_is_handed_to_the_daemon_lies_beside_the_checkpoint_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packaged unit hides the job's /tmp from it."""
    seen: list[Path] = []
    real = FakeDaemon.adopt_shards

    def noted(self: FakeDaemon, user: int, directory: str, manifest: str, *, is_told: bool) -> Any:
        seen.append(Path(manifest))
        return real(self, user, directory, manifest, is_told=is_told)

    monkeypatch.setattr(FakeDaemon, "adopt_shards", noted)
    with guarded(tmp_path / "a", FakeDaemon()):
        run([tmp_path / "a"])
    assert {path.parent.parent for path in seen} == {tmp_path}
    assert not any(path.parent.exists() for path in seen)


@pytest.mark.parametrize("wrong", [("", "m"), ("saved", ""), ("saved", None)])
def test_a_path_or_name_that_one_rank_lacks_ends_all_of_them(tmp_path: Path, wrong: tuple[str, Any]) -> None:
    group = Group(2, timeout_s=20.0)

    def take_part(rank: int) -> str:
        path, name = wrong if rank == 1 else ("saved", "m")
        with pytest.raises(GossipdError) as caught:
            Client(tmp_path / "s").publish_shards(
                path, name=name, step=1, rank=rank, ranks=2, all_gather=group.gather_of(rank)
            )
        return str(caught.value)

    with guarded(tmp_path / "s", FakeDaemon()), ThreadPoolExecutor(2) as pool:
        first, second = pool.map(take_part, range(2))
    assert "that is not empty" in second
    assert "rank 1" in first


def test_what_a_rank_leaves_out_is_told_to_its_daemon(tmp_path: Path) -> None:
    with guarded(tmp_path / "a", daemon := FakeDaemon()):
        Client(tmp_path / "a").publish_shards(
            tmp_path / "saved", name="m", step=1, rank=0, ranks=1, all_gather=Group(1).gather_of(0),
            exclude=["optimizer/", "*.pt"],
        )  # fmt: skip
    assert daemon.orders[0][-2:] == ("optimizer/\n*.pt", 1 << 20)


def test_a_publication_can_be_a_key(tmp_path: Path) -> None:
    assert len({Publication("m", 1, "i", 2, 3, {"*.tmp": 1}), Publication("m", 1, "i", 2, 3, {"*.tmp": 1})}) == 1
