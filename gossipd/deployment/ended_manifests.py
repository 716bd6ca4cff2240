"""The manifests of deployments that had ended here before this run, read again so that they have a name.

What lives here: which of them are read, one at a time, from this host's own files. What does not: the manifests of
deployments that begin (``deployment_steps``).

At the start, what was removed, evicted or cancelled in an earlier run ends at once, without a manifest. An operator
still asks for it by name, and its targets and size are in no other file. Those that are known last are read first, up
to ``ENDED_BYTES_MAX`` in all: nothing else frees their memory.

Rejected: asking other hosts for what is not here, because then each removed version would travel once more.
"""

from __future__ import annotations

from gossipd.deployment.commands import OpenManifest, ReadManifest
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.events import EnvelopeFound, ManifestOpened, WorkEnded
from gossipd.deployment.states import FINAL

ENDED_BYTES_MAX = 64 * 1024 * 1024  # of envelopes: the largest one, and a thousand usual ones


class EndedManifests:
    """One per brain; the owner of the work that it asks for."""

    def __init__(self, context: BrainContext) -> None:
        self._context = context
        self._waiting: list[DeploymentRecord] = []  # no more than the table holds
        self._read: DeploymentRecord | None = None
        self._bytes_left = ENDED_BYTES_MAX

    def add(self, record: DeploymentRecord) -> None:
        """It has ended, and nothing else will read its manifest. One that is superseded will be forgotten."""
        if self._context.statements.is_superseded(record.id):
            self._context.is_look_wanted = True
        else:
            self._waiting.append(record)
            self._go_on()

    def _go_on(self) -> None:
        while self._read is None and self._waiting:
            record = self._waiting.pop()
            if _is_nameless(record):
                self._read = record
                work = self._context.next_work(self)
                self._context.put(ReadManifest(work, record.id, self._accepted_signer(record)))

    def work_ended(self, event: WorkEnded, now: float, wall_s: float) -> None:
        """See WorkOwner. What is not here, or not sound, stays without a name."""
        record, self._read = self._read, None
        assert record is not None
        if isinstance(event, EnvelopeFound) and event.envelope is not None and _is_nameless(record):
            size = len(event.envelope)
            if size <= self._bytes_left:
                self._bytes_left -= size
                self._read = record
                work = self._context.next_work(self)
                self._context.put(OpenManifest(work, event.envelope, record.id, self._accepted_signer(record)))
        elif isinstance(event, ManifestOpened) and event.manifest.id == record.id and _is_nameless(record):
            identity = self._context.identity
            record.take(event.manifest, identity.name, identity.rack)
            record.changed = True
            self._context.is_look_wanted = True  # its publisher may keep newer versions, not this one
        self._go_on()

    def _accepted_signer(self, record: DeploymentRecord) -> bytes:
        accepted = self._context.statements.accepted(record.id)
        return accepted.signer if accepted is not None else b""


def _is_nameless(record: DeploymentRecord) -> bool:
    return record.manifest is None and record.state in FINAL
