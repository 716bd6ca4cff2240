"""Looks at the daemon's directories now and then, and tells the operator what others did to them.

What lives here: four alarms, each of which ends with the first look that finds nothing. ``E_REGISTER_LOST``: the store
has models of which no statement tells. ``E_STORE_READ``: it cannot be looked into, or its pins cannot be read.
``E_STORE_MOVED`` and ``E_STATE_MOVED``: the directory is elsewhere. Models whose files somebody removed are told in the
log. All is one look, as each would wake the daemon once more. What does not: what a start deletes (``leftovers``).

The register (``state/register``) says what is deployed on this host, and which versions it has trusted. Where it was
lost, removed after damage, or restored empty, the daemon starts as if nothing had ever been deployed: other hosts tell
it within seconds, a host that is alone would never say why its models are no deployments any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gossipd.core.errors import GossipdError
from gossipd.core.ids import DeploymentId, short
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.statement_store import StatementStore
from gossipd.manifest.manifest import label_for_people
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.models import layout
from gossipd.store.models.catalogue import StoredModel

REGISTER_LOST, STORE_MOVED, STATE_MOVED = "E_REGISTER_LOST", "E_STORE_MOVED", "E_STATE_MOVED"
LOOK_S = 10.0
RESTING_LOOK_S = 30.0  # while the last look found nothing: each takes a thread
MODELS_NAMED = 3
log = get_logger("node")


class StoreWatch:
    """One per daemon, on the trio loop."""

    def __init__(
        self, store: ChunkStore, state: StateDirectory, statements: StatementStore, alarms: Alarms, models: Path
    ) -> None:
        self.store = store
        self.state = state
        self.statements = statements
        self.alarms = alarms
        self.models = models
        """The store's directory, for the sentence."""
        self._elsewhere: dict[str, str] = {}
        """By code, what the last look found; of a directory in its place nothing."""
        self.is_resting: bool = False
        """The last look found nothing untold, directories and files in their places, and could look."""
        self._seen: set[DeploymentId] = set()
        self._labels: dict[DeploymentId, str] = {}
        """Of those that the alarm names: a manifest may have 50 MiB, and is read once."""

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(RESTING_LOOK_S if self.is_resting else LOOK_S)
            await self.list_and_look()

    async def list_and_look(self) -> None:
        """Begin or end the four alarms."""
        self.is_resting = False
        try:
            lasting = self.look(*await run_blocking(self._listed))
            if named := lasting[:MODELS_NAMED]:
                await run_blocking(self._read_labels, named)
            self.tell(lasting)
            self.alarms.cured(StoreUnreadableError.code)
            self.is_resting = not self._seen and not any(self._elsewhere.values()) and not self.store.lacks_files()
        except StoreUnreadableError as error:
            self.alarms.ring_as(error.code, str(error.args[0]))
        except (GossipdError, OSError) as error:  # the disk; its condition is told elsewhere
            log.debug("the store's models cannot be listed", reason=str(error))
        for code, why_elsewhere in self._elsewhere.items():
            if why_elsewhere:
                self.alarms.ring_as(code, why_elsewhere)
            else:
                self.alarms.cured(code)

    def _listed(self) -> tuple[Sequence[StoredModel], Sequence[DeploymentId]]:
        for label in self.store.look():
            cure = f"put them back; or gossipd verify {label}: they are fetched again"
            log.warning("files of a model were removed or moved by others", model=label, cure=cure)
        self._elsewhere = {STORE_MOVED: self.store.why_elsewhere(), STATE_MOVED: self.state.place.why_elsewhere()}
        self.store.look_at_pins()
        return self.store.models(), self.state.publications()

    def look(self, models: Sequence[StoredModel], publications: Sequence[DeploymentId]) -> list[StoredModel]:
        """What is untold, in the order of the alarm. Only what was so at the look before, too: other hosts may be about
        to tell."""
        untold = [one for one in models if one.deployment not in publications and not self._is_told(one.deployment)]
        lasting = [one for one in untold if one.deployment in self._seen]
        self._seen = {one.deployment for one in untold}
        return sorted(lasting, key=lambda one: (one.name, one.version))

    def tell(self, lasting: Sequence[StoredModel]) -> None:
        """Begin or end the alarm."""
        if lasting:
            self.alarms.ring_as(REGISTER_LOST, sentence(lasting, self.models, self._labels))
        else:
            self.alarms.cured(REGISTER_LOST)

    def _read_labels(self, models: Sequence[StoredModel]) -> None:
        known, self._labels = self._labels, {}
        for one in models:
            try:
                told = known.get(one.deployment) or label_for_people(self.store.manifest_bytes(one.deployment))
            except GossipdError:  # lost or damaged
                told = f"{one.name}@{one.version}" if one.name else short(one.deployment)
            self._labels[one.deployment] = told

    def _is_told(self, deployment: DeploymentId) -> bool:
        known = self.statements
        return (
            known.statement(deployment) is not None or known.is_removed(deployment) or known.is_superseded(deployment)
        )


def sentence(models: Sequence[StoredModel], directory: Path, labels: Mapping[DeploymentId, str]) -> str:
    """What lies there, and how it becomes a deployment again. ``labels``: of the first ``MODELS_NAMED``."""
    named = ", ".join(labels[one.deployment] for one in models[:MODELS_NAMED])
    if len(models) > MODELS_NAMED:
        named = f"{named} and {len(models) - MODELS_NAMED} more"
    manifest = directory / layout.envelope(models[0].deployment)
    return (
        f"the store has {named}, of which state/register does not tell: it was lost, and with it what is deployed here "
        "and which versions were trusted; hosts that have the model tell this one; else, lowest version first: "
        f"gossipd deploy {manifest}"
    )
