"""A source's address in parts; those that are refused are in ``test_source_policy``."""

from __future__ import annotations

import pytest

from gossipd.manifest.errors import ManifestError
from gossipd.manifest.source_url import parse_source_url


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://Storage.Example/a%20b/", ("https", "storage.example", 443, "/a b/")),
        ("http://h:8080", ("http", "h", 8080, "")),
        ("http://[2001:DB8:0::1]:80/x", ("http", "2001:db8::1", 80, "/x")),
        ("s3://My.Bucket/p", ("s3", "My.Bucket", 0, "/p")),
        ("file:///srv/m/", ("file", "", 0, "/srv/m/")),
        ("file://localhost/srv", ("file", "", 0, "/srv")),
        ("gs://123/x", ("gs", "123", 0, "/x")),
    ],
)
def test_parts(text: str, parts: tuple[str, str, int, str]) -> None:
    url = parse_source_url(text)
    assert (url.scheme, url.host, url.port, url.path) == parts


@pytest.mark.parametrize(
    "text",
    [
        "", "/srv/m", "x", "https://", "https:///x", "file://host/x", "http://a b/", "http://a/\n", "http://a/%00",
        "http://[::1", "http://-a/", f"http://a/{'x' * 2048}",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_the_field_named(text: str) -> None:
    with pytest.raises(ManifestError, match=r"^sources\[3\] ") as caught:
        parse_source_url(text, "sources[3]")
    assert caught.value.code == "E_SOURCE_FORBIDDEN"


def test_what_is_shown_of_it_leaves_out_path_and_usual_port() -> None:
    assert parse_source_url("https://a/secret").shown == "https://a"
    assert parse_source_url("https://a:8443/secret").shown == "https://a:8443"
    assert parse_source_url("s3://bucket/secret").shown == "s3://bucket"


@pytest.mark.parametrize(
    ("text", "named"), [("http://", "a host"), ("hf://", "ORG/MODEL"), ("s3://", "a bucket"), ("gs:///x", "a bucket")]
)
def test_an_address_without_its_first_part_says_what_is_missing(text: str, named: str) -> None:
    with pytest.raises(ManifestError, match=f"SOURCE must name {named}"):
        parse_source_url(text, "SOURCE")


def test_an_ipv6_address_is_shown_as_an_operator_lists_it() -> None:
    assert parse_source_url("http://[::1]:8000/m").shown == "http://[::1]:8000"
    assert parse_source_url("https://[fd00::1]/m").shown == "https://[fd00::1]"


def test_hadoop_s_form_of_an_azure_address_is_told_where_the_account_belongs() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_source_url("abfss://models@account.dfs.core.windows.net/llama")
    assert "must be abfss://CONTAINER/PREFIX; the account belongs into AZURE_STORAGE_ACCOUNT_NAME" in str(caught.value)
