"""Which records of progress are new, in a table that is full."""

from __future__ import annotations

from membership.progress_versions import ProgressVersions


def filled() -> ProgressVersions:
    """Full: four of a, three of b, one of c."""
    versions = ProgressVersions(limit=8, share=4)
    for writer, count in ((b"a", 4), (b"b", 3), (b"c", 1)):
        for number in range(count):
            versions.note(writer + b"%d" % number, 1, writer)
    return versions


def test_a_record_is_known_by_its_newest_version() -> None:
    versions = filled()
    versions.note(b"c0", 7, b"c")
    assert versions.newest(b"c0") == 7
    assert versions.newest(b"d0") == -1
    assert len(versions) == 8


def test_the_oldest_record_of_the_loudest_writer_gives_way() -> None:
    versions = filled()
    versions.note(b"a0", 2, b"a")  # the oldest is a1 now
    versions.note(b"d0", 1, b"d")
    assert b"a1" not in versions
    assert [b"a0" in versions, len(versions), versions.count_of(b"a")] == [True, 8, 3]


def test_a_writer_at_its_share_loses_its_own() -> None:
    versions = filled()
    versions.note(b"a9", 1, b"a")
    assert b"a0" not in versions
    assert [versions.count_of(writer) for writer in (b"a", b"b", b"c")] == [4, 3, 1]


def test_a_writer_that_is_forgotten_leaves_room() -> None:
    versions = filled()
    assert list(versions.forget(b"a")) == [b"a0", b"a1", b"a2", b"a3"]
    assert not list(versions.forget(b"a"))
    assert [len(versions), versions.count_of(b"a")] == [4, 0]
    for number in range(4):
        versions.note(b"d%d" % number, 1, b"d")
    assert len(versions) == 8
