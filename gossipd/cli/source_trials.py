"""One byte of each source, asked for by a process of its own, which is ``python -m gossipd.cli.source_trials``.

What lives here: that process, and asking it. What does not: which sources, and in whose environment
(``storage_readings``), the read (``sources.trial_read``), and what an answer means (``diagnosis.checks``).

A directory of sources, or a file of credentials, may lie on a disk that hangs. A thread that waits for one keeps its
process from ending, even from being killed, so doctor leaves that process behind. A fork would not do: the library that
reads buckets has threads.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from gossipd.core.errors import GossipdError
from gossipd.diagnosis.checks import SourceReading
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.credential_expiry import CredentialFound, credential_found
from gossipd.sources.errors import SourceSlowError
from gossipd.sources.settings import SourceSettings
from gossipd.sources.trial_read import TrialReads

START_S = 10.0  # for the process, on a busy machine


class Trial(Struct, frozen=True):
    """``model``: that whose manifest names the source; empty where only the configuration does."""

    source: str
    path: str
    object_bytes: int
    model: str


class TrialOrder(Struct, frozen=True, kw_only=True):
    """``patience_s``: for all of them together."""

    allow: tuple[str, ...]
    trials: tuple[Trial, ...]
    patience_s: float


def try_sources(order: TrialOrder, environment: Mapping[str, str]) -> tuple[SourceReading, ...]:
    """A reading for each trial, in their order. What has not answered in time counts as silent."""
    if not order.trials:
        return ()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__], env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    with process.stdout:
        with suppress(BrokenPipeError), process.stdin:  # one that cannot start answers nothing
            process.stdin.write(msgspec.json.encode(order))
        answer = b""
        if select.select([process.stdout], [], [], order.patience_s + START_S)[0]:
            answer = process.stdout.readline()
    process.returncode = 0  # nobody waits for it
    if answer:
        return msgspec.json.decode(answer, type=tuple[SourceReading, ...])
    return tuple(_silent(trial, order.patience_s) for trial in order.trials)


def main() -> None:
    """The order from the standard input, the readings in one line; then it ends, whatever its threads wait for."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=TrialOrder)
    os.write(sys.stdout.fileno(), msgspec.json.encode(_tried(order)) + b"\n")
    os._exit(0)


def _tried(order: TrialOrder) -> tuple[SourceReading, ...]:
    """All at once, each in a thread."""
    settings = SourceSettings(connect_timeout_s=2.0, read_timeout_s=3.0, request_timeout_s=order.patience_s)
    reads = TrialReads(SourcePolicy.parse(order.allow), settings)
    found: dict[Trial, SourceReading] = {}
    has_credential: set[Trial] = set()

    def attempt(trial: Trial) -> None:
        source, error = parse_source_url(trial.source), None
        credential = credential_found(source.scheme, os.environ)
        has_credential.add(trial)
        try:
            reads.read(source, trial.path, trial.object_bytes)
        except GossipdError as raised:
            error = raised
        found[trial] = _reading(trial, credential, error)

    deadline = time.monotonic() + order.patience_s
    threads = [threading.Thread(target=attempt, args=(trial,), daemon=True) for trial in order.trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = {one: _silent(one, order.patience_s, of_storage=one in has_credential) for one in order.trials}
    return tuple(found.get(trial, silent[trial]) for trial in order.trials)


def _reading(trial: Trial, found: CredentialFound | None, error: GossipdError | None) -> SourceReading:
    code, sentence = ("", "") if error is None else (error.code, str(error.args[0]))
    return SourceReading(
        source=trial.source, model=trial.model, code=code, sentence=sentence,
        credential="" if found is None else found.place, is_renewed=found is not None and found.is_renewed,
        credential_trouble="" if found is None else found.trouble,
        ends_in_s=None if found is None or found.ends_s is None else found.ends_s - time.time(),
    )  # fmt: skip


def _silent(trial: Trial, patience_s: float, *, of_storage: bool = True) -> SourceReading:
    who = "storage" if of_storage else "the files of its credentials"
    error = SourceSlowError(who, f"no answer for {patience_s:g} s")
    return SourceReading(source=trial.source, model=trial.model, code=error.code, sentence=str(error.args[0]))


if __name__ == "__main__":
    main()
