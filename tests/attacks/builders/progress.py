"""Progress: events of no known class, records that cannot be, records in others' names.

Each builder gives the datagrams that are sent to one host.
"""

from __future__ import annotations

from gossipd.deployment.progress_record import HostState, Progress, progress_key
from membership import wire
from tests.attacks.builders.statement import number
from tests.attacks.stage import Stage


def _event(
    stage: Stage, record: bytes, *, of: str = "victim", version: int | None = None, key: bytes | None = None
) -> bytes:
    node = getattr(stage, of).node
    whole = node + progress_key(stage.deployment) if key is None else key
    return wire.event(2, node, int(stage.now_s * 1000) if version is None else version, whole, record)


def _record(state: str = "complete") -> bytes:
    return Progress(
        state=HostState(state), chunks_verified=9, source_bytes=1 << 30, started_s=1, elapsed_s=9
    ).to_bytes()


def of_class(stage: Stage, number: int) -> list[bytes]:
    """An event of a class that is unknown."""
    return [stage.gossip(wire.event(number, stage.liar.node, 1, b"key", b"payload"))]


def empty_key(stage: Stage, number: int) -> list[bytes]:
    """An event without a key."""
    return [stage.gossip(wire.event(number, stage.liar.node, 1, b"", b"payload"))]


def too_large(stage: Stage, number: int) -> list[bytes]:
    """An event with more bytes than an event may have."""
    return [stage.gossip(wire.event(number, stage.liar.node, 1, b"key", bytes(513)))]


def version_too_high(stage: Stage, number: int) -> list[bytes]:
    """An event above the last version that there is."""
    return [stage.gossip(wire.event(number, stage.liar.node, 2**63, b"key", b"payload"))]


def event_cut(stage: Stage, size: int) -> list[bytes]:
    """An event that ends within its head, or whose key is longer than the rest."""
    return [stage.gossip(wire.item(wire.EVENT, (bytes((2,)) + bytes(8) + b"\xff" + bytes(99))[:size]))]


def record_of_format(stage: Stage, format: int = 1, state: int = 0, size: int = 32) -> list[bytes]:
    """The liar's own record: of a format, a state or a size that is unknown."""
    record = bytearray(_record())
    record[0] = format
    if state:
        record[1] = state
    return [stage.gossip(_event(stage, (bytes(record) + bytes(9))[:size], of="liar"))]


def key_of_size(stage: Stage, size: int) -> list[bytes]:
    """A record under a key that names no deployment of any host."""
    return [stage.gossip(_event(stage, _record(), of="liar", key=(stage.liar.node + bytes(40))[:size]))]


def in_the_name_of(stage: Stage, of: str, state: str, version: str | int = 0, ahead_s: int = 0) -> list[bytes]:
    """Another host's progress, made up."""
    when = number(version) or int((stage.now_s + ahead_s) * 1000)
    return [stage.gossip(_event(stage, _record(state), of=of, version=when))]
