"""When a step is finished, by values: what each writer leaves, and what looks finished and is not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gossipd.core.versions import step_version
from gossipd.publish.step_watch import (
    AGAIN_MAX,
    IN_ORDER_MAX,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    SETTLED_S,
    UNSETTLED_S,
    KnownSteps,
    PublishStepDirectory,
    ReportTrouble,
    StepCommand,
    StepFile,
    StepListing,
    StepWatch,
    unfinished,
)


def listing(step: int, *, faults: tuple[str, ...] = (), **times: int) -> StepListing:
    """Files by name, ``_`` for a dot, with their times of change."""
    files = (StepFile(name.replace("__dot__", "."), 10, ns, hash(name) % 1000) for name, ns in times.items())
    return StepListing(step, tuple(sorted(files, key=lambda file: file.path)), faults)


def dcp(step: int, shards_ns: int = 1, metadata_ns: int = 2) -> StepListing:
    return listing(step, rank_0=shards_ns, rank_1=shards_ns, __dot__metadata=metadata_ns)


def published(watch: StepWatch, name: str, now: float) -> None:
    watch.published(name, now)


def test_each_kind_of_writer_says_that_it_has_finished() -> None:
    assert unfinished(dcp(1)) is None
    assert unfinished(listing(1, model__dot__safetensors=1, config__dot__json=9)) is None
    assert unfinished(listing(1, model__dot__safetensors__dot__index__dot__json=1)) is None
    assert unfinished(listing(1, weights=1, DONE=1), "DONE") is None


@pytest.mark.parametrize(
    ("one", "marker", "words"),
    [
        (listing(1, rank_0=1), None, "has no .metadata"),
        (listing(1), None, "has no .metadata"),
        (dcp(1), "DONE", "has no DONE"),
        (listing(1, rank_0=1, __dot__metadata=2, __dot__metadata__dot__tmp=3), None, "is still written: .metadata.tmp"),
        (dcp(1, shards_ns=5, metadata_ns=2), None, "is written over: rank_0 is newer"),
        (replace(dcp(1), faults=("lacks a shard",)), None, "lacks a shard"),
    ],
)
def test_what_is_not_finished_says_why(one: StepListing, marker: str | None, words: str) -> None:
    assert (unfinished(one, marker) or "").startswith(words)


def test_two_looks_a_second_apart_must_agree() -> None:
    watch = StepWatch()
    watch.looked({"step-1": dcp(1)}, 0.0)
    watch.looked({"step-1": dcp(1)}, SETTLED_S / 2)
    assert watch.drain() == []
    watch.looked({"step-1": dcp(1, metadata_ns=3)}, SETTLED_S)
    assert watch.drain() == []
    watch.looked({"step-1": dcp(1, metadata_ns=3)}, 2 * SETTLED_S)
    assert watch.drain() == [PublishStepDirectory("step-1", 1)]


def test_a_hundred_steps_are_published_once_each_in_the_order_they_were_saved() -> None:
    watch, done, now, listings = StepWatch(), [], 0.0, {}
    for number in range(1, 101):
        listings[f"step-{number}"] = dcp(number, number * 10, number * 10 + 1)
        for _ in range(3):
            now += SETTLED_S / 2
            watch.looked(listings, now)
            for command in watch.drain():
                assert isinstance(command, PublishStepDirectory)
                done.append(command.step)
                watch.published(command.directory, now)
    watch.looked(listings, now + 100)
    assert watch.drain() == []
    assert done == list(range(1, 101))


def test_of_steps_that_wait_only_those_that_will_live_are_published_and_the_rest_is_told() -> None:
    watch, now = StepWatch(keep_last=2, keep_every=4), 2 * SETTLED_S
    first = {"step-1": dcp(1, 1, 2)}
    watch.looked(first, 0.0)
    watch.looked(first, SETTLED_S)
    assert watch.drain() == [PublishStepDirectory("step-1", 1)], "a step that is alone is published at once"
    listings = first | {f"step-{number}": dcp(number, number * 10, number * 10 + 1) for number in range(2, 8)}
    watch.looked(listings, now)
    watch.looked(listings, now + SETTLED_S)
    assert watch.drain() == [], "one after the other"
    done, told = [], []
    watch.published("step-1", now + SETTLED_S)
    while commands := watch.drain():
        for command in commands:
            if isinstance(command, PublishStepDirectory):
                done.append(command.step)
                watch.published(command.directory, now + SETTLED_S)
            else:
                told.append((command.directory, command.sentence.partition(":")[0]))
    assert done == [4, 6, 7]
    assert told == [(f"step-{number}", "is left out") for number in (2, 3, 5)]
    watch.looked(listings, now + 2 * SETTLED_S)
    assert watch.drain() == [] and watch.troubles() == {}, "they count as done"


def test_a_directory_that_is_written_over_is_published_again_and_one_that_is_cleared_is_not() -> None:
    watch = StepWatch()
    watch.looked({"last-1": dcp(1)}, 0.0)
    watch.looked({"last-1": dcp(1)}, 2.0)
    watch.drain()
    watch.published("last-1", 2.5)
    half = replace(dcp(1), files=dcp(1).files[:2])
    for now in (3.0, 5.0, 7.0):
        watch.looked({"last-1": half}, now)  # its shards are being deleted
    over = dcp(1, shards_ns=5)
    for now in (8.0, 10.0, 12.0):
        watch.looked({"last-1": over}, now)  # shards are new, the metadata is the old one
    assert watch.drain() == []
    for now in (13.0, 15.0):
        watch.looked({"last-1": dcp(1, 5, 6)}, now)
    assert watch.drain() == [PublishStepDirectory("last-1", 1)]


def test_steps_that_were_out_of_sight_are_not_published_again() -> None:
    watch = StepWatch()
    steps = {f"step-{number}": dcp(number) for number in (1, 2)}
    for now in (0.0, 1.0):
        watch.looked(steps, now)
    for number in (1, 2):
        assert watch.drain() == [PublishStepDirectory(f"step-{number}", number)]
        watch.published(f"step-{number}", 1.5)
    watch.looked({}, 2.0)  # nothing is mounted there
    for now in (3.0, 4.0):
        watch.looked(steps, now)
    assert watch.drain() == []
    watch.looked({}, 5.0)  # deleted, and saved again by a run that was resumed
    for now in (6.0, 7.0):
        watch.looked({"step-2": dcp(2, 9, 10)}, now)
    assert watch.drain() == [PublishStepDirectory("step-2", 2)]


def test_what_lies_there_at_the_start_is_not_published_again() -> None:
    watch = StepWatch(known=KnownSteps(200))
    listings = {"step-100": dcp(100), "step-200": dcp(200, 3, 4), "step-300": dcp(300, 5, 6)}
    watch.looked(listings, 0.0)
    listings |= {"step-50": dcp(50, 7, 8)}  # a run that was resumed from far back
    watch.looked(listings, 5.0)
    watch.looked(listings, 10.0)
    assert watch.drain() == [PublishStepDirectory("step-300", 300)]
    watch.published("step-300", 10.0)
    assert watch.drain() == [PublishStepDirectory("step-50", 50)]


def test_what_is_mounted_after_the_start_is_not_published_again() -> None:
    second = 10**9
    watch = StepWatch(known=KnownSteps(30, {20: 20.0, 30: 30.0}, clock_s=100.0))
    mounted = {f"step-{step}": dcp(step, step * second, step * second) for step in (10, 20, 30)}
    for now in (0.0, 1.0):
        watch.looked({}, now)
    for now in (2.0, 3.0):
        watch.looked(mounted, now)
    assert watch.drain() == []
    for now in (4.0, 5.0):
        watch.looked(mounted | {"step-40": dcp(40, 104 * second, 104 * second)}, now)
    assert watch.drain() == [PublishStepDirectory("step-40", 40)]


def test_a_resumed_run_in_an_empty_directory_publishes_its_first_step() -> None:
    saved_ns = 104 * 10**9
    watch = StepWatch(known=KnownSteps(30, {20: 20.0, 30: 30.0}, clock_s=100.0))
    for now in (0.0, 1.0):
        watch.looked({}, now)
    for now in (4.0, 5.0):
        watch.looked({"step-20": dcp(20, saved_ns, saved_ns)}, now)
    assert watch.drain() == [PublishStepDirectory("step-20", 20)]


def test_a_step_that_a_resumed_run_has_left_behind_is_not_the_newest_after_a_restart() -> None:
    watch = StepWatch(known=KnownSteps(step_version(20, 1)))
    listings = {"step-10": dcp(10, 1, 2), "step-30": dcp(30, 3, 4), "step-20": dcp(20, 5, 6), "step-40": dcp(40, 7, 8)}
    for now in (0.0, 5.0):
        watch.looked(listings, now)
    assert watch.drain() == [PublishStepDirectory("step-40", 40)]


def test_without_the_last_steps_directory_all_that_is_not_above_it_is_done() -> None:
    watch = StepWatch(known=KnownSteps(20))
    for now in (0.0, 5.0):
        watch.looked({"step-10": dcp(10, 9, 9), "step-30": dcp(30, 3, 4)}, now)
    assert watch.drain() == [PublishStepDirectory("step-30", 30)]


def test_a_clock_that_was_set_back_between_two_steps_makes_no_step_new() -> None:
    hour = 3600 * 10**9
    listings = {
        "step-1": dcp(1, 5 * hour, 5 * hour),
        "step-2": dcp(2, 5 * hour, 6 * hour),
        "step-3": dcp(3, hour, hour),
    }
    known = KnownSteps(3, {1: 5 * 3600.0, 2: 6 * 3600.0, 3: 3600.0}, clock_s=8 * 3600.0)
    watch = StepWatch(known=known)
    for now in (0.0, 5.0):
        watch.looked(listings, now)
    assert watch.drain() == []
    for now in (10.0, 15.0):
        watch.looked(listings | {"step-2": dcp(2, 7 * hour, 7 * hour)}, now)
    assert watch.drain() == [PublishStepDirectory("step-2", 2)], "it was written over"


def test_a_sign_of_a_time_to_come_does_not_make_a_forgotten_step_new() -> None:
    listings = {"step-1": dcp(1, 9 * 10**9, 9 * 10**9), "step-2": dcp(2, 10**9, 2 * 10**9)}
    watch = StepWatch(known=KnownSteps(2, {2: 2.0}, clock_s=3.0))
    for now in (0.0, 5.0):
        watch.looked(listings, now)
    assert watch.drain() == []


def test_a_step_saved_after_the_clock_was_set_back_is_published_after_a_restart() -> None:
    listings = {"step-1": dcp(1, 9, 9), "step-2": dcp(2, 3, 4)}
    watch = StepWatch(known=KnownSteps(1, {1: 0.0}, clock_s=1.0))
    for now in (0.0, 5.0):
        watch.looked(listings, now)
    assert watch.drain() == [PublishStepDirectory("step-2", 2)]


def test_times_of_another_clock_than_the_versions_do_not_make_steps_new() -> None:
    ahead = {"step-1": dcp(1, 10**11, 10**11), "step-2": dcp(2, 2 * 10**11, 2 * 10**11)}
    watch = StepWatch(known=KnownSteps(2, {1: 90.0, 2: 190.0}, clock_s=300.0))
    for now in (0.0, 5.0):
        watch.looked(ahead, now)
    assert watch.drain() == [], "a file server's clock is ahead"


def test_a_refused_publication_is_told_once_and_tried_later() -> None:
    watch = StepWatch()
    for now in (0.0, 1.0):
        watch.looked({"step-1": dcp(1)}, now)
    assert watch.drain() == [PublishStepDirectory("step-1", 1)]
    watch.failed("step-1", "E_NO_SPACE: the disk is full", 1.0)
    assert watch.drain() == [ReportTrouble("step-1", "E_NO_SPACE: the disk is full")]
    watch.looked({"step-1": dcp(1)}, 1.0 + RETRY_FIRST_S / 2)
    assert watch.drain() == []
    watch.looked({"step-1": dcp(1)}, 1.0 + RETRY_FIRST_S)
    assert watch.drain() == [PublishStepDirectory("step-1", 1)]
    watch.failed("step-1", "E_NO_SPACE: the disk is full", 4.0)
    assert watch.drain() == []


def looked(watch: StepWatch, listings: dict[str, StepListing], now: float) -> list[StepCommand]:
    """What follows when these have been there for a second."""
    watch.looked(listings, now)
    watch.looked(listings, now + SETTLED_S)
    return watch.drain()


def test_newer_steps_wait_for_one_that_is_refused_for_a_moment() -> None:
    watch = StepWatch()
    steps = {"step-1": dcp(1, 1, 2), "step-2": dcp(2, 3, 4)}
    assert looked(watch, steps, 0.0) == [PublishStepDirectory("step-1", 1)]
    watch.failed("step-1", "E_DAEMON_UNREACHABLE: it is restarted", 1.0)
    watch.drain()
    watch.looked(steps, 1.0 + RETRY_FIRST_S / 2)
    assert watch.drain() == [], "step 2 goes after it"
    watch.looked(steps, 1.0 + RETRY_FIRST_S)
    assert watch.drain() == [PublishStepDirectory("step-1", 1)]


def test_a_step_that_newer_ones_have_overtaken_is_left_out_for_good() -> None:
    watch, now = StepWatch(keep_last=3), 1.0
    steps = {"step-1": dcp(1, 1, 2), "step-2": dcp(2, 3, 4)}
    commands = looked(watch, steps, 0.0)
    for _ in range(IN_ORDER_MAX):
        assert commands[-1] == PublishStepDirectory("step-1", 1)
        now += RETRY_MAX_S
        watch.failed("step-1", "E_PATH_SYMLINK: a link leads out", now - RETRY_MAX_S)
        watch.looked(steps, now)
        commands = watch.drain()
    assert commands == [PublishStepDirectory("step-2", 2)], "it has waited long enough"
    watch.published("step-2", now)
    mended = steps | {"step-1": replace(dcp(1, 1, 2), files=dcp(1, 1, 2).files[1:])}
    told = looked(watch, mended, now + RETRY_MAX_S)
    assert told == [ReportTrouble("step-1", "is left out: one that was finished later is published already")]
    assert watch.troubles() == {}
    resumed = mended | {"step-1": dcp(1, 8, 9)}
    assert looked(watch, resumed, now + 2 * RETRY_MAX_S) == [PublishStepDirectory("step-1", 1)]


def test_a_step_that_was_refused_is_tried_once_more_before_a_newer_one_goes() -> None:
    watch, now = StepWatch(), 1.0
    steps = {"step-1": dcp(1, 1, 2)}
    assert looked(watch, steps, 0.0) == [PublishStepDirectory("step-1", 1)]
    for _ in range(IN_ORDER_MAX + 2):
        watch.failed("step-1", "E_NO_SPACE: the disk is full", now)
        now += RETRY_MAX_S
        watch.looked(steps, now)
        assert watch.drain()[-1] == PublishStepDirectory("step-1", 1)
    watch.failed("step-1", "E_NO_SPACE: the disk is full", now)
    steps |= {"step-2": dcp(2, 3, 4), "step-3": dcp(3, 5, 6)}
    assert looked(watch, steps, now + 1.0) == [PublishStepDirectory("step-1", 1)], "its disk may be well by now"
    watch.failed("step-1", "E_NO_SPACE: the disk is full", now + 2.0)
    assert watch.drain() == [PublishStepDirectory("step-2", 2)], "it was tried just now"
    watch.failed("step-2", "E_NO_SPACE: the disk is full", now + 2.0)
    done: list[int] = []
    while len(done) < len(steps):
        now += 1.0
        watch.looked(steps, now + 2.0)
        for command in watch.drain():
            if isinstance(command, PublishStepDirectory):
                done.append(command.step)
                watch.published(command.directory, now + 2.0)
    assert done == [1, 2, 3]


def test_files_that_come_after_safetensors_bring_the_last_step_again() -> None:
    watch = StepWatch()
    half = listing(1, model__dot__safetensors=1)
    assert looked(watch, {"step-1": half}, 0.0) == [PublishStepDirectory("step-1", 1)]
    watch.published("step-1", 1.0)
    whole = listing(1, model__dot__safetensors=1, optimizer__dot__pt=5)
    told, again = looked(watch, {"step-1": whole}, 2.0)
    assert isinstance(told, ReportTrouble) and told.sentence.startswith("got optimizer.pt after it was published")
    assert again == PublishStepDirectory("step-1", 1)
    watch.published("step-1", 3.0)
    assert looked(watch, {"step-1": half}, 4.0) == [], "it is being cleared away"
    for number in range(AGAIN_MAX + 3):
        growing = listing(1, model__dot__safetensors=1, optimizer__dot__pt=5, log=10 + number)
        if PublishStepDirectory("step-1", 1) in looked(watch, {"step-1": growing}, 10.0 + 3 * number):
            watch.published("step-1", 11.5 + 3 * number)
            assert number < AGAIN_MAX - 1


def test_a_step_that_is_refused_for_ever_does_not_leave_out_those_that_newer_ones_keep() -> None:
    watch, now = StepWatch(keep_last=1), 0.0
    steps = {"step-1": dcp(1, 10**18, 10**18)}  # of a time to come
    for _ in range(IN_ORDER_MAX + 1):
        for command in looked(watch, steps, now):
            if isinstance(command, PublishStepDirectory):
                watch.failed(command.directory, "E_PATH_SYMLINK: a link leads out", now)
        now += RETRY_MAX_S
    steps |= {"step-2": dcp(2, 3, 4)}
    commands = looked(watch, steps, now)
    if PublishStepDirectory("step-1", 1) in commands:
        watch.failed("step-1", "E_PATH_SYMLINK: a link leads out", now + SETTLED_S)
        commands = watch.drain()
    assert PublishStepDirectory("step-2", 2) in commands


def test_what_tools_leave_in_a_step_brings_it_no_second_time() -> None:
    watch = StepWatch()
    alone = listing(1, model__dot__safetensors=1)
    looked(watch, {"step-1": alone}, 0.0)
    watch.published("step-1", 1.0)
    with_log = StepListing(1, (*alone.files, StepFile("slurm-7.out", 5, 9, 2), StepFile(".nfs01", 5, 9, 3)))
    assert looked(watch, {"step-1": with_log}, 2.0) == []


def test_files_that_came_before_the_version_was_made_are_in_it() -> None:
    watch = StepWatch()
    half = listing(1, model__dot__safetensors=1)
    looked(watch, {"step-1": half}, 0.0)
    watch.published("step-1", 9.0, made=(2, 20))  # the daemon hashed when both files were there
    whole = listing(1, model__dot__safetensors=1, optimizer__dot__pt=5)
    assert looked(watch, {"step-1": whole}, 10.0) == []
    more = listing(1, model__dot__safetensors=1, optimizer__dot__pt=5, scheduler__dot__pt=8)
    assert PublishStepDirectory("step-1", 1) in looked(watch, {"step-1": more}, 12.0)


def test_a_directory_that_is_saved_again_and_again_gets_its_later_files_each_time() -> None:
    watch, now = StepWatch(), 0.0
    for save in range(1, 3 * AGAIN_MAX):
        half = listing(0, model__dot__safetensors=100 * save)
        whole = listing(0, model__dot__safetensors=100 * save, optimizer__dot__pt=100 * save + 5)
        for one in (half, whole):
            commands = looked(watch, {"last-0": one}, now)
            assert commands[-1] == PublishStepDirectory("last-0", 0)
            assert len(commands) == 1 + (one is whole), "a new sign is no file that came late"
            watch.published("last-0", now + SETTLED_S)
            now += 10.0


def test_a_log_that_grows_in_a_published_step_is_told_once() -> None:
    watch, told = StepWatch(), 0
    looked(watch, {"step-1": listing(1, model__dot__safetensors=1)}, 0.0)
    watch.published("step-1", 1.0)
    for number in range(100):  # never settled
        watch.looked({"step-1": listing(1, model__dot__safetensors=1, train=10 + number)}, 2.0 + number / 2)
        told += sum("got train" in one.sentence for one in watch.drain() if isinstance(one, ReportTrouble))
    assert told == 1


def test_files_that_come_to_an_earlier_step_are_told_and_change_no_version() -> None:
    watch = StepWatch()
    first, second = listing(1, model__dot__safetensors=1), listing(2, model__dot__safetensors=2)
    for name, steps, now in (("step-1", {"step-1": first}, 0.0), ("step-2", {"step-1": first, "step-2": second}, 3.0)):
        looked(watch, steps, now)
        watch.published(name, now + SETTLED_S)
    more = {"step-1": listing(1, model__dot__safetensors=1, eval__dot__json=9), "step-2": second}
    (told,) = looked(watch, more, 6.0)
    assert isinstance(told, ReportTrouble) and "eval.json" in told.sentence and "stays without" in told.sentence
    assert looked(watch, more, 9.0) == []


def test_a_step_that_is_deleted_while_it_is_hashed_is_told() -> None:
    watch = StepWatch()
    for now in (0.0, 1.0):
        watch.looked({"step-1": dcp(1)}, now)
    watch.drain()
    watch.looked({}, 1.5)
    watch.failed("step-1", "E_SOURCE_CHANGED: rank_0 changed", 2.0)
    (told,) = watch.drain()
    assert isinstance(told, ReportTrouble)
    assert "was deleted before it was published" in told.sentence


def test_a_missing_shard_is_told_once_it_stays_missing() -> None:
    watch, lacking = StepWatch(), listing(1, faults=("m.safetensors.index.json names shards",), m__dot__safetensors=1)
    for now in (0.0, 1.0, 2.0, 3.0):
        watch.looked({"step-1": lacking}, now)
    assert watch.drain() == [
        ReportTrouble(
            "step-1",
            "m.safetensors.index.json names shards; it is published when that is mended, if no later step is by then",
        )
    ]


def test_a_directory_with_two_writers_is_told_of() -> None:
    watch = StepWatch()
    for number in range(int(UNSETTLED_S) * 2 + 4):
        watch.looked({"step-1": dcp(1, 1, 2 + number)}, number / 2)
    assert watch.drain() == [
        ReportTrouble("step-1", f"changes for {UNSETTLED_S:g} s after its sign: has it two writers?")
    ]


def test_a_directory_that_cannot_be_read_is_told_until_it_can() -> None:
    watch = StepWatch()
    closed = StepListing(1, (), ("cannot be read by user 7",))
    watch.looked({"step-1": closed}, 0.0)
    watch.looked({"step-1": closed}, SETTLED_S)
    (told,) = watch.drain()
    assert isinstance(told, ReportTrouble)
    assert watch.troubles() == {"step-1": told.sentence}
    assert told.sentence.startswith("cannot be read by user 7")
    watch.looked({"step-1": dcp(1)}, SETTLED_S + 1)
    watch.looked({"step-1": dcp(1)}, 2 * SETTLED_S + 1)
    assert watch.drain() == [PublishStepDirectory("step-1", 1)]
    watch.published("step-1", 2 * SETTLED_S + 1)
    assert watch.troubles() == {}
