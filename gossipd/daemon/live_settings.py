"""The configuration and keys in force: a reload replaces them, and every part that holds this sees the new ones.

What lives here: the holder. What does not: reading and comparing files (``config``), and telling parts that keep a copy
(``app``).
"""

from __future__ import annotations

from dataclasses import dataclass

from gossipd.config.keys import Keys
from gossipd.config.sections import Config
from gossipd.identity.keys import PublicKey
from gossipd.parts.want import Want, parse_want


@dataclass(slots=True)
class LiveSettings:
    """Owned by ``app``, which alone changes it, on the trio loop."""

    config: Config
    keys: Keys

    @property
    def clients(self) -> tuple[PublicKey, ...]:
        """Clients that may trigger."""
        return self.keys.clients

    @property
    def may_cancel(self) -> tuple[str, ...]:
        """Roles of those who may cancel."""
        return self.config.security.may_cancel

    def wants(self) -> dict[str, Want]:
        """What this host wants, by model name; of other names everything."""
        return {name: parse_want(terms) for name, terms in self.config.parts.wants}

    def trusted(self) -> dict[bytes, tuple[str, ...]]:
        """Ed25519 keys of publishers whose manifests are accepted, each with the patterns of names it may sign."""
        return {key.ed25519: self.keys.publisher_names.get(key.ed25519, ("*",)) for key in self.keys.publishers}
