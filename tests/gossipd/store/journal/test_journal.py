"""The journal's bytes: what is believed of a file that was torn, flipped, foreign or written by a newer gossipd."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.store.errors import StoreFormatError
from gossipd.store.journal.journal import (
    MAGIC,
    Encoder,
    Header,
    RecordType,
    pack_chunks,
    pack_header,
    pack_number,
    replay,
)

ID = DeploymentId(b"\x07" * 32)
HEADER = Header(ID, 20, "org/name", 3, "boot-1")


def _records() -> list[bytes]:
    encoder = Encoder()
    return [
        encoder.encode(RecordType.HEADER, pack_header(HEADER)),
        encoder.encode(RecordType.SNAPSHOT, bytes([0b10000001, 0, 0b1000])),
        encoder.encode(RecordType.WINDOW, pack_number(1)),
        encoder.encode(RecordType.WRITING, pack_chunks([3])),
        encoder.encode(RecordType.WRITING, pack_chunks([4])),
        encoder.encode(RecordType.WRITING, pack_chunks([5])),
        encoder.encode(RecordType.WINDOW, pack_number(2)),
        encoder.encode(RecordType.COMMIT, pack_number(1, [3, 4])),
        encoder.encode(RecordType.WRITING, pack_chunks([6])),
        encoder.encode(RecordType.DROP, pack_chunks([4, 7])),
    ]


def test_what_was_committed_is_held_and_what_was_only_named_is_suspect() -> None:
    found = replay(MAGIC + b"".join(_records()), ID)
    assert found.header == HEADER
    assert set(found.held) == {0, 19, 3}
    assert found.suspects == {5, 6}
    assert found.window_open
    assert found.dropped_bytes == 0


def test_closing_leaves_no_window_open_and_writing_again_opens_it() -> None:
    encoder = Encoder()
    body = MAGIC + encoder.encode(RecordType.HEADER, pack_header(HEADER))
    body += encoder.encode(RecordType.WINDOW, pack_number(1)) + encoder.encode(RecordType.CLOSED)
    assert not replay(body, ID).window_open
    assert replay(body + encoder.encode(RecordType.WRITING, pack_chunks([1])), ID).window_open


def test_a_tail_that_is_cut_anywhere_loses_only_the_record_it_cuts() -> None:
    records = _records()
    body = MAGIC + b"".join(records)
    begins = [len(MAGIC)]
    for record in records:
        begins.append(begins[-1] + len(record))
    for length in range(len(MAGIC), len(body)):
        whole = max(begin for begin in begins if begin <= length)
        found = replay(body[:length], ID)
        assert found.dropped_bytes == length - whole
        assert set(found.held) == set(replay(body[:whole], ID).held)


def test_a_flipped_bit_anywhere_drops_its_record_and_all_after_it() -> None:
    records = _records()
    body = MAGIC + b"".join(records)
    random = Random("flip")
    header_end = len(MAGIC) + len(records[0])
    for at in range(header_end, len(body)):
        flipped = bytearray(body)
        flipped[at] ^= 1 << random.randrange(8)
        found = replay(bytes(flipped), ID)
        assert found.dropped_bytes >= len(body) - at
        assert set(found.held) <= {0, 7, 19, 3, 4}


def test_a_record_is_believed_only_where_it_was_written() -> None:
    records = _records()
    moved = [*records[:3], records[4], records[3], *records[5:]]
    assert replay(MAGIC + b"".join(moved), ID).suspects == set()
    repeated = [*records[:8], records[7]]
    assert replay(MAGIC + b"".join(repeated), ID).dropped_bytes == len(records[7])


@pytest.mark.parametrize("body", [b"", MAGIC[:3], bytes(4096), MAGIC, MAGIC + bytes(100)])
def test_an_empty_or_zeroed_journal_is_lost_not_foreign(body: bytes) -> None:
    found = replay(body, ID)
    assert found.header is None
    assert set(found.held) == set()


def test_a_foreign_file_is_refused() -> None:
    with pytest.raises(StoreFormatError) as caught:
        replay(b"PK\x03\x04 not a journal at all", ID)
    assert caught.value.code == "E_STORE_FORMAT"


def test_the_journal_of_another_deployment_is_refused() -> None:
    with pytest.raises(StoreFormatError, match="belongs to 0707") as caught:
        replay(MAGIC + b"".join(_records()), DeploymentId(b"\x08" * 32))
    assert caught.value.code == "E_STORE_FORMAT"


def test_a_journal_that_does_not_begin_with_its_header_is_refused() -> None:
    with pytest.raises(StoreFormatError, match="does not begin"):
        replay(MAGIC + Encoder().encode(RecordType.CLOSED), ID)


def test_a_newer_format_and_a_newer_record_are_refused_by_version() -> None:
    header = bytearray(pack_header(HEADER))
    header[0] = 2
    with pytest.raises(StoreFormatError) as caught:
        replay(MAGIC + Encoder().encode(RecordType.HEADER, bytes(header)), ID)
    assert caught.value.code == "E_STORE_VERSION"
    encoder = Encoder()
    body = MAGIC + encoder.encode(RecordType.HEADER, pack_header(HEADER))
    with pytest.raises(StoreFormatError) as caught:
        replay(body + encoder.encode(99, b"new"), ID)  # type: ignore[arg-type]
    assert caught.value.code == "E_STORE_VERSION"


def test_thirty_thousand_chunks_are_three_quarters_of_a_megabyte() -> None:
    encoder = Encoder()
    body = bytearray(MAGIC + encoder.encode(RecordType.HEADER, pack_header(Header(ID, 30_000, "m", 1, "b"))))
    for chunk in range(30_000):
        body += encoder.encode(RecordType.WRITING, pack_chunks([chunk]))
    body += encoder.encode(RecordType.COMMIT, pack_number(1, range(30_000)))
    assert len(body) < 800_000
    assert len(replay(bytes(body), ID).held) == 30_000


@pytest.mark.parametrize("kind", [RecordType.WINDOW, RecordType.WRITING, RecordType.COMMIT, RecordType.PUBLISHED])
def test_a_record_with_a_right_check_and_too_few_bytes_is_a_foreign_format(kind: RecordType) -> None:
    encoder = Encoder()
    body = MAGIC + encoder.encode(RecordType.HEADER, pack_header(HEADER)) + encoder.encode(kind, b"\1\2\3")
    with pytest.raises(StoreFormatError) as caught:
        replay(body, ID)
    assert caught.value.code == "E_STORE_FORMAT"


def test_bits_past_the_models_chunks_are_not_even_looked_at() -> None:
    encoder = Encoder()
    body = MAGIC + encoder.encode(RecordType.HEADER, pack_header(HEADER))
    body += encoder.encode(RecordType.SNAPSHOT, b"\xff" * 1_000_000)
    assert set(replay(body, ID).held) == set(range(20))


def test_a_header_that_counts_more_chunks_than_a_manifest_may_have_is_a_foreign_format() -> None:
    header = Header(ID, 1_000_001, "org/name", 3, "boot-1")
    with pytest.raises(StoreFormatError):
        replay(MAGIC + Encoder().encode(RecordType.HEADER, pack_header(header)), ID)
