"""Thousands of checkpoints of many jobs, of which few live: what a host still keeps of them, and a newcomer's time.

``python -m tests.bench.checkpoints [--jobs 50] [--checkpoints 5000] [--keep 3] [--json]``. One deployment brain with a
real store, register and state directory on this disk takes all checkpoints in order, each held at once as one is that
its own trainer has saved. Then a newcomer, with a disk of its own, hears every word that the first host still tells,
and fetches what it names. The same with no more checkpoints than live is the comparison. Every save syncs the disk:
with ``TMPDIR=/dev/shm`` it takes minutes instead of an hour.

``words``, ``manifests`` and ``trees`` are what is left of the checkpoints on the first host; ``register_bytes`` is the
largest that its register ever was; ``newcomer_s`` is the processor's time until the newcomer has all that is live, the
bytes of a checkpoint being few, and ``newcomer_complete`` their number.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from blake3 import blake3

from gossipd.core.errors import GossipdError
from gossipd.core.events import FinishModel
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.daemon.deployment_executor import failure_of
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment import commands, events
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.context import BrainContext, HostIdentity
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import Retention
from gossipd.manifest.manifest import FileEntry, Manifest, ManifestDraft, open_manifest, seal_manifest
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.settings import StoreSettings
from membership.member import node_id
from tests.gossipd.deployment.scripted_host import KEY, PEER, PEER_KEY, ScriptedRoster

PUBLISHER = SecretKey(b"p" * 32)
WALL_S = 1_800_000_000.0
CHUNK_BYTES = 64 * 1024


class Host:
    """A brain whose work is done by a real store and state directory."""

    def __init__(self, root: Path, secret: SecretKey, peer: Host | None = None) -> None:
        (root / "models").mkdir(parents=True)
        self.state = StateDirectory(root / "state")
        settings = StoreSettings(reserve_bytes=0)
        self.store = ChunkStore(root / "models", settings=settings, on_event=lambda event: None, background=False)
        self.statements = self.state.register()
        self.peer, self.now = peer, 0.0
        self.told: set[DeploymentId] = set()
        self.register_bytes = 0
        identity = HostIdentity(node_id(secret.public.ed25519), "host", "rack-1", secret)
        context = BrainContext(
            identity=identity, statements=self.statements, roster=ScriptedRoster(), progress=ClusterProgress()
        )
        self.brain = DeploymentBrain(context, Random(1))
        self._requests = 0

    def tell(self, event: events.DeploymentEvent) -> None:
        self.brain.handle(event, self.now, WALL_S)
        self._carry_out()

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.brain.next_deadline()) <= until:
            self.now = max(self.now, due)
            self.brain.tick(self.now, WALL_S + self.now)
            self._carry_out()
        self.now = until

    def save(self, manifest: Manifest, body: bytes) -> None:
        """As the host of a trainer: its bytes are held before the word is told."""
        self.store.open(manifest)
        self._requests += 1
        self.tell(events.ManifestDropped(self._requests, manifest.envelope, "saved"))
        self.fetch(manifest, body)

    def fetch(self, manifest: Manifest, body: bytes) -> None:
        """The one chunk of a checkpoint has come."""
        self.store.put(manifest.id, 0, memoryview(body), SOURCE, 0.0)
        self.tell(FinishModel(manifest.id))

    def close(self) -> None:
        self.store.close()
        self.state.close()

    def _carry_out(self) -> None:
        while queue := self.brain.drain():
            for command in queue:
                if isinstance(command, commands.TellStatement):
                    self.told.add(command.statement.deployment)
                elif isinstance(command, commands.ForgetStatement):
                    self.told.discard(command.deployment)
                elif isinstance(command, commands.Work):
                    self.brain.handle(self._end(command), self.now, WALL_S)

    def _end(self, work: commands.Work) -> events.WorkEnded:
        try:
            return self._done(work)
        except GossipdError as error:
            return events.WorkFailed(work.work, failure_of(error), error)

    def _done(self, work: commands.Work) -> events.WorkEnded:
        match work:
            case commands.ReadManifest(number, deployment):
                return events.EnvelopeFound(number, self.state.envelope(deployment))
            case commands.PullManifest(number, deployment):
                found = None if self.peer is None else self.peer.state.envelope(deployment)
                return events.EnvelopeFound(number, found)
            case commands.OpenManifest(number, envelope):
                return events.ManifestOpened(number, open_manifest(envelope, [PUBLISHER.public.ed25519]))
            case commands.KeepManifest(_, manifest):
                self.state.keep_envelope(manifest.id, manifest.envelope)
            case commands.KeepStatements(_, kept, revision):
                self.register_bytes = max(self.register_bytes, len(kept))
                self.state.keep_register(kept, revision)
            case commands.ReserveSpace(number, manifest):
                return events.SpaceReserved(number, self.store.open(manifest), self.store.is_published(manifest.id))
            case commands.PublishModel(_, deployment):
                self.store.finish(deployment)
            case commands.DeleteModel(_, deployment):
                self.store.abandon(deployment)
            case commands.RemoveModel(_, name, version):
                self.store.remove(name, version)
            case commands.EvictModel(_, deployment):
                self.store.evict_superseded(deployment)
            case commands.ForgetManifests(_, deployments):
                self.state.forget_envelopes(deployments)
        return events.WorkDone(work.work)


def checkpoint(job: int, step: int, keep: int) -> tuple[Manifest, bytes]:
    body = b"job %d step %d" % (job, step)
    draft = ManifestDraft(
        name=f"run-{job}", version=step, created_s=int(WALL_S), files=(FileEntry("w", len(body), 0o644),),
        chunk_bytes=CHUNK_BYTES, digests=blake3(body).digest(), sources=(), keep=Retention(last=keep),
    )  # fmt: skip
    return open_manifest(seal_manifest(draft, PUBLISHER), [PUBLISHER.public.ed25519]), body


def measure(root: Path, jobs: int, checkpoints: int, keep: int) -> dict[str, Any]:
    """The row."""
    first = Host(root / "first", KEY)
    bodies: dict[DeploymentId, tuple[Manifest, bytes]] = {}
    for number in range(checkpoints):
        manifest, body = checkpoint(number % jobs, 1 + number // jobs, keep)
        bodies[manifest.id] = manifest, body
        first.save(manifest, body)
        first.wait(0.1)
    first.wait(60.0)
    newcomer = Host(root / "newcomer", PEER_KEY, first)
    begun = time.process_time()
    for deployment in sorted(first.told):
        statement = first.statements.statement(deployment)
        assert statement is not None
        newcomer.tell(events.StatementHeard(statement.encode(), deployment, PEER))
    newcomer.wait(5.0)
    for record in list(newcomer.brain.lifecycle):
        if record.is_open:
            newcomer.fetch(*bodies[record.id])
    newcomer.wait(5.0)
    result = {
        "checkpoints": checkpoints,
        "words": len(first.statements.state.statements),
        "words_told": len(first.told),
        "manifests": len(first.state.envelopes()),
        "trees": sum(len(first.store.versions(f"run-{job}")) for job in range(jobs)),
        "register_bytes": first.register_bytes,
        "newcomer_complete": sum(len(newcomer.store.versions(f"run-{job}")) for job in range(jobs)),
        "newcomer_newest": sum(newcomer.store.current(f"run-{job}") is not None for job in range(jobs)),
        "newcomer_s": round(time.process_time() - begun, 3),
    }
    first.close()
    newcomer.close()
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.checkpoints", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--checkpoints", type=int, default=5_000)
    parser.add_argument("--keep", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-checkpoints-") as root:
        few = measure(Path(root) / "few", options.jobs, options.jobs * options.keep, options.keep)
        many = measure(Path(root) / "many", options.jobs, options.checkpoints, options.keep)
    if options.json:
        for name, row in (("few", few), ("many", many)):
            print(json.dumps({"variant": name} | row))
    else:
        print("\n".join(f"{name:18} {few[name]:>10} {many[name]:>10}" for name in many))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
