"""A manifest that an operator drops: the deployment brain's order, with the real rules for manifests.

Real: the order, the envelope, every rule about manifests and who may sign for which names, the store of statements.
Made up: the disk.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import trio
from msgspec.structs import fields

from gossipd.daemon.deployment_executor import _open
from gossipd.deployment import commands, events
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.deployment.statement_store import StatementStore
from tests.attacks.pure.gossip import any_stage
from tests.attacks.stage import TRAINER, TRAINER_NAMES, Stage
from tests.gossipd.deployment.scripted_host import ONE, ScriptedHost
from tests.gossipd.manifest.making import PUBLISHER, manifest


def believed(statements: StatementStore) -> dict[str, Any]:
    """All that a store of statements keeps, but for alarms: those are how a refusal is told."""
    state = statements.state
    return {one.name: repr(getattr(state, one.name)) for one in fields(state) if one.name != "alarms"}


class _TrustingHost(ScriptedHost):
    """One key may sign any name, another some: judged as the daemon judges it."""

    def _open(self, command: commands.OpenManifest) -> events.WorkEnded:
        return trio.run(_open, command, {PUBLISHER.public.ed25519: ("*",), TRAINER.public.ed25519: TRAINER_NAMES})


class OrderSurface:
    """See Surface."""

    payload_bytes = 0

    def __init__(self) -> None:
        self._host = _TrustingHost(published=[ONE])
        self._host.drop(ONE)
        self._codes: Counter[str] = Counter()

    @property
    def stage(self) -> Stage:
        """See Surface."""
        return any_stage(model=ONE.name)

    def deliver(self, made: bytes) -> None:
        """See Surface."""
        error = self._host.request(events.ManifestDropped, made, "attack.gmf").error
        self._codes["accepted" if error is None else error.code] += 1

    def seen(self) -> Counter[str]:
        """See Surface."""
        return self._codes.copy()

    def state(self) -> dict[str, Any]:
        """See Surface."""
        rows = [(one.label, one.state.value, one.statement.rank) for one in self._host.brain.lifecycle if one.manifest]
        files = {"files": sorted(self._host.files), "store": self._host.store, "published": self._host.published}
        return {
            "deployments": rows,
            **{key: repr(value) for key, value in files.items()},
            **believed(self._host.statements),
        }

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface."""
        return believed(register_from_bytes(register_to_bytes(self._host.statements)))

    def works(self) -> str:
        """See Surface."""
        error = self._host.drop(manifest(version=2)).error
        return "" if error is None else f"a manifest is refused: {error}"

    def close(self) -> None:
        """See Surface."""
