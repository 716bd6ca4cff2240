"""Which storage may be read: the corpus of addresses that reach where they should not, and the setting's syntax."""

from __future__ import annotations

import pytest

from gossipd.manifest.errors import ManifestError
from gossipd.manifest.source_policy import SourcePolicy, SourceRuleError

OPEN = SourcePolicy.parse(["http", "https", "s3"])

# URL, and what its host resolved to. Every one is refused although its scheme is allowed for all hosts.
REFUSED = [
    ("http://127.0.0.1/", []),
    ("http://127.1/", []),
    ("http://2130706433/", []),
    ("http://0x7f000001/", []),
    ("http://0x7f.0.0.1/", []),
    ("http://0177.0.0.1/", []),
    ("http://0.0.0.0/", []),
    ("http://169.254.169.254/latest/meta-data/", []),
    ("http://169.254.169.254:8080/", []),
    ("http://[::1]/", []),
    ("http://[::]/", []),
    ("http://[::ffff:127.0.0.1]/", []),
    ("http://[::ffff:a9fe:a9fe]/", []),
    ("http://[::7f00:1]/", []),
    ("http://[64:ff9b::a9fe:a9fe]/", []),
    ("http://[2002:7f00:1::]/", []),
    ("http://[fe80::1]/", []),
    ("http://[fe80::1%25eth0]/", []),
    ("http://[fd00:ec2::254]/", []),
    ("http://100.100.100.200/", []),
    ("http://168.63.129.16/", []),
    ("http://224.0.0.1/", []),
    ("http://255.255.255.255/", []),
    ("http://localhost/", ["127.0.0.1"]),
    ("http://localhost./", []),
    ("http://metadata.google.internal/", ["169.254.169.254"]),
    ("http://rebound.example/", ["93.184.216.34", "127.0.0.1"]),
    ("http://rebound.example/", ["::ffff:10.0.0.1", "fe80::1%eth0"]),
    ("http://user@storage.example/", []),
    ("http://storage.example@127.0.0.1/", []),
    ("http://storage.example\\@127.0.0.1/", []),
    ("http://127.0.0.1#@storage.example/", []),
    ("http://storage.example/x?y", []),
    ("http://%31%32%37.0.0.1/", []),
    ("http://１２７.0.0.1/", []),
    ("http:///etc/passwd", []),
    ("http:storage.example/", []),
    ("http://storage.example:99999/", []),
    ("file:///etc/passwd", []),
    ("gopher://storage.example/", []),
    ("ftp://storage.example/", []),
]


@pytest.mark.parametrize(("url", "addresses"), REFUSED)
def test_no_address_leads_to_this_host_or_to_credentials(url: str, addresses: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        OPEN.check_addresses(OPEN.check(url), addresses)
    assert caught.value.code == "E_SOURCE_FORBIDDEN"
    assert caught.value.sentence.isascii()


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("https://storage.example/models/", ["93.184.216.34", "2606:2800:220:1::1"]),
        ("http://storage.internal:9000/m/", ["10.1.2.3"]),
        ("http://192.168.1.5/", ["192.168.1.5"]),
        ("http://100.64.0.1/", []),
        ("http://[2001:db8::1]:8080/m/", []),
        ("http://[fd12:3456::1]/", []),
        ("http://[64:ff9b::5db8:d822]/", []),
        ("s3://bucket/prefix/", []),
    ],
)
def test_storage_in_the_data_centre_and_outside_is_read(url: str, addresses: list[str]) -> None:
    OPEN.check_addresses(OPEN.check(url), addresses)


CASES = [
    ("https", "https://a/", True),
    ("https", "http://a/", False),
    ("https://a.example", "https://a.example/m/", True),
    ("https://a.example", "https://A.EXAMPLE/m/", True),
    ("https://a.example", "https://b.a.example/", False),
    ("https://a.example", "https://a.example.evil/", False),
    ("https://a.example", "https://a.example:8443/", False),
    ("https://a.example:*", "https://a.example:8443/", True),
    ("https://a.example:8443", "https://a.example/", False),
    ("https://*.example.org", "https://x.y.example.org/", True),
    ("https://*.example.org", "https://example.org/", False),
    ("https://*.example.org", "https://evilexample.org/", False),
    ("https://*.example.org:*/m", "https://x.example.org:1/m/n", True),
    ("https://a/models", "https://a/models/x/", True),
    ("https://a/models", "https://a/models", True),
    ("https://a/models", "https://a/models-secret/", False),
    ("https://a/models", "https://a/%6dodels/x", True),
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000/m/", True),
    ("http://127.0.0.1:8000", "http://127.0.0.1:8001/", False),
    ("http://127.0.0.1:*", "http://127.0.0.1:8001/", True),
    ("http://[::1]:8000", "http://[0:0::1]:8000/", True),
    ("s3://bucket", "s3://bucket/m/", True),
    ("s3://bucket", "s3://bucket2/m/", False),
    ("s3://bucket/public", "s3://bucket/private/", False),
    ("s3://Bucket", "s3://bucket/", False),
    ("file:///srv/models", "file:///srv/models/m/", True),
    ("file:///srv/models", "file:///srv/models-old/", False),
    ("file:///srv/models", "file:///srv/models/../secrets/", False),
    ("file:///srv/models", "file:///srv/models/%2e%2e/secrets/", False),
    ("file:///", "file:///anything", True),
]


@pytest.mark.parametrize(("entry", "url", "allowed"), CASES)
def test_an_entry_covers_what_it_says_and_no_more(entry: str, url: str, allowed: bool) -> None:
    policy = SourcePolicy.parse([entry])
    if allowed:
        assert policy.check(url).text == url
    else:
        with pytest.raises(ManifestError):
            policy.check(url)


def test_a_local_address_is_read_only_where_an_entry_names_it() -> None:
    listed = SourcePolicy.parse(["http", "http://127.0.0.1:8000"])
    listed.check("http://127.0.0.1:8000/")
    for elsewhere in ("http://127.0.0.2:8000/", "http://127.0.0.1:9000/"):
        with pytest.raises(ManifestError):
            listed.check(elsewhere)
    listed.check_addresses(listed.check("http://storage.lan:8000/"), ["127.0.0.1"])
    with pytest.raises(ManifestError):
        listed.check_addresses(listed.check("http://storage.lan/"), ["127.0.0.1"])


def test_localhost_may_be_listed_by_its_name_and_then_only_that_name_is_local() -> None:
    listed = SourcePolicy.parse(["http://localhost:8000", "http://other:8000"])
    listed.check_addresses(listed.check("http://localhost:8000/"), ["127.0.0.1", "::1"])
    with pytest.raises(ManifestError):
        listed.check_addresses(listed.check("http://other:8000/"), ["127.0.0.1"])
    with pytest.raises(ManifestError):
        listed.check_addresses(listed.check("http://localhost:8000/"), ["169.254.169.254"])


def test_a_named_host_at_a_local_address_needs_the_address_listed_too() -> None:
    named = SourcePolicy.parse(["http://storage.lan"])
    with pytest.raises(ManifestError, match=r"storage\.lan is at 127\.0\.0\.1"):
        named.check_addresses(named.check("http://storage.lan/"), ["127.0.0.1"])


def test_nothing_is_allowed_by_an_empty_list() -> None:
    with pytest.raises(ManifestError, match=r"not among sources\.allow"):
        SourcePolicy.parse([]).check("https://a/")


def test_a_refusal_shows_the_host_and_not_the_path() -> None:
    with pytest.raises(ManifestError) as caught:
        SourcePolicy.parse([]).check("https://a.example:8443/very/secret/path")
    assert "https://a.example:8443" in caught.value.sentence
    assert "secret" not in caught.value.sentence


def test_every_wrong_entry_is_named_at_once() -> None:
    wrong = ["https", "file", "HTTPS", "https://", "s3://b:*", "https://*.127.0.0.1", "http://u:p@h", "s3://*.b"]
    wrong += ["htpps", "ftp://h"]
    with pytest.raises(SourceRuleError) as caught:
        SourcePolicy.parse(wrong)
    assert caught.value.code == "E_CONFIG"
    for index in range(len(wrong)):
        assert (f"sources.allow[{index}]" in caught.value.sentence) == (index != 0)
    with pytest.raises(SourceRuleError):
        SourcePolicy.parse(["https"] * 257)
