"""When a directory of a training step is finished, and which one is published next.

What lives here: pure rules over listings. What does not: listing (``step_listing``), and publishing.

A step is finished when its writer says so and its files agree:

* the sign is there: the marker file where one is named, else torch DCP's ``.metadata``, else an index of shards or
  safetensors files (``save_pretrained``, ``save_file``);
* no file is unfinished by name (``*.tmp`` and the like), lacks a shard that an index names, or contradicts its own
  header; nothing is unpickled to find that out;
* nothing is newer than the marker or ``.metadata``. Both are written last; torch leaves the old ``.metadata`` while it
  overwrites a directory, so that its being there says nothing;
* two looks, at least ``SETTLED_S`` apart, see the same sizes, times and inodes.

A directory whose sign is newer than when it was published was overwritten, and is published again; one that only loses
files is being cleared away, and one that was out of sight for a while, as all are while their file system is not
mounted, was published before. Safetensors are no sign that a writer has ended: where more comes after them, the step
that was published last is published again, at most ``AGAIN_MAX`` times, and of an earlier one it is told.

Steps are published one at a time, the one finished first goes first; those that newer ones which wait too would delete
at once are left out, or a job that saves faster than its steps are published would never see its newest.

Newer steps wait for one that is refused, until it was refused ``IN_ORDER_MAX`` times. Later it is only tried once more
before each of them. If one of them is published first, it is left out: published after it, it would be the next
attempt, which is the newest version. A resumed run that goes back writes newer files.

At the start the versions known tell what was done before: each directory that is no newer than the version of its step
(both times are of one moment, so that a clock that is set later decides nothing) or than the last version's directory;
where that one is gone, or a sign is of a time to come, all steps that are not above it. A step above the last version
of a first attempt was never done. Where nothing is there at the start, as before a file system is mounted, this is so
of what is found first, but for what was signed since the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from gossipd.core.versions import split_version
from gossipd.publish.selection import DEFAULT_EXCLUDES, Selection

SETTLED_S = 1.0
UNSETTLED_S = 60.0  # a directory that keeps changing after its sign is told of: two writers, or a wrong marker
RETRY_FIRST_S, RETRY_MAX_S = 2.0, 300.0
IN_ORDER_MAX = 3
AGAIN_MAX = 3  # a log in the directory of a step must not make a version of each of its lines
STEPS_MAX = 10_000
METADATA = ".metadata"
UNFINISHED = (".tmp", ".part", ".partial", ".incomplete", ".lock")
_TAKEN = Selection(defaults=DEFAULT_EXCLUDES)
_WHOLE = (".safetensors", ".safetensors.index.json")


class StepFile(Struct, frozen=True):
    """One file as a look saw it."""

    path: str
    size: int
    mtime_ns: int
    inode: int


class StepListing(Struct, frozen=True):
    """One directory as a look saw it. ``faults``: sentences on shards that are missing and files that are cut."""

    step: int
    files: tuple[StepFile, ...]
    faults: tuple[str, ...] = ()

    @property
    def newest_ns(self) -> int:
        """When the last of its files was written."""
        return max((file.mtime_ns for file in self.files), default=0)


class PublishStepDirectory(Struct, frozen=True):
    """Publish that directory now; say with ``published`` or ``failed`` how it ended."""

    directory: str
    step: int


class ReportTrouble(Struct, frozen=True):
    """Tell a person, once."""

    directory: str
    sentence: str


class KnownSteps(Struct, frozen=True):
    """What is known of a name at the start. ``last``: its highest version. ``made_s``: when the newest version of each
    step was made, as its manifest says, seconds of the epoch; ``clock_s``: the time of day now."""

    last: int | None = None
    made_s: Mapping[int, float] = field(default_factory=dict)
    clock_s: float = float("inf")


StepCommand: TypeAlias = PublishStepDirectory | ReportTrouble


def unfinished(listing: StepListing, marker: str | None = None) -> str | None:
    """Why the step is not finished, as words after its name; None when it is, as far as one look can tell."""
    for file in listing.files:
        if file.path.endswith(UNFINISHED):
            return f"is still written: {file.path}"
    by_path = {file.path: file for file in listing.files}
    sign = by_path.get(marker or METADATA)
    if sign is None and (marker is not None or not any(path.endswith(_WHOLE) for path in by_path)):
        return f"has no {marker or METADATA}"
    if sign is not None:
        for file in listing.files:
            if file.mtime_ns > sign.mtime_ns:
                return f"is written over: {file.path} is newer than {sign.path}"
    return listing.faults[0] if listing.faults else None


class _Step(Struct):
    listing: StepListing
    since_s: float
    """When it first looked as it does."""
    signed_s: float | None = None
    """Since when its sign is there, whatever else changes."""
    retry_s: float = 0.0
    delay_s: float = RETRY_FIRST_S
    failures: int = 0
    published_ns: int | None = None
    """The time of the sign when it was published."""
    published_as: StepListing | None = None
    """As it was then; None where that is not known, and where it was left out."""
    made: tuple[int, int] | None = None
    """How many files and bytes the version has, until the next look."""
    again: int = 0
    """How often it was published again with the same sign."""
    is_more_told: bool = False


def signed_ns(listing: StepListing, marker: str | None = None) -> int:
    """When the step's sign was last written."""
    signs = [file.mtime_ns for file in listing.files if file.path == (marker or METADATA)]
    if not signs and marker is None:
        signs = [file.mtime_ns for file in listing.files if file.path.endswith(_WHOLE)]
    return max(signs, default=0)


def _published_files(listing: StepListing) -> list[StepFile]:
    """Those that a publication takes: what tools leave beside a model comes to a directory at any time."""
    return [file for file in listing.files if _TAKEN.admits(file.path)]


class StepWatch:
    """Told of each look, it says what to publish. One owner; times are arguments."""

    def __init__(
        self, *, marker: str | None = None, known: KnownSteps | None = None, keep_last: int | None = None,
        keep_every: int | None = None,
    ) -> None:  # fmt: skip
        """``known``: see the top. The others: what the versions are published with."""
        self._marker = marker
        self._keep_last, self._keep_every = keep_last, keep_every
        self._known = known or KnownSteps()
        self._is_first = True  # until a look finds something
        self._was_empty = False
        self._last_ns: int | None = None
        self._steps: dict[str, _Step] = {}
        self._gone: dict[str, int] = {}
        """The sign's time of steps that were published and are out of sight."""
        self._publishing: str | None = None
        self._last_tried: str | None = None
        self._last_name: str | None = None
        """What was published last; until something was, unknown."""
        self._highest, self._newest_ns = -1, 0
        """The highest step of what was published, and the newest time in it."""
        self._said: dict[str, str] = {}
        self._commands: list[StepCommand] = []

    def looked(self, listings: Mapping[str, StepListing], now: float) -> None:
        """A look has seen these directories, by name."""
        self._last_tried = None
        self._forget_all_but(listings)
        self._said = {name: words for name, words in self._said.items() if name in listings}
        if self._is_first:
            last = self._known.last
            last_step = None if last is None else split_version(last)[0]
            signs = (signed_ns(one, self._marker) for one in listings.values() if one.step == last_step)
            self._last_ns = max(signs, default=None)
        for name in sorted(listings, key=lambda name: (listings[name].step, name))[-STEPS_MAX:]:
            self._seen(name, listings[name], now)
        self._is_first, self._was_empty = self._is_first and not listings, not listings
        self._choose(now)

    def _seen(self, name: str, listing: StepListing, now: float) -> None:
        step = self._steps.get(name)
        if step is None:
            step = self._steps[name] = _Step(listing, now, published_ns=self._gone.pop(name, None))
            sign_ns = signed_ns(listing, self._marker)
            is_since_start = self._was_empty and sign_ns > self._known.clock_s * 1e9
            if self._is_first and not is_since_start and self._was_done(listing):
                step.published_ns = sign_ns
        elif step.listing != listing:
            step = self._steps[name] = _Step(
                listing, now, step.signed_s, published_ns=step.published_ns, published_as=step.published_as,
                made=step.made, again=step.again, is_more_told=step.is_more_told,
            )  # fmt: skip
            self._tell_of_more(name, step)
        step.made = None
        reason = unfinished(listing, self._marker)
        if reason is not None and reason.startswith("has no"):
            step.signed_s = None
        elif step.signed_s is None:
            step.signed_s = now
        is_unreadable = bool(listing.faults and not listing.files)
        if self._is_done(name, step):
            step.signed_s = None  # of the sign that comes next
            return
        if step.signed_s is None and not is_unreadable:
            return
        if listing.faults and now - step.since_s >= SETTLED_S:
            self._say(name, f"{listing.faults[0]}; it is published when that is mended, if no later step is by then")
        elif (
            step.signed_s is not None
            and now - step.signed_s >= UNSETTLED_S
            and (reason is not None or now - step.since_s < SETTLED_S)
        ):
            self._say(name, f"{reason or 'changes'} for {UNSETTLED_S:g} s after its sign: has it two writers?")

    def _forget_all_but(self, listings: Mapping[str, StepListing]) -> None:
        for name in [name for name in self._steps if name not in listings]:
            published_ns = self._steps.pop(name).published_ns
            if published_ns is not None:
                self._gone[name] = published_ns
        for name in list(self._gone)[:-STEPS_MAX]:
            del self._gone[name]

    def _was_done(self, listing: StepListing) -> bool:
        if self._known.last is None:
            return False
        last_step, attempt = split_version(self._known.last)
        sign_ns = signed_ns(listing, self._marker)
        made_s = self._known.made_s.get(listing.step)
        if made_s is not None and sign_ns < (made_s + 1) * 1e9:  # a manifest tells whole seconds
            return True
        if made_s is None and listing.step > last_step and not attempt:
            return False
        is_ahead = sign_ns > self._known.clock_s * 1e9
        if self._last_ns is not None and not is_ahead:
            return sign_ns <= self._last_ns
        return listing.step <= last_step

    def _choose(self, now: float) -> None:
        if self._publishing is not None:
            return
        ready = [
            (step.listing.newest_ns, step.listing.step, name)
            for name, step in self._steps.items()
            if not self._is_done(name, step) and self._is_finished(step, now)
        ]
        ready = sorted(one for one in ready if not self._is_overtaken(*one))
        if self._keep_last is not None:
            ready = self._left_of(ready, self._keep_last)
        if (name := self._next_of([name for _, _, name in ready], now)) is not None:
            self._publishing = self._last_tried = name
            self._commands.append(PublishStepDirectory(name, self._steps[name].listing.step))

    def _next_of(self, ready: list[str], now: float) -> str | None:
        """The first that is due. The first of all is tried once more before it, as what was wrong may be so no more."""
        for name in ready:
            step = self._steps[name]
            if now >= step.retry_s:
                return name if self._last_tried == ready[0] else ready[0]
            if step.failures < IN_ORDER_MAX:
                return None
        return None

    def _is_overtaken(self, newest_ns: int, number: int, name: str) -> bool:
        """Whether a higher step that was finished later is published; then this one is told of, and left out."""
        if number > self._highest or newest_ns >= self._newest_ns:
            return False
        self._leave_out(name, "is left out: one that was finished later is published already")
        return True

    def _leave_out(self, name: str, sentence: str) -> None:
        self._deal_with(name, published_as=None)
        self._commands.append(ReportTrouble(name, sentence))

    def _deal_with(self, name: str, *, published_as: StepListing | None) -> None:
        """Nothing more is done with the step as it is."""
        step = self._steps[name]
        step.published_ns, step.published_as = signed_ns(step.listing, self._marker), published_as
        step.signed_s = None
        self._said.pop(name, None)

    def _tell_of_more(self, name: str, step: _Step) -> None:
        """A directory has changed after it was published: what came after its sign is told once. What came before the
        version was made is in it."""
        if step.published_ns is None or signed_ns(step.listing, self._marker) > step.published_ns:
            return
        files = _published_files(step.listing)
        if step.published_as is not None and step.made == (len(files), sum(file.size for file in files)):
            step.published_as = step.listing
        if (path := self._more_than_published(step)) is None or step.is_more_told:
            return
        step.is_more_told = True
        cure = "name the file that its writer writes last (marker)"
        if self._goes_again(name, step):
            words = f"got {path} after it was published, and is published again; {cure}"
        else:
            words = f"got {path} after it was published, and stays without; {cure}"
        self._commands.append(ReportTrouble(name, words))

    def _more_than_published(self, step: _Step) -> str | None:
        """A file that came, or was written, after the step was published, of a writer that has no last file."""
        before = step.published_as
        if before is None or before == step.listing:
            return None
        if any(file.path == (self._marker or METADATA) for file in step.listing.files):
            return None
        known = {file.path for file in before.files}
        files = _published_files(step.listing)
        return next((one.path for one in files if one.path not in known or one.mtime_ns > before.newest_ns), None)

    def _left_of(self, ready: list[tuple[int, int, str]], keep_last: int) -> list[tuple[int, int, str]]:
        """Those that will live when all of them are published, and those that are refused and may never be; the others
        count as published, and are told."""
        wait = [one for one in ready if self._steps[one[2]].failures < IN_ORDER_MAX]
        lives = [one for one in ready if one not in wait[:-keep_last]]
        for one in wait[:-keep_last]:
            _, number, name = one
            if self._keep_every and number % self._keep_every == 0:
                lives.append(one)
                continue
            self._leave_out(name, f"is left out: {keep_last} newer ones wait already, and would delete it")
        return sorted(lives)

    def _is_done(self, name: str, step: _Step) -> bool:
        if step.published_ns is None or signed_ns(step.listing, self._marker) > step.published_ns:
            return False
        return not self._goes_again(name, step) or self._more_than_published(step) is None

    def _goes_again(self, name: str, step: _Step) -> bool:
        return name == self._last_name and step.again < AGAIN_MAX

    def _is_finished(self, step: _Step, now: float) -> bool:
        return now - step.since_s >= SETTLED_S and unfinished(step.listing, self._marker) is None

    def published(self, directory: str, now: float, made: tuple[int, int] | None = None) -> None:
        """The directory is published. No look may come between the order to publish and this. ``made``: how many files
        and bytes the version has, where that is known."""
        self._publishing = None
        if directory in self._steps:
            step = self._steps[directory]
            listing, is_again = step.listing, step.published_as is not None
            has_new_sign = step.published_ns is None or signed_ns(listing, self._marker) > step.published_ns
            step.again = 0 if has_new_sign else step.again + is_again
            step.made, step.is_more_told, step.failures = made, False, 0
            self._deal_with(directory, published_as=listing)
            self._last_name, self._highest = directory, max(self._highest, listing.step)
            self._newest_ns = max(self._newest_ns, listing.newest_ns)
        self._choose(now)

    def failed(self, directory: str, sentence: str, now: float) -> None:
        """The publication was refused; it is tried again later, or at once when the directory has changed."""
        self._publishing = None
        step = self._steps.get(directory)
        if step is None:
            self._commands.append(ReportTrouble(directory, f"was deleted before it was published: {sentence}"))
        else:
            step.retry_s, step.delay_s = now + step.delay_s, min(2 * step.delay_s, RETRY_MAX_S)
            step.failures += 1
            self._say(directory, sentence)
        self._choose(now)

    def _say(self, directory: str, sentence: str) -> None:
        if self._said.get(directory) != sentence:
            self._said[directory] = sentence
            self._commands.append(ReportTrouble(directory, sentence))

    def troubles(self) -> dict[str, str]:
        """What has been told, by directory, of those that are still there and not published."""
        return dict(self._said)

    def drain(self) -> list[StepCommand]:
        """What follows from the last events."""
        commands, self._commands = self._commands, []
        return commands
