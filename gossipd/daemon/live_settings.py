"""The configuration and keys in force: a reload replaces them, and every part that holds this sees the new ones.

What lives here: the holder. What does not: reading and comparing files (``config``), and telling parts that keep a copy
(``app``).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from gossipd.config.keys import Keys
from gossipd.config.sections import Config
from gossipd.identity.keys import PublicKey
from gossipd.parts.want import Want, parse_want
from gossipd.parts.want_orders import unite


class LiveSettings(Struct):
    """Owned by ``app``, on the trio loop. It alone changes it, but for the wants, which ``want_orders`` changes."""

    config: Config
    keys: Keys
    ordered_wants: dict[str, Want] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[PublicKey, ...]:
        """Clients that may trigger."""
        return self.keys.clients

    @property
    def may_cancel(self) -> tuple[str, ...]:
        """Roles of those who may cancel."""
        return self.config.security.may_cancel

    def configured_wants(self) -> dict[str, Want]:
        """What the configuration says that this host wants, by model name."""
        return {name: parse_want(terms) for name, terms in self.config.parts.wants}

    def wants(self, ordered: Mapping[str, Want] | None = None) -> dict[str, Want]:
        """What this host wants, by model name; of other names everything. ``ordered``: as if these were the orders."""
        return unite(self.configured_wants(), self.ordered_wants if ordered is None else ordered)

    def trusted(self) -> dict[bytes, tuple[str, ...]]:
        """Ed25519 keys of publishers whose manifests are accepted, each with the patterns of names it may sign."""
        return {key.ed25519: self.keys.publisher_names.get(key.ed25519, ("*",)) for key in self.keys.publishers}
