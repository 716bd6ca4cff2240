"""Every door, by name."""

from __future__ import annotations

from tests.fuzz.surface import MakeSurface
from tests.fuzz.surfaces.bulk import BulkDoor
from tests.fuzz.surfaces.config import ConfigDoor
from tests.fuzz.surfaces.control import ControlDoor
from tests.fuzz.surfaces.datagram import DatagramDoor
from tests.fuzz.surfaces.kept import KeptDoor
from tests.fuzz.surfaces.manifest import ManifestDoor
from tests.fuzz.surfaces.status import StatusDoor
from tests.fuzz.surfaces.trigger import TriggerDoor

DOORS: dict[str, MakeSurface] = {
    "datagram": DatagramDoor,
    "control": ControlDoor,
    "bulk": BulkDoor,
    "manifest": ManifestDoor,
    "kept": KeptDoor,
    "trigger": TriggerDoor,
    "status": StatusDoor,
    "config": ConfigDoor,
}
