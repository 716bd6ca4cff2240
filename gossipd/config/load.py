"""A TOML file and the environment in, one checked Config out, or every problem at once.

What lives here: reading, overrides, checks across settings, and where each value comes from. What does not: the
settings (``sections``), what a variable means (``environment``), and key files (``keys``).

An environment variable ``GOSSIPD_SECTION__KEY`` overrides a setting. tomllib does not report positions, so the line
of a setting is found by searching for the key below its section.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from gossipd.config.cluster_sections import NetSection
from gossipd.config.environment import (
    PREFIX,
    VALUE_CHARACTERS_MAX,
    kinds_of,
    parsed_toml,
    setting_variables,
    suggest,
    value_of,
)
from gossipd.config.job_sections import EXCLUDES_MAX
from gossipd.config.key_directories import KeyDirectoryError, key_files_of
from gossipd.config.rack_file import RackFileError, rack_of
from gossipd.config.sections import SECTIONS, Config
from gossipd.core.errors import ExitCode, LocalError
from gossipd.core.limit_schedule import LimitEntryError, check_overlaps, parse_entry

# The example has 10 KB, a list of a hundred hosts to join 4 KB. tomllib is slow on nested arrays, and a reload parses
# on the event loop, between acknowledgements of probes.
FILE_BYTES_MAX = 64 * 1024
FILE_NAME = "gossipd.toml"
_SOCKET_BYTES_MAX = 107  # sun_path of Linux has 108 bytes with its end


class Problem(Struct, frozen=True):
    """One wrong setting: its place (empty before there is a file), its key, and the reason."""

    where: str
    key: str
    reason: str

    def __str__(self) -> str:
        return (f"{self.where}: " if self.where else "") + (f"{self.key} {self.reason}" if self.key else self.reason)


class ConfigError(LocalError):
    """An unusable configuration. Fault: the operator. State: nothing is bound or written. Retry: corrected."""

    code = "E_CONFIG"
    exit_code = ExitCode.USAGE

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        head = "" if len(problems) == 1 else f"{len(problems)} problems\n"
        super().__init__(head + "\n".join(str(problem) for problem in problems))


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read the configuration in ``path``, overridden by ``environment`` (by default the process's own). A directory
    stands for the ``gossipd.toml`` in it. Raises ConfigError with every problem found."""
    path = path / FILE_NAME if path.is_dir() else path
    text = _read(path)
    return parse_config(text, path, os.environ if environment is None else environment)


def parse_config(text: str, path: Path, environment: Mapping[str, str]) -> Config:
    """As ``load_config``, from the file's text. ``path`` is the base of relative paths and the place of problems."""
    return _parse(text, path, environment)[0]


def load_with_origins(path: Path) -> tuple[Config, dict[str, str]]:
    """As ``load_config``; and where each value comes from, by ``SECTION.KEY``: ``default``, ``FILE:LINE`` or
    ``environment variable NAME``."""
    path = path / FILE_NAME if path.is_dir() else path
    config, reading = _parse(_read(path), path, os.environ)
    keys = [(name, item.name) for name, section in SECTIONS.items() for item in section.settings]
    return config, {f"{name}.{key}": reading.origin(name, key) for name, key in keys}


def _parse(text: str, path: Path, environment: Mapping[str, str]) -> tuple[Config, _Reading]:
    try:
        table = parsed_toml(text)
    except ValueError as error:
        raise ConfigError((Problem(str(path), "", f"is not TOML: {error}"),)) from None
    reading = _Reading(path, _lines(text), table)
    reading.overlay(environment)
    sections = {name: reading.section(name) for name in SECTIONS}
    reading.unknown_sections()
    if not reading.problems:
        config = Config(file=path.absolute(), **cast(dict[str, Any], sections))
        config = _with_key_files(_with_credentials(_with_absolute_paths(config), environment), reading)
        if config.node.rack_file:
            config = _with_rack(config, reading)
        reading.problems += [Problem(reading.where(*key), ".".join(key), why) for key, why in _across(config)]
        if not reading.problems:
            return config, reading
    raise ConfigError(tuple(reading.problems))


class _Reading(Struct):
    path: Path
    lines: Mapping[tuple[str, str], int]
    table: dict[str, Any]
    problems: list[Problem] = field(default_factory=list)
    overridden: dict[tuple[str, str], str] = field(default_factory=dict)
    rack_line: str = ""
    """Where ``node.rack`` is, if not in the file."""

    def where(self, section: str, key: str) -> str:
        variable = self.overridden.get((section, key))
        if variable is not None:
            return f"environment variable {variable}"
        line = self.lines.get((section, key)) or self.lines.get((section, ""))
        return f"{self.path}:{line}" if line else str(self.path)

    def origin(self, section: str, key: str) -> str:
        if self.rack_line and (section, key) == ("node", "rack"):
            return self.rack_line
        return self.where(section, key) if key in self.table.get(section, {}) else "default"

    def overlay(self, environment: Mapping[str, str]) -> None:
        for variable in sorted(environment):
            if not variable.startswith(PREFIX) or "__" not in variable:
                continue
            section, _, key = variable.removeprefix(PREFIX).lower().partition("__")
            if section not in SECTIONS or key not in kinds_of(section):
                hint = suggest(variable, setting_variables())
                self.problems.append(Problem(f"environment variable {variable}", "", f"names no setting{hint}"))
                continue
            if len(environment[variable]) > VALUE_CHARACTERS_MAX:
                detail = f"has more than {VALUE_CHARACTERS_MAX} characters"
                self.problems.append(Problem(f"environment variable {variable}", f"{section}.{key}", detail))
                continue
            table = self.table.setdefault(section, {})
            if isinstance(table, dict):
                table[key] = value_of(environment[variable], kinds_of(section)[key])
                self.overridden[section, key] = variable

    def section(self, name: str) -> object:
        table = self.table.get(name, {})
        if not isinstance(table, dict):
            self.problems.append(Problem(self.where(name, ""), name, f"must be a section, [{name}]"))
            return None
        known = kinds_of(name)
        for key in table:
            if key not in known:
                hint = suggest(key, list(known)) or _elsewhere(key)
                self.problems.append(Problem(self.where(name, key), f"{name}.{key}", f"is not a setting{hint}"))
        values = {}
        complete = True
        for item in SECTIONS[name].settings:
            if item.name not in table:
                if item.is_required:
                    complete = False
                    wanted = known[item.name].wanted
                    self.problems.append(Problem(self.where(name, ""), f"{name}.{item.name}", f"is missing: {wanted}"))
                continue
            try:
                value = known[item.name].read(table[item.name])
            except ValueError as error:
                complete = False
                self.problems.append(Problem(self.where(name, item.name), f"{name}.{item.name}", str(error)))
                continue
            values[item.name] = _as_paths(value) if "Path" in item.annotation else value
        return SECTIONS[name](**values) if complete else None

    def unknown_sections(self) -> None:
        for name in self.table:
            if name not in SECTIONS:
                hint = suggest(name, list(SECTIONS)) or _elsewhere(name)
                self.problems.append(Problem(self.where(name, ""), name, f"is not a section{hint}"))


def _across(config: Config) -> list[tuple[tuple[str, str], str]]:
    """Problems that single values cannot show."""
    found: list[tuple[tuple[str, str], str]] = []
    net: NetSection = config.net
    wildcard = ("0.0.0.0", "::")
    if net.bind in wildcard and not net.advertise:
        found.append((("net", "advertise"), f"must be set when net.bind is {net.bind}: others cannot dial that"))
    if net.advertise in wildcard:
        found.append((("net", "advertise"), f"is {net.advertise}, must be an address that others can dial"))
    if net.bulk_port == 0 and net.port == 65_535:
        found.append((("net", "bulk_port"), "must be set when net.port is 65535: there is no port + 1"))
    if net.bulk_port == net.port:
        found.append((("net", "bulk_port"), "must differ from net.port"))
    if config.status.metrics_port and config.status.metrics_port in (net.port, config.bulk_address[1]):
        found.append((("status", "metrics_port"), "must differ from net.port and net.bulk_port"))
    members = config.membership
    if members.probe_timeout_s * 2 >= members.probe_interval_s:
        found.append((("membership", "probe_timeout_s"), "must be under half of membership.probe_interval_s"))
    for key_file, _ in config.security.trust_names:
        if Path(key_file) not in config.security.trust:
            found.append((("security", "trust_names"), f"names {key_file}, which is not in security.trust"))
    socket_bytes = len(os.fsencode(config.status.socket))
    if socket_bytes > _SOCKET_BYTES_MAX:
        found.append((("status", "socket"), f"has {socket_bytes} bytes as a full path, at most {_SOCKET_BYTES_MAX}"))
    if config.status.read_socket == config.status.socket:
        found.append((("status", "read_socket"), "must differ from status.socket, which takes commands"))
    if config.store.inbox == config.store.models:
        found.append((("store", "inbox"), "must not be the same directory as store.models"))
    return found + _across_limits(config) + _across_watch(config)


def _across_watch(config: Config) -> list[tuple[tuple[str, str], str]]:
    found = []
    watch = config.publish.watch
    for position, one in enumerate(watch):
        if one.keep_every and not one.keep_last:
            found.append((("publish", "watch"), f"table {position + 1}: keep_every goes with keep_last"))
        if len(one.exclude) > EXCLUDES_MAX:
            found.append((("publish", "watch"), f"table {position + 1}: exclude has more than {EXCLUDES_MAX} patterns"))
        if any(other.name == one.name for other in watch[:position]):
            found.append((("publish", "watch"), f"table {position + 1}: {one.name} is watched twice, as one name"))
    if watch and not config.publish.keys:
        found.append((("publish", "watch"), "needs publish.keys, which the daemon signs with"))
    return found


def _across_limits(config: Config) -> list[tuple[tuple[str, str], str]]:
    found = []
    if config.status.metrics_bind in ("0.0.0.0", "::"):
        found.append((("status", "metrics_bind"), "must be one address, not all of this host"))
    if config.sources.budget_money and not config.sources.money_per_gb:
        found.append((("sources", "budget_money"), "needs sources.money_per_gb"))
    high, low = config.store.high_watermark_percent, config.store.low_watermark_percent
    if high and low >= high:
        found.append((("store", "low_watermark_percent"), f"must be under store.high_watermark_percent, {high}"))
    try:
        check_overlaps([parse_entry(text) for text in config.limits.schedule])
    except LimitEntryError as error:
        found.append((("limits", "schedule"), str(error)))
    return found


def _read(path: Path) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would keep us waiting
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError((Problem(str(path), "", "is not a file"),))
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError((Problem(str(path), "", f"cannot be read: {error.strerror}"),)) from None
    if mode & 0o002:
        raise ConfigError((Problem(str(path), "", "may be changed by every user; chmod o-w it"),))
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError((Problem(str(path), "", f"has more than {FILE_BYTES_MAX} bytes"),))
    try:
        return raw.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise ConfigError((Problem(str(path), "", f"is not UTF-8 (byte {error.start})"),)) from None


def _lines(text: str) -> dict[tuple[str, str], int]:
    """(section, key) -> line; (section, "") -> line of its header."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if tables := re.match(r"\s*\[\[\s*([A-Za-z0-9_-]+)\s*\.\s*([A-Za-z0-9_-]+)\s*\]\]", line):
            section = f"{tables[1]}.{tables[2]}"
            found.setdefault((tables[1], tables[2]), number)
        elif header := re.match(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]", line):
            section = header[1]
            found.setdefault((section, ""), number)
        elif key := re.match(r"\s*([A-Za-z0-9_-]+)\s*=", line):
            found.setdefault((section, key[1]) if section else (key[1], ""), number)
    return found


def _as_paths(value: object) -> object:
    return tuple(Path(entry) for entry in value) if isinstance(value, tuple) else Path(str(value))


def _with_absolute_paths(config: Config) -> Config:
    base = config.file.parent

    def absolute(path: Path | str) -> Path:  # a default is still a plain text
        return Path(os.path.normpath(base / Path(path).expanduser()))

    def with_paths(section: Any) -> Any:
        given = {item.name: getattr(section, item.name) for item in section.settings if "Path" in item.annotation}
        return replace(section, **{
            name: tuple(map(absolute, value)) if isinstance(value, tuple) else absolute(value)
            for name, value in given.items()
        })  # fmt: skip

    found = replace(config, **{name: with_paths(getattr(config, name)) for name in SECTIONS})
    if found.node.rack_file:
        found = replace(found, node=replace(found.node, rack_file=str(absolute(found.node.rack_file))))
    names = tuple((str(absolute(path)), patterns) for path, patterns in found.security.trust_names)
    watch = tuple(replace(one, directory=str(absolute(one.directory))) for one in found.publish.watch)
    return replace(
        found, security=replace(found.security, trust_names=names), publish=replace(found.publish, watch=watch)
    )


def _with_rack(config: Config, reading: _Reading) -> Config:
    """The rack that ``node.rack_file`` names for this host, if it does."""
    path = Path(config.node.rack_file)
    try:
        found = rack_of(path, config.node.name)
    except RackFileError as error:
        reading.problems.append(Problem(reading.where("node", "rack_file"), "node.rack_file", str(error)))
        return config
    if found is None:
        return config
    rack, line = found
    reading.rack_line = f"{path}:{line}"
    return replace(config, node=replace(config.node, rack=rack))


def _with_key_files(config: Config, reading: _Reading) -> Config:
    """The files of public keys, where a directory stands for those in it."""
    found: dict[str, Any] = {}
    for name in ("trust", "clients"):
        try:
            found[name] = key_files_of(getattr(config.security, name))
        except KeyDirectoryError as error:
            reading.problems.append(Problem(reading.where("security", name), f"security.{name}", str(error)))
    return replace(config, security=replace(config.security, **found))


def _with_credentials(config: Config, environment: Mapping[str, str]) -> Config:
    """The host's secrets as systemd hands them (``LoadCredential=``), for those that are not where the file says. Their
    names begin with ``gossipd.``, because all units share one place for them."""
    place = environment.get("CREDENTIALS_DIRECTORY")
    if place is None:
        return config
    handed: dict[str, Any] = {}
    for name in ("cluster_key", "node_key"):
        path: Path = getattr(config.security, name)
        credential = Path(place) / f"gossipd.{path.name}"
        if not path.exists() and credential.exists():
            handed[name] = credential
    return replace(config, security=replace(config.security, **handed)) if handed else config


def _elsewhere(key: str) -> str:
    """Suggest the right section for a key that is in the wrong one, or at the top of the file."""
    homes = [f"{name}.{key}" for name in SECTIONS if key in kinds_of(name)]
    return f"; did you mean {' or '.join(homes)}?" if homes else ""
