"""The web server of the page: GET of a fixed table of files, and of questions to one daemon; nothing else.

What lives here: HTTP towards browsers, its limits, and who is answered. What does not: which questions there are
(``forwarding``), the files (``static_files``, ``manual_pages``), the daemon.

What a hostile page in the same browser could try, and what stops it: another name for our address (DNS rebinding), the
check of the ``Host`` header; reading or framing an answer, the headers below; orders, that there are none. Names from
other hosts are text to the page, and its policy lets no script run but its own files. There are no cookies: where a
token is asked for, the page sends it in a header, which no other page can.

Python's own server, with a thread for a connection: the daemon's server is trio's, and would bring its loop for a dozen
requests a second. One request a connection; each has a deadline for all of it; connections above the bound are closed.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from gossipd.core.errors import LocalError, UsageError
from gossipd.web.forwarding import Forwarder, PageAnswer, answer, is_question, refusal
from gossipd.web.manual_pages import manual_page
from gossipd.web.static_files import HTML, static_files

CONNECTIONS_MAX = 64  # ten viewers with six connections each
DEADLINE_S = 15.0  # for a whole request and its answer; the daemon has 5 of it
TOKEN_CHARACTERS_MIN = 20
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_PACK_BYTES_MIN = 1024
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageAddressError(LocalError):
    """The page cannot be served at its address. Fault: the option, or another program. Retry: after the remedy."""

    code = "E_WEB_ADDRESS"


@dataclass(frozen=True, slots=True)
class Protection:
    """What makes an address that others can reach a safe one. ``names``: what browsers may call this server, from its
    certificate; ``token``: what each question must bring."""

    tls: ssl.SSLContext | None = None
    names: frozenset[str] = frozenset()
    token: str | None = None


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` with an IP address, in brackets for IPv6, or localhost. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    if not colon or not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise ValueError(f"{text[:60]!r} is not ADDRESS:PORT")
    return str(ipaddress.ip_address(host)), int(port)


def load_protection(
    address: tuple[str, int], *, tls_cert: Path | None, tls_key: Path | None, token_file: Path | None
) -> Protection:
    """The protection that the options give. Raises UsageError where it is too little for the address."""
    host = ipaddress.ip_address(address[0])
    if not host.is_loopback and None in (tls_cert, tls_key, token_file):
        cure = "give --tls-cert, --tls-key and --token-file, or listen on 127.0.0.1 and come by ssh -L"
        raise UsageError(f"--listen {host}: others could read the page there; {cure}")
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    token = _read_token(token_file) if token_file is not None else None
    if tls_cert is None or tls_key is None:
        return Protection(token=token)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls_cert, tls_key)
        names = _names_of(tls_cert.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"--tls-cert {tls_cert} with --tls-key {tls_key}: {error}") from None
    return Protection(context, names, token)


def _read_token(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise UsageError(f"--token-file {path}: others may read it: chmod 600")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {path}: {error}") from None
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isprintable() or " " in token:
        raise UsageError(f"--token-file {path}: it must hold one word of at least {TOKEN_CHARACTERS_MIN} characters")
    return token


def _names_of(certificate: bytes) -> frozenset[str]:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        raise ValueError("the certificate names no host (subjectAltName)") from None
    names = [str(name).lower() for name in found.value.get_values_for_type(x509.DNSName)]
    return frozenset(names + [str(address) for address in found.value.get_values_for_type(x509.IPAddress)])


class PageServer(ThreadingHTTPServer):
    """Serves until ``shutdown``. ``address`` may have port 0: see ``url``."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(
        self, address: tuple[str, int], forwarder: Forwarder, protection: Protection, *,
        connections_max: int = CONNECTIONS_MAX, deadline_s: float = DEADLINE_S,
    ) -> None:  # fmt: skip
        self.forwarder = forwarder
        self.protection = protection
        self.files = {path: (kind, answer(200, body)) for path, (kind, body) in static_files().items()}
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._connections_max = connections_max
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        try:
            super().__init__(address, _Request)
        except OSError as error:
            shown = f"{address[0]}:{address[1]}"
            raise PageAddressError(f"cannot listen at {shown}: {error.strerror}; give another --listen") from None

    @property
    def url(self) -> str:
        host, port = cast(tuple[str, int], self.server_address[:2])
        scheme = "https" if self.protection.tls is not None else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

    def is_ours(self, host_header: str) -> bool:
        """Whether a browser that names the server so means this one. The port may differ: ``ssh -L`` has its own."""
        with suppress(ValueError):
            return urlsplit(f"//{host_header}").hostname in (self.protection.names or _LOOPBACK_NAMES)
        return False

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        # Not the parent's: it asks the resolver for our name.
        self.server_name, self.server_port = "gossipd", self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted, peer = self.socket.accept()
        accepted.settimeout(self._deadline_s)
        if self.protection.tls is not None:
            # The handshake is the first read's, in the connection's own thread.
            accepted = self.protection.tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        return accepted, peer

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._open) >= self._connections_max:
                return False
            self._open[request] = time.monotonic() + self._deadline_s
            return True

    def service_actions(self) -> None:
        """Called twice a second: cut what is past its deadline."""
        now = time.monotonic()
        with self._lock:
            late = [one for one, deadline in self._open.items() if now > deadline]
        for one in late:
            with suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers go away at any time, and some speak no TLS: nothing that a person must know."""


class _Request(BaseHTTPRequestHandler):
    """One request."""

    server: PageServer
    server_version = "gossipd"
    sys_version = ""

    def do_GET(self) -> None:
        named = self.headers.get_all("Host") or []
        if len(named) != 1 or not self.server.is_ours(named[0]):
            self._refuse(421, "this server is not the one that the Host header names")
        elif (file := self.server.files.get(self.path)) is not None:
            self._send(file[1], file[0])
        elif (read := manual_page(self.path)) is not None:
            self._send(answer(200, read), HTML)
        elif not is_question(self.path):
            self._refuse(404, "there is no such page")
        elif not self._is_let_in():
            self._refuse(401, "the token is missing or wrong")
        else:
            self._send(self.server.forwarder.ask(self.path), "application/json")

    def _is_let_in(self) -> bool:
        token = self.server.protection.token
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return token is None or hmac.compare_digest(given.encode(), token.encode())

    def _refuse(self, status: int, sentence: str) -> None:
        self._send(answer(status, refusal("E_STATUS_REQUEST", sentence)), "application/json")

    def _send(self, what: PageAnswer, content_type: str) -> None:
        accepted = self.headers.get("Accept-Encoding", "")
        packed = len(what.body) >= _PACK_BYTES_MIN and "gzip" in accepted
        body = what.packed if packed else what.body
        self.send_response(what.status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Vary", "Accept-Encoding")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the parent refuses by itself: other methods, and what is no HTTP."""
        self.close_connection = True
        if not hasattr(self, "headers"):
            self.headers = self.MessageClass()
            self.request_version = "HTTP/1.0"
        if code == 501:
            self._refuse(405, "this server answers GET and takes no order")
        else:
            self._refuse(code, "not a request that this server reads")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a page asks each second."""
