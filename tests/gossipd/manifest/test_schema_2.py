"""Schema 2: when it is written, what comes back, and how an addition to come is refused or ignored."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gossipd.manifest.annotations import Retention, pack_about
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, open_manifest, seal_manifest
from gossipd.manifest.payload import FileEntry, root_hash
from gossipd.manifest.tensor_index import Tensor, pack_index
from tests.gossipd.manifest.making import CHUNK, PUBLISHER, TRUSTED, draft, fake_digests, payload_fields, sealed_fields

FILES = (FileEntry("a.bin", 2 * CHUNK, 0o644), FileEntry("b.txt", 10, 0o644))
CUTS = ((100, CHUNK, CHUNK - 100), None)
COUNT = Layout([2 * CHUNK, 10], CHUNK, CUTS).chunk_count


def refusal(**changes: Any) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        open_manifest(sealed_fields(schema=2, **changes), TRUSTED)
    return caught.value


def with_cuts(cuts: Any = ([100, CHUNK, CHUNK - 100], None), **changes: Any) -> dict[str, Any]:
    digests = fake_digests(COUNT)
    root = root_hash(FILES, CHUNK, digests, cuts=CUTS)
    return {"cuts": cuts, "hashes": digests, "root": root, **changes}


def everything() -> Manifest:
    tensors = [Tensor(0, "w", "U8", (CHUNK,), 100, 100 + CHUNK)]
    made = draft(
        files=FILES, digests=fake_digests(COUNT), cuts=CUTS, directories=("logs", "x/empty"),
        index=pack_index(tensors), keep=Retention(last=3, every=1000), about=pack_about({"step": 7}),
        labels={"team": "rl"},
    )  # fmt: skip
    return open_manifest(seal_manifest(made, PUBLISHER), TRUSTED)


def test_all_of_schema_2_comes_back() -> None:
    opened = everything()
    assert (opened.schema, opened.keep, opened.labels) == (2, Retention(last=3, every=1000), {"team": "rl"})
    assert opened.directories == ("logs", "x/empty")
    assert opened.about_fields() == {"step": 7}
    assert list(opened.tensors()) == [Tensor(0, "w", "U8", (CHUNK,), 100, 100 + CHUNK)]
    assert [opened.chunk_length(chunk) for chunk in range(opened.chunk_count)] == [100, CHUNK, CHUNK - 100, 10]


def test_names_that_differ_only_in_case_are_two_only_where_the_manifest_says_so() -> None:
    twins = (FileEntry("A.bin", 2 * CHUNK, 0o644), FileEntry("a.bin", 10, 0o644))
    made = draft(files=twins, digests=fake_digests(Layout([2 * CHUNK, 10], CHUNK).chunk_count), case_matters=True)
    opened = open_manifest(seal_manifest(made, PUBLISHER), TRUSTED)
    assert (opened.schema, opened.case_matters) == (2, True)
    with pytest.raises(ManifestError) as caught:
        seal_manifest(replace(made, case_matters=False), PUBLISHER)
    assert caught.value.code == "E_PATH_COLLISION"


def test_what_schema_1_can_say_is_said_in_schema_1() -> None:
    made = draft()
    assert open_manifest(seal_manifest(made, PUBLISHER), TRUSTED).schema == 1


@pytest.mark.parametrize(
    "more",
    [{"directories": ("d",)}, {"index": pack_index([])}, {"keep": Retention(last=1)}, {"about": b"{}"},
     {"labels": {"a": "b"}}],
)  # fmt: skip
def test_each_addition_makes_it_schema_2(more: dict[str, Any]) -> None:
    envelope = seal_manifest(draft(**more), PUBLISHER)
    assert open_manifest(envelope, TRUSTED).schema == 2
    assert envelope[len(b"\x01\x10gossipd-manifest\x01") + 16 + 64] == 2


def test_the_root_names_cuts_and_empty_directories_and_nothing_else_of_schema_2() -> None:
    plain = open_manifest(seal_manifest(draft(), PUBLISHER), TRUSTED)
    annotated = open_manifest(seal_manifest(draft(about=b"{}", labels={"a": "b"}), PUBLISHER), TRUSTED)
    emptied = open_manifest(seal_manifest(draft(directories=("d",)), PUBLISHER), TRUSTED)
    assert plain.root == annotated.root != emptied.root
    digests = fake_digests(COUNT)
    roots = {
        root_hash(FILES, CHUNK, digests), root_hash(FILES, CHUNK, digests, cuts=CUTS),
        root_hash(FILES, CHUNK, digests, cuts=CUTS, directories=("d",)),
        root_hash(FILES, CHUNK, digests, cuts=((101, CHUNK, CHUNK - 101), None)),
    }  # fmt: skip
    assert len(roots) == 4


def test_a_changed_cut_is_found_by_the_root() -> None:
    assert open_manifest(sealed_fields(schema=2, **with_cuts()), TRUSTED).chunk_count == COUNT
    other = [[99, CHUNK, CHUNK - 99], None]
    assert refusal(**with_cuts(other)).code == "E_ROOT_HASH"
    assert refusal(**with_cuts(directories=["d"])).code == "E_ROOT_HASH"


@pytest.mark.parametrize("cuts", [[[-1]], [["a"]], [[1.5]], 7, "a", [{}], [[[1]]], {}, [True]])
def test_cuts_of_another_form_are_refused(cuts: Any) -> None:
    assert refusal(**with_cuts(cuts)).code == "E_DECODE"


def test_cuts_have_a_bound_in_bytes_before_any_value_is_made() -> None:
    error = refusal(**with_cuts([[1] * (1024 * 1024), None]))
    assert error.sentence == "E_LIMIT: bytes of cuts=1048583 max=1048576"
    assert refusal(**with_cuts([None] * 100_001)).sentence == "E_LIMIT: cuts=100001 max=100000"


@pytest.mark.parametrize(
    ("directory", "code"),
    [("/abs", "E_PATH_ABSOLUTE"), ("a/../b", "E_PATH_COMPONENT"), ("A.bin", "E_PATH_COLLISION"),
     ("a.bin", "E_PATH_COLLISION"), ("a.bin/x", "E_PATH_PREFIX"), ("", "E_PATH_COMPONENT"),
     (".gossipd", "E_PATH_RESERVED")],
)  # fmt: skip
def test_an_empty_directory_follows_the_rules_of_paths(directory: str, code: str) -> None:
    assert refusal(directories=[directory]).code == code


def test_a_directory_with_a_file_in_it_is_not_empty() -> None:
    with pytest.raises(ManifestError) as caught:
        seal_manifest(
            draft(files=(FileEntry("d/a", CHUNK, 0o644),), digests=fake_digests(1), directories=("d",)), PUBLISHER
        )
    assert caught.value.code == "E_PATH_PREFIX"


@pytest.mark.parametrize(
    "changes",
    [{"keep": {"last": 0}}, {"keep": {"last": 1, "every": -1}}, {"keep": {}}, {"keep": 3}, {"about": "text"},
     {"about": b"[]"}, {"labels": {"a": 1}}, {"labels": ["a"]}, {"labels": {"a b": "c"}}, {"index": "text"},
     {"index": b"no zlib"}, {"directories": "d"}, {"about": b" " * 20_000}],
)  # fmt: skip
def test_each_key_of_schema_2_is_checked(changes: dict[str, Any]) -> None:
    assert refusal(**changes).code in ("E_DECODE", "E_LIMIT", "E_NAME", "E_INDEX")


def test_an_unknown_key_is_ignored_unless_it_says_that_it_must_be_understood() -> None:
    assert open_manifest(sealed_fields(schema=2, later=[1]), TRUSTED).name == "org/model"
    error = refusal(**{"later!": [1]})
    assert error.sentence == (
        "E_SCHEMA_VERSION: the manifest needs 'later!', which this gossipd does not know: upgrade it"
    )


def test_packed_forms_have_room_of_their_own() -> None:
    pack = {"codec": bytes(1), "hash": bytes(4 * 1024 * 1024), "sources": []}
    assert open_manifest(sealed_fields(schema=2, pack=pack), TRUSTED).chunk_count == 3
    assert refusal(other=pack).code in ("E_LIMIT", "E_DECODE")


def test_schema_1_ignores_the_keys_of_schema_2_as_it_always_did() -> None:
    fields = payload_fields()
    opened = open_manifest(
        sealed_fields(schema=1, cuts=[[100, 2 * CHUNK - 100], None], about=b"no json", keep=3, root=fields["root"]),
        TRUSTED,
    )
    assert (opened.schema, opened.chunk_count, opened.about, opened.keep) == (1, 3, b"", None)
