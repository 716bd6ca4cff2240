"""Bugs of manifests of schema 2: chunk borders, the index of tensors, what a publisher says beside the content."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BORDERS = "tests/gossipd/manifest/test_chunk_borders.py"
_SCHEMA = "tests/gossipd/manifest/test_schema_2.py"
_INDEX = "tests/gossipd/manifest/test_tensor_index.py"
_ANNOTATIONS = "tests/gossipd/manifest/test_annotations.py"
_RULE = "gossipd/manifest/chunk_borders.py"
_LAYOUT = "gossipd/manifest/chunk_layout.py"
_PAYLOAD = "gossipd/manifest/payload.py"
_TABLE = "gossipd/manifest/tensor_index.py"

MUTANTS = (
    Mutant(
        "a-grid-goes-on-over-small-tensors",
        "The grid of a tensor begins where the small tensors before it do.",
        _RULE,
        "        waiting = 0\n        begins.extend(range(at + chunk_bytes, at",
        "        begins.extend(range(at - waiting + chunk_bytes, at",
        (_BORDERS,),
    ),
    Mutant(
        "a-header-joins-the-first-tensor",
        "A small header is no stretch of its own, so another one moves the first chunk.",
        _RULE,
        "        if 0 < position < last and",
        "        if position < last and",
        (_BORDERS,),
    ),
    Mutant(
        "the-last-small-tensors-join-nothing",
        "Small tensors at the end of a file are in no chunk of their own.",
        _RULE,
        "    if run:\n        cuts.append(run)\n    return",
        "    return",
        (_BORDERS,),
    ),
    Mutant(
        "a-border-a-byte-before-the-end",
        "A chunk may be as small as what is left of a tensor.",
        _RULE,
        "at + length - margin + 1, chunk_bytes",
        "at + length, chunk_bytes",
        (_BORDERS,),
    ),
    Mutant(
        "accepts-cuts-that-do-not-fill-the-file",
        "Cuts need not sum up to the file's size.",
        _LAYOUT,
        "        if min(lengths, default=0) < 1 or sum(lengths) != size:\n",
        "        if min(lengths, default=0) < 1 or sum(lengths) > size:\n",
        (_BORDERS,),
    ),
    Mutant(
        "accepts-a-chunk-that-no-pool-holds",
        "A chunk may be longer than the longest that every host can hold in memory.",
        _LAYOUT,
        "        if self.chunk_bytes_max > CHUNK_BYTES_MAX:\n",
        "        if self.chunk_bytes_max > 2 * CHUNK_BYTES_MAX:\n",
        (_BORDERS,),
    ),
    Mutant(
        "a-root-without-cuts",
        "Two manifests with other cuts have one root.",
        _PAYLOAD,
        ' + array("Q", lengths).tobytes() if lengths else no_cut)\n',
        " if lengths else no_cut)\n",
        (_SCHEMA,),
    ),
    Mutant(
        "reads-cuts-in-schema-1",
        "A key of schema 2 changes the chunks of a manifest of schema 1, which older hosts lay out otherwise.",
        _PAYLOAD,
        "    more = _large_fields(values) if is_second else {}\n",
        "    more = _large_fields(values)\n",
        (_SCHEMA,),
    ),
    Mutant(
        "ignores-what-must-be-understood",
        "An unknown key that ends in an exclamation mark is ignored.",
        _PAYLOAD,
        '        if is_second and key.endswith("!"):\n',
        '        if is_second and key.startswith("!"):\n',
        (_SCHEMA,),
    ),
    Mutant(
        "an-index-may-end-within-a-row",
        "The last row of an index may be cut short.",
        _TABLE,
        "        if list(unpacker) != [None]:\n",
        "        if len(list(unpacker)) > 1:\n",
        (_INDEX,),
    ),
    Mutant(
        "a-tensor-beyond-its-file",
        "A row may name bytes behind the file's end.",
        _TABLE,
        "    if not 0 <= begin <= end <= sizes[file_index]:\n",
        "    if not 0 <= begin <= end:\n",
        (_INDEX,),
    ),
    Mutant(
        "inflates-an-index-whole",
        "An index is inflated however much it becomes.",
        _TABLE,
        "            if total > INFLATED_BYTES_MAX:\n",
        "            if total > 64 * INFLATED_BYTES_MAX:\n",
        (_INDEX,),
    ),
    Mutant(
        "signs-a-secret-in-a-list",
        "Only the fields at the top are looked at for secrets.",
        "gossipd/manifest/annotations.py",
        "    elif isinstance(value, list):\n        for item in value:\n            yield from _leaves(item, path)\n",
        "",
        (_ANNOTATIONS,),
    ),
)
