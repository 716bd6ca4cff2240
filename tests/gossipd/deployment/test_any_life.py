"""Whatever an operator, other members, the store and the disk do, in whatever order, no life of a deployment ends in an
assertion, and a restart forgets no version by name.

What lives here: random lives of three versions of a name, with work that is held back, disks that fail, and restarts.
What does not: that words are followed (``test_words_in_any_order``).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from gossipd.core.errors import LocalError
from gossipd.core.events import ChunkLost, ChunkStored, FinishModel
from gossipd.core.ids import SOURCE
from gossipd.deployment import commands, events
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_record import DELETED, HostState
from gossipd.deployment.statement import Verb, epoch_after
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.identity.trust import key_id
from gossipd.manifest.annotations import Retention
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import parse_want
from gossipd.store.errors import NoSpaceError
from tests.gossipd.deployment.scripted_host import ONE, WALL_S, ScriptedHost, said
from tests.gossipd.manifest.making import manifest

VERSIONS = (ONE, manifest(version=2, keep=Retention(last=1)), manifest(version=3, keep=Retention(last=2)))
SMALL = parse_want(["files:file-001.bin"])
BROKEN = LocalError("broken", code="E_STORE_IO")
FULL = NoSpaceError("full", need_bytes=9, free_bytes=1)
FAILURES = {
    commands.KeepManifest: (Failure.DISK,),
    commands.KeepStatements: (Failure.DISK,),
    commands.ReserveSpace: (Failure.FINAL, Failure.DISK, Failure.NO_SPACE),
    commands.PublishModel: (Failure.FINAL, Failure.DISK, Failure.NO_SPACE, Failure.NOT_WHOLE),
    commands.DeleteModel: (Failure.DISK,),
    commands.RemoveModel: (Failure.FINAL, Failure.DISK, Failure.GONE),
    commands.EvictModel: (Failure.FINAL, Failure.DISK, Failure.GONE),
    commands.PointCurrent: (Failure.DISK,),
    commands.ForgetManifests: (Failure.DISK,),
}
WORKS = (commands.ReadManifest, commands.PullManifest, commands.OpenManifest, *FAILURES)


class RandomLife:
    """One host and everything that happens to it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.host = self.start(ScriptedHost())
        self.actions: tuple[Callable[[Manifest], None], ...] = (
            self.remove, self.drop, self.evict, self.untrust, self.trust, self.cancel, self.pause, self.roll_back,
            self.override, self.want_copy, self.finish, self.lose, self.store, self.hold_back, self.release,
            self.release, self.fail, self.restart, self.hear, self.want, self.reload, self.wait,
        )  # fmt: skip

    @staticmethod
    def start(host: ScriptedHost) -> ScriptedHost:
        host.peers_have |= {one.id: one.envelope for one in VERSIONS}
        host.tell(events.DaemonStarted())
        return host

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(self.actions)(self.random.choice(VERSIONS))
        for kind in list(self.host.held_back):
            self.host.release(kind)
        self.host.failing.clear()
        self.host.wait(400.0)

    def is_open(self, one: Manifest) -> bool:
        record = self.host.brain.lifecycle.get(one.id)
        return record is not None and record.is_open

    def flip(self) -> bool:
        return self.random.random() < 0.5

    # ---- what happens --------------------------------------------------------------------------------

    def wait(self, _: Manifest) -> None:
        self.host.wait(self.random.choice([0.1, 5.0, 120.0]))

    def drop(self, one: Manifest) -> None:
        self.host.ask(events.ManifestDropped, one.envelope, "one.manifest")

    def remove(self, one: Manifest) -> None:
        self.host.ask(events.RemoveOrdered, one.name, one.version, False, self.flip())

    def evict(self, one: Manifest) -> None:
        record = self.host.brain.lifecycle.get(one.id)
        if one.id in self.host.published and record is not None and record.state is HostState.COMPLETE:
            self.host.ask(events.EvictionBegun, one.id)
            self.host.published.discard(one.id)
            self.host.store.pop(one.id, None)
            self.host.tell(events.VersionEvicted(one.id, one.name, one.version, "watermark"))

    def untrust(self, one: Manifest) -> None:
        if self.flip():
            self.host.ask(events.UntrustOrdered, key_id(one.signer))
        else:
            self.host.ask(events.UntrustOrdered, b"", one.name, one.version, self.flip())

    def trust(self, one: Manifest) -> None:
        self.host.ask(events.UntrustOrdered, key_id(one.signer), "", 0, True)

    def cancel(self, one: Manifest) -> None:
        self.host.ask(events.CancelOrdered, one.name, one.version, self.flip())

    def pause(self, one: Manifest) -> None:
        self.host.ask(events.PauseOrdered, one.name, one.version, self.flip())

    def roll_back(self, one: Manifest) -> None:
        self.host.ask(events.RollbackOrdered, one.name, one.version if self.flip() else None)

    def override(self, one: Manifest) -> None:
        self.host.ask(events.OverrideOrdered, one.name)

    def want_copy(self, one: Manifest) -> None:
        self.host.tell(events.CopyWanted(one.id))

    def finish(self, one: Manifest) -> None:
        if self.is_open(one):
            self.host.store[one.id] = set(range(one.chunk_count))
            self.host.tell(FinishModel(one.id))

    def lose(self, one: Manifest) -> None:
        if self.is_open(one):
            self.host.tell(ChunkLost(one.id, 0))

    def store(self, one: Manifest) -> None:
        if self.is_open(one):
            self.host.tell(ChunkStored(one.id, 0, SOURCE, 10, 0.1))

    def hear(self, one: Manifest) -> None:
        verb = self.random.choice(list(Verb))
        last = self.host.statements.statement(one.id)
        self.host.hear(said(one.id, epoch_after(last.epoch if last else 0, verb), verb))

    def want(self, one: Manifest) -> None:
        wants = {one.name: SMALL} if self.flip() else {}
        self.host.tell(events.WantsChanged(wants, one.name if self.flip() else ""))

    def reload(self, _: Manifest) -> None:
        self.host.tell(events.TrustReloaded())

    def hold_back(self, _: Manifest) -> None:
        self.host.held_back.add(self.random.choice(WORKS))

    def release(self, _: Manifest) -> None:
        if self.host.held_back:
            self.host.release(self.random.choice(sorted(self.host.held_back, key=str)))

    def fail(self, _: Manifest) -> None:
        kind = self.random.choice(list(FAILURES))
        failure = self.random.choice(FAILURES[kind])
        self.host.fail(kind, failure, FULL if failure is Failure.NO_SPACE else BROKEN)

    def restart(self, _: Manifest | None = None) -> None:
        old = self.host
        self.host = ScriptedHost(
            statements=register_from_bytes(register_to_bytes(old.statements)),
            published=[one for one in VERSIONS if one.id in old.published],
        )
        self.host.files = dict(old.files)
        self.host.store |= {deployment: set(held) for deployment, held in old.store.items()}
        self.start(self.host)


@pytest.mark.parametrize("seed", range(150))
def test_no_order_of_events_ends_a_host(seed: int) -> None:
    life = RandomLife(seed)
    life.live(60)
    table = life.host.brain.lifecycle
    for record in table:
        table.progress_of(record, life.host.now, WALL_S)
    ended = {one.label for one in table.find(ONE.name) if one.state in DELETED and one.id in life.host.files}
    ended -= {one.label for one in VERSIONS if life.host.statements.is_superseded(one.id)}
    life.restart()
    assert ended <= {one.label for one in life.host.brain.lifecycle.find(ONE.name)}
