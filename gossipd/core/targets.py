"""Which hosts a deployment is for.

What lives here: the value and its test against one host. What does not: its place in a manifest (``manifest.payload``).
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct


class Targets(Struct, frozen=True):
    """Which hosts: in one of ``racks`` (empty: any) and named by one of the patterns ``names`` (empty: any)."""

    racks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def include(self, *, name: str, rack: str) -> bool:
        """Whether the host with that name in that rack is one of them."""
        in_rack = not self.racks or rack in self.racks
        return in_rack and (not self.names or any(fnmatchcase(name, glob) for glob in self.names))


EVERY_HOST = Targets()
