"""Every door, by name."""

from __future__ import annotations

from tests.fuzz.door import MakeDoor
from tests.fuzz.doors.bulk import BulkDoor
from tests.fuzz.doors.config import ConfigDoor
from tests.fuzz.doors.control import ControlDoor
from tests.fuzz.doors.datagram import DatagramDoor
from tests.fuzz.doors.kept import KeptDoor
from tests.fuzz.doors.manifest import ManifestDoor
from tests.fuzz.doors.status import StatusDoor
from tests.fuzz.doors.trigger import TriggerDoor

DOORS: dict[str, MakeDoor] = {
    "datagram": DatagramDoor,
    "control": ControlDoor,
    "bulk": BulkDoor,
    "manifest": ManifestDoor,
    "kept": KeptDoor,
    "trigger": TriggerDoor,
    "status": StatusDoor,
    "config": ConfigDoor,
}
