"""Which class stands for which surface of ``corpus.toml``."""

from __future__ import annotations

from collections.abc import Callable

from tests.attacks.pure.bulk import BulkSurface
from tests.attacks.pure.control import ControlSurface
from tests.attacks.pure.disk import DiskSurface
from tests.attacks.pure.gossip import GossipSurface
from tests.attacks.pure.inbox import InboxSurface
from tests.attacks.pure.orders import OrderSurface
from tests.attacks.pure.sources import SourceSurface
from tests.attacks.pure.status import ReadSurface, StatusSurface
from tests.attacks.pure.surface import Surface

SURFACES: dict[str, Callable[[], Surface]] = {
    "gossip": GossipSurface, "order": OrderSurface, "source": SourceSurface, "bulk": BulkSurface,
    "control": ControlSurface, "inbox": InboxSurface, "status": StatusSurface,
    "disk": DiskSurface, "read": ReadSurface,
}  # fmt: skip
