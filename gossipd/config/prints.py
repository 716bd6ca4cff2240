"""Prints of what should be the same on all hosts: trusted publishers, clients, cluster keys, encryption, settings.

What lives here: the five prints that a host tells on its member record, and which settings count. What does not:
telling them (``daemon.settings_mapping``) and comparing hosts (``diagnosis.drift``).

A print is four bytes of BLAKE3: enough to tell hosts apart, and no use to find what was hashed, as keys are random.
Settings that are one host's own do not count: its name, place, addresses, paths, users, hooks and logs, and whether it
may read storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

from gossipd.config.keys import Keys
from gossipd.config.sections import Config

PRINT_BYTES = 4
PRINT_NAMES = ("trust", "clients", "cluster_key", "encryption", "settings")
PRINTS_BYTES = PRINT_BYTES * len(PRINT_NAMES)
_SECTIONS_SHARED = ("store", "sources", "limits", "membership")
_OWN = ("enabled", "models_group")


def prints_of(config: Config, keys: Keys) -> bytes:
    """The prints of what runs here, in the order of ``PRINT_NAMES``."""
    publishers = [key.ed25519 + repr(keys.publisher_names.get(key.ed25519)).encode() for key in keys.publishers]
    clients = [key.ed25519 for key in keys.clients] + [role.encode() for role in config.security.may_cancel]
    settings = [
        f"{section}.{item.name}={value!r}".encode()
        for section in _SECTIONS_SHARED
        for item in getattr(config, section).settings
        if item.name not in _OWN and not isinstance(value := getattr(getattr(config, section), item.name), Path)
    ]
    parts = (
        sorted(publishers),
        sorted(clients),
        keys.cluster.keys,  # the first one sends: their order is a round of a rotation
        [config.bulk.encryption.encode()],
        settings,
    )
    return b"".join(_print(name, part) for name, part in zip(PRINT_NAMES, parts, strict=True))


def named_prints(prints: bytes) -> dict[str, str]:
    """Hexadecimal, by name; empty for a host that tells none."""
    if len(prints) != PRINTS_BYTES:
        return {}
    at = range(0, PRINTS_BYTES, PRINT_BYTES)
    return {name: prints[start : start + PRINT_BYTES].hex() for name, start in zip(PRINT_NAMES, at, strict=True)}


def _print(name: str, part: Iterable[bytes]) -> bytes:
    hashed = blake3(derive_key_context=f"gossipd 1 print of {name}")
    for one in part:
        hashed.update(len(one).to_bytes(4, "big") + one)
    return hashed.digest(PRINT_BYTES)
