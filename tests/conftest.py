"""What every test may ask for: the ``needs`` marker and the storage servers.

``@pytest.mark.needs("nginx")`` names a Debian package's program, or ``root``, or ``netns`` (root and ``ip``). Where it
is missing the test is skipped and says what for; where the environment has ``CI``, a skip of any kind is a failure, so
that a machine that lost a package cannot turn tests off unseen.
"""

from __future__ import annotations

import gc
import os
import shutil
import stat
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests import servers

_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # Debian keeps ip, tc, mkfs and nginx in the latter two
_PROGRAMS = {"ext4": "mkfs.ext4", "iproute2": "ip"}
_OF_DAEMONS = ("tests/e2e/", "tests/chaos/", "tests/gossipd/demo/")
_LONG = (*_OF_DAEMONS, "tests/sim/", "tests/membership/", "tests/gossipd/store/")
_GARBAGE_THRESHOLD = 50_000  # simulations make many values and few cycles: with the default a tenth of their time goes
UNDER_CI = bool(os.environ.get("CI"))
settings.load_profile("ci")  # everywhere the same examples, which no busy machine makes too slow
collect_ignore = [] if find_spec("torch") else ["e2e_torch"]  # .ci/training runs them, where torch is installed


def missing(what: str) -> str | None:
    """What this machine lacks of ``what``, None when it lacks nothing."""
    if what == "root":
        return None if os.geteuid() == 0 else "root"
    if what == "netns":
        return missing("root") or missing("iproute2")
    program = _PROGRAMS.get(what, what)
    return None if shutil.which(program, path=_SEARCH) else program


class SchedulingByDaemons(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """File by file. The first worker takes tests of real daemons as long as there are any, the others all the rest, as
    two clusters at once would want more than two cores. Then it takes of the others' from the end, and they of its."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_first = node is self.nodes[0]
        own = (scope for scope in self.workqueue if scope.startswith(_OF_DAEMONS) is is_first)
        self.workqueue.move_to_end(next(own, next(reversed(self.workqueue))), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SchedulingByDaemons:
    return SchedulingByDaemons(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that the workers end together."""
    items.sort(key=lambda item: next((at for at, one in enumerate(_LONG) if item.nodeid.startswith(one)), len(_LONG)))


def pytest_collection_finish() -> None:
    """All tests stay to the end: no collection of garbage goes through them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for what in marker.args:
            lack = missing(what)
            if lack is not None:
                pytest.skip(f"needs {lack}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if UNDER_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which is a failure where CI is set: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def s3_server() -> Iterator[servers.S3Server]:
    """moto's S3 server, one for all tests: each makes a bucket of its own."""
    with servers.s3() as server:
        yield server


@pytest.fixture
def s3_environment(s3_server: servers.S3Server, monkeypatch: pytest.MonkeyPatch) -> servers.S3Server:
    """The S3 server, with credentials and endpoint in this process's environment."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that every user may enter. Not ``tmp_path``: any session of pytest that begins on this machine closes
    the directory above it to other users."""
    with TemporaryDirectory(prefix="gossipd-public-") as name:
        made = Path(name)
        for directory in (made, *made.parents[:-1]):
            directory.chmod(stat.S_IMODE(directory.stat().st_mode) | 0o055)
        yield made


@pytest.fixture
def nginx_server(tmp_path: Path) -> Iterator[servers.Nginx]:
    """nginx over ``tmp_path/www``; the test is marked ``needs("nginx")``."""
    root = tmp_path / "www"
    root.mkdir()
    with servers.nginx(root, tmp_path / "nginx") as server:
        yield server
