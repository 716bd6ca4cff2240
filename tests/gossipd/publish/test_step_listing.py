"""What a look at the directories of steps reads of their files, and what it never does with them."""

from __future__ import annotations

import ast
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import gossipd
from gossipd.publish import step_listing
from gossipd.publish.step_listing import StepLister
from gossipd.publish.step_watch import unfinished
from tests.gossipd.publish.trees import published


class Trap:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self._path,)


@pytest.mark.parametrize("name", [".metadata", "optimizer.pt", "__0_0.distcp"])
def test_a_pickle_in_a_step_is_published_as_bytes_and_never_loaded(tmp_path: Path, name: str) -> None:
    step = tmp_path / "steps" / "step-7"
    step.mkdir(parents=True)
    (step / "__0_0.distcp").write_bytes(bytes(1000))
    (step / ".metadata").write_bytes(b"m")
    (step / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    (step / ".metadata").touch()
    listing = StepLister(step.parent).look()["step-7"]
    assert (listing.step, unfinished(listing)) == (7, None)
    _, manifest = published(step, tmp_path / "model.manifest")
    assert name in {entry.path for entry in manifest.files}
    assert not (tmp_path / "sprung").exists()
    pickle.loads((step / name).read_bytes())
    assert (tmp_path / "sprung").exists(), "it is a trap"


def test_what_is_left_out_is_not_looked_at_but_a_marker_is_seen(tmp_path: Path) -> None:
    step = tmp_path / "step-1"
    step.mkdir()
    for name in ("model.safetensors", "DONE", "rng.pt"):
        (step / name).write_bytes(b"x")
    os.mkfifo(step / "trace.pt")  # no version can have it
    seen = StepLister(tmp_path, exclude="DONE\n*.pt", marker="DONE").look()["step-1"]
    assert sorted(file.path for file in seen.files) == ["DONE", "model.safetensors"]
    (step / "DONE").unlink()
    seen = StepLister(tmp_path, exclude="DONE\n*.pt", marker="DONE").look()["step-1"]
    assert unfinished(seen, "DONE") == "has no DONE"


def test_of_more_directories_than_a_look_takes_the_highest_steps_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_listing, "STEPS_MAX", 3)
    for step in (8, 9, 10, 11):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / ".metadata").write_bytes(b"m")
    assert sorted(one.step for one in StepLister(tmp_path).look().values()) == [9, 10, 11]


def test_no_module_imports_what_runs_code_out_of_data() -> None:
    root = Path(next(iter(gossipd.__path__)))
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"pickle", "marshal", "shelve", "dill"}, path


def test_a_step_that_vanishes_and_one_that_is_no_step_are_left_out(tmp_path: Path) -> None:
    for name in ("step-1", "step-2", "logs", "tmp-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text("w")
    (tmp_path / "step-4").write_text("a file")
    lister = StepLister(tmp_path, "step-*")
    assert set(lister.look()) == {"step-1", "step-2"}
    shutil.rmtree(tmp_path / "step-1")
    assert set(lister.look()) == {"step-2"}


def test_a_step_that_lacks_a_shard_of_its_index_has_a_fault(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    index = '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    (tmp_path / "step-1" / "model.safetensors.index.json").write_text(index)
    listing = StepLister(tmp_path).look()["step-1"]
    assert any("model-00002-of-00002.safetensors" in fault for fault in listing.faults)
    assert unfinished(listing) is not None


def test_a_step_that_lacks_a_ranks_shard_has_a_fault(tmp_path: Path) -> None:
    step = tmp_path / "step-7"
    step.mkdir()
    names = [f"__{rank}_0.distcp" for rank in range(4)]
    for name in names:
        (step / name).write_bytes(bytes(1000))
    (step / ".metadata").write_bytes(pickle.dumps(names, protocol=4))
    assert unfinished(StepLister(tmp_path).look()["step-7"]) is None
    (step / "__2_0.distcp").unlink()
    assert unfinished(StepLister(tmp_path).look()["step-7"]) == (
        "'.metadata' names shards that are not there: '__2_0.distcp'"
    )


def test_a_rank_s_own_shards_have_no_fault_though_another_host_has_their_metadata(tmp_path: Path) -> None:
    step = tmp_path / "steps" / "step-7"
    step.mkdir(parents=True)
    (step / "__3_0.distcp").write_bytes(bytes(1000))
    assert StepLister(step.parent).look()["step-7"].faults == ()


def test_what_no_version_can_hold_is_a_fault_until_it_is_gone(tmp_path: Path) -> None:
    step, lister = tmp_path / "step-7", StepLister(tmp_path)
    step.mkdir()
    assert lister.look() == {}  # just made
    (step / ".metadata").write_bytes(b"m")
    (step / "tokenizer.json").symlink_to("/elsewhere/tokenizer.json")
    listing = lister.look()["step-7"]
    assert listing == lister.look()["step-7"], "two looks agree, so that it is told"
    assert listing.files == ()
    assert "'tokenizer.json' is a symbolic link that leads nowhere" in listing.faults[0]
    assert unfinished(listing) is not None
    (step / "tokenizer.json").unlink()
    healed = lister.look()["step-7"]
    assert (healed.faults, unfinished(healed)) == ((), None)


@pytest.mark.needs("root")
def test_a_file_that_lost_its_rights_is_a_fault_until_they_are_back(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from gossipd.publish import step_listing
from gossipd.publish.step_listing import StepLister
from gossipd.publish.step_watch import unfinished
os.setgroups([]), os.setgid(65534), os.setuid(65534)
lister = StepLister(Path({str(tmp_path / "steps")!r}))
for line in sys.stdin:
    listing = lister.look()["step-7"]
    print(listing.faults, unfinished(listing), flush=True)
"""
    for directory in (tmp_path, *tmp_path.parents):
        if not directory.stat().st_mode & 0o001:
            directory.chmod(directory.stat().st_mode | 0o011)
    below = tmp_path / "steps" / "step-7" / "rank-0"
    below.mkdir(parents=True)
    weights = below / "model.safetensors"
    save_file({"a": np.zeros(4)}, weights)
    weights.chmod(0o644)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other_user:
        assert other_user.stdin is not None
        assert other_user.stdout is not None

        def seen() -> str:
            print(file=other_user.stdin, flush=True)
            return other_user.stdout.readline()  # type: ignore[union-attr]

        for path in (weights, below):
            assert seen() == "() None\n"
            mode = path.stat().st_mode
            path.chmod(0o700 if path is below else 0o600)
            weights.touch()
            assert seen() == seen() != "() None\n"
            assert "Permission denied" in seen()
            path.chmod(mode)
        assert seen() == "() None\n"
        other_user.stdin.close()
