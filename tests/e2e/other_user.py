"""Commands of other users, in a mount namespace whose root is read-only, as in a hardened pod.

What lives here: the namespace, with this Python and this project in it. What does not: what is run there.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[2]
_MOUNTED = Path("/mnt")


def inside(name: str) -> Path:
    """Where a directory given to ``start_as`` as ``name`` is seen from within."""
    return _MOUNTED / name


Words = Sequence[str | Path]
Mounts = Mapping[str, tuple[Path, str]]


def start_as(user: int, words: Words, *, mounts: Mounts, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start ``gossipd WORDS`` as ``user``, with that group only, umask 0077 and no right to gain any.

    Args:
        mounts: what is seen at ``inside(name)``: a directory, and ``ro`` or ``rw``; nothing else can be written to.
    """
    # Not the virtual environment's own Python: it is a link to one that this user may not reach.
    packages = Path(sysconfig.get_path("purelib"))
    fixed = {"python": Path(sys.base_prefix), "packages": packages, "project": PROJECT}
    seen = {**{name: (path, "ro") for name, path in fixed.items()}, **mounts}
    script = ["set -e", f"mount -t tmpfs -o mode=755 none {_MOUNTED}"]
    for name, (path, mode) in seen.items():
        at = inside(name)
        script += [f"mkdir {at}", f"mount --bind {shlex.quote(str(path))} {at}"]
        if mode == "ro":
            script.append(f"mount -o remount,ro,bind {at}")
    script += ["mount -o remount,ro,bind /", f"mount -o remount,ro {_MOUNTED}", "umask 0077", "cd /"]
    variables = {
        "PYTHONPATH": f"{inside('project')}:{inside('packages')}",
        "LD_LIBRARY_PATH": str(inside("python") / "lib"),  # of this Python, wherever it was built for
        "PYTHONDONTWRITEBYTECODE": "1",
        **(env or {}),
    }
    command = [
        "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs",
        "env", "-i", *(f"{key}={value}" for key, value in variables.items()),
        inside("python") / "bin" / f"python3.{sys.version_info.minor}", "-m", "gossipd", *words,
    ]  # fmt: skip
    script.append("exec " + shlex.join(map(str, command)))
    return subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run_as(
    user: int, words: Words, *, mounts: Mounts, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The outcome of one command that ends by itself within three minutes."""
    process = start_as(user, words, mounts=mounts, env=env)
    out, problems = process.communicate(timeout=180)
    return subprocess.CompletedProcess(process.args, process.returncode, out, problems)
