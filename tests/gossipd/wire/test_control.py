"""Control messages on the wire: every kind there and back, and everything hostile turned away before it costs much."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.wire import control
from gossipd.wire.control_frame import (
    FRAME_BYTES_MAX,
    FrameError,
    decode,
    encode,
    encode_fields,
    gaps,
    indexes,
    join,
)

DEPLOYMENT = DeploymentId(bytes(range(32)))
EXAMPLES: list[control.Message] = [
    control.Hello("gossipd 0.1.0"),
    control.Subscribe(DEPLOYMENT),
    control.Unsubscribe(DEPLOYMENT),
    control.Holdings(DEPLOYMENT, 9, 1000, ChunkSet.full(1000).to_wire(), 4),
    control.Delta(9, (3, 1, 200), (), (70_000,), 2),
    control.TokenWanted(),
    control.Token(b"t" * 32, 30),
    control.Ping(),
    control.Pong(),
    control.TriggerQuery(DEPLOYMENT),
    control.TriggerState(DEPLOYMENT, 7, "deploy", 1_000_000, budget_ms=1_800_000_000_000),
    control.ManifestPart(DEPLOYMENT, 300_000, 131_072, b"m" * control.MANIFEST_PART_BYTES),
    control.PartKept(262_144),
    control.TriggerOrder(b"o" * 150, b"b" * 78),
    control.TriggerReply("E_ROLLBACK", "offered 7, trusted 9", DEPLOYMENT, 8, False),
    control.Refused("E_BUSY", "later"),
    control.SketchWanted(DEPLOYMENT),
    control.Sketch(bytes(range(256)), 1_000_000),
    control.Holdings(DEPLOYMENT, 9, 8, b"\0", 4, tokens=(b"t" * 32, b"u" * 32), valid_s=10),
]
NUMBERS = (0, 1, 127, 128, 255, 65_536, 2**31, 2**53 - 1)


def pack(*items: object) -> bytes:
    packed: bytes = msgpack.packb(list(items))
    return b"\x01" + packed


def refusal(frame: bytes) -> str:
    with pytest.raises(FrameError) as caught:
        decode(frame)
    assert caught.value.code == "E_DECODE"
    return caught.value.kind


def test_there_is_an_example_of_every_message() -> None:
    assert {type(example) for example in EXAMPLES} == set(get_args(control.Message)) == set(control.NUMBERS)


def test_numbers_are_those_that_were_given_out() -> None:
    numbers = {kind.__name__: number for kind, number in control.NUMBERS.items()}
    assert numbers == {
        "Hello": 1, "Subscribe": 2, "Unsubscribe": 3, "Holdings": 4, "Delta": 5, "TokenWanted": 6, "Token": 7,
        "Ping": 8, "Pong": 9, "TriggerQuery": 10, "TriggerState": 11, "ManifestPart": 12, "PartKept": 13,
        "TriggerOrder": 14, "TriggerReply": 15, "Refused": 16, "SketchWanted": 17, "Sketch": 18,
    }  # fmt: skip


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_message_reads_back_as_it_was_written(message: control.Message, number: int) -> None:
    frame = encode(message, number=number)
    assert len(frame) <= FRAME_BYTES_MAX
    assert decode(frame) == (message, number)


def test_frames_of_this_version_stay_readable() -> None:
    golden = {
        "0193020020": None,
        "01930200c420" + bytes(range(32)).hex(): (control.Subscribe(DEPLOYMENT), 0),
        "0197050c099303" + "01ccc8" + "90" + "91ce00011170" + "02": (EXAMPLES[4], 12),
        "01920805": (control.Ping(), 5),
    }
    for text, expected in golden.items():
        frame = bytes.fromhex(text)
        if expected is None:
            assert refusal(frame) == "fields"
        else:
            assert decode(frame) == expected
            assert encode(expected[0], number=expected[1]) == frame


def test_a_delta_of_one_chunk_is_small() -> None:
    fields = encode_fields(control.Delta(40_000, (29_000,), (), (), 3))
    assert len(join(control.Delta, fields, number=1000)) <= 16


def test_fields_packed_once_serve_every_receiver() -> None:
    fields = encode_fields(control.Delta(3, gaps((1, 5)), (), (), 0))
    for number in NUMBERS:
        assert decode(join(control.Delta, fields, number=number)) == (control.Delta(3, (1, 4), (), (), 0), number)


@given(st.sets(st.integers(0, control.CHUNKS_MAX - 1), max_size=control.DELTA_ITEMS_MAX))
def test_gaps_are_undone_by_indexes(chunks: set[int]) -> None:
    ascending = tuple(sorted(chunks))
    assert indexes(gaps(ascending), chunk_count=control.CHUNKS_MAX) == ascending


def test_an_index_past_the_model_is_refused() -> None:
    assert indexes((5, 4), chunk_count=10) == (5, 9)
    with pytest.raises(FrameError, match="chunk 10"):
        indexes((5, 5), chunk_count=10)
    with pytest.raises(FrameError):
        indexes((2**53 - 1, 2**53 - 1), chunk_count=10)


def test_unknown_messages_are_ignored_and_unknown_versions_refused() -> None:
    assert decode(pack(99, 0, "from the future", [1])) is None
    assert refusal(b"\x02" + pack(8, 0)[1:]) == "version"
    assert refusal(b"") == "version"


def test_unknown_fields_at_the_end_are_ignored() -> None:
    assert decode(pack(8, 3, "new", [1, 2], b"x")) == (control.Ping(), 3)
    assert decode(pack(2, 0, DEPLOYMENT, 17)) == (control.Subscribe(DEPLOYMENT), 0)


def test_fields_that_an_older_node_does_not_send_have_defaults() -> None:
    assert decode(pack(16, 1, "E_BUSY")) == (control.Refused("E_BUSY", ""), 1)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b"\x01", "msgpack"),
        (b"\x01\xc1", "msgpack"),
        (pack(8, 0) + b"\x00", "msgpack"),
        (pack(8, 0)[:-1], "msgpack"),
        (b"\x01" + b"\x91" * 2000, "msgpack"),
        (b"\x01\xdd\xff\xff\xff\xff", "msgpack"),
        (b"\x01\x93\x02\x00\xc6\xff\xff\xff\xff", "msgpack"),
        (b"\x01\x93\x08\x00\xd4\x01\x00", "msgpack"),
        (pack(8, 0, {"a": 1}), "msgpack"),
        (b"\x01\x93\x08\x00\xa1\xff", "msgpack"),
        (pack(1, 0, [0] * 257), "msgpack"),
        (pack(), "head"),
        (pack(8), "head"),
        (pack("8", 0), "head"),
        (pack(8, -1), "head"),
        (pack(8, 2**53), "head"),
        (pack(8, 1.0), "head"),
        (pack(True, 0), "head"),
        (b"\x01\x05", "head"),
        (pack(2, 0), "fields"),
        (pack(2, 0, b"short"), "fields"),
        (pack(2, 0, "A" * 44), "fields"),
        (pack(4, 0, DEPLOYMENT, 1, 1_000_001, b"", 0), "fields"),
        (pack(4, 0, DEPLOYMENT, 1, -1, b"", 0), "fields"),
        (pack(4, 0, DEPLOYMENT, 1, float("nan"), b"", 0), "fields"),
        (pack(4, 0, DEPLOYMENT, 1, 1.5, b"", 0), "fields"),
        (pack(4, 0, DEPLOYMENT, 1, None, b"", 0), "fields"),
        (pack(5, 0, 1, [2**53], [], [], 0), "fields"),
        (pack(5, 0, 1, [[[[[[[[[1]]]]]]]]], [], [], 0), "fields"),
        (pack(14, 0, b""), "fields"),
        (pack(14, 0, b"x" * 513), "fields"),
        (pack(1, 0, "x" * 65), "fields"),
        (b"\x01" + bytes(FRAME_BYTES_MAX), "oversize"),
    ],
)
def test_hostile_frames_are_refused_by_kind(frame: bytes, kind: str) -> None:
    assert refusal(frame) == kind


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(tail: bytes) -> None:
    with suppress(FrameError):
        decode(b"\x01" + tail)


def test_changed_real_frames_decode_or_are_refused() -> None:
    rng = Random(7)
    frames = [encode(example, number=5)[:2000] for example in EXAMPLES]
    for _ in range(20_000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        try:
            decode(bytes(frame))
        except FrameError:
            continue


def test_an_error_never_repeats_the_bytes_it_refuses() -> None:
    with pytest.raises(FrameError) as caught:
        decode(pack(7, 0, b"secret-token", 1))
    assert "secret-token" not in str(caught.value)


def test_refusing_nested_headers_costs_little_memory() -> None:
    import tracemalloc

    frame = b"\x01" + b"\xdc\x01\x00" * 2700  # arrays of 256 in arrays of 256, 8 KiB
    tracemalloc.start()
    assert refusal(frame) == "msgpack"
    peak: Any = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
