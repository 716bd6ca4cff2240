"""One cluster of two old and two new daemons: what it delivers, an upgrade during a deployment, and a way back.

What lives here: building the old code in an environment of its own, and the run. What does not: the command line.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.cluster import Cluster, Daemon, cluster, same_tree, until
from tests.e2e.toy import make_model

ROOT = Path(__file__).resolve().parent.parent.parent
OLD = "f95c498"  # the last commit before words had judges
PLAIN = ("--chunk-borders", "plain")  # schema 1: 0.1.0 refuses the other
OLD_HOSTS, NEW_HOSTS = ("old-1", "old-2"), ("new-1", "new-2")
# So that a deployment lasts longer than two daemons take to stop and start.
LIMITED = {"GOSSIPD_LIMITS__DOWNLOAD_BYTES_PER_S": "500000"}
PROGRAM = ("-P", "-m", "gossipd")  # -P: the code of PYTHONPATH, not of the directory that the command runs in


class NoSuchCommitError(Exception):
    """The repository has no such commit, or is none. Fault: the caller, or a checkout without history."""


class BuildError(Exception):
    """The older code could not be installed, with what it depends on. Fault: the network, or the package index."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the run showed. ``old_to_new``: what only old hosts read from storage came to all, byte by byte.
    ``upgraded``: old hosts were started with the new code during a deployment, went on from what they had, and all got
    every byte. ``went_back``: a new host was started with the old code and had all models. Neither wrote a complete
    model again."""

    old: str
    old_to_new: bool
    new_to_old: bool
    views_agree: bool
    upgraded: bool
    went_back: bool
    tracebacks: int
    stopped_cleanly: bool
    seconds: float

    @property
    def is_good(self) -> bool:
        shown = self.old_to_new, self.new_to_old, self.views_agree, self.upgraded, self.went_back, self.stopped_cleanly
        return all(shown) and not self.tracebacks

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "good": self.is_good}


def take_out(commit: str, into: Path) -> Path:
    """The tree of a commit. Raises NoSuchCommitError."""
    done = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True)
    if done.returncode:
        raise NoSuchCommitError(done.stderr.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(into, filter="data")
    return into


def installed(code: Path, environment: Path) -> str:
    """The Python of a new ``environment`` into which ``code`` and what it depends on are installed. Raises
    BuildError."""
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    words = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(code)]
    done = subprocess.run(words, capture_output=True, text=True, env=_without_path())
    if done.returncode:
        raise BuildError(f"the older code could not be installed:\n{done.stderr[-2000:]}")
    return python


def code_of(python: str, environment: Mapping[str, str]) -> Path:
    """Which package a daemon of this Python runs."""
    words = [python, "-P", "-c", "import gossipd; print(gossipd.__file__)"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()).parent


def _without_path() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(commit: str, base: Path) -> Outcome:
    """Build the older code, form the cluster in ``base``, deliver both ways, upgrade it while it delivers, and take one
    host back. Raises NoSuchCommitError, BuildError, and AssertionError when something takes too long."""
    began = time.monotonic()
    old = installed(take_out(commit, base / "old-code"), base / "old-environment")
    python, own = dict.fromkeys(OLD_HOSTS, old), {**os.environ, "PYTHONPATH": str(ROOT)}
    assert code_of(old, _without_path()).is_relative_to(base), "each daemon runs the code that it is meant to"
    assert code_of(sys.executable, own) == ROOT / "gossipd"
    with cluster(base / "cluster") as made:
        for names in zip(OLD_HOSTS, NEW_HOSTS, strict=True):
            for name, path in zip(names, ("", str(ROOT)), strict=True):
                made.add(name, f"rack-{name[-1]}", PYTHONPATH=path, **LIMITED)
        known = _sections(old, base / "old-home")
        for name in OLD_HOSTS:
            _keep_sections(made.daemons[name].config, known)
        for daemon in made.daemons.values():
            _write_sources(daemon, base, is_reader=daemon.name in OLD_HOSTS)
            daemon.start(PROGRAM, python.get(daemon.name, sys.executable))
        made.wait_together()
        old_to_new, first = _deliver(made, base, "from-old", drop_at="new-1")
        for daemon in made.daemons.values():
            _write_sources(daemon, base, is_reader=daemon.name in NEW_HOSTS)
            assert daemon.process is not None
            daemon.process.send_signal(signal.SIGHUP)
        until("all have read their settings", lambda: all("reloaded" in one.log() for one in made.daemons.values()))
        new_to_old, second = _deliver(made, base, "from-new", drop_at="old-1")
        upgraded = _upgrade(made, base)
        went_back = _go_back(made.daemons[NEW_HOSTS[1]], old, known)
        logs = [daemon.log() for daemon in made.daemons.values()]
        codes = [daemon.stop() for daemon in made.daemons.values()]
        tracebacks = sum(log.count("Traceback") for log in logs)
    seconds = round(time.monotonic() - began, 1)
    agree = first and second
    return Outcome(
        commit, old_to_new, new_to_old, agree, upgraded, went_back, tracebacks, not any(codes), seconds
    )  # fmt: skip


def _sections(python: str, home: Path) -> frozenset[str]:
    """The headers of the configuration that ``gossipd init`` of this Python's code writes."""
    words = [python, *PROGRAM, "init", str(home), "--name", "any", "--rack", "any", "--bind", "127.0.0.1"]
    subprocess.run([*words, "--port", "7400"], env=_without_path(), capture_output=True, check=True)
    lines = (home / "gossipd.toml").read_text().splitlines()
    return frozenset(line for line in lines if line.startswith("["))


def _keep_sections(config: Path, known: frozenset[str]) -> None:
    """Of a configuration that the new code wrote. What stands in sections of its own is a comment."""
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("[") or line.rstrip() in known))


def _write_sources(daemon: Daemon, base: Path, *, is_reader: bool) -> None:
    """Only some hosts may read from storage, so that the others get it from them."""
    original = daemon.home / "gossipd.toml.init"
    if not original.exists():
        original.write_bytes(daemon.config.read_bytes())
    text = original.read_text()
    lines = f'[sources]\nenabled = {str(is_reader).lower()}\nallow = ["file://{base}"]\n'
    assert text.count("[sources]\n") == 1
    daemon.config.write_text(text.replace("[sources]\n", lines))


def _deliver(made: Cluster, base: Path, name: str, *, drop_at: str) -> tuple[bool, bool]:
    """Whether every host has every byte, and whether hosts of both sorts say so."""
    model = make_model(base / name, shards=1, seed=len(name))
    made.drop(made.publish(model, name, 1, "--source", f"file://{model}", *PLAIN), made.daemons[drop_at])
    hosts = len(made.daemons)
    rows = [made.wait_complete(name, 1, at=daemon, hosts=hosts) for daemon in made.daemons.values()]
    is_same = all(same_tree(model, daemon.tree(name, 1)) for daemon in made.daemons.values())
    return is_same, all((row["state"], row["hosts_complete"]) == ("complete", hosts) for row in rows)


def _upgrade(made: Cluster, base: Path) -> bool:
    """One old host after the other, while they fetch."""
    model = make_model(base / "rolling", seed=9)
    made.drop(made.publish(model, "rolling", 1, "--source", f"file://{model}", *PLAIN), made.daemons[NEW_HOSTS[0]])
    is_kept = True
    for daemon in (made.daemons[name] for name in OLD_HOSTS):
        until(f"{daemon.name} is in the middle", lambda one=daemon: 0 < _held(one) < _chunks(one))  # type: ignore[misc]
        files, had = _inodes(daemon), _held(daemon)
        assert daemon.stop() == 0
        daemon.environment["PYTHONPATH"] = str(ROOT)
        daemon.start(PROGRAM)
        until(f"{daemon.name} has what it had", lambda one=daemon, had=had: _held(one) >= had)  # type: ignore[misc]
        is_kept &= files.items() <= _inodes(daemon).items()
    made.wait_complete("rolling", 1, at=made.daemons[OLD_HOSTS[0]], hosts=len(made.daemons))
    return is_kept and all(same_tree(model, daemon.tree("rolling", 1)) for daemon in made.daemons.values())


def _go_back(daemon: Daemon, old: str, known: frozenset[str]) -> bool:
    """A host whose store the new code has written."""
    files = _inodes(daemon)
    assert daemon.stop() == 0
    _keep_sections(daemon.config, known)
    daemon.environment["PYTHONPATH"] = ""
    daemon.start(PROGRAM, old)

    def complete() -> set[str]:
        rows = (daemon.try_status() or {"deployments": []})["deployments"]
        return {row["name"] for row in rows if row["chunks_verified"] == row["chunks_total"]}

    until(f"{daemon.name} has all models", lambda: complete() == {"from-old", "from-new", "rolling"})
    return files == _inodes(daemon)


def _held(daemon: Daemon) -> int:
    return int((daemon.deployment("rolling", 1) or {"chunks_verified": 0})["chunks_verified"])


def _chunks(daemon: Daemon) -> int:
    return int((daemon.deployment("rolling", 1) or {"chunks_total": 0})["chunks_total"])


def _inodes(daemon: Daemon) -> dict[Path, int]:
    """Of every file of its complete models."""
    paths = (daemon.home / "models").glob("*/1/**/*")
    return {path: path.stat().st_ino for path in paths if path.is_file()}
