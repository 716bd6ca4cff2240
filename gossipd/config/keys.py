"""The key files of a configuration, read and checked together.

What lives here: reading them all, with every problem at once. What does not: one file's rules (``identity.key_files``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import field

from gossipd.config.load import ConfigError, Problem
from gossipd.config.sections import Config
from gossipd.core.hiding_struct import HidingStruct
from gossipd.identity.key_files import KeyFileError, read_key_ring, read_public_key, read_secret_key
from gossipd.identity.keys import PublicKey, SecretKey
from gossipd.identity.trust import key_id
from membership.seal import KeyRing

_Read = TypeVar("_Read")


class Keys(HidingStruct, frozen=True):
    """The daemon's keys. Secrets stay out of ``repr``."""

    node: SecretKey
    cluster: KeyRing
    publishers: tuple[PublicKey, ...]
    clients: tuple[PublicKey, ...]
    publisher_names: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    """Patterns of the names that a publisher may sign; one that is not here may sign all."""
    signing: tuple[SecretKey, ...] = ()
    """What this daemon signs with for the users of its host."""

    hidden = ("node", "cluster", "signing")


def read_keys(config: Config) -> Keys:
    """Read all key files that ``config`` names. Raises ConfigError with every file that cannot be used."""
    problems: list[Problem] = []

    def attempt(key: str, read: Callable[[Path], _Read], path: Path, section: str = "security") -> _Read | None:
        try:
            return read(path)
        except KeyFileError as error:
            problems.append(Problem(str(config.file), f"{section}.{key}", str(error.args[0])))
            return None

    node = attempt("node_key", read_secret_key, config.security.node_key)
    cluster = attempt("cluster_key", read_key_ring, config.security.cluster_key)
    publishers = [attempt("trust", read_public_key, path) for path in config.security.trust]
    clients = [attempt("clients", read_public_key, path) for path in config.security.clients]
    signing = [attempt("keys", read_secret_key, path, "publish") for path in config.publish.keys]
    if problems or node is None or cluster is None:
        raise ConfigError(tuple(problems))
    by_path = dict(config.security.trust_names)
    names = {
        key.ed25519: by_path[path]
        for path, key in zip(map(str, config.security.trust), publishers, strict=True)
        if key is not None and path in by_path
    }
    return Keys(
        node,
        cluster,
        tuple(filter(None, publishers)),
        tuple(filter(None, clients)),
        names,
        tuple(filter(None, signing)),
    )


def key_changes(before: Keys, after: Keys) -> list[dict[str, str]]:
    """What a reload has changed about who is trusted, for the audit log: the ids of keys that came and went."""
    changes = []
    for whom, old, new in (
        ("publishers", _shown(before.publishers, before), _shown(after.publishers, after)),
        ("clients", _shown(before.clients), _shown(after.clients)),
    ):
        if old != new:
            changes.append({"whom": whom, "added": " ".join(sorted(new - old)), "removed": " ".join(sorted(old - new))})
    return changes


def _shown(keys: Iterable[PublicKey], names: Keys | None = None) -> set[str]:
    patterns = names.publisher_names if names is not None else {}
    return {":".join((key_id(key.ed25519).hex(), *patterns.get(key.ed25519, ()))) for key in keys}
