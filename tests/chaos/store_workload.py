"""What is done to a store while it is being killed, refused and cut off, and how the next start is judged.

What lives here: the models, the script, the oracle. What does not: the faults (one command each). The oracle looks at
the files itself and compares every byte with the original; it asks the store only what it claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Thread

from gossipd.core.errors import GossipdError
from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.clock import Clock
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, Model, build

ATTEMPTS_MAX = 200


def make_models(*, shard_chunks: int = 9, shards: int = 3) -> tuple[Model, Model]:
    """Two versions that share their shards; the second has other small files."""
    random = Random("workload")
    files = {
        f"shards/{number}.safetensors": random.randbytes(shard_chunks * CHUNK + number) for number in range(shards)
    }
    small = {f"meta/{number}.json": random.randbytes(1000 + number) for number in range(6)} | {"empty": b""}
    changed = {**small, "meta/0.json": b"{}", "meta/new/7.json": b"[]"}
    return build({**files, **small}, version=1), build({**files, **changed}, version=2)


def open_store(
    root: Path, *, background: bool = False, settings: StoreSettings | None = None, boot: str | None = None
) -> ChunkStore:
    """A store as a daemon has it, but for its threads."""
    return ChunkStore(
        root,
        clock=Clock(boot),
        settings=settings or StoreSettings(reserve_bytes=0, scrub_bytes_per_s=0),
        on_event=lambda event: None,
        background=background,
    )


def live(root: Path, models: tuple[Model, Model], *, commit_every: int = 4) -> None:
    """Deliver both versions, let a chunk rot and repair it, roll back, remove; every call a store makes is in it."""
    store = open_store(root)
    for model in models:
        held = store.open(model.manifest)
        order = [chunk for chunk in range(len(model.chunks)) if chunk not in held]
        Random(model.manifest.version).shuffle(order)
        for at, chunk in enumerate(order):
            store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)
            if at % commit_every == commit_every - 1:
                store.commit()
        store.finish(model.manifest.id)
    store.rollback("m")
    store.remove("m", 2)
    store.close()


def live_in_threads(root: Path, models: tuple[Model, Model]) -> None:
    """Deliver both versions from three threads that get in each other's way, windows ending behind them."""
    settings = StoreSettings(reserve_bytes=0, scrub_bytes_per_s=0, window_s=0.02)
    store = open_store(root, background=True, settings=settings)
    for model in models:
        held = store.open(model.manifest)
        order = [chunk for chunk in range(len(model.chunks)) if chunk not in held]

        def deliver(seed: int, model: Model = model, order: list[int] = order) -> None:
            mine = list(order)
            Random(seed).shuffle(mine)
            for chunk in mine:
                store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)

        threads = [Thread(target=deliver, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.finish(model.manifest.id)
    store.close()


def persist(root: Path, models: tuple[Model, Model]) -> int:
    """Deliver both versions whatever the disk refuses, as a daemon does: try again when it is well.

    Returns: how many refusals there were.
    Raises:
        AssertionError: it never got well, or what was delivered is wrong.
    """
    refusals = 0

    def attempt(action: Callable[[], object]) -> None:
        nonlocal refusals
        for _ in range(ATTEMPTS_MAX):
            try:
                action()
            except GossipdError:
                refusals += 1
                store.upkeep.step()
            else:
                return
        raise AssertionError("the store never got well")

    store = ChunkStore(
        root,
        settings=StoreSettings(reserve_bytes=0),
        on_event=lambda event: None,
        background=False,
        clock=SetClock(now=_Clock()),
    )
    for model in models:
        identity = model.manifest.id
        attempt(lambda model=model: store.open(model.manifest))  # type: ignore[misc]
        while not store.statistics().models[identity].is_published:
            for chunk in set(range(len(model.chunks))) - set(store.held(identity)):
                attempt(lambda m=model, c=chunk: store.put(m.manifest.id, c, m.chunks[c], SOURCE, 0.0))  # type: ignore[misc]
            store.commit()
            store.upkeep.step()
            if store.held(identity).is_full:
                attempt(lambda identity=identity: _finish(store, identity))  # type: ignore[misc]
    store.close()
    for model in models:
        assert wrong_files(root / "m" / str(model.manifest.version), model) == []
    return refusals


def _finish(store: ChunkStore, identity: object) -> None:
    if store.held(identity).is_full:  # type: ignore[arg-type]
        store.finish(identity)  # type: ignore[arg-type]


class _Clock:
    """A minute passes between any two looks, so that no probe is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 61.0
        return self.now


@dataclass
class Verdict:
    """What the oracle has to say about one start."""

    requested_again: int = 0
    false_claims: int = 0
    visible_partial: int = 0
    lost_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def wrong_files(tree: Path, model: Model) -> list[str]:
    """Files of a published model that are not what was published."""
    return [
        path for path, body in model.files.items() if not (tree / path).is_file() or (tree / path).read_bytes() != body
    ]


def right_chunks(tree: Path, model: Model) -> set[int]:
    """Chunks whose bytes are all in the tree, known to the store or not."""
    files = {path: (tree / path).read_bytes() if (tree / path).is_file() else b"" for path in model.files}
    bodies = list(files.values())
    found = set()
    for chunk, expected in enumerate(model.chunks):
        segments = model.manifest.segments(chunk)
        if b"".join(bodies[s.file_index][s.offset : s.offset + s.length] for s in segments) == expected:
            found.add(chunk)
    return found


def tree_of(root: Path, model: Model) -> Path:
    """Where the model's files are now."""
    incoming = root / ".incoming" / model.manifest.id.hex()
    return incoming if incoming.exists() else root / "m" / str(model.manifest.version)


def judge(
    root: Path,
    models: tuple[Model, Model],
    *,
    killed: bool,
    written: dict[int, set[int]] | None = None,
    committed: dict[int, set[int]] | None = None,
) -> Verdict:
    """Start a store on what a crash has left, compare what it claims with what is there, and bring it to its end.

    Args:
        killed: the kernel survived, so whatever was written completely must be held.
        written: version to the chunks whose put had returned; what of them is not held counts as lost.
        committed: version to the chunks that were durable; none of them may be missing.
    """
    verdict = Verdict()
    models_by_version = {model.manifest.version: model for model in models}
    for version, model in models_by_version.items():
        if (root / "m" / str(version)).exists() and wrong_files(root / "m" / str(version), model):
            verdict.visible_partial += 1
    right = {version: right_chunks(tree_of(root, model), model) for version, model in models_by_version.items()}
    store = open_store(root, boot=None if killed else "after the power came back")
    known = {model.version for model in store.models()}
    for version, model in models_by_version.items():
        must = (committed or {}).get(version, set()) | (right[version] if killed and version in known else set())
        held = set(store.open(model.manifest))
        verdict.false_claims += len(held - right_chunks(tree_of(root, model), model))
        verdict.requested_again += len(must - held)
        lost = (written or {}).get(version, set()) - held
        verdict.lost_bytes += sum(len(model.chunks[chunk]) for chunk in lost)
        for chunk in set(range(len(model.chunks))) - held:
            store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)
        store.finish(model.manifest.id)
        if wrong_files(root / "m" / str(version), model):
            verdict.problems.append(f"version {version} is wrong after it was finished")
    store.close()
    return verdict
