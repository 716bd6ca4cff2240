"""``python -m tests.bench.compiled COMMAND ...``: a command of gossipd with brain and simulator compiled by mypyc.

What lives here: copying the sources aside, compiling them there, running the command on the copy. What does not: the
package, which is plain Python and stays so. The figures of a simulation are the same (``--rng``); it takes some half of
the time. Needs mypy (the ``test`` extra), a C compiler and Python's headers. What was compiled is kept in the user's
cache directory under a name that follows from the sources, and used again while they are the same.

Rejected: to compile at installation. It would save users of ``gossipd simulate`` half of a coffee break, and cost
everybody a compiler, a minute, and stack traces that say less. Daemons gain nothing: with brain, membership and most of
transfer and store compiled sixteen of them took 44.5 and 46.5 CPU seconds in the lab, plain ones 41 to 46.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("gossipd", "membership")
_COMPILED = (
    *("gossipd/core/chunkset.py", "gossipd/core/ids.py"),
    *sorted(str(path.relative_to(_ROOT)) for path in (_ROOT / "gossipd/swarm").glob("[a-z]*.py")),
)
_SIMULATOR = ("fabric", "host", "membership", "scenario", "traffic_model", "death_verdicts", "world")
_COMPILE_S_MAX = 900
_SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

setup(name="compiled", packages=[], ext_modules=mypycify({arguments!r}, opt_level="2", debug_level="0"))
"""
_MYPY = "[mypy]\nfollow_imports = silent\nignore_missing_imports = true\n"


def main(arguments: list[str]) -> int:
    """Compile what is not compiled yet, then become the command."""
    if not arguments:
        print(f"usage: python -m tests.bench.compiled COMMAND ...\n\n{__doc__}", file=sys.stderr)
        return 2
    modules = list(_COMPILED) + [f"gossipd/sim/{name}.py" for name in _SIMULATOR]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "gossipd" / f"compiled-{_digest()}"
    if not place.exists():
        try:
            _compile(place, modules)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"compiled: {error}; it needs mypy, a C compiler and Python's headers", file=sys.stderr)
            return 1
    environment = os.environ | {"PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "gossipd", *arguments], environment)


def _digest() -> str:
    digest = blake2b(Path(__file__).read_bytes(), digest_size=8)
    digest.update(f"{sys.version} mypy {version('mypy')}".encode())
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _compile(place: Path, modules: list[str]) -> None:
    """Fill ``place``; it appears whole or not at all."""
    print(f"compiling {len(modules)} modules, about half a minute", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compiling-", dir=place.parent) as name:
        making = Path(name) / "tree"
        making.mkdir()
        for package in _PACKAGES:
            shutil.copytree(_ROOT / package, making / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        (making / "mypy.ini").write_text(_MYPY)
        (making / "setup.py").write_text(_SETUP.format(arguments=["--config-file", "mypy.ini", *modules]))
        build = [sys.executable, "setup.py", "build_ext", "--inplace"]
        done = subprocess.run(build, cwd=making, capture_output=True, text=True, timeout=_COMPILE_S_MAX, check=False)
        if done.returncode:
            raise subprocess.SubprocessError(f"mypyc failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        try:
            making.rename(place)
        except OSError:
            if not place.exists():  # else somebody was quicker
                raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
