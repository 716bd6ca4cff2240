"""The chunks that a want means, against a plain count of bytes, and wants that mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import Part, Presence, choose_part
from gossipd.parts.want import Want, WantError, parse_want
from tests.gossipd.parts.models_of_tensors import CHUNK, expert_model, manifest_of, rows_of

FILES = expert_model()
MANIFEST = manifest_of(FILES)
PATHS = list(FILES)


def part(*terms: str, manifest: Manifest = MANIFEST) -> Part:
    return choose_part(manifest, parse_want(terms))


def chunks_with(spans: dict[int, list[tuple[int, int]]]) -> set[int]:
    """Chunks with a byte of these spans, found chunk by chunk."""
    return {
        chunk
        for chunk in range(MANIFEST.chunk_count)
        for s in MANIFEST.segments(chunk)
        if any(s.offset < end and begin < s.offset + s.length for begin, end in spans.get(s.file_index, ()))
    }


SMALL = {at: [(0, len(FILES[path]))] for at, path in enumerate(PATHS) if len(FILES[path]) < CHUNK}


def test_no_want_is_everything() -> None:
    assert choose_part(MANIFEST, Want()).is_everything and len(part("files:*").wanted) == MANIFEST.chunk_count


def test_a_rank_of_experts_is_its_tensors_the_headers_and_the_small_files() -> None:
    found = part("ep:1/4")
    spans: dict[int, list[tuple[int, int]]] = {at: list(listed) for at, listed in SMALL.items()}
    for row in rows_of(FILES):
        expert = int(row.name.split(".experts.")[1].split(".")[0]) if ".experts." in row.name else 2
        if expert in (2, 3):
            spans.setdefault(row.file_index, []).append((row.begin, row.end))
            assert row.name in found.tensors[row.file_index]
        else:
            assert row.name not in found.tensors[row.file_index]
        spans.setdefault(row.file_index, []).append((0, 9))
    assert set(found.wanted) == chunks_with(spans)
    assert found.files == {0: Presence.MASKED, 1: Presence.MASKED, 2: Presence.WHOLE, 3: Presence.WHOLE}
    assert found.kept_bytes[3] == len(FILES[PATHS[3]]) and found.kept_bytes[0] == rows_of(FILES)[0].begin


def test_the_ranks_together_want_everything_and_half_a_model_each() -> None:
    manifest = manifest_of(expert_model(layers=2, expert_bytes=400_000))
    ranks = [part(f"ep:{rank}/4", manifest=manifest).wanted for rank in range(4)]
    union = ranks[0] | ranks[1] | ranks[2] | ranks[3]
    assert union.is_full and all(len(one) < 0.5 * manifest.chunk_count for one in ranks)


def test_a_file_of_which_nothing_is_wanted_is_left_out() -> None:
    found = part("files:model-1*")
    assert found.files == {0: Presence.WHOLE, 2: Presence.WHOLE, 3: Presence.WHOLE}
    assert set(found.wanted) == chunks_with(SMALL | {0: [(0, len(FILES[PATHS[0]]))]})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(1, 60_000)), min_size=1, max_size=4))
def test_ranges_of_a_file_without_tensors_are_its_chunks(listed: list[tuple[int, int]]) -> None:
    manifest = manifest_of({"rank0.distcp": bytes(400_000), ".metadata": b"m"})
    want = parse_want(["ranges:rank0.distcp:" + ",".join(f"{begin}-{begin + length}" for begin, length in listed)])
    found = choose_part(manifest, want)
    wanted = {at // CHUNK for begin, length in listed for at in (begin, begin + length - 1)}
    wanted |= {at // CHUNK for begin, length in listed for at in range(begin, begin + length, CHUNK)}
    assert set(found.wanted) == wanted | {manifest.chunk_count - 1}
    assert found.files == {0: Presence.HOLES, 1: Presence.WHOLE}


def test_ranges_of_a_file_of_tensors_show_the_tensors_that_lie_within() -> None:
    rows = [row for row in rows_of(FILES) if row.file_index == 0]
    found = part(f"ranges:model-1.safetensors:{rows[3].begin}-{rows[5].end - 1}")
    assert found.tensors[0] == {rows[3].name, rows[4].name} and found.files[0] is Presence.MASKED


@pytest.mark.parametrize(
    "term",
    ["files:*.gguf", "tensors:nothing.*", "ranges:absent.bin:0-4", "ranges:config.json:0-9999", "ep:0/9", "pp:9-9"],
)
def test_a_want_that_matches_nothing_is_refused(term: str) -> None:
    with pytest.raises(WantError) as refused:
        part(term)
    assert refused.value.code == "E_WANT"


def test_a_refusal_names_the_term_that_matches_nothing_and_no_other() -> None:
    with pytest.raises(WantError, match=r"^want 'tensors:nothing\*' matches no tensor"):
        part("ep:0/2", "tensors:nothing*")


def test_tensors_of_a_model_without_an_index_are_refused_with_the_cure() -> None:
    with pytest.raises(WantError, match="index") as refused:
        part("ep:0/2", manifest=manifest_of(FILES, rows=()))
    assert refused.value.code == "E_NO_INDEX"


def test_an_index_whose_header_is_larger_than_any_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.parts.part.HEADER_BYTES_MAX", 100)
    with pytest.raises(ManifestError, match="header") as refused:
        part("ep:0/4")
    assert refused.value.code == "E_INDEX"
