"""Rows of manifests, verified and not."""

from __future__ import annotations

import msgspec
import pytest

from gossipd.api.manifest_row import manifest_row, unverified_row
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import open_manifest, seal_manifest
from tests.gossipd.manifest.making import STRANGER, TRUSTED, draft, sealed_fields
from tests.gossipd.manifest.test_schema_2 import everything


def test_a_row_says_all_but_files_and_hashes() -> None:
    row = manifest_row(everything())
    assert (row.schema, row.borders, row.has_index, row.tensors) == (2, "tensors", True, None)
    assert (row.keep, row.about, row.labels) == ({"last": 3, "every": 1000}, {"step": 7}, {"team": "rl"})
    assert row.directories == ["logs", "x/empty"]
    assert len(row.signed_by) >= 8


def test_the_unverified_row_is_the_same_without_a_signer_and_with_tensors_counted() -> None:
    manifest = everything()
    expected = msgspec.structs.replace(manifest_row(manifest), signed_by="", tensors=1)
    assert unverified_row(manifest.envelope) == expected
    plain = seal_manifest(draft(), STRANGER)
    assert unverified_row(plain).tensors == 0
    with pytest.raises(ManifestError):
        open_manifest(plain, TRUSTED)


def test_what_breaks_a_rule_has_no_row() -> None:
    with pytest.raises(ManifestError):
        unverified_row(sealed_fields(root=bytes(32)))
