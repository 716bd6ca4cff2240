"""A whole configuration: all its sections, in the order of the file.

What lives here: ``Config`` and the table of its sections, from which the file of ``gossipd init``, the checks and the
documentation are made. What does not: the settings (``cluster_sections``, ``model_sections``, ``job_sections``,
``status_sections``), reading (``load``) and writing (``template``). The daemon translates them into the settings of its
parts, so that no part sees another's.

Names end in their unit: ``_bytes``, ``_s``, ``_bytes_per_s``. Sizes and times may be written with a unit in quotes.
Paths are relative to the file's directory, so that the directory can be moved.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

from msgspec import Struct

from gossipd.config.cluster_sections import BulkSection, MembershipSection, NetSection, NodeSection, SecuritySection
from gossipd.config.job_sections import HfSection, HooksSection, PublishSection
from gossipd.config.model_sections import LimitsSection, PartsSection, SourcesSection, StoreSection
from gossipd.config.section import Section
from gossipd.config.status_sections import LogSection, StatusSection


class Config(Struct, frozen=True, kw_only=True):
    """A whole configuration, with absolute paths; only ``load_config`` makes one."""

    file: Path
    node: NodeSection
    net: NetSection
    security: SecuritySection
    bulk: BulkSection
    store: StoreSection
    sources: SourcesSection
    publish: PublishSection
    hf: HfSection
    hooks: HooksSection
    parts: PartsSection
    limits: LimitsSection
    membership: MembershipSection
    status: StatusSection
    log: LogSection

    @property
    def advertised(self) -> str:
        return self.net.advertise or self.net.bind

    @property
    def bulk_address(self) -> tuple[str, int]:
        """Where model bytes are served."""
        return self.net.bulk_bind or self.net.bind, self.net.bulk_port or self.net.port + 1


SECTIONS: dict[str, type[Section]] = {name: kind for name, kind in get_type_hints(Config).items() if name != "file"}
