"""What ``gossipd trigger`` asks of this node and orders it to do: the body of ``control.trigger_desk.TriggerHost``.

What lives here: the last word as a reply, and an order carried out. What does not: the conversation (the desk). A
statement is believed for its signature; the desk has checked that it is the visitor's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gossipd.control.authenticator import Identity
from gossipd.core.ids import DeploymentId
from gossipd.daemon.deployment import check_room
from gossipd.daemon.deployments import Deployments
from gossipd.daemon.dissemination import Dissemination
from gossipd.daemon.judging import judge_manifest
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.trust import key_id
from gossipd.manifest.errors import ManifestError
from gossipd.wire import control


class Triggers:
    """See TriggerHost."""

    def __init__(
        self,
        *,
        register: StatementStore,
        deployments: Deployments,
        dissemination: Dissemination,
        trusted: Callable[[], frozenset[bytes]],
        audit: Callable[..., None],
    ) -> None:
        self._register = register
        self._deployments = deployments
        self._dissemination = dissemination
        self._trusted = trusted
        self._audit = audit

    def trigger_state(self, deployment: DeploymentId | None, model: str) -> control.TriggerState:
        """See TriggerHost."""
        if deployment is None:
            name, _, version = model.rpartition("@")
            found = self._deployments.find(name, int(version)) if version.isdecimal() else []
            if not found:
                return control.TriggerState(b"", 0, "", 0, "E_NOT_FOUND", f"no deployment {model} is known here")
            deployment = found[0].id
        word = self._register.statement(deployment)
        manifest = self._deployments.manifest_of(deployment)
        return control.TriggerState(
            deployment,
            word.epoch if word is not None else 0,
            word.verb.name.lower() if word is not None else "",
            len(manifest.envelope) if manifest is not None else 0,
        )

    async def trigger_order(self, identity: Identity, statement: Statement, envelope: bytes | None) -> tuple[str, bool]:
        """See TriggerHost."""
        manifest = self._deployments.manifest_of(statement.deployment)
        if envelope is not None:
            manifest = await judge_manifest(envelope, self._trusted())
        elif manifest is None:
            raise ManifestError("the manifest of this deployment is not here; send it first", code="E_UNKNOWN_MANIFEST")
        if statement.verb is Verb.DEPLOY:
            check_room(self._deployments.by_id.values(), manifest.id)
            self._register.accept(manifest, time.time())
            await self._deployments.keep(manifest)
            self._register.clear_removed(manifest.id)
        is_news = self._dissemination.order(statement)
        verb = "deploy" if statement.verb is Verb.DEPLOY else "cancel"
        self._audit(
            "trigger accepted",
            verb=verb,
            deployment=statement.deployment.hex(),
            epoch=statement.epoch,
            signer=key_id(statement.signer).hex(),
            new=is_news,
        )
        words = "is known already" if not is_news else "accepted" if verb == "deploy" else "cancelled"
        return f"{manifest.name}@{manifest.version} {words}", not is_news
