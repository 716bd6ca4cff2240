"""What the system refuses a process is counted, and nothing else."""

from __future__ import annotations

import errno
import os

import pytest

from gossipd.runtime.system_refusals import REFUSALS, note_refusal, try_descriptor


@pytest.mark.parametrize(
    ("number", "counts"), [(errno.EMFILE, 1), (errno.ENFILE, 1), (errno.EIO, 0), (errno.ENOENT, 0)]
)
def test_only_want_of_descriptors_counts_as_that(number: int, counts: int) -> None:
    before = REFUSALS.descriptors
    note_refusal(OSError(number, os.strerror(number)))
    assert REFUSALS.descriptors - before == counts


@pytest.mark.parametrize("is_out", [False, True])
def test_trial_counts_when_no_descriptor_is_left(is_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    if is_out:
        monkeypatch.setattr(os, "dup", refuse)
    before, files = REFUSALS.descriptors, os.listdir("/proc/self/fd")
    try_descriptor()
    assert (REFUSALS.descriptors - before, os.listdir("/proc/self/fd")) == (int(is_out), files)
