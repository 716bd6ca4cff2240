"""Heads of the bulk protocol: exact bytes, round trips, and refusal of everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.ids import DeploymentId
from gossipd.wire.transfer import (
    HELLO_BYTES,
    REPLY_BYTES,
    REQUEST_BYTES,
    BulkVerb,
    HeadError,
    HeadVersionError,
    Reply,
    Request,
    Status,
    hello,
    token_of,
)

MODEL = DeploymentId(bytes(range(32)))
REQUEST = Request(BulkVerb.CHUNK, MODEL, 7, 262_144)
REPLY = Reply(Status.BUSY, 7, 262_144, free_slots=3, retry_after_ms=250)

u32 = st.integers(0, 2**32 - 1)
u16 = st.integers(0, 2**16 - 1)


def test_the_bytes_of_version_1_never_change() -> None:
    assert REQUEST.to_wire().hex() == "01010000" + "00000007" + "00040000" + bytes(range(32)).hex()
    assert REPLY.to_wire().hex() == "01010003" + "00000007" + "00040000" + "00fa0000"
    assert hello(b"\xaa" * 32).hex() == "01010000" + "aa" * 32


def test_the_sizes_are_those_of_the_specification() -> None:
    assert (HELLO_BYTES, REQUEST_BYTES, REPLY_BYTES) == (36, 44, 16)


@given(st.sampled_from(BulkVerb), st.binary(min_size=32, max_size=32), u32, u32)
def test_a_request_comes_back_as_it_was(verb: BulkVerb, deployment: bytes, chunk: int, length: int) -> None:
    request = Request(verb, DeploymentId(deployment), chunk, length)
    assert Request.from_wire(request.to_wire()) == request


@given(st.sampled_from(Status), u32, u32, u16, u16)
def test_a_reply_comes_back_as_it_was(status: Status, chunk: int, length: int, free: int, retry: int) -> None:
    reply = Reply(status, chunk, length, free, retry)
    assert Reply.from_wire(reply.to_wire()) == reply


def test_hints_that_do_not_fit_are_sent_as_the_most_that_does() -> None:
    reply = Reply(Status.OK, 0, 0, free_slots=100_000, retry_after_ms=1_000_000)
    assert Reply.from_wire(reply.to_wire()) == Reply(Status.OK, 0, 0, 65535, 65535)


def test_a_token_comes_out_of_a_hello() -> None:
    assert token_of(hello(b"\x0f" * 32)) == b"\x0f" * 32


@pytest.mark.parametrize("parse", [Request.from_wire, Reply.from_wire, token_of])
@given(wire=st.binary(max_size=64))
def test_noise_is_a_head_or_a_typed_error(parse, wire: bytes) -> None:  # type: ignore[no-untyped-def]
    try:
        parse(wire)
    except HeadError as error:
        assert error.code in ("E_DECODE", "E_BULK_VERSION")


@pytest.mark.parametrize(
    ("parse", "wire"),
    [
        (Request.from_wire, REQUEST.to_wire()),
        (Reply.from_wire, REPLY.to_wire()),
        (token_of, hello(bytes(32))),
    ],
)
def test_another_version_length_or_reserved_field_is_refused(parse, wire: bytes) -> None:  # type: ignore[no-untyped-def]
    for version in (0, 2, 255):
        with pytest.raises(HeadVersionError):
            parse(bytes([version]) + wire[1:])
    for wrong in (b"", wire[:-1], wire + b"\x00"):
        with pytest.raises(HeadError):
            parse(wrong)
    reserved = 14 if parse == Reply.from_wire else 2
    with pytest.raises(HeadError):
        parse(wire[:reserved] + b"\x00\x01" + wire[reserved + 2 :])


def test_unknown_verbs_and_statuses_are_refused() -> None:
    for verb in (0, 4, 255):
        with pytest.raises(HeadError):
            Request.from_wire(b"\x01" + bytes([verb]) + REQUEST.to_wire()[2:])
    for status in (12, 255):
        with pytest.raises(HeadError):
            Reply.from_wire(b"\x01" + bytes([status]) + REPLY.to_wire()[2:])
