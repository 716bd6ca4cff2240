"""A surface: one way in for bytes, what it is to the fuzzer, and the loop that feeds it and watches time and memory.

What lives here: ``Surface``, ``Case`` and ``run_surface``. What does not: each surface (``surfaces``), mutations, and
keeping what failed (``findings``).

A surface makes a case (from its corpus, changed), seals it as a genuine sender would if the change came before, and is
then handed the bytes. What it documents as a refusal it takes itself; whatever leaves ``deliver`` is a finding:
*untyped* when it is an exception that our errors do not derive from, *crash* when it is an assertion or anything else
that ends a task of the daemon. Only ``deliver`` is timed, in CPU time of this thread, so that a busy machine makes
nothing slow. Memory is compared at the end and after a warm-up, which fills whatever is bounded by design.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from gossipd.core.errors import GossipdError
from membership.errors import MembershipError

SLOW_S = 0.1  # the bar: an input that holds the loop longer delays acknowledgements
# Larger ones only show that a parser's time is linear: a signed manifest of 15 MB opens in 0.4 s, in a thread.
INPUT_BYTES_MAX = 128 * 1024
WARM_UP_SHARE = 0.2
_LOOK_EVERY = 512  # inputs between looks at the clock
_PAGE_BYTES = resource.getpagesize()
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Case:
    """One input before it is sealed. ``body`` is what was changed; ``kind`` says what it is to its surface.

    ``before_sealing``: the change was made in what is then framed, checksummed, signed or sealed as a genuine sender
    would, so it gets past the tag; else these are the bytes as they arrive.
    """

    kind: str
    body: bytes
    before_sealing: bool
    context: Any = None
    """What ``seal`` needs besides, such as who signs; not shrunk."""


class Surface(Protocol):
    """One way into the program."""

    @property
    def name(self) -> str:
        """As in ``--surface``."""

    def case(self, rng: Random) -> Case:
        """The next input."""

    def seal(self, case: Case) -> Any:
        """What arrives; not timed."""

    async def deliver(self, arrived: Any) -> None:
        """Let it in. Raises nothing that the surface documents."""

    def rest(self) -> None:
        """Between inputs, not timed: other hosts speak, clocks go on."""

    def close(self) -> None:
        """No more inputs: give back what is open."""


class MakeSurface(Protocol):
    """A class of surfaces."""

    share: float
    """Inputs of this surface for each of the others': cheap ones get more."""

    def __call__(self, rng: Random) -> Surface:
        """A new one, with a corpus of its own."""


@dataclass(slots=True)
class Finding:
    """An input that failed."""

    verdict: str
    """``crash``, ``untyped`` or ``slow``."""
    case: Case
    reason: str
    number: int


@dataclass(slots=True)
class Tally:
    """What a run found, and the JSON form of it."""

    surface: str
    inputs: int = 0
    mutated_before_sealing: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    rss_growth_bytes: int = 0
    cpu_s: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """One line of the report."""
        return {
            "surface": self.surface,
            "inputs": self.inputs,
            "mutated_before_sealing": self.mutated_before_sealing,
            "crashes": self.verdicts["crash"],
            "untyped_errors": self.verdicts["untyped"],
            "slow_inputs": self.verdicts["slow"],
            "slowest_ms": round(self.slowest_ms, 1),
            "rss_growth_bytes": self.rss_growth_bytes,
            "cpu_s": round(self.cpu_s, 1),
        }


FINDINGS_MAX = 40  # different ones; the rest is only counted


async def run_surface(make: MakeSurface, *, seed: int, inputs: int | None, until_s: float | None) -> Tally:
    """Feed a new surface until ``inputs`` are in or the monotonic time is ``until_s``."""
    rng = Random(seed)
    surface = make(rng)
    tally = Tally(surface.name)
    reasons: Counter[str] = Counter()
    limit = inputs if inputs is not None else 1 << 62
    began_s, cpu_s = time.monotonic(), time.process_time()
    gc.collect()
    gc.freeze()  # the corpus: so that collections during an input are the input's own
    rss_bytes: int | None = None
    while tally.inputs < limit:
        if tally.inputs % _LOOK_EVERY == 0:
            now_s = time.monotonic()
            if until_s is not None and now_s >= until_s:
                break
            warm = tally.inputs >= WARM_UP_SHARE * limit or (
                until_s is not None and now_s - began_s >= WARM_UP_SHARE * (until_s - began_s)
            )
            if rss_bytes is None and warm:
                rss_bytes = _resident_bytes()
        case = surface.case(rng)
        if len(case.body) > INPUT_BYTES_MAX:
            continue
        tally.inputs += 1
        tally.mutated_before_sealing += case.before_sealing
        elapsed_s, error = await _timed(surface, surface.seal(case))
        tally.slowest_ms = max(tally.slowest_ms, elapsed_s * 1000)
        if error is not None or elapsed_s > SLOW_S:
            verdict, reason = judged(error, elapsed_s)
            tally.verdicts[verdict] += 1
            reasons[reason] += 1
            if reasons[reason] == 1 and len(tally.findings) < FINDINGS_MAX:
                tally.findings.append(Finding(verdict, case, reason, tally.inputs))
    if rss_bytes is not None:
        tally.rss_growth_bytes = max(0, _resident_bytes() - rss_bytes)
    tally.cpu_s = time.process_time() - cpu_s
    gc.unfreeze()
    surface.close()
    return tally


async def _timed(surface: Surface, arrived: Any) -> tuple[float, Exception | None]:
    began_s = time.thread_time()
    try:
        await surface.deliver(arrived)
        elapsed_s = time.thread_time() - began_s
        surface.rest()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
        return time.thread_time() - began_s, error
    return elapsed_s, None


async def once(make: MakeSurface, case: Case, *, seed: int = 0) -> tuple[str, str] | None:
    """Verdict and reason of one case at a new surface; None when it is taken well."""
    surface = make(Random(seed))
    elapsed_s, error = await _timed(surface, surface.seal(case))
    surface.close()
    return judged(error, elapsed_s) if error is not None or elapsed_s > SLOW_S else None


def judged(error: Exception | None, elapsed_s: float) -> tuple[str, str]:
    """Verdict, and a reason that is the same for the same place in the code."""
    if error is None:
        return "slow", f"took {elapsed_s * 1000:.0f} ms"
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{Path(code.co_filename).name}:{code.co_name}:{trace.tb_lineno}"
        trace = trace.tb_next
    typed = isinstance(error, GossipdError | MembershipError)
    verdict = "crash" if typed or isinstance(error, AssertionError | RecursionError | MemoryError) else "untyped"
    return verdict, f"{type(error).__name__} at {place}: {str(error)[:200]}"


def _trim() -> None:
    """Give free memory back to the kernel; glibc only, elsewhere the figure is a little larger."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def _resident_bytes() -> int:
    """Without what the C allocator has kept free: that comes and goes by 25 MB with the sizes of the last inputs."""
    gc.collect()
    _trim()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
