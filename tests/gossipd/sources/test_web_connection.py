"""Connections through a real proxy, and TLS by this host's environment: the reader has one way to every web server."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import BadStatusLine
from pathlib import Path

import pytest

from gossipd.core.errors import GossipdError
from gossipd.sources.web_connection import Incoming, head_of
from tests.gossipd.sources.certificates import issue
from tests.gossipd.sources.models import sign, write_tree
from tests.gossipd.sources.test_reader import ONE_FILE, PATIENT, QUICK, Seat
from tests.servers import FaultServer, Nginx, Squid, fault_server, free_port, squid

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NAME = "models.example"  # which only the proxy knows
pytestmark = pytest.mark.needs("squid")


@pytest.fixture(autouse=True)
def _no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def proxy_directory() -> Iterator[Path]:
    """Readable by squid's own user, as pytest's directories are not."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def proxy(proxy_directory: Path) -> Iterator[Squid]:
    with squid(proxy_directory / "open", names=[NAME]) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(proxy_directory: Path) -> Iterator[Squid]:
    with squid(proxy_directory / "guarded", names=[NAME], users={"us": "se:cret"}) as server:
        yield server


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server(dict(ONE_FILE)) as running:
        yield running


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """nginx with a certificate for a name and an address; its port, and the file of its authority."""
    write_tree(ONE_FILE, tmp_path / "www")
    authority, certificate, key = issue(tmp_path, NAME, "127.0.0.1")
    port = free_port()
    extra = f"listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};"
    server = Nginx(tmp_path / "www", tmp_path / "nginx", extra=extra)
    yield port, authority
    server.stop()


def is_through_proxy(server: FaultServer) -> bool:
    marked = {"via" in seen.headers for seen in server.gets()}
    assert len(marked) == 1, "all requests take one way"
    return marked.pop()


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_every_request_in_clear_goes_through_the_proxy(
    proxy: Squid, server: FaultServer, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, proxy.url)
    url = f"http://{NAME}:{server.port}"
    seat = Seat(sign(ONE_FILE, url), allow=[url])
    for chunk in range(3):
        assert seat.read(chunk).errors == ()
    assert is_through_proxy(server)
    assert {seen.headers["host"] for seen in server.gets()} == {f"{NAME}:{server.port}"}


@pytest.mark.parametrize("excluded", ["127.0.0.0/8", "127.0.0.1", "10.0.0.0/8,127.0.0.1:{port}", "*"])
@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_no_request_to_an_excluded_host_goes_through_the_proxy(
    proxy: Squid, server: FaultServer, monkeypatch: pytest.MonkeyPatch, excluded: str, name: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy.url)
    monkeypatch.setenv(name, excluded.format(port=server.port))
    assert Seat(sign(ONE_FILE, server.url)).read().errors == ()
    assert not is_through_proxy(server)


@pytest.mark.parametrize("excluded", ["127.0.0.1:1", "128.0.0.0/8", "localhost"])
def test_an_exclusion_of_something_else_changes_nothing(
    proxy: Squid, server: FaultServer, monkeypatch: pytest.MonkeyPatch, excluded: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", excluded)
    assert Seat(sign(ONE_FILE, server.url)).read().errors == ()
    assert is_through_proxy(server)


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_tls_goes_through_a_tunnel_and_is_checked_against_the_given_authority(
    proxy: Squid, tls_server: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    port, authority = tls_server
    monkeypatch.setenv(variable, proxy.url)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    url = f"https://{NAME}:{port}"
    assert Seat(sign(ONE_FILE, url), allow=[url]).read().errors == ()


@pytest.mark.needs("nginx")
def test_a_certificate_of_an_unknown_authority_is_told_with_the_variable(
    tls_server: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, authority = tls_server
    url = f"https://127.0.0.1:{port}"
    seat = Seat(sign(ONE_FILE, url), allow=[url])
    error = seat.read(0).errors[-1]
    assert error.code == "E_SOURCE_TLS"
    assert "its TLS certificate is not valid" in str(error)
    assert "name a file with its authority there" in str(error)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert seat.reader.probe(seat.manifest).readable, "a look ends the pause"
    assert seat.read(0).errors == ()


def test_a_proxy_with_a_password_gets_it_and_the_storage_does_not(
    guarded: Squid, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", guarded.url.replace("//", "//us:se%3Acret@"))
    assert Seat(sign(ONE_FILE, server.url)).read().errors == ()
    assert is_through_proxy(server)
    assert not any("proxy-authorization" in seen.headers for seen in server.gets())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_this_host_is_named_as_the_cause(
    guarded: Squid, server: FaultServer, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", guarded.url.replace("//", "//us:wrong@"))
    url = f"{scheme}://127.0.0.1:{server.port}"
    error = Seat(sign(ONE_FILE, url), allow=[url]).read(0).errors[-1]
    assert error.code == "E_SOURCE_PROXY"
    assert "wrong" not in str(error)
    assert server.gets() == []


def test_a_proxy_that_is_not_there_is_named_with_its_variable(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
    error = Seat(sign(ONE_FILE, server.url)).read(0).errors[-1]
    assert error.code == "E_SOURCE_UNREACHABLE"
    assert f"the proxy 127.0.0.1:{port} of HTTP_PROXY: connection refused" in str(error)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("answer", "code"),
    [(None, "E_SOURCE_SLOW"), (b"", "E_SOURCE_UNREACHABLE"), (b"\x05\xff", "E_SOURCE_UNREACHABLE")],
    ids=["hangs", "hangs up", "socks"],
)
def test_a_proxy_that_gives_no_answer_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, scheme: str, answer: bytes | None, code: str
) -> None:
    with answering(answer) as port:
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{port}")
        url = f"{scheme}://models.invalid:8443"
        settings = QUICK if code == "E_SOURCE_SLOW" else PATIENT
        error = Seat(sign(ONE_FILE, url), allow=[url], settings=settings).read(0).errors[-1]
    assert error.code == code
    assert f"the proxy 127.0.0.1:{port} of ALL_PROXY" in str(error)


def test_a_tunnel_that_breaks_at_once_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"HTTP/1.1 200 Connection established\r\n\r\n") as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        error = Seat(sign(ONE_FILE, "https://models.invalid"), allow=["https://models.invalid"]).read(0).errors[-1]
    assert f"TLS could not be set up, through the proxy 127.0.0.1:{port} of HTTPS_PROXY" in str(error)


def said_by(monkeypatch: pytest.MonkeyPatch, answer: bytes, source: str = "http://models.invalid") -> GossipdError:
    with answering(b"HTTP/1.1 " + answer) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        error = Seat(sign(ONE_FILE, source), allow=[source]).read(0).errors[-1]
    assert f"the proxy 127.0.0.1:{port} of HTTP_PROXY" in str(error)
    return error


PAGE = b"Content-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>in</p>"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"200 OK\r\n" + PAGE, "E_SOURCE_PROXY"),
        (b"511 Network Authentication Required\r\n" + PAGE, "E_SOURCE_PROXY"),
        (b"302 Found\r\nLocation: http://portal.invalid/\r\n" + PAGE, "E_SOURCE_REDIRECT"),
        (b"403 Forbidden\r\nX-Squid-Error: ERR_ACCESS_DENIED 0\r\n" + PAGE, "E_SOURCE_PROXY"),
        (b"403 Forbidden\r\n" + PAGE, "E_SOURCE_AUTH"),
        (b"404 Not Found\r\n" + PAGE, "E_SOURCE_NOT_FOUND"),
        (b"502 Bad Gateway\r\n" + PAGE, "E_SOURCE_UNREACHABLE"),
        (b"206 Partial Content\r\nContent-Range: bytes 7-7/9\r\nContent-Length: 1\r\n\r\nx", "E_SOURCE_RANGE"),
    ],
    ids=["page", "511", "redirect", "squid", "403", "404", "502", "range"],
)  # fmt: skip
def test_an_answer_that_may_be_the_proxy_s_own_names_it(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, code: str
) -> None:
    assert said_by(monkeypatch, answer).code == code


def test_a_page_from_a_proxy_in_place_of_an_object_of_s3_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://store.invalid")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    page = PAGE.replace(b"\r\n\r\n", b"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nETag: x\r\n\r\n")
    assert said_by(monkeypatch, b"200 OK\r\n" + page, "s3://bucket").code == "E_SOURCE_PROXY"


def test_a_storage_that_the_proxy_cannot_reach_is_not_called_busy(
    proxy: Squid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    url = f"http://{NAME}:{free_port()}"
    error = Seat(sign(ONE_FILE, url), allow=[url]).read(0).errors[-1]
    assert error.code == "E_SOURCE_UNREACHABLE"
    way = f"it came through the proxy 127.0.0.1:{proxy.port} of HTTP_PROXY"
    assert str(error).endswith(f"the proxy on the way cannot reach it (status 503); {way}")


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A port where each connection gets these bytes and its end; with None, nothing until the end of the test."""
    held: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                held.append(listener.accept()[0])
                if answer is not None:
                    held[-1].recv(4096)
                    held[-1].sendall(answer)
                    held[-1].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
            for sock in held:
                sock.close()


def test_a_proxy_of_an_unknown_kind_is_told_and_nothing_is_read_past_it(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://secret@127.0.0.1:1080")
    error = Seat(sign(ONE_FILE, server.url)).read(0).errors[-1]
    assert error.code == "E_SOURCE_PROXY"
    assert "ALL_PROXY" in str(error)
    assert "secret" not in str(error)
    assert server.gets() == []


def test_a_source_that_is_not_listed_is_not_asked_for_through_a_proxy_either(
    proxy: Squid, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    url = f"http://{NAME}:{server.port}"
    assert Seat(sign(ONE_FILE, url), allow=["http://other.example"]).read(0).errors[-1].code == "E_SOURCE_FORBIDDEN"
    assert server.gets() == []
    assert not os.environ.get("NO_PROXY")


@pytest.mark.parametrize(("excluded", "is_proxied"), [("127.0.0.1:{port}", False), ("127.0.0.1:1", True)])
def test_object_stores_are_read_by_the_same_rule(
    proxy: Squid, server: FaultServer, monkeypatch: pytest.MonkeyPatch, excluded: str, is_proxied: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", excluded.format(port=server.port))
    monkeypatch.setenv("AWS_ENDPOINT", server.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    server.objects["bucket/a.bin"] = ONE_FILE["a.bin"]
    assert Seat(sign(ONE_FILE, "s3://bucket"), allow=["s3"]).read(0).errors == ()
    assert is_through_proxy(server) == is_proxied


@pytest.mark.parametrize("boundary", ["boundary*=x; boundary*0=y", f"boundary*{'1' * 5000}=x"])
def test_a_head_that_no_library_can_read_is_no_http(boundary: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        head = f"HTTP/1.1 200 Yes\r\nContent-Type: multipart/byteranges; {boundary}\r\n\r\n"
        theirs.sendall(head.encode())
        with pytest.raises(BadStatusLine, match="cannot be read"):
            head_of(Incoming(ours, 5.0), "GET")
