"""The rule for proxies, by values: which variable counts, and what NO_PROXY takes out."""

from __future__ import annotations

import base64

import pytest

from gossipd.sources.proxies import Proxy, ProxyError, client_options, proxy_for

HTTP, HTTPS, ALL = Proxy("plain", 80), Proxy("tls", 3128), Proxy("every", 81)


@pytest.mark.parametrize(
    ("scheme", "environment", "wanted"),
    [
        ("http", {}, None),
        ("http", {"http_proxy": "http://plain"}, HTTP),
        ("http", {"HTTP_PROXY": "http://plain:80/"}, HTTP),
        ("http", {"HTTP_PROXY": "plain"}, HTTP),
        ("http", {"HTTPS_PROXY": "http://tls:3128"}, None),
        ("https", {"HTTPS_PROXY": "http://tls:3128"}, HTTPS),
        ("https", {"https_proxy": "tls:3128", "HTTPS_PROXY": "http://other"}, HTTPS),
        ("https", {"HTTP_PROXY": "http://plain"}, None),
        ("http", {"ALL_PROXY": "http://every:81"}, ALL),
        ("https", {"all_proxy": "http://every:81", "ALL_PROXY": "http://other"}, ALL),
        ("https", {"ALL_PROXY": "http://every:81", "HTTPS_PROXY": "http://tls:3128"}, HTTPS),
        ("http", {"http_proxy": "", "HTTP_PROXY": "http://plain"}, HTTP),
        ("http", {"http_proxy": "", "ALL_PROXY": "http://every:81"}, ALL),
        ("s3", {"ALL_PROXY": "http://every:81"}, None),
        ("http", {"http_proxy": "http://[fd00::1]:81"}, Proxy("fd00::1", 81)),
    ],
)
def test_the_variable_of_the_scheme_comes_before_all_proxy(
    scheme: str, environment: dict[str, str], wanted: Proxy | None
) -> None:
    assert proxy_for(scheme, "host.example.org", 80, environment) == wanted


@pytest.mark.parametrize(
    ("excluded", "host", "port", "is_direct"),
    [
        ("*", "any.host", 80, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "a.b.example.org", 443, True),
        ("example.org", "badexample.org", 80, False),
        ("example.org", "example.org.bad", 80, False),
        (".example.org", "a.example.org", 80, True),
        (".example.org", "example.org", 80, True),
        ("*.example.org", "a.example.org", 80, True),
        ("EXAMPLE.org", "Example.ORG.", 80, True),
        ("example.org:8080", "example.org", 8080, True),
        ("example.org:8080", "example.org", 80, False),
        ("one, example.org ,two", "example.org", 80, True),
        ("one example.org", "example.org", 80, True),
        ("10.0.0.0/8", "10.200.3.4", 80, True),
        ("10.0.0.0/8", "11.0.0.1", 80, False),
        ("10.0.0.7/8", "10.1.1.1", 80, True),
        ("10.0.0.0/8:8080", "10.1.1.1", 8080, True),
        ("10.0.0.0/8:8080", "10.1.1.1", 80, False),
        ("10.0.0.7", "10.0.0.7", 80, True),
        ("10.0.0.7", "10.0.0.70", 80, False),
        ("0.0.7", "10.0.0.7", 80, False),
        ("10.0.0.0/8", "ten.example.org", 80, False),
        ("fd00::/8", "fd12::1", 443, True),
        ("::1", "[::1]", 443, True),
        ("[::1]:443", "::1", 443, True),
        ("[::1]:443", "::1", 80, False),
        ("[fd00::]/8", "fd12::1", 443, True),
        ("[fd00::]/8:443", "fd12::1", 443, True),
        ("[fd00::]/8:443", "fd12::1", 80, False),
        ("*:443", "any.host", 443, True),
        ("*:443", "any.host", 80, False),
        ("*:443", "10.0.0.1", 443, True),
        ("10.0.0.0/8", "::ffff:10.1.1.1", 80, True),
        ("fd00::/8", "10.0.0.1", 80, False),
        ("10.*", "10.1.2.3", 80, True),
        ("10.*", "100.1.2.3", 80, False),
        ("192.168.*", "192.168.0.1", 80, True),
        ("192.168.*.*", "192.168.0.1", 80, True),
        ("10.", "10.1.2.3", 80, True),
        ("10.*:8080", "10.1.2.3", 8080, True),
        ("10.*:8080", "10.1.2.3", 80, False),
        ("10.*", "10.example.org", 80, False),
        ("10.*", "fd00::1", 80, False),
        ("http://example.org:8080/", "example.org", 8080, True),
        ("http://example.org", "a.example.org", 80, True),
        ("one;example.org;two", "example.org", 80, True),
        ("<local>", "storage", 80, True),
        ("<local>", "127.0.0.1", 80, True),
        ("<local>", "::1", 80, True),
        ("<local>", "a.b", 80, False),
        ("<local>", "fd00::1", 80, False),
        ("", "example.org", 80, False),
        (". , .. , /8 , :80", "example.org", 80, False),
    ],
)
def test_no_proxy_takes_out_names_addresses_networks_and_ports(
    excluded: str, host: str, port: int, is_direct: bool
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        found = proxy_for("http", host, port, {"http_proxy": "http://plain", name: excluded})
        assert (found is None) == is_direct


def test_credentials_of_a_proxy_become_a_header_and_are_never_shown() -> None:
    proxy = proxy_for("http", "host", 80, {"HTTP_PROXY": "http://us%40er:p%3Aw@plain"})
    assert proxy is not None
    assert base64.b64decode(proxy.authorization.removeprefix("Basic ")) == b"us@er:p:w"
    assert proxy.authorization not in repr(proxy)
    assert "p:w" not in repr(proxy)
    assert proxy.url == "http://us%40er:p%3Aw@plain:80"


METADATA = client_options("s3", "b", {"ALL_PROXY": "http://every:81"})["proxy_excludes"]
DIRECT = {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": "*,0.0.0.0/0,::/0"}
PROXIED = {"proxy_url": "http://every:81", "proxy_excludes": METADATA}


@pytest.mark.parametrize(
    ("scheme", "environment", "wanted"),
    [
        ("s3", {}, {}),
        ("s3", {"ALL_PROXY": "every:81"}, PROXIED),
        ("s3a", {"ALL_PROXY": "every:81"}, PROXIED),
        ("abfs", {"ALL_PROXY": "every:81", "NO_PROXY": "bucket.blob.core.windows.net"}, DIRECT),
        ("s3", {"HTTP_PROXY": "every:81"}, DIRECT),
        ("s3", {"HTTP_PROXY": "every:81", "AWS_ENDPOINT": "http://store:9000"}, PROXIED),
        ("s3", {"ALL_PROXY": "every:81", "AWS_ENDPOINT": "http://10.1.1.1:9000", "NO_PROXY": "10.0.0.0/8"}, DIRECT),
        ("s3", {"ALL_PROXY": "every:81", "NO_PROXY": ".amazonaws.com"}, DIRECT),
        ("s3", {"ALL_PROXY": "every:81", "AWS_REGION": "eu-1", "NO_PROXY": "s3.eu-1.amazonaws.com"}, DIRECT),
        ("gs", {"https_proxy": "every:81"}, PROXIED),
        ("gs", {"https_proxy": "every:81", "no_proxy": "googleapis.com"}, DIRECT),
        ("az", {"https_proxy": "every:81", "AZURE_STORAGE_ACCOUNT_NAME": "us", "no_proxy": "us.blob.core.windows.net"},
         DIRECT),
    ],
)  # fmt: skip
def test_clients_of_object_stores_are_told_the_same_rule(
    scheme: str, environment: dict[str, str], wanted: dict[str, str]
) -> None:
    assert client_options(scheme, "bucket", environment) == wanted


def test_the_endpoint_and_region_of_a_profile_count_where_the_environment_names_none() -> None:
    proxied = {"ALL_PROXY": "every:81", "NO_PROXY": "10.0.0.0/8 s3.eu-1.amazonaws.com"}
    assert client_options("s3", "b", proxied, {"endpoint": "http://10.1.1.1:9000"}) == DIRECT
    assert client_options("s3", "b", proxied, {"region": "eu-1"}) == DIRECT
    assert client_options("s3", "b", proxied | {"AWS_REGION": "us-2"}, {"region": "eu-1"}) == PROXIED
    assert client_options("s3", "b", {"HTTPS_PROXY": "every:81"}, {"endpoint": "http://store:9000"}) == DIRECT


def test_machine_credentials_are_never_asked_for_through_a_proxy() -> None:
    assert {"169.254.169.254", "metadata.google.internal"} <= set(METADATA.split(","))


@pytest.mark.parametrize("value", ["socks5://host:1080", "https://host", "http://", "http://host:port", "http://h\nx"])
def test_a_value_that_is_no_proxy_is_refused_without_quoting_it(value: str) -> None:
    with pytest.raises(ProxyError) as caught:
        proxy_for("http", "host", 80, {"ALL_PROXY": value})
    assert str(caught.value).startswith("ALL_PROXY ")
    assert "host:" not in str(caught.value)
