"""The node's end of ``gossipd trigger``: questions, manifests in parts, signed orders.

What lives here: the conversation and its bounds. What does not: who may order, and what an order does (the host).

A conversation is: TriggerQuery (what is the last statement?), ManifestPart as often as needed if the manifest is not
here, TriggerOrder with a statement that is signed with the key of the connection. Nothing happens before the order, and
the order is an idempotent value, so a conversation may break off anywhere and be held again. Every request gets a
reply. Uploads are bounded: so many at once, so many bytes in all, half of both for one client or member. Each is
forgotten after a time without a new part, and after some minutes whatever comes.
"""

from __future__ import annotations

from typing import Protocol

import trio
from msgspec import Struct, field

from gossipd.control.authenticator import Identity
from gossipd.control.delegate import Reply
from gossipd.core.errors import GossipdError
from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import Budget
from gossipd.deployment.signed_budget import read_order
from gossipd.deployment.statement import Statement, Verb
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import deployment_id
from gossipd.runtime.quotas import Quotas
from gossipd.wire import control
from membership.member import node_id

UPLOADS_MAX = 8  # people and scripts that trigger at the same moment
UPLOAD_BYTES_MAX = 2 * control.MANIFEST_BYTES_MAX  # all together: one of the largest, and many of a megabyte
UPLOAD_IDLE_S, UPLOAD_S_MAX = 30.0, 600.0  # the largest takes a minute of parts, at PARTS_PER_S
UPLOADS_PER_IDENTITY_MAX, UPLOAD_BYTES_PER_IDENTITY_MAX = UPLOADS_MAX // 2, UPLOAD_BYTES_MAX // 2
REQUESTS_BURST, REQUESTS_PER_S = 100, 10  # of one identity, apart from parts: a person's or a script's
PARTS_BURST, PARTS_PER_S = 2048, 128  # of one identity: two of the largest manifests at once
ORDERS_MAX = 64  # orders being carried out; each waits for a write to disk at most


_REQUESTS = (control.TriggerQuery, control.ManifestPart, control.TriggerOrder)


class TriggerHost(Protocol):
    """What the daemon knows and does. Called on the trio loop."""

    def trigger_state(self, deployment: DeploymentId | None, model: str) -> control.TriggerState:
        """The last statement on a deployment, named by id or (``deployment`` None) as ``NAME@VERSION``.

        ``epoch`` 0 and an empty ``verb`` when nothing was heard of it, ``manifest_bytes`` 0 when its manifest is not
        here. ``code`` E_NOT_FOUND for a name that is not known.
        """
        ...

    async def trigger_order(
        self, identity: Identity, statement: Statement, envelope: bytes | None, budget: Budget | None
    ) -> tuple[str, bool]:  # fmt: skip
        """Carry out a statement that the other end has signed; ``envelope`` if it was uploaded, ``budget`` if it has
        signed one. Manifest and right to order are still to be checked.

        Returns: a sentence for a person, and whether it changed nothing.
        Raises: GossipdError, whose code and sentence are sent back.
        """
        ...


class _Upload(Struct):
    total: int
    idle_until_s: float
    until_s: float
    parts: bytearray = field(default_factory=bytearray)


class TriggerServer:
    """Serves all connections of one node. Orders are carried out in ``nursery``."""

    def __init__(self, host: TriggerHost, nursery: trio.Nursery) -> None:
        self._host, self._nursery = host, nursery
        self._uploads: dict[tuple[Identity, bytes], _Upload] = {}
        self._orders = 0
        self._requests = Quotas[Identity](burst=REQUESTS_BURST, per_s=REQUESTS_PER_S)
        self._parts = Quotas[Identity](burst=PARTS_BURST, per_s=PARTS_PER_S)

    def hear(self, identity: Identity, message: control.Message, reply: Reply) -> bool:
        """Answer a trigger request; False when ``message`` is something else."""
        quotas = self._parts if isinstance(message, control.ManifestPart) else self._requests
        if isinstance(message, _REQUESTS) and not quotas.take(identity, trio.current_time()):
            reply(control.Refused("E_BUSY", "you ask this host too often; try again soon"))
            return True
        match message:
            case control.TriggerQuery():
                reply(self._state(message))
            case control.ManifestPart():
                reply(self._keep_part(identity, message))
            case control.TriggerOrder():
                self._order(identity, message, reply)
            case _:
                return False
        return True

    def _state(self, message: control.TriggerQuery) -> control.TriggerState:
        if bool(message.deployment) == bool(message.model) or len(message.deployment) not in (0, 32):
            sentence = "deployment: give either 32 bytes or a model's NAME@VERSION"
            return control.TriggerState(b"", 0, "", 0, "E_TRIGGER_FIELD", sentence)
        return self._host.trigger_state(DeploymentId(message.deployment) if message.deployment else None, message.model)

    def _keep_part(self, identity: Identity, message: control.ManifestPart) -> control.Message:
        now = trio.current_time()
        for key in [key for key, upload in self._uploads.items() if min(upload.idle_until_s, upload.until_s) <= now]:
            del self._uploads[key]
        key = (identity, message.deployment)
        upload = self._uploads.get(key)
        if message.offset == 0 and (upload is None or upload.total != message.total):
            others = {place: other.total for place, other in self._uploads.items() if place != key}
            own = [total for (whose, _), total in others.items() if whose == identity]
            is_full = len(others) >= UPLOADS_MAX or sum(others.values()) + message.total > UPLOAD_BYTES_MAX
            is_own_full = sum(own) + message.total > UPLOAD_BYTES_PER_IDENTITY_MAX
            if is_full or is_own_full or len(own) >= UPLOADS_PER_IDENTITY_MAX:
                return control.Refused("E_BUSY", "too many manifests are being sent to this host; try again soon")
            upload = self._uploads[key] = _Upload(message.total, now, now + UPLOAD_S_MAX)
        if upload is None:
            return control.PartKept(0)  # forgotten meanwhile: the client begins again
        if message.total != upload.total or message.offset + len(message.part) > upload.total:
            return control.Refused("E_TRIGGER_FIELD", "offset: the part lies outside the manifest's announced size")
        if message.offset == len(upload.parts):
            upload.parts += message.part
            upload.idle_until_s = now + UPLOAD_IDLE_S
        return control.PartKept(len(upload.parts))

    def _order(self, identity: Identity, order: control.TriggerOrder, reply: Reply) -> None:
        try:
            statement = Statement.decode(order.statement)
            _check_signer(identity, statement)
            budget = _budget(order.budget, statement)
            envelope = self._envelope(identity, statement)
        except ManifestError as error:
            reply(control.TriggerReply(error.code, _sentence(error), b"", 0, False))
            return
        if self._orders >= ORDERS_MAX:
            reply(control.TriggerReply("E_BUSY", "too many commands at once; try again soon", b"", 0, False))
            return
        self._orders += 1
        self._nursery.start_soon(self._carry_out, identity, statement, envelope, budget, reply)

    async def _carry_out(
        self, identity: Identity, statement: Statement, envelope: bytes | None, budget: Budget | None, reply: Reply
    ) -> None:  # fmt: skip
        try:
            sentence, already = await self._host.trigger_order(identity, statement, envelope, budget)
        except GossipdError as error:
            reply(control.TriggerReply(error.code, _sentence(error), statement.deployment, statement.epoch, False))
        else:
            reply(control.TriggerReply("", sentence[:1024], statement.deployment, statement.epoch, already))
        finally:
            self._orders -= 1

    def _envelope(self, identity: Identity, statement: Statement) -> bytes | None:
        """The uploaded manifest that the statement is about, if there is a whole one."""
        upload = self._uploads.pop((identity, statement.deployment), None)
        if upload is None or len(upload.parts) != upload.total:
            return None
        envelope = bytes(upload.parts)
        if len(envelope) != statement.manifest_bytes or deployment_id(envelope) != statement.deployment:
            raise ManifestError("statement: it is not about the manifest that was sent", code="E_TRIGGER_FIELD")
        return envelope


def _check_signer(identity: Identity, statement: Statement) -> None:
    signer = identity.client == statement.signer if identity.client else identity.node == node_id(statement.signer)
    if not signer:
        raise ManifestError("statement: signed by another key than the connection's", code="E_TRIGGER_FIELD")


def _budget(order: bytes, statement: Statement) -> Budget | None:
    if not order:
        return None
    if statement.verb is not Verb.DEPLOY:
        raise ManifestError("budget: only a deployment can have one", code="E_TRIGGER_FIELD")
    return read_order(order, statement.signer, statement.deployment)


def _sentence(error: GossipdError) -> str:
    return str(error.args[0])[:1024]
