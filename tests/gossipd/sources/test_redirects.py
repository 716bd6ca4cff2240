"""What a person is told where a web source redirects: by the address to which it leads; only its host shows."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from gossipd.sources.redirects import redirect_cure
from tests.gossipd.sources.models import sign
from tests.gossipd.sources.raw import raw_server
from tests.gossipd.sources.test_absurd_answers import BODY
from tests.gossipd.sources.test_reader import Seat


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("https://b.s3.amazonaws.com/x?X-Amz-Algorithm=A&X-Amz-Signature=ab", "signed"),
        ("https://storage.googleapis.com/b/x?X-Goog-Signature=ab", "signed"),
        ("https://a.blob.core.windows.net/c/x?se=2026&sig=ab", "signed"),
        ("https://d1.cloudfront.net/x?Expires=1&Signature=a&Key-Pair-Id=K", "signed"),
        ("https://host/login?next=/x", "sign in"),
        ("https://sso.example.org/start", "sign in"),
        ("https://host/oauth2/authorize", "sign in"),
        ("https://mirror.example.org/blog/signals/x", "final address"),
        ("https://host/authors/x?design=1", "final address"),
    ],
)
def test_the_cure_of_a_redirect_follows_from_where_it_leads(target: str, said: str) -> None:
    assert said in redirect_cure(urlsplit(target))


@pytest.mark.parametrize("host", ["objects.example.org", "localhost:1"], ids=["not listed", "listed"])
def test_a_redirect_names_both_hosts_and_what_helps(host: str) -> None:
    target = f"http://{host}/secret/x?X-Amz-Signature=hidden"
    answer = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
    with raw_server(lambda *_: answer) as url:
        error = str(Seat(sign({"a.bin": BODY}, url)).read(0).errors[-1])
    assert f"{url.removeprefix('http://')} redirects to {host}" in error
    assert "redirects are not followed: it is signed and expires, so name the storage behind it" in error
    assert "hidden" not in error
    assert "secret" not in error


def test_a_redirect_without_an_address_names_the_region_of_the_bucket() -> None:
    document = "<Error><Code>PermanentRedirect</Code><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>"
    for headers, body in (("Content-Type: application/xml", document), ("x-amz-bucket-region: eu-west-1", "")):
        answer = f"HTTP/1.1 301 Moved\r\n{headers}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        with raw_server(lambda *_, answer=answer: answer) as url:
            error = Seat(sign({"a.bin": BODY}, url)).read(0).errors[-1]
        assert error.code == "E_SOURCE_REDIRECT"
        assert "the bucket is in region eu-west-1; name its address there as the source" in str(error)
