"""The configuration and keys in force: a reload replaces them, and every part that holds this sees the new ones.

What lives here: the holder. What does not: reading and comparing files (``config``), and telling parts that keep a copy
(``app``).
"""

from __future__ import annotations

from dataclasses import dataclass

from gossipd.config.keys import Keys
from gossipd.config.sections import Config
from gossipd.identity.keys import PublicKey


@dataclass(slots=True)
class LiveSettings:
    """Owned by ``app``, which alone changes it, on the trio loop."""

    config: Config
    keys: Keys

    @property
    def clients(self) -> tuple[PublicKey, ...]:
        """Clients that may trigger."""
        return self.keys.clients

    def trusted(self) -> frozenset[bytes]:
        """Ed25519 keys of publishers whose manifests are accepted."""
        return frozenset(key.ed25519 for key in self.keys.publishers)
