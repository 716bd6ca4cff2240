"""Progress: events of no known class, records that cannot be, records in others' names, signed or not.

Each builder gives the datagrams that are sent to one host.
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.signed_progress import ProgressKey, _signed_part, sign_progress
from gossipd.identity.keys import SecretKey
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


def recorded(stage: Stage) -> list[bytes]:
    """What a host said once, and has said otherwise since, told again after all hosts have been started again."""
    return [stage.gossip(stage.recorded)]


def in_the_name_of(stage: Stage, of: str, state: str, version: str | int = 0, ahead_s: int = 0) -> list[bytes]:
    """Another host's progress, made up."""
    when = number(version) or int((stage.now_s + ahead_s) * 1000)
    return [stage.gossip(_event(stage, _record(state), of=of, version=when))]


# ---- the signed form ----------------------------------------------------------------------------------


def _signed(
    stage: Stage, of: str, by: SecretKey, *, state: str = "complete", when: int = 0
) -> tuple[ProgressKey, int, bytes]:
    """Key, version and payload of a record of the deployment that all hosts have."""
    key = ProgressKey(getattr(stage, of).node, progress_key(stage.deployment), is_signed=True)
    version = when or int(stage.now_s * 1000)
    progress = Progress(state=HostState(state), chunks_verified=9, source_bytes=1 << 30, started_s=1, elapsed_s=9)
    return key, version, sign_progress(by, key, version, progress)


def _told(stage: Stage, key: bytes, version: int, payload: bytes) -> list[bytes]:
    return [stage.gossip(wire.event(2, stage.liar.node, version, key, payload))]


def signed_by(
    stage: Stage, of: str, *, by: str = "liar", state: str = "complete", version: str | int = 0, ahead_s: int = 0
) -> list[bytes]:
    """A host's record, signed by the liar, or by a key that nobody has."""
    secret = stage.liar_secret if by == "liar" else SecretKey(stage.fresh())
    when = number(version) or int((stage.now_s + ahead_s) * 1000)
    key, version, payload = _signed(stage, of, secret, state=state, when=when)
    return _told(stage, key.encode(), version, payload)


def moved(stage: Stage, to: str) -> list[bytes]:
    """The liar's own good record under another host, another deployment, another version or another form."""
    key, version, payload = _signed(stage, "liar", stage.liar_secret)
    whole = key.encode()
    if to in ("victim", "target"):
        whole = getattr(stage, to).node + whole[16:]
    elif to == "deployment":
        whole = key.node + progress_key(DeploymentId(stage.fresh())) + whole[24:]
    elif to == "version":
        version += 1
    else:
        whole = whole[:24] + {"form 1": b"", "form 3": b"\x03", "two forms": b"\x02\x02"}[to]
    return _told(stage, whole, version, payload)


def signed_of_size(stage: Stage, more: int) -> list[bytes]:
    """The liar's own good record with bytes too many or too few."""
    key, version, payload = _signed(stage, "liar", stage.liar_secret)
    return _told(stage, key.encode(), version, (payload + bytes(9))[: len(payload) + more])


def body(stage: Stage, fields: str = "", state: int = 3, reason: int = 0, size: int = 32) -> list[bytes]:
    """The liar's own record, signed well: with these fields (hex), this state and reason, or cut to this size."""
    key, version, good = _signed(stage, "liar", stage.liar_secret)
    made = (bytes((state, reason)) + good[2:32] + bytes.fromhex(fields))[: size + len(fields) // 2]
    payload = made + stage.liar_secret.sign(_signed_part(key, version, made))
    return _told(stage, key.encode(), version, payload)


def without_end(stage: Stage, count: int) -> list[bytes]:
    """The liar's own records of so many deployments, each signed well, four in a datagram."""
    events = []
    for _ in range(count):
        key = ProgressKey(stage.liar.node, progress_key(DeploymentId(stage.fresh())), is_signed=True)
        version = int(stage.now_s * 1000)
        payload = sign_progress(stage.liar_secret, key, version, Progress(state=HostState.COMPLETE))
        events.append(wire.event(2, stage.liar.node, version, key.encode(), payload))
    return [stage.gossip(*events[at : at + 4]) for at in range(0, count, 4)]
