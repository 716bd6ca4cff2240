"""What ``gossipd doctor`` reads of this host's directories, in a process of its own.

What lives here: that process, and the readings; nothing is changed but for one small file that is written and deleted.
What does not: judging (``diagnosis.checks``), and manifests (``storage_readings``). On a disk that hangs a reading
never ends, and neither would a process that waits for one: doctor leaves it behind.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from gossipd.cli.options import file_of_host
from gossipd.config.keys import read_keys
from gossipd.config.load import load_config
from gossipd.config.places import check_places
from gossipd.config.sections import Config
from gossipd.core.errors import GossipdError

WAIT_S = 10.0


def read_directories(config: Config, user: pwd.struct_passwd | None, *, wait_s: float = WAIT_S) -> dict[str, Any]:
    """Fields of ``HostReadings``; ``user``: of ``--as``. Of directories that do not answer nothing else is told."""
    read = read_apart(lambda: _directories(config, user), wait_s=wait_s)
    return {**read, "unwritable": tuple(read["unwritable"])} if "unwritable" in read else read


def why_silent(config_file: str | None, *, wait_s: float = WAIT_S) -> str:
    """Why this host's configuration and its keys should not be read: their disks do not answer. Empty where they do."""

    def look() -> dict[str, Any]:
        with suppress(GossipdError):  # who reads them afterwards tells what is wrong with them
            read_keys(load_config(file_of_host(config_file).absolute()))
        return {}

    problem: str = read_apart(look, wait_s=wait_s)["answers_problem"]
    return problem


def read_apart(read: Callable[[], dict[str, Any]], *, wait_s: float = WAIT_S) -> dict[str, Any]:
    """What ``read`` gives in a process of its own, with an ``answers_problem`` that is empty; of one that does not end
    in time that problem alone. Where it fails, that is a ``places_problem``, as nothing else is known then."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        _tell(read, tells)
    os.close(tells)
    with open(told, "rb") as pipe:
        if not select.select([pipe], [], [], wait_s)[0]:
            return {"answers_problem": f"the directories of this host have not answered for {wait_s:g} s"}
        answer = pipe.read()
    os.waitpid(child, 0)
    given = json.loads(answer) if answer else {"places_problem": "the process that reads the directories was ended"}
    return {**given, "answers_problem": ""}


def _tell(read: Callable[[], dict[str, Any]], tells: int) -> NoReturn:
    """In the child: nobody who waits for the parent's output waits for it."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        with open(tells, "wb") as pipe:
            pipe.write(json.dumps(_given(read)).encode())
    finally:
        os._exit(0)


def _given(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return read()
    except (OSError, ValueError) as error:
        return {"places_problem": f"the directories cannot be read: {error}"}


def _directories(config: Config, user: pwd.struct_passwd | None) -> dict[str, Any]:
    read = _places(config) | _disk(config)
    if user is not None:
        read["unreadable_for"] = why_unreadable(config.store.models, user)
    return read


def _places(config: Config) -> dict[str, Any]:
    try:
        check_places(config)
        problem = ""
    except GossipdError as error:
        problem = str(error.args[0])
    places = (config.file.parent, config.file.parent / "state", config.store.models, config.store.inbox)
    return {"places_problem": problem, "unwritable": tuple(str(one) for one in places if _is_unwritable(one))}


def _is_unwritable(path: Path) -> bool:
    """Whether this user may not write there, or may not reach it. Of a directory that is not made yet, the parent is
    looked at."""
    try:
        if not path.exists():
            return not os.access(path.parent, os.W_OK)
        return not os.access(path, os.W_OK) or bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return True


def _disk(config: Config) -> dict[str, Any]:
    models = config.store.models
    try:
        told = os.statvfs(models)
        read = {
            "free_bytes": told.f_bavail * told.f_frsize, "disk_bytes": told.f_blocks * told.f_frsize,
            "free_inodes": told.f_favail if told.f_files else None,
        }  # fmt: skip
        return {**read, "sync_s": _sync_s(models)}
    except OSError:
        return {}  # the store's directory cannot be looked at: ``unwritable`` says so


def _sync_s(directory: Path) -> float | None:
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            began = time.monotonic()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            return time.monotonic() - began
    except OSError:
        return None  # no space, or not writable: other checks say so


def why_unreadable(models: Path, entry: pwd.struct_passwd) -> str:
    """Why a user cannot read the models, by the modes of the directories down to them; empty when the user can."""
    groups = set(os.getgrouplist(entry.pw_name, entry.pw_gid))
    for path in reversed((models, *models.parents)):
        try:
            mode = path.stat()
        except OSError as error:
            return f"{path}: {error.strerror}"
        wanted = stat.S_IXOTH | (stat.S_IROTH if path == models else 0)
        shift = 6 if mode.st_uid == entry.pw_uid else 3 if mode.st_gid in groups else 0
        if entry.pw_uid != 0 and (mode.st_mode >> shift) & wanted != wanted:
            return f"{path} has mode {stat.S_IMODE(mode.st_mode):04o}, and {entry.pw_name} may not enter it"
    return ""
