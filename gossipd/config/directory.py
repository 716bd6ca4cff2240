"""A new node's directory, as ``gossipd init`` makes it: configuration, keys, inbox and models.

What lives here: which files are written, in which order. What does not: the command (``cli.init``).

Nothing is overwritten: all paths are checked first, so that a refusal leaves the directory unchanged. Given key files
are copied in, so that the directory is complete and can be moved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gossipd.config.environment import kinds_of, suggest, value_of
from gossipd.config.load import ConfigError, Problem, parse_config
from gossipd.config.sections import SECTIONS
from gossipd.config.template import render_config
from gossipd.core.errors import ExitCode, LocalError
from gossipd.identity import key_files
from gossipd.identity.cluster_key import CLUSTER_ID_BYTES, CLUSTER_KEY_BYTES, new_key_ring
from gossipd.identity.keys import KEY_BYTES, SecretKey

# The jobs of other users reach the models and the socket that only answers; keys and the other socket are 0600.
_READABLE = 0o755
Settings: TypeAlias = Mapping[str, Mapping[str, object]]
_MADE_HERE = (("security", "cluster_key"), ("security", "node_key"), ("security", "trust"))
_PRIVATE = 0o750  # who may write to the inbox may deploy


class InitError(LocalError):
    """The directory cannot be set up. Fault: the operator. State: existing files are unchanged. Retry: yes."""

    code = "E_INIT"
    exit_code = ExitCode.USAGE


class Written(Struct, frozen=True):
    config: Path
    files: tuple[Path, ...]
    public_key: str
    """The node's Ed25519 key in hex, which names it."""
    cluster: str


def make_directory(
    directory: Path,
    *,
    node: dict[str, object],
    net: dict[str, object],
    more: Settings = MappingProxyType({}),
    cluster_key: Path | None = None,
    trust: Sequence[Path] = (),
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Written:
    """Set up ``directory`` for a node.

    Args:
        node, net, more: the given settings, typed, by key and by section; all others keep their defaults.
        cluster_key: the key of an existing cluster; otherwise a new one is made.
        trust: publishers' public key files.
    Raises:
        ConfigError: a setting cannot have the given value.
        KeyFileError: a given key file cannot be used.
        InitError: a file exists already, or cannot be made.
    """
    ring = key_files.read_key_ring(cluster_key) if cluster_key else None
    publishers = [(_pub_name(path), key_files.read_public_key(path)) for path in trust]
    names = [name for name, _ in publishers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InitError(f"two files given with --trust are called {twice[0]}")
    config = directory / "gossipd.toml"
    text = _text(config, {**more, "node": node | {**more.get("node", {})}, "net": net | {**more.get("net", {})}}, names)
    files = [config, directory / "node.key", directory / "node.key.pub", directory / "cluster.key"]
    files += [directory / "trust" / name for name in names]
    if there := [path for path in files if os.path.lexists(path)]:
        raise InitError(f"{', '.join(map(str, there))} exist{'s' if len(there) == 1 else ''} already", code="E_EXISTS")
    ring = ring or new_key_ring(random_bytes(CLUSTER_ID_BYTES + CLUSTER_KEY_BYTES))
    secret = SecretKey(random_bytes(KEY_BYTES))
    try:
        for made in (directory, directory / "models", *([directory / "trust"] if names else [])):
            _make(made, _READABLE)
        _make(directory / "inbox", _PRIVATE)
        key_files.write_key_pair(directory / "node.key", secret)
        key_files.write_key_ring(directory / "cluster.key", ring)
        for name, key in publishers:
            key_files.write_public_key(directory / "trust" / name, key)
        with config.open("x", encoding="utf-8") as file:  # last: a directory with this file is complete
            file.write(text)
            os.fchmod(file.fileno(), 0o644)  # it holds no secret; jobs find the sockets by it
    except OSError as error:
        raise InitError(f"{error.filename or directory} cannot be made: {error.strerror}") from None
    return Written(config, tuple(files), secret.public.ed25519.hex(), ring.cluster_id.hex())


def example_text() -> str:
    """``config/gossipd.toml`` of the project: what ``init`` writes for an imaginary host."""
    node: dict[str, object] = {"name": "node-a", "rack": "rack-1"}
    net: dict[str, object] = {"bind": "10.0.0.1", "port": 7946, "join": ("10.0.0.2:7946", "10.0.0.3:7946")}
    return _text(Path("gossipd.toml"), {"node": node, "net": net}, ["publisher.key.pub"])


def read_settings(assignments: Sequence[str], given: Settings) -> Settings:
    """What ``SECTION.KEY=VALUE`` assigns, typed; ``given`` are set already. Raises ConfigError with every problem."""
    found: dict[str, dict[str, object]] = {}
    every = [f"{section}.{name}" for section in SECTIONS for name in kinds_of(section)]
    problems = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        section, _, name = key.strip().partition(".")
        known = kinds_of(section) if section in SECTIONS else {}
        if not equals:
            reason = "must be SECTION.KEY=VALUE"
        elif name not in known:
            reason = f"is not a setting{suggest(key.strip(), every)}"
        elif (section, name) in _MADE_HERE:
            reason = "is made by init; see --cluster-key and --trust"
        elif name in found.get(section, {}) or name in given.get(section, {}):
            reason = "is given twice"
        else:
            try:
                found.setdefault(section, {})[name] = known[name].read(value_of(text.strip(), known[name]))
                continue
            except ValueError as error:
                reason = str(error)
        problems.append(Problem("--set", key.strip()[:80], reason))
    if problems:
        raise ConfigError(tuple(problems))
    return found


def _text(config: Path, settings: Settings, trust: Sequence[str]) -> str:
    security = {"cluster_key": "cluster.key", "node_key": "node.key", "trust": tuple(f"trust/{name}" for name in trust)}
    text = render_config({**settings, "security": {**settings.get("security", {}), **security}})
    try:
        parse_config(text, config, {})  # reports every wrong value before anything is written
    except ConfigError as error:
        raise ConfigError(tuple(replace(problem, where="") for problem in error.problems)) from None
    return text


def _make(directory: Path, mode: int) -> None:
    """A new directory has exactly ``mode``, whatever the umask; one that exists keeps its own."""
    if not directory.is_dir():
        directory.mkdir(parents=True)
        directory.chmod(mode)


def _pub_name(path: Path) -> str:
    return path.name if path.suffix == ".pub" else f"{path.name}.pub"
