"""Where ``current`` leads after roll backs of this host and in the whole cluster, whichever versions come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.disk import write_new_file
from gossipd.store.models import current_link
from gossipd.store.models.current_link import CurrentLink, surplus_versions
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import small

MODELS = {version: small(version=version, seed=version) for version in range(1, 6)}


class Versions:
    """A store in memory, its versions and what is rolled back of them."""

    def __init__(self) -> None:
        self.rolled_back: frozenset[int] = frozenset()
        self.disk = MemoryDisk()
        self.store = ChunkStore(
            Path("unused"), settings=StoreSettings(reserve_bytes=0, keep_versions=9), on_event=lambda event: None,
            disk=self.disk, clock=SetClock(), background=False,
        )  # fmt: skip

    def fetch(self, version: int) -> None:
        model = MODELS[version]
        self.store.open(model.manifest)
        for chunk, body in enumerate(model.chunks):
            self.store.put(model.manifest.id, chunk, body, SOURCE, 0.0)

    def complete(self, *versions: int) -> None:
        for version in versions:
            self.fetch(version)
            self.store.finish(MODELS[version].manifest.id)
            self.store.avoid_versions("m", self.rolled_back)  # as the brain asks when a version is complete

    def roll_back(self, *versions: int) -> None:
        self.rolled_back |= frozenset(versions)
        self.store.avoid_versions("m", self.rolled_back)

    def deploy_again(self, version: int) -> None:
        self.rolled_back -= {version}
        self.store.avoid_versions("m", self.rolled_back)

    def roll_back_here(self) -> int:
        return self.store.rollback("m")

    def remove(self, version: int) -> None:
        self.store.remove("m", version)

    @property
    def current(self) -> int | None:
        return self.store.current("m")


@pytest.fixture
def versions() -> Iterator[Versions]:
    made = Versions()
    yield made
    made.store.close()


def test_the_chosen_version_goes_and_the_next_best_is_current(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    versions.roll_back(3)
    assert versions.current == 2
    versions.remove(2)
    assert versions.current == 1
    versions.remove(1)
    assert versions.current == 3, "there is no other"


def test_a_version_above_comes_and_goes(versions: Versions) -> None:
    versions.complete(1, 2)
    versions.roll_back(2)
    versions.complete(3)
    assert versions.current == 3
    versions.remove(3)
    assert versions.current == 1


def test_one_is_rolled_back_that_is_not_current_until_the_current_one_goes(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    versions.roll_back(2)
    assert versions.current == 3
    versions.remove(3)
    assert versions.current == 1
    versions.deploy_again(2)
    assert versions.current == 2


def test_what_is_deployed_again_is_as_if_it_never_had_been_rolled_back(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    versions.roll_back(2)
    versions.deploy_again(2)
    versions.remove(3)
    assert versions.current == 2


def test_an_operators_roll_back_outlives_what_is_avoided_and_no_longer(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    assert versions.roll_back_here() == 2
    versions.roll_back(3)
    versions.roll_back(2)
    assert versions.current == 1
    versions.deploy_again(2)
    versions.deploy_again(3)
    assert versions.current == 2, "the operator has said no other word"


def test_an_operators_roll_back_goes_past_what_is_avoided(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    versions.roll_back(2)
    assert (versions.roll_back_here(), versions.current) == (1, 1)
    versions.deploy_again(2)
    assert versions.current == 1
    versions.roll_back(1)
    assert versions.current == 3, "of those that are not avoided none is older"


def test_an_operators_roll_back_to_what_is_avoided_is_refused(versions: Versions) -> None:
    versions.complete(1, 2)
    versions.roll_back(1)
    with pytest.raises(NotFoundError, match="all versions of m before its current one are rolled back, trusted no"):
        versions.roll_back_here()
    assert versions.current == 2


def test_the_version_that_an_operator_chose_goes_and_the_one_before_is_current(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    versions.roll_back_here()
    versions.remove(2)
    assert versions.current == 1, "not the one that the operator left"


def test_a_name_that_was_gone_is_as_if_nothing_had_been_said(versions: Versions) -> None:
    versions.complete(1, 2)
    versions.roll_back_here()
    versions.remove(1)
    versions.remove(2)
    versions.complete(2, 1)
    assert versions.current == 2


def test_nobody_is_led_to_a_version_whose_files_come_again(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    lose(versions, 2)
    assert versions.roll_back_here() == 1, "the second is full of zeros"
    versions.fetch(2)
    versions.complete(4)
    versions.remove(3)
    assert versions.roll_back_here() == 2


def lose(versions: Versions, version: int) -> None:
    versions.disk.remove_file(next(f"m/{version}/{path}" for path in MODELS[version].files))
    assert any(not one.is_good for one in versions.store.verify("m", version))


def refill(versions: Versions, version: int) -> None:
    versions.fetch(version)
    versions.store.avoid_versions("m", versions.rolled_back)  # as the brain asks when all is back


def test_what_is_refilled_is_no_reason_to_lead_to_what_the_operator_left(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    assert versions.roll_back_here() == 2
    lose(versions, 1)
    versions.roll_back(2)
    assert versions.current == 1
    refill(versions, 1)
    assert versions.current == 1


def test_a_version_that_was_passed_over_is_led_to_when_it_is_whole_again(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    lose(versions, 2)
    versions.roll_back(3)
    assert versions.current == 1
    refill(versions, 2)
    assert versions.current == 2


def test_a_removal_leads_to_no_version_that_is_full_of_zeros(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    lose(versions, 2)
    versions.remove(3)
    assert versions.current == 1


def test_what_was_avoided_and_evicted_is_as_any_other_when_it_comes_again(versions: Versions) -> None:
    versions.complete(1, 2)
    versions.roll_back(2)
    versions.remove(2)
    versions.rolled_back = frozenset()
    versions.fetch(2)
    versions.store.finish(MODELS[2].manifest.id)
    assert versions.current == 2


def test_eviction_takes_what_is_avoided_before_what_a_roll_back_leads_to(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    versions.roll_back(2)
    assert surplus_versions(versions.disk, "m", keep=2, among={1, 2, 3}) == [2]


def test_a_version_that_comes_while_current_is_chosen_is_not_too_many(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.complete(1, 2)
    chosen = CurrentLink.settle

    def settle(link: CurrentLink, *given: Any, **more: Any) -> int | None:
        version = chosen(link, *given, **more)
        if versions.disk.kind("m/9") is None:
            versions.disk.make_directory("m/9")  # as the rename of another thread does
        return version

    among: list[list[int]] = []

    def surplus(*given: Any, **more: Any) -> list[int]:
        among.append(surplus_versions(*given, **{**more, "keep": 2}))
        return []

    monkeypatch.setattr(CurrentLink, "settle", settle)
    monkeypatch.setattr(current_link, "surplus_versions", surplus)
    versions.fetch(3)
    versions.store.finish(MODELS[3].manifest.id)
    assert among == [[1, 2]], "not 9, which is to be current"


def test_a_note_of_an_older_release_is_read(versions: Versions) -> None:
    versions.complete(1, 2, 3)
    write_new_file(versions.disk, ".pins/m", b"gossipd-pin 1\n2\n3\ncluster\nwithout 3\n")
    versions.store.avoid_versions("m", frozenset({3}))
    assert versions.current == 2
    versions.store.avoid_versions("m", frozenset())
    assert versions.current == 3, "it was no choice of an operator"


@pytest.mark.parametrize("seed", range(40))
def test_current_is_never_rolled_back_while_another_is_here(versions: Versions, seed: int) -> None:
    random, here = Random(seed), set[int]()
    steps: list[Callable[[int], None]] = [
        versions.complete, versions.complete, versions.roll_back, versions.deploy_again, versions.remove,
    ]  # fmt: skip
    for _ in range(30):
        step, version = random.choice(steps), random.randint(1, 5)
        if (step == versions.complete) is (version in here):
            continue
        step(version)
        here = set(versions.store.versions("m"))
        allowed = here - versions.rolled_back or here
        assert versions.current in allowed if allowed else versions.current is None
