"""What ``gossipd doctor`` reads of this host: configuration, keys, limits, clock, and its daemon's page.

What lives here: reading, each part by itself, so that one failure hides no other; nothing is changed. What does not:
judging (``diagnosis.checks``), directories (``disk_readings``), other hosts (``peer_readings``), and storage
(``storage_readings``).
"""

from __future__ import annotations

import ctypes
import pwd
import re
import socket
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient
from gossipd.cli.daemon_environment import daemon_environment, environment_of_listener, process_of_listener
from gossipd.cli.disk_readings import read_directories
from gossipd.cli.peer_readings import PEERS, Target, chosen, path_mtu, read_peers
from gossipd.cli.storage_readings import read_storage
from gossipd.config.keys import Keys, read_keys
from gossipd.config.kinds import split_contact
from gossipd.config.load import load_config
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
    user = None if as_user is None else _user(as_user)
    readings = replace(readings, **read_directories(config, user), contacts_unresolved=_unresolved(config))
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
        sources = read_storage(config, trusted, client.path, has_disk=not readings.answers_problem)
        readings = replace(readings, sources=sources, reads_as_daemon=is_daemons)
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


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"--as: there is no user {name!r} on this host") from None


def _unresolved(config: Config) -> tuple[str, ...]:
    found = []
    for contact in config.net.join:
        host, port = split_contact(contact)
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:
            found.append(f"{contact}: {getattr(error, 'strerror', None) or error}")
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
