"""Every surface, by name."""

from __future__ import annotations

from tests.fuzz.surface import MakeSurface
from tests.fuzz.surfaces.bulk import BulkSurface
from tests.fuzz.surfaces.config import ConfigSurface
from tests.fuzz.surfaces.control import ControlSurface
from tests.fuzz.surfaces.datagram import DatagramSurface
from tests.fuzz.surfaces.kept import KeptSurface
from tests.fuzz.surfaces.manifest import ManifestSurface
from tests.fuzz.surfaces.status import StatusSurface
from tests.fuzz.surfaces.trigger import TriggerSurface

SURFACES: dict[str, MakeSurface] = {
    "datagram": DatagramSurface,
    "control": ControlSurface,
    "bulk": BulkSurface,
    "manifest": ManifestSurface,
    "kept": KeptSurface,
    "trigger": TriggerSurface,
    "status": StatusSurface,
    "config": ConfigSurface,
}
