"""From a manifest to the row that ``gossipd show`` and ``gossipd lineage`` print. Pure.

What lives here: a row of a verified manifest, and of bytes whose signature nobody has checked, for people only. What
does not: the fields (``schema``).
"""

from __future__ import annotations

import msgspec

from gossipd.api.schema import ManifestRow
from gossipd.core.ids import DeploymentId, short
from gossipd.core.targets import Targets
from gossipd.core.units import timestamp
from gossipd.identity.trust import key_id
from gossipd.manifest.annotations import read_about, step_label
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.envelope import payload_of
from gossipd.manifest.manifest import ENVELOPE_TYPE, Manifest, deployment_id
from gossipd.manifest.payload import Payload, check_payload, parse_payload
from gossipd.manifest.tensor_index import read_index


def manifest_row(manifest: Manifest) -> ManifestRow:
    """The row of a verified manifest. Costs what its ``about`` has, not what its files and tensors are."""
    times, signed_by = (manifest.created_s, manifest.expires_s), short(key_id(manifest.signer))
    return _row(manifest, manifest.layout, manifest.targets, times, (manifest.id, signed_by))


def unverified_row(envelope: bytes) -> ManifestRow:
    """The row of a manifest that breaks no rule, its signature unchecked, its tensors counted. Raises ManifestError."""
    payload = parse_payload(payload_of(ENVELOPE_TYPE, envelope))
    layout, targets = check_payload(payload), Targets(payload.racks, payload.names)
    row = _row(payload, layout, targets, (payload.created, payload.expires), (deployment_id(envelope), ""))
    count = sum(1 for _ in read_index(payload.index)) if payload.index is not None else 0
    return msgspec.structs.replace(row, tensors=count)


def _row(
    said: Manifest | Payload,
    layout: Layout,
    targets: Targets,
    times: tuple[int, int | None],
    names: tuple[DeploymentId, str],
) -> ManifestRow:
    """``times``: created, and expires or None. ``names``: the deployment, and who signed it."""
    (created_s, expires_s), (deployment, signed_by) = times, names
    about = read_about(said.about)
    return ManifestRow(
        id=deployment.hex(),
        name=said.name,
        version=said.version,
        version_label=step_label(said.version, about),
        schema=said.schema,
        created_at=timestamp(float(created_s)),
        expires_at=timestamp(float(expires_s)) if expires_s is not None else None,
        signed_by=signed_by,
        priority=said.priority,
        files=len(said.files),
        directories=list(said.directories),
        bytes_total=layout.bytes_total,
        chunk_bytes=layout.chunk_bytes,
        chunks_total=layout.chunk_count,
        borders="tensors" if layout.has_cuts else "plain",
        has_index=said.index is not None,
        root=said.root.hex(),
        sources=list(said.sources),
        racks=list(targets.racks),
        names=list(targets.names),
        keep=msgspec.to_builtins(said.keep) | {"every": said.keep.every} if said.keep is not None else None,
        about=about,
        labels=dict(said.labels),
    )
