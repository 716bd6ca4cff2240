"""Hashing and signing for a job: it ends with the job, and tells what is not in the version."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gossipd.api.ports import PublishStep
from gossipd.daemon.publishing_job import ManifestMaker, PublishingJob
from gossipd.identity.keys import SecretKey
from gossipd.publish.adoption import ANY_OWNER
from gossipd.publish.errors import PublishError
from gossipd.publish.selection import selection_without


def making(directory: Path, scratch: Path, exclude: str = "") -> ManifestMaker:
    """Of a step with one file of weights, and one that is still written."""
    for path in (directory, scratch):
        path.mkdir()
    (directory / "w.bin").write_bytes(bytes(100_000))
    (directory / "state.tmp").write_bytes(b"half")
    job = PublishingJob(PublishStep(stage="hashing", name="m", version=1, bytes_done=0, bytes_total=0, file_count=0))
    chosen = selection_without(exclude)
    return ManifestMaker(job, directory, chosen, "m", 1, SecretKey(b"k" * 32), scratch, ANY_OWNER, None, b"")


async def test_hashing_ends_when_nobody_waits_for_the_publication(tmp_path: Path) -> None:
    made = making(tmp_path / "step", tmp_path / "scratch")
    made.job.ended.set()
    with pytest.raises(PublishError, match="m: the publication has been ended"):
        await trio.to_thread.run_sync(made.manifest)
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_a_job_is_told_which_files_are_not_in_its_version(tmp_path: Path) -> None:
    made = making(tmp_path / "step", tmp_path / "scratch")
    manifest = await trio.to_thread.run_sync(made.manifest)
    assert [file.path for file in manifest.files] == ["w.bin"]
    assert made.job.step.left_out == {"*.tmp": 1}


async def test_what_a_job_leaves_out_is_in_no_version(tmp_path: Path) -> None:
    made = making(tmp_path / "step", tmp_path / "scratch", "optimizer/\n*.pt")
    for path in ("optimizer/state.bin", "rank/scheduler.pt"):
        (tmp_path / "step" / path).parent.mkdir()
        (tmp_path / "step" / path).write_bytes(b"not for others")
    manifest = await trio.to_thread.run_sync(made.manifest)
    assert [file.path for file in manifest.files] == ["w.bin"]
