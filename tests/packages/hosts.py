"""Hosts made of a root directory: an overlay over one base, a network namespace on a bridge, and real programs in both.

What lives here: making, running, ending. What does not: what is installed or said. Needs root. ``PACKAGES_BASE_ROOT``
is a Debian with Python, as ``.ci/packages`` makes it; ``PACKAGES_BUILT`` is where ``config/packages/build`` has built.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE = Path(os.environ.get("PACKAGES_BASE_ROOT", "/nonexistent"))
BUILT = Path(os.environ.get("PACKAGES_BUILT", "/nonexistent"))
PATIENCE_S = 90.0
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
BRIDGE = f"gp{os.getpid() % 10000}"


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """One command of this machine."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def until(what: str, condition: Callable[[], object]) -> None:
    """Look every 100 ms: another process has no event to wait for."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.1)


class Host:
    """One root directory with an address of its own."""

    def __init__(self, place: Path, name: str, number: int, *, base: Path) -> None:
        self.name, self.address = name, f"10.77.0.{number}"
        self.root, self.namespace = place / name / "root", f"{BRIDGE}-{number}"
        self.log = place / name / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._mounts: list[Path] = []
        for part in ("root", "upper", "work"):
            (place / name / part).mkdir(parents=True)
        layers = f"lowerdir={base},upperdir={place / name / 'upper'},workdir={place / name / 'work'}"
        self._mount("-t", "overlay", "-o", layers, "overlay", self.root)
        self._mount("-t", "proc", "proc", self.root / "proc")
        self._mount("-t", "tmpfs", "-o", "mode=755", "dev", self.root / "dev")
        for device, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
            run("mknod", "-m", "666", self.root / "dev" / device, "c", "1", str(minor))
        (self.root / "dev" / "shm").mkdir(mode=0o777)
        (self.root / "dev" / "fd").symlink_to("/proc/self/fd")
        self._link = link = f"{BRIDGE}v{number}"
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        run("ip", "link", "set", link, "master", BRIDGE, "up")
        for words in (f"addr add {self.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            run("ip", "-n", self.namespace, *words.split())

    def _mount(self, *words: str | Path) -> None:
        run("mount", *words)
        self._mounts.append(Path(words[-1]))

    def bind(self, source: Path, at: str, *, read_only: bool = False) -> None:
        """Show a directory of this machine inside."""
        target = self.root / at.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        self._mount("--bind", source, target)
        if read_only:
            run("mount", "-o", "remount,ro,bind", target)

    def make_read_only(self) -> None:
        """All of the root but what was bound."""
        run("mount", "-o", "remount,ro", self.root)

    def words(self, command: Sequence[str | Path]) -> list[str]:
        inside = ["ip", "netns", "exec", self.namespace, "chroot", str(self.root)]
        return [*inside, *map(str, command)]

    def sh(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A shell script as root, which ends at the first failure."""
        return run(*self.words(["env", "-i", f"PATH={PATH}", "sh", "-ec", script]), check=check)

    def start(self, command: Sequence[str | Path], **environment: str) -> None:
        """A daemon, until ``stop``."""
        assert self.process is None
        fixed = {"PATH": PATH, **environment}
        # `env` inside, because `ip netns exec` and `chroot` are of this machine.
        inside = ["env", "-i", *(f"{key}={value}" for key, value in fixed.items()), *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words(inside), stdout=log, stderr=log)

    def start_unit(self) -> None:
        """What systemd would run: the unit's command as the unit's user, with the unit's environment file."""
        unit = (self.root / "usr/lib/systemd/system/gossipd.service").read_text()

        def value(key: str) -> str:
            found = re.search(rf"(?m)^{key}=-?(.+)$", unit)
            assert found is not None, key
            return found[1]

        file = self.root / value("EnvironmentFile").lstrip("/")
        lines = file.read_text().splitlines() if file.exists() else []
        pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
        environment = {name: _unquoted(text) for name, text in pairs}
        user = [f"--reuid={value('User')}", f"--regid={value('Group')}", "--init-groups"]
        confined = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        self.start(["setpriv", *user, *confined, *shlex.split(value("ExecStart"))], **environment)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        self.process = None
        return code

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
        run("ip", "link", "del", self._link, check=False)
        run("ip", "netns", "del", self.namespace, check=False)
        for mount in reversed(self._mounts):
            run("umount", "--lazy", mount)


@contextlib.contextmanager
def hosts(place: Path, names: Sequence[str], *, base: Path = BASE) -> Iterator[list[Host]]:
    """Hosts on one bridge; whatever was started is killed at the end."""
    # Else a mount that is left over would be in the way of whatever clears temporary directories.
    alone = Path("/proc/self/ns/mnt").readlink() != Path(f"/proc/{os.getppid()}/ns/mnt").readlink()
    assert alone, "run it as .ci/packages does: unshare --mount --propagation private python -m pytest ..."
    assert (base / "usr/bin/python3").exists(), f"PACKAGES_BASE_ROOT={base} is no Debian with Python"
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    made: list[Host] = []
    try:
        run("ip", "link", "set", BRIDGE, "up")
        for number, name in enumerate(names, start=1):
            made.append(Host(place, name, number, base=base))
        yield made
    except BaseException:
        for host in made:
            print(f"---- {host.name}", host.log.read_text()[-3000:] if host.log.exists() else "")
        raise
    finally:
        for host in made:
            host.close()
        run("ip", "link", "del", BRIDGE)


def make_model(directory: Path) -> None:
    """A small model that every user may read."""
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(os.urandom(3_000_000))
    (directory / "config.json").write_text('{"model_type": "toy"}\n')
    for path in (directory.parent, directory, *directory.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)


def package(kind: str) -> Path:
    """The one that was built."""
    found = sorted(BUILT.glob(f"*.{kind}"))
    assert len(found) == 1, f"PACKAGES_BUILT={BUILT} has {len(found)} packages of kind {kind}"
    return found[0]


def newer_deb(out: Path) -> Path:
    """The same package under a higher version."""
    tree = out.parent / "newer"
    run("dpkg-deb", "-R", package("deb"), tree)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*$", "Version: 99.0", control.read_text()))
    for path in tree.rglob("gossipd-*.dist-info/METADATA"):
        path.write_text(re.sub(r"(?m)^Version: .*$", "Version: 99.0", path.read_text()))
    out.mkdir(parents=True)
    run("dpkg-deb", "-Znone", "-b", tree, out / "gossipd_99.0_amd64.deb")
    shutil.rmtree(tree)
    return out / "gossipd_99.0_amd64.deb"


def _unquoted(text: str) -> str:
    """A value of an environment file, as systemd reads it."""
    if not text.startswith('"'):
        return text
    return re.sub(r"\\(.)", r"\1", text[1:-1])
