"""Ten thousand damaged chunks over real sockets into a real store: none may get in, and each is its sender's fault.

``python -m tests.chaos.corrupt_chunks [--count N] [--json]``. One process holds a host as the daemon has it
(performer, bulk client, store on disk), two honest peers (bulk servers over a store) and a liar: a member with a valid
key that answers every request for a chunk with a damaged one (``cluster.corruption`` has the kinds). Rounds ask the
liar for every chunk, and at the same moment the honest peers for some; half of them in clear, half under TLS.

After each round: every request to the liar has failed, with the reason that its kind of damage must give and nobody
else's name on it; the honest chunks have all been stored; and of the files on disk, every byte is either the
original's, where a chunk is held, or has never been written.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from gossipd.core.events import ChunkStored, Event, FailReason, FetchFailed, StartFetch
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.daemon.alarms import Reports
from gossipd.daemon.data_plane import DataPlane
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.daemon.planner_executor import CommandExecutor
from gossipd.daemon.unreached_peers import UnreachedPeers
from gossipd.identity.keys import SecretKey
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.logs import configure
from gossipd.runtime.rate_limit import RateLimit
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models import layout
from gossipd.store.settings import StoreSettings
from gossipd.transfer.client import BulkClient
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.server import BulkServer
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.tokens import IssuedTokens
from gossipd.wire.transfer import TOKEN_BYTES
from membership.member import NodeId, Record, node_id
from tests.chaos.cluster.corruption import CODES, Damage
from tests.chaos.liar import Liar
from tests.gossipd.store.small_models import CHUNK, Model, build
from tests.gossipd.transfer.scripted import scripted_server
from tests.gossipd.transfer.server_port import QuietPort

CLUSTER_KEY = b"\x07" * 32
OWN, HONEST, OTHER, LIAR = (SecretKey(bytes([number]) * 32) for number in (1, 2, 3, 4))
NAMES = {OWN: "own", HONEST: "honest", OTHER: "other", LIAR: "liar"}
SHARD_CHUNKS = 40
FETCH_SECONDS_MAX = 120.0
ROUND_SECONDS_MAX = 180.0
# What an earlier answer left over may come before the next reply's head: garbage, or what looks like another version.
# Its first byte may be that of any reply by chance, once in some dozens of them.
AFTER_EXTRA = (FailReason.CORRUPT, FailReason.REFUSED)
BY_CHANCE_ONE_IN = 16
REASONS = {"E_DIGEST": FailReason.CORRUPT, "E_BULK_PROTOCOL": FailReason.CORRUPT, "E_GONE": FailReason.GONE}


@dataclass
class Findings:
    """What was counted over all rounds."""

    injected: Counter[str] = field(default_factory=Counter)
    by_reason: Counter[str] = field(default_factory=Counter)
    by_chance: list[str] = field(default_factory=list)
    accepted: int = 0
    wrong_peer_blamed: int = 0
    honest_stored: int = 0
    problems: list[str] = field(default_factory=list)

    def say(self, problem: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(problem)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.corrupt_chunks", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="damaged chunks, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    configure(level="error")
    row = run(given.count, given.seed)
    print(json.dumps(row) if given.json else "\n".join(f"{name:28} {value}" for name, value in row.items()))
    return 1 if row["corrupted_accepted"] or row["wrong_peer_blamed"] or row["problems"] else 0


def run(count: int, seed: int) -> dict[str, object]:
    """The row."""
    begun = time.monotonic()
    found = Findings()
    random = Random(seed)
    model = build({f"shard-{number}.bin": random.randbytes(SHARD_CHUNKS * CHUNK - number) for number in range(3)})
    for encryption in Encryption:
        rounds = -(-count // (2 * len(model.chunks)))
        with tempfile.TemporaryDirectory(prefix="gossipd-corrupt-") as base, ExitStack() as stack:
            bench = _Bench(Path(base), stack, model=model, encryption=encryption, random=random, found=found)
            for number in range(rounds):
                bench.one_round(number, rounds)
            bench.finish()
    if len(found.by_chance) > 2 + found.injected[Damage.EXTRA.value] // BY_CHANCE_ONE_IN:
        found.problems += found.by_chance[:20]
    return {
        "corrupted_chunks_injected": found.injected.total(),
        "by_damage": dict(sorted(found.injected.items())),
        "by_reason": dict(sorted(found.by_reason.items())),
        "corrupted_accepted": found.accepted,
        "wrong_peer_blamed": found.wrong_peer_blamed,
        "honest_chunks_stored": found.honest_stored,
        "problems": found.problems,
        "seconds": round(time.monotonic() - begun, 1),
    }


class _HonestPort(QuietPort):
    """Of a server that never sends a wrong chunk."""

    def __init__(self, found: Findings, name: str) -> None:
        self._found = found
        self._name = name

    def is_member(self, node: NodeId) -> bool:
        return node == node_of(OWN)

    def complaint_received(self, node: NodeId, deployment: DeploymentId, chunk: int) -> None:
        self._found.wrong_peer_blamed += 1
        self._found.say(f"{self._name} is told that its chunk {chunk} is bad")


class _Bench:
    """One host among two honest peers and a liar, all with one encryption."""

    def __init__(
        self, base: Path, stack: ExitStack, *, model: Model, encryption: Encryption, random: Random, found: Findings
    ) -> None:
        self._base, self._model, self._random, self._found = base, model, random, found
        self._settings = BulkSettings(encryption=encryption)
        self._events: deque[Event] = deque()
        self._blamed: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._liar = Liar(model, LIAR, CLUSTER_KEY, encryption, random)
        endpoints = {LIAR: stack.enter_context(scripted_server(self._liar.script))}
        books: dict[NodeId, IssuedTokens] = {}
        origin = self._store(stack, "origin")
        origin.open(model.manifest)
        for chunk, body in enumerate(model.chunks):
            origin.put(model.manifest.id, chunk, body, SOURCE, 0.0)
        for secret in (HONEST, OTHER):
            books[node_of(secret)] = IssuedTokens()
            endpoints[secret] = self._serve(stack, secret, origin, books[node_of(secret)])
        self._store_here = self._store(stack, "here")
        self._store_here.open(model.manifest)
        self._executor = self._make_executor(stack, endpoints, books)

    def _store(self, stack: ExitStack, name: str) -> ChunkStore:
        (self._base / name).mkdir(mode=0o700)
        settings = StoreSettings(reserve_bytes=0, scrub_bytes_per_s=0)
        store = ChunkStore(self._base / name, settings=settings, on_event=self._post if name == "here" else _ignore)
        stack.callback(store.close)
        return store

    def _serve(self, stack: ExitStack, secret: SecretKey, store: ChunkStore, tokens: IssuedTokens) -> tuple[str, int]:
        server = BulkServer(
            reader=store, settings=self._settings, port=_HonestPort(self._found, NAMES[secret]), throttle=RateLimit(),
            credentials=tls_credentials(secret, [CLUSTER_KEY]), tokens=tokens,
        )  # fmt: skip
        stack.callback(server.close)
        return server.start("127.0.0.1", 0)

    def _make_executor(
        self, stack: ExitStack, endpoints: dict[SecretKey, tuple[str, int]], books: dict[NodeId, IssuedTokens]
    ) -> CommandExecutor:
        def token(node: NodeId) -> bytes:
            return books[node].issue(node_of(OWN)) if node in books else bytes(TOKEN_BYTES)

        is_tls = self._settings.encryption is Encryption.TLS
        client = BulkClient(
            settings=self._settings, pool=BufferPool(64 << 20), throttle=RateLimit(),
            credentials=tls_credentials(OWN, [CLUSTER_KEY]) if is_tls else None, get_token=None if is_tls else token,
        )  # fmt: skip
        cluster = MemberDirectory(node_of(OWN))
        cluster.begin(record(OWN, 1), [record(secret, endpoint[1]) for secret, endpoint in endpoints.items()])
        unreached = UnreachedPeers(cluster)
        data_plane = SimpleNamespace(client=client, store=self._store_here, read_threads=1, unreached=unreached)
        lifecycle = SimpleNamespace(manifest_of=lambda _: self._model.manifest)
        reports = SimpleNamespace(audit=SimpleNamespace(record=self._audit), bugs=SimpleNamespace(report=self._bug))
        nothing: Any = None
        executor = CommandExecutor(
            directory=cluster, plane=nothing, data_plane=cast(DataPlane, data_plane),
            driver=cast(PlannerDriver, SimpleNamespace(post=self._post)),
            deployments=cast(DeploymentDriver, SimpleNamespace(lifecycle=lifecycle)), membership_host=nothing,
            reports=cast(Reports, reports), budget=nothing,
        )  # fmt: skip
        stack.callback(executor.close)
        stack.callback(client.close)
        return executor

    def _post(self, event: object) -> None:
        with self._changed:
            if isinstance(event, ChunkStored | FetchFailed):
                self._events.append(event)
                self._changed.notify_all()

    def _audit(self, event: str, *, subject: str, **fields: object) -> None:
        self._blamed[subject] += 1

    def _bug(self, error: BaseException) -> None:
        self._found.say(f"a bug: {error!r}")

    # ---- rounds ------------------------------------------------------------------------------------

    def one_round(self, number: int, rounds: int) -> None:
        """Every chunk from the liar, some of them from the honest, all at once."""
        chunks = list(range(len(self._model.chunks)))
        self._random.shuffle(chunks)
        share = chunks_of_round(number, rounds, len(chunks))
        asks = [(LIAR, chunk) for chunk in chunks] + [(self._random.choice((HONEST, OTHER)), one) for one in share]
        self._random.shuffle(asks)
        self._liar.said.clear()
        for secret, chunk in asks:
            command = StartFetch(self._model.manifest.id, chunk, node_of(secret), FETCH_SECONDS_MAX)
            self._executor.perform(command)
        self._executor.start_threads()
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._events) >= len(asks), ROUND_SECONDS_MAX):
                self._found.say(f"{len(self._events)} of {len(asks)} fetches have ended after {ROUND_SECONDS_MAX} s")
            ended, self._events = list(self._events), deque()
        self._judge(ended, set(share))
        self._look_at_disk()

    def _judge(self, ended: list[Event], share: set[int]) -> None:
        found = self._found
        stored = {event.chunk for event in ended if isinstance(event, ChunkStored) and event.supplier != node_of(LIAR)}
        for event in ended:
            if isinstance(event, ChunkStored) and event.supplier == node_of(LIAR):
                found.accepted += 1
                found.say(f"chunk {event.chunk} was taken from the liar, damaged by {self._liar.said[event.chunk]}")
            elif isinstance(event, FetchFailed) and event.peer != node_of(LIAR):
                found.wrong_peer_blamed += event.reason is FailReason.CORRUPT
                found.say(f"an honest fetch of chunk {event.chunk} failed: {event.reason.value}")
            elif isinstance(event, FetchFailed):
                damage = self._liar.said[event.chunk]
                found.injected[damage.value] += 1
                found.by_reason[event.reason.value] += 1
                if event.reason not in (REASONS[CODES[damage]], *AFTER_EXTRA):
                    found.by_chance.append(f"chunk {event.chunk}, {damage.value}, failed as {event.reason.value}")
        if stored != share:
            found.say(f"{len(stored)} of {len(share)} honest chunks were stored")
        found.honest_stored += len(stored)
        lies = sum(isinstance(event, FetchFailed) and event.reason is FailReason.CORRUPT for event in ended)
        if self._blamed["liar"] != lies:
            found.say(f"the audit log has {self._blamed['liar']} accusations of the liar, {lies} are due")
        found.wrong_peer_blamed += self._blamed.total() - self._blamed["liar"]
        self._blamed.clear()

    def _look_at_disk(self) -> None:
        """Every byte is the original's where a chunk is held, and zero everywhere else."""
        held = self._store_here.held(self._model.manifest.id)
        tree = self._base / "here" / layout.incoming(self._model.manifest.id)
        for chunk, body in enumerate(self._model.chunks):
            on_disk = b"".join(
                _read(tree / self._model.manifest.files[part.file_index].path, part.offset, part.length)
                for part in self._model.manifest.segments(chunk)
            )
            if on_disk != (body if chunk in held else bytes(len(body))):
                self._found.accepted += 1
                self._found.say(f"chunk {chunk} has wrong bytes on disk; held: {chunk in held}")

    def finish(self) -> None:
        """Everything is there from the honest: publish it and compare."""
        manifest = self._model.manifest
        self._store_here.finish(manifest.id)
        for path, body in self._model.files.items():
            if (self._base / "here" / layout.version(manifest.name, manifest.version) / path).read_bytes() != body:
                self._found.accepted += 1
                self._found.say(f"{path} is published with wrong bytes")


def chunks_of_round(number: int, rounds: int, count: int) -> range:
    """An equal share of all chunks; together the rounds have every one once."""
    return range(count * number // rounds, count * (number + 1) // rounds)


def node_of(secret: SecretKey) -> NodeId:
    return node_id(secret.public.ed25519)


def record(secret: SecretKey, bulk_port: int) -> Record:
    """As membership has it of a host on loopback."""
    return Record(
        public_key=secret.public.ed25519, boot=1, version=1, name=NAMES[secret], rack="r", zone="", host="127.0.0.1",
        port=1, bulk_port=bulk_port, transport_key=secret.public.curve25519, capacity=0, software="0", payload=b"",
    )  # fmt: skip


def _read(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _ignore(_: object) -> None:
    """Nobody listens."""


if __name__ == "__main__":
    sys.exit(main())
