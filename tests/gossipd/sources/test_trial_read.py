"""A trial read asks for one byte, under the policy, and takes no other answer for a good one."""

from __future__ import annotations

from pathlib import Path

from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.errors import (
    SourceError,
    SourceForbiddenError,
    SourceLongError,
    SourceNoBucketError,
    SourceNotFoundError,
    SourceTruncatedError,
    SourceWholeOnlyError,
)
from gossipd.sources.settings import SourceSettings
from gossipd.sources.trial_read import TrialReads
from tests.servers import Fault, Misbehaviour, S3Server, fault_server

BODY = bytes(200_000)


def answer(url: str, path: str, object_bytes: int, *allow: str) -> type[SourceError] | None:
    """The error's class; None where the byte came."""
    policy = SourcePolicy.parse(allow or ["http://127.0.0.1:*", "file:///", "s3"])
    try:
        TrialReads(policy, SourceSettings()).read(parse_source_url(url), path, object_bytes)
    except SourceError as error:
        return type(error)
    return None


def test_a_web_server_is_asked_for_one_byte_and_must_have_ranges() -> None:
    with fault_server({"a b.bin": BODY}) as server:
        assert answer(server.url, "a b.bin", len(BODY)) is None
        assert [seen.range for seen in server.gets()] == ["bytes=0-0"]
        assert answer(server.url, "a b.bin", len(BODY) + 1) is SourceTruncatedError
        assert answer(server.url, "none", 1) is SourceNotFoundError
        server.always = Fault(Misbehaviour.WHOLE)
        assert answer(server.url, "a b.bin", len(BODY)) is SourceWholeOnlyError
        asked = len(server.gets())
        assert answer(server.url, "a b.bin", len(BODY), "https") is SourceForbiddenError
        assert len(server.gets()) == asked, "the policy stands before the request"


def test_a_directory_is_read_as_a_seed_reads_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(BODY)
    url = f"file://{tmp_path}"
    assert answer(url, "f", len(BODY)) is None
    assert answer(url, "f", len(BODY) - 1) is SourceLongError
    assert answer(url, "none", 1) is SourceNotFoundError


def test_a_bucket_is_read_with_the_environments_credentials(tmp_path: Path, s3_environment: S3Server) -> None:
    (tmp_path / "f").write_bytes(BODY)
    s3_environment.upload("trial", tmp_path)
    assert answer("s3://trial", "f", len(BODY)) is None
    assert answer("s3://trial", "f", 1) is SourceLongError
    assert answer("s3://trial", "none", 1) is SourceNotFoundError
    assert answer("s3://trial-none", "f", 1) is SourceNoBucketError
