"""Real storage servers for the tests, each a process or thread of our own on loopback, each with an end.

``nginx`` and ``squid`` are Debian's, started with a configuration in a temporary directory. ``s3`` is moto's server in
a thread: it speaks the S3 API, checks no signatures, and is no speed test. ``FaultServer`` is ours: an HTTP server
that answers ranges properly until it is told to misbehave. All bind to port 0 or to a port found free, and are ended by
the handle that started them.
"""

from __future__ import annotations

import fcntl
import functools
import gzip
import http.client
import logging
import os
import random
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

START_SECONDS_MAX = 120.0  # nginx is up in 0.1 s, moto in 1 s on the development machine
STOP_SECONDS_MAX = 5.0
_PORTS = range(22_000, 32_000)  # neither the demo's, nor those that the kernel gives to outgoing connections
_claimed: set[int] = set()


def free_port() -> int:
    """A port that is free, and that no test's process on this machine is given again while this process lives."""
    while not claim_port(port := random.SystemRandom().choice(_PORTS)):
        pass
    return port


def claim_port(port: int) -> bool:
    """Keep a port for this process; False when it is not free, or was claimed before. The server that is given it binds
    it later: until then a lock on one byte of a file keeps the tests of other processes from it."""
    if port in _claimed or port not in _PORTS:
        return False
    try:
        fcntl.lockf(_claims_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(type=kind) as probe:
                probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    _claimed.add(port)
    return True


@functools.cache
def _claims_file() -> int:
    """Open until the process ends: closing it would end all claims."""
    return os.open(f"/tmp/gossipd-test-ports-{os.geteuid()}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


# ---- faults ------------------------------------------------------------------------------------


class Misbehaviour(Enum):
    """What the fault server can do wrong with one GET."""

    STATUS = "status"  # answer ``status`` with ``headers`` and a small page
    SHORT_BODY = "short body"  # promise the range, send half of it, close
    SHORT_LENGTH = "short length"  # promise and send only half of the range, with a matching Content-Length
    WHOLE = "whole"  # ignore Range: 200 and the whole object
    WRONG_RANGE = "wrong range"  # 206 for a range one byte further on
    LYING_RANGE = "lying range"  # the right Content-Range over bytes from elsewhere
    GZIP = "gzip"  # Content-Encoding: gzip over compressed bytes
    HTML = "html"  # 200 and an error page
    DRIP = "drip"  # ``rate`` bytes a second
    HANG = "hang"  # read the request, answer nothing until the server stops
    HANG_BODY = "hang body"  # headers and one byte, then nothing until the server stops
    RESET = "reset"  # close without an answer
    LONG = "long"  # a Content-Range that holds more than was asked, and that many bytes
    FLIP = "flip"  # one bit of the body is wrong


@dataclass(frozen=True)
class Fault:
    """One misbehaviour and its numbers."""

    kind: Misbehaviour
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    rate: int = 1024


@dataclass(frozen=True)
class Seen:
    """One request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    at_s: float

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


class FaultServer:
    """Serves ``objects`` (path without the leading slash -> bytes) over HTTP/1.1 with ranges and ETag.

    ``faults`` is used up from the left, one for each GET; ``always`` applies when it is empty.
    """

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.etags: dict[str, str] = {}
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.seen: list[Seen] = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._server = _Threading(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def etag(self, path: str) -> str:
        return self.etags.get(path, f'"v1-{len(self.objects[path])}"')

    def next_fault(self) -> Fault | None:
        with self.lock:
            return self.faults.popleft() if self.faults else self.always

    def gets(self) -> list[Seen]:
        with self.lock:
            return [request for request in self.seen if request.method == "GET"]

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(STOP_SECONDS_MAX)


class _Threading(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are the point of many tests."""


def _handler(server: FaultServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_FaultHandler):
        owner = server

    return Handler


class _FaultHandler(BaseHTTPRequestHandler):
    owner: FaultServer
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._note()
        body = self.owner.objects.get(self._path())
        if body is None:
            self._page(404)
            return
        self._head(200, len(body), {"ETag": self.owner.etag(self._path()), "Accept-Ranges": "bytes"})

    def do_GET(self) -> None:
        self._note()
        fault = self.owner.next_fault()
        body = self.owner.objects.get(self._path())
        if fault is not None and fault.kind is Misbehaviour.STATUS:
            self._page(fault.status, fault.headers)
        elif body is None:
            self._page(404)
        else:
            start, stop = self._span(len(body))
            if fault is None:
                self._send(body, start, stop)
            else:
                self._misbehave(fault, body, start, stop)
        self.wfile.flush()

    def _note(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.owner.lock:
            self.owner.seen.append(Seen(self.command, self.path, headers, time.monotonic()))

    def _path(self) -> str:
        return unquote(self.path.split("?")[0].lstrip("/"))

    def _span(self, size: int) -> tuple[int, int]:
        asked = self.headers.get("Range", "")
        if not asked.startswith("bytes="):
            return 0, size
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return int(first), min(size, int(last) + 1 if last else size)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(length)} | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def _page(self, status: int, headers: dict[str, str] | None = None) -> None:
        page = b"<html><body>no</body></html>" if self.command == "GET" else b""
        self._head(status, len(page), {"Content-Type": "text/html"} | (headers or {}))
        self.wfile.write(page)

    def _send(self, body: bytes, start: int, stop: int, **replace: str) -> None:
        self._answer(206 if "Range" in self.headers else 200, body[start:stop], len(body), (start, stop), replace)

    def _answer(self, status: int, data: bytes, size: int, span: tuple[int, int], replace: dict[str, str]) -> None:
        headers = {"ETag": self.owner.etag(self._path()), "Accept-Ranges": "bytes"}
        if status == 206:
            headers["Content-Range"] = f"bytes {span[0]}-{span[1] - 1}/{size}"
        self._head(status, len(data), headers | replace)
        self.wfile.write(data)

    def _misbehave(self, fault: Fault, body: bytes, start: int, stop: int) -> None:
        size, half = len(body), (stop - start) // 2
        match fault.kind:
            case Misbehaviour.SHORT_BODY:
                promise = {"Content-Length": str(stop - start)}
                self._answer(206, body[start : start + half], size, (start, stop), promise)
                self.close_connection = True
            case Misbehaviour.SHORT_LENGTH:
                some = max(1, half)
                self._answer(206, body[start : start + some], size, (start, start + some), {})
            case Misbehaviour.WHOLE:
                self._answer(200, body, size, (0, size), {})
            case Misbehaviour.WRONG_RANGE:
                stop = min(stop + 1, size)
                self._answer(206, body[start + 1 : stop], size, (start + 1, stop), {})
            case Misbehaviour.LYING_RANGE:
                self._answer(206, bytes(reversed(body[start:stop])), size, (start, stop), {})
            case Misbehaviour.GZIP:
                packed = gzip.compress(body[start:stop])
                self._answer(206, packed, size, (start, stop), {"Content-Encoding": "gzip"})
            case Misbehaviour.HTML:
                self._page(200)
            case Misbehaviour.LONG:
                self._answer(206, body[start : stop + 10], size, (start, len(body[: stop + 10])), {})
            case Misbehaviour.FLIP:
                data = bytearray(body[start:stop])
                data[half] ^= 1
                self._answer(206, bytes(data), size, (start, stop), {})
            case _:
                self._stall(fault, body, start, stop)

    def _stall(self, fault: Fault, body: bytes, start: int, stop: int) -> None:
        self.close_connection = True
        if fault.kind is Misbehaviour.RESET:
            return
        if fault.kind is Misbehaviour.HANG:
            self.owner.stopping.wait()
            return
        length = {"Content-Length": str(stop - start)}
        self._answer(206, body[start : start + 1], len(body), (start, stop), length)
        self.wfile.flush()
        at = start + 1
        pause_s = 60.0 if fault.kind is Misbehaviour.HANG_BODY else 0.1
        while at < stop and not self.owner.stopping.wait(pause_s):
            step = max(1, int(fault.rate * pause_s))
            self.wfile.write(body[at : at + step])
            self.wfile.flush()
            at += step


@contextmanager
def fault_server(objects: dict[str, bytes]) -> Iterator[FaultServer]:
    """A fault server for the length of a ``with``."""
    server = FaultServer(objects)
    try:
        yield server
    finally:
        server.stop()


# ---- nginx -------------------------------------------------------------------------------------

_NGINX = """\
daemon off; master_process off; worker_processes 1; pid {base}/nginx.pid; error_log {base}/error.log warn;
events {{ worker_connections 512; }}
http {{
    log_format counted '$request_method $request_uri $status $body_bytes_sent "$http_range" "$http_if_match"';
    access_log {base}/access.log counted;
    sendfile on; tcp_nopush on; keepalive_requests 100000; etag on;
    client_body_temp_path {base}/a; proxy_temp_path {base}/b; fastcgi_temp_path {base}/c; uwsgi_temp_path {base}/d;
    scgi_temp_path {base}/e;
    server {{ listen {address}:{port}; root {root}; {extra} }}
}}
"""


@dataclass(frozen=True)
class Access:
    """One line of nginx's log."""

    method: str
    path: str
    status: int
    body_bytes: int


class Nginx:
    """One nginx process that serves ``root``; its access log is the count of what it sent."""

    def __init__(
        self, root: Path, base: Path, *, address: str = "127.0.0.1", port: int | None = None, extra: str = "",
        command: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """``command`` goes before nginx's own, as ``ip netns exec NAME``: then the port is another network's."""
        self.port = port or free_port()
        self.address = address
        self.root = root
        self._base = base
        base.mkdir(parents=True, exist_ok=True)
        config = base / "nginx.conf"
        config.write_text(_NGINX.format(base=base, root=root, address=address, port=self.port, extra=extra))
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
        self._process = subprocess.Popen(
            [*command, program, "-c", str(config), "-p", str(base)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for_file(base / "nginx.pid", self._process)
        except TimeoutError:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    def accesses(self) -> list[Access]:
        """What was asked so far; nginx writes a line when a request has ended."""
        lines = (self._base / "access.log").read_text().rpartition("\n")[0].splitlines()
        fields = [line.split(" ") for line in lines]
        return [Access(one[0], one[1], int(one[2]), int(one[3])) for one in fields]

    def body_bytes(self) -> int:
        return sum(access.body_bytes for access in self.accesses() if access.method == "GET")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)


@contextmanager
def nginx(root: Path, base: Path, *, extra: str = "") -> Iterator[Nginx]:
    """nginx over ``root`` for the length of a ``with``; ``base`` holds its configuration and logs."""
    server = Nginx(root, base, extra=extra)
    try:
        yield server
    finally:
        server.stop()


# ---- squid -------------------------------------------------------------------------------------

_SQUID = """\
http_port 127.0.0.1:{port}
hosts_file {base}/hosts
pid_filename none
cache_log /dev/null
access_log none
cache deny all
shutdown_lifetime 0 seconds
{auth}
http_access allow all
"""
_SQUID_AUTH = """\
auth_param basic program /usr/lib/squid/basic_ncsa_auth {base}/users
auth_param basic children 1
acl known proxy_auth REQUIRED
http_access deny !known
"""


class Squid:
    """One squid process on loopback. It knows ``names`` as hosts of this machine, which nothing else does. ``users``:
    names and passwords, one of which it asks for. It marks what it forwards in clear with a ``Via`` header.
    """

    def __init__(self, base: Path, *, names: Sequence[str] = (), users: dict[str, str] | None = None) -> None:
        self.port = free_port()
        base.mkdir(parents=True, exist_ok=True)
        base.chmod(0o755)
        (base / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in names))
        for user, password in (users or {}).items():
            (base / "users").write_text(f"{user}:{_apr1(password)}\n")
        auth = _SQUID_AUTH.format(base=base) if users else ""
        (base / "squid.conf").write_text(_SQUID.format(port=self.port, base=base, auth=auth))
        program = shutil.which("squid", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "squid"
        self._process = subprocess.Popen(
            [program, "-N", "-f", str(base / "squid.conf")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for_port(self.port, self._process)
        except TimeoutError:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._process.kill()  # it keeps nothing
        self._process.wait(STOP_SECONDS_MAX)


def _apr1(password: str) -> str:
    found = subprocess.run(["openssl", "passwd", "-apr1", password], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until it accepts connections there. Raises TimeoutError."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError("the server does not start")


@contextmanager
def squid(base: Path, *, names: Sequence[str] = (), users: dict[str, str] | None = None) -> Iterator[Squid]:
    """squid for the length of a ``with``; ``base`` holds its configuration, and its user must be able to read it."""
    server = Squid(base, names=names, users=users)
    try:
        yield server
    finally:
        server.stop()


def _wait_for_file(path: Path, process: subprocess.Popen[bytes]) -> None:
    """nginx writes its pid when it listens."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not path.exists() or not path.read_text().strip():
        if process.poll() is not None:
            raise TimeoutError(f"nginx ended with {process.returncode} before it listened")
        if time.monotonic() > deadline:
            raise TimeoutError("nginx does not start")
        time.sleep(0.01)


# ---- S3 ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class S3Server:
    """A moto server and what a client must have in its environment to use it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing-secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def upload(self, bucket: str, directory: Path, *, prefix: str = "") -> None:
        """Every file under ``directory`` as ``prefix``/its path; makes the bucket."""
        import obstore  # only the tests that use S3 pay for it
        from obstore.store import S3Store

        self.make_bucket(bucket)
        store = S3Store(
            bucket,
            access_key_id="testing",
            secret_access_key="testing-secret",
            region="us-east-1",
            endpoint=self.endpoint,
            client_options={"allow_http": True},
        )
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                obstore.put(store, f"{prefix}{path.relative_to(directory)}", path)

    def make_bucket(self, bucket: str) -> None:
        host = self.endpoint.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=STOP_SECONDS_MAX)
        authorization = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"
        connection.request("PUT", f"/{bucket}", headers={"Authorization": authorization})
        status = connection.getresponse().status
        connection.close()
        assert status == 200, f"bucket {bucket}: {status}"


@contextmanager
def s3() -> Iterator[S3Server]:
    """moto's S3 server for the length of a ``with``."""
    from moto.server import ThreadedMotoServer  # 1 s of imports

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()


@contextmanager
def web_server(
    handler: type[BaseHTTPRequestHandler], *, certificate: tuple[Path, Path] | None = None
) -> Iterator[str]:  # fmt: skip
    """The address of a web server on loopback that answers by ``handler``, without a slash at its end. ``certificate``:
    with its key, for TLS."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
