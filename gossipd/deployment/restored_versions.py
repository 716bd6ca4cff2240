"""Versions that the store has whole and of which the register does not tell: it was lost, or is older than they are.

What lives here: reading their manifests from this host's own files, one at a time, and accepting them, at the start and
when keys or the clock are judged again. What does not: the alarm that tells of them (``daemon.store_watch``), and words
on them (``dissemination``).

Other hosts tell this one which of them are deployed. A word that stops one counts only on a manifest that was verified
here, so without this a version that was rolled back or removed everywhere would stay in use on this host alone. That
the store has it whole says that this host has accepted it once, so an older version than the highest is no rollback.
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId, short
from gossipd.deployment.commands import OpenManifest, ReadManifest
from gossipd.deployment.context import BrainContext
from gossipd.deployment.events import EnvelopeFound, ManifestOpened, WorkEnded
from gossipd.deployment.progress_record import progress_key
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest


class RestoredVersions:
    """One per brain; the owner of the work that it asks for."""

    def __init__(self, context: BrainContext) -> None:
        self._context = context
        self._waiting: list[DeploymentId] = []  # no more than the store has
        self._read: DeploymentId | None = None
        self._keys: dict[bytes, DeploymentId] = {}  # those accepted, by progress key

    def begin(self) -> None:
        """At start, and when keys or the clock are judged again."""
        statements, context = self._context.statements, self._context
        untold = [one for one in context.complete_before - context.cut_short if statements.statement(one) is None]
        for one in sorted(untold):
            if statements.is_proven(one):  # by an earlier start, and no word on it has been believed since
                self._note(one)
        self._waiting = sorted(one for one in untold if not (statements.is_proven(one) or statements.is_over(one)))
        self._go_on()

    def _go_on(self) -> None:
        while self._read is None and self._waiting:
            deployment = self._waiting.pop()
            if not self._context.statements.is_proven(deployment):  # no word has had it read meanwhile
                self._read = deployment
                self._context.put(ReadManifest(self._context.next_work(self), deployment))

    def work_ended(self, event: WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner. What is damaged, or signed by a key that is not trusted, stays as it is."""
        deployment, self._read = self._read, None
        assert deployment is not None
        if isinstance(event, EnvelopeFound) and event.envelope is not None:
            self._read = deployment
            self._context.put(OpenManifest(self._context.next_work(self), event.envelope, deployment))
        elif isinstance(event, ManifestOpened) and event.manifest.id == deployment:
            self._accept(event.manifest, wall_s)
        self._go_on()

    def _accept(self, manifest: Manifest, wall_s: float) -> None:
        context = self._context
        try:
            context.statements.accept(manifest, wall_s, is_here=True)
        except ManifestError as error:
            context.warning("a version of the store is not trusted", deployment=manifest.label, code=error.code)
            return
        context.warning(
            "a version of the store is trusted again, as the register does not know it", deployment=manifest.label,
            id=short(manifest.id), cure="what was said on this host of it (untrust, rm) is lost, too: say it again",
        )  # fmt: skip
        self._note(manifest.id)

    def _note(self, deployment: DeploymentId) -> None:
        """What others have told of it counts now."""
        key = progress_key(deployment)
        self._keys[key] = deployment
        for node in self._context.progress.everybody(key):
            self._context.note_told_deployer(deployment, node)
        self._context.judge_statements()

    def id_with_key(self, key: bytes) -> DeploymentId | None:
        """Which of those accepted here has its progress told under ``key``."""
        return self._keys.get(key)
