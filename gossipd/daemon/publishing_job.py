"""One publication of a job that is under way, and the making of its manifest.

What lives here: what its caller is told next, and hashing and signing in a thread. What does not: who may publish what,
and the copy that this host keeps (``job_publishing``).
"""

from __future__ import annotations

import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import msgspec
import trio
from msgspec import Struct

from gossipd.api.ports import PublishStep
from gossipd.core.errors import GossipdError
from gossipd.daemon.state_dir import SCRATCH
from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import Retention
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.publish.adoption import files_of
from gossipd.publish.errors import PublishError
from gossipd.publish.selection import Selection
from gossipd.runtime.logs import get_logger

log = get_logger("publish")


class PublishingJob(Struct):
    """One publication under way; its step is what the caller is told next. An observer of hashing."""

    step: PublishStep
    ended: trio.Event = msgspec.field(default_factory=trio.Event)
    error: GossipdError | None = None
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    is_left: bool = False  # its caller has gone
    counting: Lock = msgspec.field(default_factory=Lock)

    def found(self, file_count: int, bytes_total: int) -> None:
        self.step = msgspec.structs.replace(self.step, file_count=file_count, bytes_total=bytes_total)

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.is_left = True
        self.scope.cancel()

    def sign(self, envelope: bytes) -> None:
        """A signed envelope goes with the next line to the caller."""
        self.step = msgspec.structs.replace(self.step, envelope=b64encode(envelope).decode())

    def leave_out(self, counted: Mapping[str, int]) -> None:
        """So many files match these patterns, and are not in the version."""
        if counted:
            log.warning("files were left out", name=self.step.name, patterns=dict(counted))
        self.step = msgspec.structs.replace(self.step, left_out=dict(counted))

    def hashed(self, count: int) -> None:
        """See ``moved``."""
        self.moved(count)

    def moved(self, count: int) -> None:
        """So many bytes more are hashed, or copied. Raises PublishError where nobody waits for it any more: the threads
        end with their extents."""
        if self.is_left or self.ended.is_set():
            raise PublishError(f"{self.step.name}: the publication has been ended")
        with self.counting:
            self.step = msgspec.structs.replace(self.step, bytes_done=self.step.bytes_done + count)


class ManifestMaker(Struct, frozen=True):
    """Hash and sign; in a thread. What publishes, obstore among it, is imported by the first job."""

    job: PublishingJob
    directory: Path
    selection: Selection
    name: str
    version: int
    key: SecretKey
    scratch: Path
    owner: int
    keep: Retention | None
    about: bytes

    def manifest(self) -> Manifest:
        from gossipd.publish.publisher import PublishOrder, publish

        files_of(self.directory, self.selection, self.owner)
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=self.scratch) as private:
            out = Path(private) / "manifest"
            order = PublishOrder(
                source=str(self.directory), name=self.name, version=self.version, secret=self.key, out=out,
                selection=self.selection, is_adopted=True, is_step=True, created_s=int(time.time()), keep=self.keep,
                about=self.about,
            )  # fmt: skip
            self.job.leave_out(publish(order, self.job).left_out)
            return open_manifest(out.read_bytes(), [self.key.public.ed25519])
