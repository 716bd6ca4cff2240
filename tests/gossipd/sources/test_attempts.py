"""Which mirrors one call of the reader may still ask, for each chunk."""

from __future__ import annotations

from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.attempts import Attempts
from gossipd.sources.errors import SourceHashError
from gossipd.sources.location import Location
from gossipd.sources.range_request import Job
from gossipd.sources.settings import SourceSettings
from gossipd.sources.wrong_bytes import WrongBytes
from tests.gossipd.sources.models import CHUNK_BYTES, sign

MANIFEST = sign({"a.bin": bytes(4 * CHUNK_BYTES)}, "https://one.example/", "https://two.example/")
MIRRORS = [parse_source_url(url) for url in MANIFEST.sources]
ONE, TWO = MIRRORS


def test_a_mirror_is_given_up_for_one_chunk_or_for_all() -> None:
    attempts = Attempts(Job(MANIFEST), MIRRORS, WrongBytes(SourceSettings(), lambda: 0.0))
    attempts.give_up(ONE, 1)
    assert (attempts.usable(0), attempts.usable(1)) == ([ONE, TWO], [TWO])
    assert attempts.alike([0, 1, 2]) == [0]
    attempts.give_up(ONE, None)
    assert attempts.alike([0, 1, 2]) == [0, 1, 2]
    attempts.give_up(TWO, None)
    assert not attempts.are_left


def test_what_is_known_to_be_wrong_at_a_mirror_is_not_asked_for_and_the_error_is_kept() -> None:
    job, wrong = Job(MANIFEST), WrongBytes(SourceSettings(), lambda: 0.0)
    error = SourceHashError("https://one.example/a.bin", "chunk 2 does not hash")
    wrong.came_wrong(MANIFEST.id, Location.of(ONE, "a.bin"), 2, error, version="", is_whole=False)
    attempts = Attempts(job, MIRRORS, wrong)
    assert attempts.alike([1, 2, 3]) == [1]
    assert (attempts.usable(2), job.errors) == ([TWO], [error])
