"""The store's books against a simpler model of them: whatever is done in whatever order, nothing false is claimed.

A machine of hypothesis puts right and wrong chunks, commits, lets chunks rot and rechecks them, publishes, closes,
kills and cuts the power, on a disk in memory. The model is three sets: what is held, what of it is committed, what has
rotted.
"""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gossipd.core.ids import SOURCE
from gossipd.runtime.ports import DigestMismatchError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import small

MODEL = small(version=1, seed=3)
ID = MODEL.manifest.id
COUNT = MODEL.manifest.chunk_count
CHUNKS = st.integers(0, COUNT - 1)


class Bookkeeping(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.boots = 0
        self.held: set[int] = set()
        self.committed: set[int] = set()
        self.rotten: set[int] = set()
        self.is_published = False
        self._start()

    def _start(self) -> None:
        self.store = ChunkStore(
            Path("unused"),
            settings=StoreSettings(reserve_bytes=0),
            on_event=lambda event: None,
            disk=self.disk,
            clock=SetClock(boot=f"boot {self.boots}"),
            background=False,
        )
        found = set(self.store.open(MODEL.manifest))
        assert self.committed <= found, "a committed chunk is not believed"
        assert found - self.rotten <= self._right_on_disk(), "claims what it has not"
        self.held = self.committed = found
        self.committed = set(found)

    # ---- chunks ------------------------------------------------------------------------------------

    @rule(chunk=CHUNKS)
    def put(self, chunk: int) -> None:
        is_new = self.store.put(ID, chunk, MODEL.chunks[chunk], SOURCE, 0.0)
        assert is_new == (chunk not in self.held)
        if is_new:
            self.rotten.discard(chunk)  # lost with a power cut, and now written again
        self.held.add(chunk)

    @rule(chunk=CHUNKS, data=st.data())
    def put_wrong_bytes(self, chunk: int, data: st.DataObject) -> None:
        body = bytearray(MODEL.chunks[chunk])
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        for wrong in (bytes(body), bytes(body[:-1]), bytes(MODEL.chunks[chunk]) + b"\0"):
            with pytest.raises(DigestMismatchError):
                self.store.put(ID, chunk, memoryview(wrong), SOURCE, 0.0)

    @rule()
    def commit(self) -> None:
        self.store.commit()
        self.committed |= self.held

    @precondition(lambda self: self.held - self.rotten)
    @rule(data=st.data())
    def rot(self, data: st.DataObject) -> None:
        chunk = data.draw(st.sampled_from(sorted(self.held - self.rotten)))
        segment = MODEL.manifest.segments(chunk)[0]
        file = self.disk.file(f"{self._tree()}/{MODEL.manifest.files[segment.file_index].path}")
        for body in (file.data, file.device):
            if segment.offset < len(body):
                body[segment.offset] ^= 1
        file.pending.clear()  # what was not synced yet is on the device now, rotten or not
        file.device[:] = file.data
        file.device_written = set(file.written)
        self.rotten.add(chunk)

    @rule(chunk=CHUNKS)
    def recheck(self, chunk: int) -> None:
        is_right = self.store.recheck(ID, chunk)
        if chunk in self.rotten:
            assert not is_right
            self.rotten.discard(chunk)
            self.held.discard(chunk)
            self.committed.discard(chunk)
        elif chunk in self.held:
            assert is_right

    @precondition(lambda self: len(self.held) == COUNT and not self.rotten and not self.is_published)
    @rule()
    def publish(self) -> None:
        self.store.finish(ID)
        self.is_published = True
        self.committed |= self.held
        for path, body in MODEL.files.items():
            assert self.disk.content(f"m/1/{path}") == body

    # ---- ends of a process -------------------------------------------------------------------------

    @rule()
    def close_and_start(self) -> None:
        self.store.close()
        assert self.disk.open_count == 0, "descriptors leak"
        self.committed |= self.held
        self._start()

    @rule()
    def kill_and_start(self) -> None:
        self.disk = self.disk.killed()
        written = self.held - self.rotten
        self._start()
        assert written <= self.held, "a chunk whose write had completed is not held after a kill"

    @rule(share=st.floats(0, 1), seed=st.integers(0, 2**32))
    def cut_the_power_and_start(self, share: float, seed: int) -> None:
        random = Random(seed)
        self.disk = self.disk.cut(lambda: random.random() < share, random)
        self.boots += 1
        self._start()

    # ---- what always holds -------------------------------------------------------------------------

    @invariant()
    def the_books_say_what_the_model_says(self) -> None:
        assert set(self.store.held(ID)) == self.held

    @invariant()
    def what_is_claimed_is_on_the_disk(self) -> None:
        assert self.held - self.rotten <= self._right_on_disk()

    @invariant()
    def users_see_all_of_a_version_or_nothing(self) -> None:
        assert (self.disk.kind("m/1") is not None) == self.is_published

    def teardown(self) -> None:
        for chunk in sorted(self.rotten):
            self.store.recheck(ID, chunk)
        for chunk in range(COUNT):
            self.store.put(ID, chunk, MODEL.chunks[chunk], SOURCE, 0.0)
        if not self.is_published:
            self.store.finish(ID)
        for path, body in MODEL.files.items():
            assert self.disk.content(f"m/1/{path}") == body, "the work could not be brought to its end"
        self.store.close()
        gc.collect()  # a crashed store is a heap of cycles with megabytes in it

    def _tree(self) -> str:
        incoming = f".incoming/{ID.hex()}"
        return incoming if self.disk.kind(incoming) is not None else "m/1"

    def _right_on_disk(self) -> set[int]:
        found = set()
        for chunk in range(COUNT):
            body = bytearray()
            for segment in MODEL.manifest.segments(chunk):
                path = f"{self._tree()}/{MODEL.manifest.files[segment.file_index].path}"
                if self.disk.kind(path) is not None:
                    body += self.disk.content(path)[segment.offset : segment.offset + segment.length]
            if body == MODEL.chunks[chunk]:
                found.add(chunk)
        return found


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
