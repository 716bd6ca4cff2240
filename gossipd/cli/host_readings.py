"""What ``gossipd doctor`` reads of this host: configuration, keys, disk, limits, clock, and its daemon's page.

What lives here: reading, each part by itself, so that one failure hides no other; nothing is changed but for one small
file that is written and deleted. What does not: judging (``diagnosis.checks``), other hosts (``peer_readings``), and
storage (``storage_readings``).
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import socket
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient
from gossipd.cli.daemon_environment import daemon_environment, environment_of_listener, process_of_listener
from gossipd.cli.peer_readings import PEERS, Target, chosen, path_mtu, read_peers
from gossipd.cli.storage_readings import read_storage
from gossipd.config.keys import Keys, read_keys
from gossipd.config.kinds import split_contact
from gossipd.config.load import load_config
from gossipd.config.places import check_places
from gossipd.config.prints import named_prints, prints_of
from gossipd.config.sections import Config
from gossipd.core.errors import GossipdError, UsageError
from gossipd.diagnosis.checks import HostReadings
from gossipd.runtime.process_limits import descriptors_max, thread_rooms

DAEMON_TIMEOUT_S = 2.0
UNITS = tuple(  # in systemd's order
    Path(top, "systemd/system/gossipd.service") for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
)
_REFUSED = re.compile(r'^gossipd_refused_total\{reason="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)


def read_host(
    config_file: Path, *, client: StatusClient, with_peers: bool = False, as_user: str | None = None
) -> HostReadings:
    """All readings; with those of other members where ``with_peers``. Raises UsageError when there is no such user."""
    readings = HostReadings(clock_is_kept=_clock_is_kept(), foreign_units=foreign_units(UNITS))
    readings = _with_daemon(replace(readings, **limits_of_daemon(client.path)), client)
    try:
        config = load_config(config_file, daemon_environment(client.path))
    except GossipdError as error:
        return replace(readings, config_problem=str(error.args[0]))
    readings = replace(readings, config_problem="", advertises=config.advertised)
    mtus = [path_mtu(*split_contact(one.address)) for one in _targets(readings, config)]
    readings = replace(readings, mtu=min((one for one in mtus if one is not None), default=None))
    readings = replace(readings, **_places(config), **_disk(config), contacts_unresolved=_unresolved(config))
    if as_user is not None:
        readings = replace(readings, unreadable_for=why_unreadable(config.store.models, as_user))
    keys = None
    try:
        keys = read_keys(config)
        readings = replace(readings, keys_problem="", publishers=len(keys.publishers))
    except GossipdError as error:
        readings = replace(readings, keys_problem=str(error.args[0]))
    if keys is None:
        return readings
    is_daemons = environment_of_listener(client.path) is not None
    if is_daemons:
        readings = replace(readings, prints=named_prints(prints_of(config, keys)))
    if config.sources.enabled:
        trusted = [key.ed25519 for key in keys.publishers]
        readings = replace(
            readings, sources=read_storage(config, trusted, client.path), reads_as_daemon=is_daemons
        )  # fmt: skip
    return _with_peers(readings, config, keys) if with_peers else readings


def _with_daemon(readings: HostReadings, client: StatusClient) -> HostReadings:
    try:
        readings = replace(readings, status=client.status(), daemon_problem="")
        return replace(readings, refused=refused_by_reason(client.metrics()))
    except (DaemonUnreachableError, RefusedByDaemonError) as error:
        return replace(readings, daemon_problem=str(error)) if readings.status is None else readings


def refused_by_reason(page: str) -> dict[str, int]:
    """Of the page for Prometheus what the daemon has turned away since its start."""
    return {reason: int(float(count)) for reason, count in _REFUSED.findall(page)}


def _with_peers(readings: HostReadings, config: Config, keys: Keys) -> HostReadings:
    return replace(
        readings, peers=read_peers(_targets(readings, config), keys.cluster, config.bulk_address[1] - config.net.port)
    )


def limits_of_daemon(daemon_socket: Path | None) -> dict[str, Any]:
    """Those of the daemon; where none runs, our own, which one that is started here would have."""
    process = process_of_listener(daemon_socket) or "self"
    limits = [room.limit for room in thread_rooms(process)]
    return {"descriptors_max": descriptors_max(process), "threads_max": min(limits, default=None)}


def _places(config: Config) -> dict[str, Any]:
    try:
        check_places(config)
        problem = ""
    except GossipdError as error:
        problem = str(error.args[0])
    places = (config.file.parent, config.file.parent / "state", config.store.models, config.store.inbox)
    return {"places_problem": problem, "unwritable": tuple(str(one) for one in places if _is_unwritable(one))}


def _is_unwritable(path: Path) -> bool:
    """Whether this user may not write there. Of a directory that is not made yet, the parent is looked at."""
    if not path.exists():
        return not os.access(path.parent, os.W_OK)
    return not os.access(path, os.W_OK) or bool(os.statvfs(path).f_flag & os.ST_RDONLY)


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


def _unresolved(config: Config) -> tuple[str, ...]:
    found = []
    for contact in config.net.join:
        host, port = split_contact(contact)
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except OSError as error:
            found.append(f"{contact}: {error.strerror or error}")
    return tuple(found)


def _targets(readings: HostReadings, config: Config) -> list[Target]:
    """The members that the daemon knows; without it, or where it knows none, the contacts."""
    status: Mapping[str, Any] | None = readings.status
    members = chosen(status) if status is not None else []
    found = [Target(each["name"], each["address"], each["rack"]) for each in members]
    return found or [Target(contact, contact) for contact in config.net.join[:PEERS]]


def _clock_is_kept() -> bool | None:
    """What ``adjtimex`` answers; None where it may not be asked."""
    buffer = ctypes.create_string_buffer(512)  # struct timex with all its zeroes: mode 0 only reads
    answer = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    return None if answer < 0 else answer != _UNSYNCHRONISED


def foreign_units(paths: Sequence[Path]) -> tuple[str, ...] | None:
    """Of systemd's unit the file that it takes, if that is not the one of this version; None where there is none."""
    taken = next((path for path in paths if path.exists()), None)
    if taken is None:
        return None
    try:
        is_ours = taken.read_text() == (files("gossipd") / "assets" / UNITS[0].name).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return () if is_ours else (str(taken),)


def why_unreadable(models: Path, user: str) -> str:
    """Why ``user`` cannot read the models, by the modes of the directories down to them; empty when the user can."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise UsageError(f"--as: there is no user {user!r} on this host") from None
    groups = set(os.getgrouplist(user, entry.pw_gid))
    for path in reversed((models, *models.parents)):
        try:
            mode = path.stat()
        except OSError as error:
            return f"{path}: {error.strerror}"
        wanted = stat.S_IXOTH | (stat.S_IROTH if path == models else 0)
        shift = 6 if mode.st_uid == entry.pw_uid else 3 if mode.st_gid in groups else 0
        if entry.pw_uid != 0 and (mode.st_mode >> shift) & wanted != wanted:
            return f"{path} has mode {stat.S_IMODE(mode.st_mode):04o}, and {user} may not enter it"
    return ""
