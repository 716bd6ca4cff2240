"""The models that are open: making room, publishing, giving up, deleting.

What lives here: the table of replicas, and operations on whole models. What does not: chunks, and how a tree moves
(``publishing``).

``_changing`` serialises the making and unmaking of replicas. A copy from another version holds it to the end, so that
nobody deletes that version meanwhile; chunks do not wait for it. ``_showing`` serialises changes of the versions that
users see, and looks at them, and does not wait for a copy. Lock order: ``_changing``, ``_showing``, then a replica's
own locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, RLock

from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, label_of
from gossipd.parts.part import choose_part
from gossipd.parts.want import EVERYTHING, Want, WantError
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.store.disk.condition import fault_of_model, fault_of_path
from gossipd.store.disk.disk import FileKind, read_file
from gossipd.store.errors import (
    NoSpaceError,
    NotWholeError,
    StoreClosingError,
    StoreFormatError,
    StorePathError,
)
from gossipd.store.journal.recovery import open_replica
from gossipd.store.journal.windows import commit
from gossipd.store.models import current_link, layout, publishing
from gossipd.store.models.catalogue import StoredModel, list_models
from gossipd.store.models.context import Context
from gossipd.store.models.eviction import Evictions
from gossipd.store.models.holes import free_holes
from gossipd.store.models.known_links import KnownLinks
from gossipd.store.models.part_note import settle_part, tree_place
from gossipd.store.models.pins import Pins
from gossipd.store.models.removed_files import RemovedFiles
from gossipd.store.models.repair import mend_tree
from gossipd.store.models.replica import ModelReplica
from gossipd.store.models.reuse import PieceSource, copy_from_files, copy_shared
from gossipd.store.models.scrub import Scrubber
from gossipd.store.notices import ModelEvicted

_CLOSE_BYTES_MAX = 1 << 30  # a daemon has five seconds to end, and a sync cannot be cut short


class Models:
    def __init__(self, context: Context, before_evict: Callable[[ModelEvicted], None]) -> None:
        """``before_evict``: see ``ChunkStore``."""
        self._context = context
        self._disk = context.disk
        self.pins = Pins(context.disk)
        self.evictions = Evictions(context, self.pins, self, before_evict)
        self._changing = RLock()
        self._showing = Lock()
        self._replicas: dict[DeploymentId, ModelReplica] = {}
        self._unready: dict[DeploymentId, bool] = {}  # opened but not ready: whether the disk has refused once
        self.scrubber = Scrubber(context, self.published)
        self.removed_files = RemovedFiles(context, self.published)
        self.known_links = KnownLinks(context.disk)

    def get(self, deployment: DeploymentId) -> ModelReplica:
        """Raises NotHeldError when the deployment is not open."""
        replica = self._replicas.get(deployment)
        if replica is None:
            raise NotHeldError(f"deployment {deployment.hex()} is not open here", code="E_UNKNOWN_MANIFEST")
        return replica

    def find(self, deployment: DeploymentId) -> ModelReplica | None:
        """None when the deployment is not open."""
        return self._replicas.get(deployment)

    def all(self) -> list[ModelReplica]:
        return list(self._replicas.values())

    def published(self) -> list[ModelReplica]:
        """Open models whose trees are in place."""
        return [replica for replica in self.all() if replica.is_published]

    def open(self, manifest: Manifest, want: Want = EVERYTHING, *, frees: bool = False) -> ChunkSet:
        with self._changing:
            replica = self._replicas.get(manifest.id)
            if replica is not None and not _is_enough(replica, want, frees=frees):
                self._put_away(replica)
                replica = None
            replica = replica or self._open(manifest, want, frees=frees)
            if manifest.id in self._unready:
                self._make_ready(replica, frees=frees)
            with replica.lock:
                return replica.held.snapshot()

    def _put_away(self, replica: ModelReplica) -> None:
        """Close the books of a model, so that another part of it can be opened."""
        commit(self._context, replica)
        with self._showing, replica.committing:
            self.scrubber.discard(replica.deployment)
            _say_closed(self._context, replica)
            self._let_go(replica)
        self._replicas = {key: value for key, value in self._replicas.items() if key != replica.deployment}
        self._unready.pop(replica.deployment, None)

    def _open(self, manifest: Manifest, want: Want, *, frees: bool) -> ModelReplica:
        if self._context.stopping.is_set():
            raise StoreClosingError("the store is being closed")
        now = self._context.clock.monotonic()
        promised = sum(other.missing_bytes() for other in self.all() if other.is_sparse)
        try:
            with self._moving(manifest.name):
                part = settle_part(self._context, manifest, want, frees=frees, unfit=self._unfit(manifest.name))
            replica = open_replica(self._context, manifest, part=part, promised_bytes=promised)
        except NoSpaceError as error:
            self._context.tracker.no_space(error, manifest.id, now)
            self._context.due.set()
            raise
        except OSError as error:
            if (fault := fault_of_path(error)) is not None:
                code, sentence = fault
                raise StorePathError(sentence, code=code) from error
            if (fault := fault_of_model(error, max(file.size for file in manifest.files))) is not None:
                code, sentence = fault
                raise StoreWriteError(sentence, code=code) from error
            raise self._context.refused(error, manifest.bytes_total) from error
        self._context.tracker.forget(manifest.id)
        self._replicas = {**self._replicas, manifest.id: replica}
        self._unready[manifest.id] = False
        return replica

    def _make_ready(self, replica: ModelReplica, *, frees: bool) -> None:
        """Finish an opening: free what a part leaves out, copy chunks of other versions, point users to a published
        tree. Each opening tries again.
        Raises StoreWriteError at the first refusal only: later ones must not keep us from serving what is here.
        """
        try:
            is_freed = frees or not replica.is_published
            if is_freed and not replica.part.is_everything and not replica.ledger.broken:
                self._free_holes(replica)
            if not replica.is_whole and not replica.ledger.broken:
                self._copy_shared(replica)
            if replica.is_published:
                self._show(replica)
        except OSError as error:
            refusal = self._context.refused(error, replica.manifest.bytes_total)
            was_refused, self._unready[replica.deployment] = self._unready[replica.deployment], True
            if not was_refused:
                raise refusal from error
            if replica.is_published:
                self.scrubber.add(replica)
        else:
            if not replica.ledger.broken:
                del self._unready[replica.deployment]

    def _free_holes(self, replica: ModelReplica) -> None:
        """A disk that refuses keeps the room, and nothing from being served."""
        try:
            free_holes(self._context, replica)
        except OSError as error:
            self._context.tracker.refused(error, self._context.clock.monotonic(), need_bytes=0)

    def _copy_shared(self, replica: ModelReplica) -> None:
        try:
            others = [other for other in self.all() if other is not replica]
            copy_shared(self._context, replica, [*others, replica] if replica.equal else others)
        except (FileNotFoundError, NotADirectoryError):  # removed since it was made; the rest is fetched
            mend_tree(self._context, replica)

    def adopt(
        self, manifest: Manifest, files: PieceSource, files_here: frozenset[int] | None,
        on_copied: Callable[[int], None],
    ) -> int | None:  # fmt: skip
        self.open(manifest)
        replica = self.get(manifest.id)
        try:
            return copy_from_files(self._context, replica, files, files_here, on_copied)
        except OSError as error:
            raise self._context.refused(error, replica.missing_bytes()) from error

    def finish(self, deployment: DeploymentId) -> None:
        replica = self.get(deployment)
        name = replica.manifest.name
        commit(self._context, replica)
        try:
            try:
                publishing.publish(self._context, replica)
            except FileNotFoundError:
                mend_tree(self._context, replica)
                raise NotWholeError(f"files of {name} were removed or cut short; they are fetched again") from None
            self.removed_files.look_again(replica)
            for version in self._show(replica, durably=True):
                self.evictions.evict_surplus(name, version)
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def _show(self, replica: ModelReplica, *, durably: bool = False) -> list[int]:
        """Point users to a tree that is in place. Returns the versions that are now too many."""
        name = replica.manifest.name
        with self._moving(name):
            if replica.is_closed:
                raise NotHeldError("the deployment is not open here")
            unfit = self._unfit(name)
            whole, parts = current_link.links(self._disk, name)
            before, among = (whole.version(), parts.version()), {*whole.shown(), *parts.shown()}
            whole.settle(unfit=unfit, durably=durably)
            parts.settle(unfit=unfit)
            self.scrubber.add(replica)
            if _is_kept_as_signed(name, self.published()):
                return []
            return current_link.surplus_versions(
                self._disk, name, keep=self._context.settings.keep_versions, among=among, before=before
            )

    def remove_evicted(self, model: StoredModel) -> bool:
        """See ModelRemover."""
        with self._changing:
            if self._context.stopping.is_set():
                return False
            self._remove(model)
        return True

    def abandon(self, deployment: DeploymentId, *, even_published: bool = False) -> None:
        self._context.tracker.forget(deployment)
        if even_published:
            self._remove_all([one for one in list_models(self._disk) if one.deployment == deployment])
            return
        replica = self._replicas.get(deployment)
        if replica is not None and replica.is_published:
            return
        try:
            if replica is None and any(
                model.deployment == deployment and self._may_be_published(model) for model in list_models(self._disk)
            ):
                return
            self._remove(StoredModel(deployment), even_published=False)
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def _may_be_published(self, model: StoredModel) -> bool:
        """Books without a journal may be those of a published model, which then lies where its manifest says; or those
        of a model that the disk did not let be opened, which has no tree."""
        if model.name or self._disk.kind(layout.incoming(model.deployment)) is not None:
            return model.is_published
        try:
            envelope = read_file(self._disk, layout.envelope(model.deployment), bytes_max=ENVELOPE_BYTES_MAX)
            return self._disk.kind(tree_place(self._disk, model.deployment, *label_of(envelope))) is FileKind.DIRECTORY
        except (ManifestError, WantError, StoreFormatError):
            return True  # books that say nothing: rather a few bytes too many than a model too few

    def remove(self, name: str, version: int) -> DeploymentId:
        open_here = {replica.deployment for replica in self.all() if is_version(replica, name, version)}
        found = [
            model
            for model in list_models(self._disk)
            if (model.name, model.version) == (name, version) or model.deployment in open_here
        ]
        if not found:
            raise NotFoundError(f"{name}@{version} is not in this store")
        self._remove_all(found)
        return found[0].deployment

    def _remove_all(self, found: list[StoredModel]) -> None:
        try:
            for model in found:
                self._remove(model)
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def _remove(self, model: StoredModel, *, even_published: bool = True) -> None:
        with self._changing:
            if self._context.stopping.is_set():  # closing empties the table: a model that is not open is not gone
                raise StoreClosingError("the store is being closed")
            replica = self._replicas.get(model.deployment)
            name, place, is_published = model.name, model.place, model.is_published
            if replica is not None:
                name, place = replica.manifest.name, replica.place
                with replica.committing:  # publishing holds this lock: the tree has moved, or never will
                    is_published = replica.is_moved
                    if is_published and not even_published:
                        return
                    self._let_go(replica)
                self._replicas = {key: value for key, value in self._replicas.items() if key != model.deployment}
                self._unready.pop(model.deployment, None)
            with self._moving(name):
                self.scrubber.discard(model.deployment)
                publishing.remove_model(
                    self._disk, model.deployment, name, place, published=is_published, unfit=self._unfit(name)
                )
            # Detach again: a reader that found the replica before may have opened a file until now.
            self._context.handles.detach(model.deployment)
            with suppress(OSError):  # the room that it leaves is told at once
                self._context.tracker.space()

    def _let_go(self, replica: ModelReplica) -> None:
        """Wait for the writers and admit no more. The caller holds ``committing``."""
        with replica.lock:
            replica.is_closed = True
            replica.quiet.notify_all()
            while replica.window.writers:
                replica.quiet.wait()
            handles, replica.window.handles = replica.window.handles, set()
        for handle in handles:
            self._context.handles.give_back(handle)
        self._context.handles.detach(replica.deployment)
        replica.ledger.close()

    def roll_back(self, name: str) -> int:
        try:
            with self._moving(name):
                return current_link.roll_back(self._disk, name, self._unfit(name))
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def avoid_versions(self, name: str, versions: frozenset[int]) -> None:
        try:
            with self._moving(name):
                for link in current_link.links(self._disk, name):
                    link.avoid(versions, self._unfit(name))
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def look_at_links(self) -> None:
        """Remember where they lead now: others may have moved them."""
        for name in {one.manifest.name for one in self.published()} | self.known_links.names():
            with self._showing:
                self.known_links.look(name)

    @contextmanager
    def _moving(self, name: str) -> Iterator[None]:
        """A change of the versions that users see. What has become of it, whole or not, is remembered."""
        with self._showing:
            try:
                yield
            finally:
                if name:  # books that were cut short tell none
                    self.known_links.look(name)

    def _unfit(self, name: str) -> frozenset[int]:
        """Versions in place of which something is missing: files were removed or damaged, and come again."""
        published = [one for one in self.published() if one.manifest.name == name]
        return frozenset(one.manifest.version for one in published if one.part.wanted - one.held.snapshot())

    def close(self) -> None:
        """Make everything durable and record that in the journals. A window that would take too long to sync stays in
        the page cache; the next start hashes it.
        """
        self.scrubber.save()
        with self._changing:
            for replica in self.all():
                if replica.window.byte_count <= _CLOSE_BYTES_MAX:
                    commit(self._context, replica)
                with self._showing, replica.committing:
                    _say_closed(self._context, replica)
                    self._let_go(replica)
            self._replicas = {}


def _is_enough(replica: ModelReplica, want: Want, *, frees: bool) -> bool:
    """Whether what lies here may stay as it is."""
    if replica.part.want == want:
        return want.is_everything or not frees
    wanted = choose_part(replica.manifest, want).wanted
    return replica.is_published and not frees and not wanted.bits & ~replica.part.wanted.bits


def _is_kept_as_signed(name: str, published: Iterable[ModelReplica]) -> bool:
    """Whether the newest complete manifest says which versions stay; then the deployment brain orders evictions."""
    manifests = [one.manifest for one in published if one.manifest.name == name]
    return bool(manifests) and max(manifests, key=lambda one: one.version).keep is not None


def is_version(replica: ModelReplica, name: str, version: int) -> bool:
    return (replica.manifest.name, replica.manifest.version) == (name, version)


def _say_closed(context: Context, replica: ModelReplica) -> None:
    """Record that nothing needs hashing at the next start. If the disk refuses, the next start hashes."""
    try:
        with replica.lock:
            if replica.ledger.broken or replica.window.opened_s is not None:
                return
            replica.ledger.append_closed()
        replica.ledger.sync()
    except OSError as error:
        context.tracker.refused(error, context.clock.monotonic(), need_bytes=0)
