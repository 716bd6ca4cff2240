"""What ``gossipd trigger`` may order: statements of others, about nothing, out of bounds; uploads that lie or fill.

Each builder gives frames, and as whom they are said (``builders.control``).
"""

from __future__ import annotations

from typing import Any

from gossipd.core.ids import DeploymentId
from gossipd.deployment.statement import Verb
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import deployment_id
from gossipd.wire import control
from gossipd.wire.control_frame import encode
from tests.attacks.builders.control import Frames
from tests.attacks.builders.manifest import signed_by
from tests.attacks.builders.statement import number, signed_wire
from tests.attacks.stage import Stage


def _order(stage: Stage, statement: bytes, who: str = "liar") -> Frames:
    return Frames(who, (encode(control.TriggerOrder(statement), number=1),))


def order(
    stage: Stage, field: str = "epoch", value: str | int = 0, verb: int = Verb.DEPLOY, about: str = "known"
) -> Frames:
    """A statement with one field changed, signed by the member that sends it."""
    changes: dict[str, Any] = {"verb": int(verb), "epoch": stage.said.epoch + 1}
    if value:
        changes[field] = number(value)
    if about == "new":
        changes["deployment"] = DeploymentId(stage.fresh())
    return _order(stage, signed_wire(stage, **changes))


def order_of_another(stage: Stage, signer: str) -> Frames:
    """Signed by a key that is not the connection's, or only said to be signed by it."""
    if signer == "stranger":
        return _order(stage, signed_wire(stage, secret=SecretKey(stage.fresh())))
    key = {"victim": stage.victim.public_key, "publisher": stage.publisher.public.ed25519}[signer]
    return _order(stage, signed_wire(stage, signer=key))


def order_cut(stage: Stage, more: int) -> Frames:
    """A statement of another size."""
    statement = signed_wire(stage)
    return _order(stage, (statement + bytes(9))[: len(statement) + more])


def query(stage: Stage, model: str = "", size: int = 0) -> Frames:
    """A question that names nothing, or both a model and an id."""
    return Frames("liar", (encode(control.TriggerQuery(bytes(size), model), number=1),))


def queries(stage: Stage, times: int) -> Frames:
    """Questions without end."""
    return Frames("liar", tuple(encode(control.TriggerQuery(stage.deployment), number=one + 1) for one in range(times)))


def part_outside(stage: Stage, total: int, offset: int, size: int) -> Frames:
    """A part of a manifest that lies outside the size that was announced."""
    first = control.ManifestPart(stage.deployment, total, 0, b"p" * min(total, 100))
    then = control.ManifestPart(stage.deployment, total, offset, b"p" * size)
    return Frames("liar", (encode(first, number=1), encode(then, number=2)))


def uploads(stage: Stage, count: int, total: int) -> Frames:
    """Manifests that are begun and never ended."""
    parts = [control.ManifestPart(DeploymentId(stage.fresh()), total, 0, b"p") for _ in range(count)]
    return Frames("liar", tuple(encode(part, number=at + 1) for at, part in enumerate(parts)))


def upload(stage: Stage, signer: str, other_size: int = 0, other_id: bool = False) -> Frames:
    """A whole manifest that no trusted key has signed, or that is not the one that the order names."""
    envelope = signed_by(stage, signer)
    deployment = DeploymentId(stage.fresh()) if other_id else deployment_id(envelope)
    part = control.ManifestPart(deployment, len(envelope), 0, envelope)
    statement = signed_wire(stage, deployment=deployment, epoch=1, manifest_bytes=len(envelope) + other_size)
    return Frames("liar", (encode(part, number=1), encode(control.TriggerOrder(statement), number=2)))
