"""The web server without a browser: who is answered, with what headers, and within which bounds."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gossipd.core.errors import UsageError
from gossipd.web.forwarding import Forwarder
from gossipd.web.server import PageAddressError, PageServer, Protection, load_protection, parse_address
from tests.gossipd.web.unix_daemon import UnixDaemon, page_server, status_of, unix_daemon

TOKEN = "a-token-of-thirty-characters-x"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[UnixDaemon]:
    answers = {"/v1/status": status_of(20, 2), "/v1/peers": {"peers": {}}}
    with unix_daemon(tmp_path / "s", answers) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, daemon: UnixDaemon) -> Iterator[PageServer]:
    with page_server(tmp_path / "s") as made:
        yield made


def ask(
    server: PageServer, path: str, *, method: str = "GET", context: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    port = int(server.server_address[1])
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=120, context=context)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def raw(server: PageServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", int(server.server_address[1])), 10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_question_is_answered_with_the_daemons_answer(server: PageServer, daemon: UnixDaemon) -> None:
    status, headers, body = ask(server, "/v1/status")
    assert (status, json.loads(body)) == (200, daemon.answers["/v1/status"])
    assert headers["Content-Type"] == "application/json"


def test_answers_are_compressed_for_who_takes_that(server: PageServer) -> None:
    _, headers, body = ask(server, "/v1/status", Accept_Encoding="gzip, br")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == ask(server, "/v1/status")[2]


@pytest.mark.parametrize("path", ["/", "/main.js", "/v1/status", "/nothing"])
def test_every_answer_has_the_headers_that_keep_others_out(server: PageServer, path: str) -> None:
    _, headers, _ = ask(server, path)
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Set-Cookie" not in headers
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "get"])
def test_other_methods_are_refused(server: PageServer, daemon: UnixDaemon, method: str) -> None:
    status, headers, _ = ask(server, "/v1/status", method=method)
    assert status == 405
    assert headers["X-Frame-Options"] == "DENY"
    assert not daemon.asked


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py", "/static/main.js", "/%2e%2e/server.py", "/..%2f..%2fetc/passwd", "//etc/passwd", "/main.js/",
        "/v1/cancel", "/v1/status/../rm", "/metrics", "/index.html", "http://127.0.0.1/v1/status",
    ],
)  # fmt: skip
def test_a_path_outside_the_table_is_refused(server: PageServer, daemon: UnixDaemon, path: str) -> None:
    assert ask(server, path)[0] == 404
    assert not daemon.asked


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7980", "127.0.0.1.evil.example", "0.0.0.0", "", "[::"])
def test_a_foreign_host_header_is_refused(server: PageServer, daemon: UnixDaemon, host: str) -> None:
    for path in ("/", "/v1/status"):
        assert ask(server, path, Host=host)[0] == 421
    assert not daemon.asked


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:7980"])
def test_loopback_by_any_of_its_names_and_ports_is_answered(server: PageServer, host: str) -> None:
    assert ask(server, "/v1/status", Host=host)[0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /v1/status HTTP/1.1\r\n\r\n", b"GET /v1/status\r\n\r\n", b"nonsense\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_asks_nothing(
    server: PageServer, daemon: UnixDaemon, request_: bytes
) -> None:
    assert b" 200 " not in raw(server, request_).partition(b"\r\n")[0]
    assert not daemon.asked


def is_cut(connection: socket.socket, patience_s: float) -> bool:
    """Whether the other side ends a connection on which a header never ends."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            connection.sendall(b"a")
            if connection.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_a_connection_that_dribbles_is_cut_and_frees_its_place(tmp_path: Path, daemon: UnixDaemon) -> None:
    with page_server(tmp_path / "s", connections_max=1, deadline_s=0.3) as server:
        with socket.create_connection(("127.0.0.1", int(server.server_address[1])), 0.1) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\n")
            assert is_cut(slow, 60.0), "a byte now and then must not hold the place"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                assert ask(server, "/")[0] == 200
                break
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
        else:
            pytest.fail("its place was not freed")


def test_connections_above_the_bound_are_closed(tmp_path: Path, daemon: UnixDaemon) -> None:
    with (
        page_server(tmp_path / "s", connections_max=1) as server,
        socket.create_connection(("127.0.0.1", int(server.server_address[1])), 10),
        pytest.raises((OSError, http.client.HTTPException)),
    ):
        ask(server, "/")  # accepted in order, so the place is taken


def test_a_token_is_asked_of_questions_and_not_of_files(tmp_path: Path, daemon: UnixDaemon) -> None:
    with page_server(tmp_path / "s", Protection(token=TOKEN)) as server:
        assert ask(server, "/")[0] == 200
        for wrong in ("", f"Bearer {TOKEN}x", "Bearer ", "Bearer \xe9"):
            assert ask(server, "/v1/status", Authorization=wrong)[0] == 401
        assert not daemon.asked
        assert ask(server, "/v1/status", Authorization=f"Bearer {TOKEN}")[0] == 200


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    certificate = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    (directory / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return directory / "cert.pem", directory / "key.pem"


def token_file(directory: Path, text: str = TOKEN, mode: int = 0o600) -> Path:
    path = directory / "token"
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


def test_tls_answers_to_the_names_of_its_certificate_only(tmp_path: Path, daemon: UnixDaemon) -> None:
    cert, key = make_certificate(tmp_path, "gpu-1.example")
    given: dict[str, Any] = {"tls_cert": cert, "tls_key": key, "token_file": token_file(tmp_path)}
    protection = load_protection(("0.0.0.0", 0), **given)
    context = ssl.create_default_context(cafile=str(cert))
    with page_server(tmp_path / "s", protection) as server:
        bearer = f"Bearer {TOKEN}"
        assert server.url.startswith("https://")
        assert ask(server, "/v1/status", context=context, Authorization=bearer)[0] == 200
        assert ask(server, "/", context=context, Host="gpu-1.example:8000")[0] == 200
        assert ask(server, "/", context=context, Host="localhost")[0] == 421
        assert raw(server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")[:5] != b"HTTP/", "no TLS, no answer"
        assert ask(server, "/", context=context)[0] == 200


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.1", "::", "fe80::1", "192.0.2.1"])
@pytest.mark.parametrize("lacking", ["tls_cert", "tls_key", "token_file", "all"])
def test_another_address_than_loopback_needs_certificate_key_and_token(
    tmp_path: Path, address: str, lacking: str
) -> None:
    given: dict[str, Any] = {"tls_cert": tmp_path / "c", "tls_key": tmp_path / "k", "token_file": tmp_path / "t"}
    given = {name: None if lacking in (name, "all") else path for name, path in given.items()}
    with pytest.raises(UsageError, match="give --tls-cert, --tls-key and --token-file"):
        load_protection((address, 7980), **given)


def test_a_token_that_others_may_read_or_that_is_short_is_refused(tmp_path: Path) -> None:
    nothing: dict[str, Any] = {"tls_cert": None, "tls_key": None}
    for file in (token_file(tmp_path, mode=0o644), token_file(tmp_path, "short"), tmp_path / "none"):
        with pytest.raises(UsageError, match="--token-file"):
            load_protection(("127.0.0.1", 0), token_file=file, **nothing)
    assert load_protection(("127.0.0.1", 0), token_file=token_file(tmp_path), **nothing).token == TOKEN


def test_addresses_are_read_strictly() -> None:
    assert parse_address("[::1]:80") == ("::1", 80)
    assert parse_address("localhost:7980") == ("127.0.0.1", 7980)
    for wrong in ("7980", "127.0.0.1", "127.0.0.1:", "example.com:80", "127.0.0.1:99999", "127.0.0.1:x"):
        with pytest.raises(ValueError):
            parse_address(wrong)


def test_an_address_that_is_taken_is_named(server: PageServer, tmp_path: Path) -> None:
    address = ("127.0.0.1", int(server.server_address[1]))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PageAddressError, match="--listen"):
            PageServer(("127.0.0.1", other.getsockname()[1]), Forwarder(tmp_path / "s"), Protection())
    with pytest.raises(PageAddressError, match=str(address[1])):
        PageServer(address, Forwarder(tmp_path / "s"), Protection())
