"""A small Hugging Face Hub of the tests' own: two servers on loopback that speak what the hub's own client needs.

The hub lists repositories, resolves revisions to commits, gives small files itself, and leads to the second server for
the others: by an address that is signed, expires, and is refused without its signature. ``huggingface_hub`` reads from
it (``tests/gossipd/publish/test_hub_listing.py``), so that it is no fancy of ours.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

SMALL_BYTES = 4096  # larger files are in the storage behind the hub
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass
class Repository:
    """Files of one commit, its branches, and who may see them."""

    files: dict[str, bytes]
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    branches: tuple[str, ...] = ("main", "refs/pr/1")
    token: str | None = None
    is_gated: bool = False
    moved_to: str | None = None


@dataclass
class Asked:
    """One request: to the ``hub`` or to the ``storage`` behind it."""

    server: str
    method: str
    target: str
    authorization: str | None
    is_proxied: bool = False


@dataclass
class SmallHub:
    """``repositories`` by name. ``busy``: answers with 429 that are still to come, to each their Retry-After."""

    repositories: dict[str, Repository]
    lives_s: float = 10.0
    advanced_s: float = 0.0
    busy: list[str] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    storage_status: int = 403
    """What the storage says to a signature that is wrong or has expired."""
    is_storage_broken: bool = False
    storage_host: str = "127.0.0.1"
    hub_port: int = 0
    storage_port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.hub_port}"

    def now_s(self) -> float:
        return time.time() + self.advanced_s

    def sign(self, path: str, until_s: int) -> str:
        return hmac.new(self.secret, f"{path} {until_s}".encode(), "sha256").hexdigest()

    def to(self, server: str) -> list[Asked]:
        with self.lock:
            return [one for one in self.asked if one.server == server]


class _Handler(BaseHTTPRequestHandler, ABC):
    hub: SmallHub
    name = ""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        with self.hub.lock:
            token, is_proxied = self.headers.get("Authorization"), "Via" in self.headers
            self.hub.asked.append(Asked(self.name, self.command, self.path, token, is_proxied))
        self.answer()

    @abstractmethod
    def answer(self) -> None:
        """Say what this server has for ``path``."""

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def give(self, body: bytes, **headers: str) -> None:
        """With ranges."""
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        if found is None:
            self.say(200, body, Accept_Ranges="bytes", **headers)
            return
        start, stop = int(found[1]), min(int(found[2]) + 1, len(body))
        self.say(206, body[start:stop], Content_Range=f"bytes {start}-{stop - 1}/{len(body)}", **headers)


class _HubHandler(_Handler):
    name = "hub"

    def answer(self) -> None:
        with self.hub.lock:
            busy = self.hub.busy.pop(0) if self.hub.busy else None
        if busy is not None:
            self.say(429, b"slow down", **{"RateLimit" if "=" in busy else "Retry_After": busy})
            return
        path = urlsplit(self.path).path
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._info(found[1], unquote(found[2] or "main"))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", path):
            self._tree(found[1], unquote(found[2]))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], unquote(found[2]), unquote(found[3]))
        else:
            self.say(404, b"no such page")

    def _repository(self, name: str, revision: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        authorization = self.headers.get("Authorization")
        if repository is None or (repository.token is not None and authorization != f"Bearer {repository.token}"):
            if repository is not None and repository.is_gated:
                self.say(403, b"gated", X_Error_Code="GatedRepo", X_Error_Message="Access is restricted.")
            else:
                self.say(401, b"not found", X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
            return None
        if repository.moved_to is not None:
            self.say(307, Location=self.path.replace(name, repository.moved_to, 1))
            return None
        if revision not in (*repository.branches, repository.commit):
            self.say(404, b"no revision", X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
            return None
        return repository

    def _info(self, name: str, revision: str) -> None:
        repository = self._repository(name, revision)
        if repository is None:
            return
        siblings = []
        for path, body in repository.files.items():
            sibling: dict[str, object] = {"rfilename": path, "size": len(body), "blobId": _oid(body)}
            if len(body) > SMALL_BYTES:
                sibling["lfs"] = {"sha256": _oid(body), "size": len(body), "pointerSize": 130}
            siblings.append(sibling)
        found = {"id": name, "modelId": name, "sha": repository.commit, "private": False, "siblings": siblings}
        self.say(200, json.dumps(found).encode(), Content_Type="application/json")

    def _tree(self, name: str, revision: str) -> None:
        repository = self._repository(name, revision)
        if repository is not None:
            entries = [
                {"type": "file", "path": path, "size": len(body), "oid": _oid(body)}
                for path, body in repository.files.items()
            ]
            self.say(200, json.dumps(entries).encode(), Content_Type="application/json")

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name, revision)
        if repository is None:
            return
        body = repository.files.get(path)
        if body is None:
            self.say(404, b"no file", X_Error_Code="EntryNotFound", X_Error_Message="Entry not found")
            return
        if len(body) <= SMALL_BYTES:
            self.give(body, ETag=f'"{_oid(body)}"', X_Repo_Commit=repository.commit)
            return
        where = f"/xet/{quote(name)}/{_oid(body)}"
        until_s = int(self.hub.now_s() + self.hub.lives_s)
        signed = f"{where}?Expires={until_s}&Signature={self.hub.sign(where, until_s)}"
        self.say(
            302, b"", Location=f"http://{self.hub.storage_host}:{self.hub.storage_port}{signed}",
            X_Repo_Commit=repository.commit,
            X_Linked_Size=str(len(body)), X_Linked_Etag=f'"{_oid(body)}"', ETag=f'"{_oid(body)}"',
        )  # fmt: skip


class _StorageHandler(_Handler):
    name = "storage"

    def answer(self) -> None:
        parts = urlsplit(self.path)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        until_s = int(given.get("Expires", "0"))
        proper = hmac.compare_digest(given.get("Signature", ""), self.hub.sign(parts.path, until_s))
        if not proper or until_s < self.hub.now_s() or self.hub.is_storage_broken:
            self.say(self.hub.storage_status, b"<Error>Request has expired: " + self.path.encode() + b"</Error>")
            return
        oid = parts.path.rpartition("/")[2]
        bodies = (body for one in self.hub.repositories.values() for body in one.files.values())
        self.give(next(body for body in bodies if _oid(body) == oid))


def _oid(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up."""


@contextmanager
def served_hub(**repositories: Repository) -> Iterator[SmallHub]:
    """A hub for the length of a ``with``; ``org__model`` is ``org/model``."""
    hub = SmallHub({name.replace("__", "/"): one for name, one in repositories.items()})
    servers = [
        _Server(("127.0.0.1", 0), type("Handler", (kind,), {"hub": hub})) for kind in (_HubHandler, _StorageHandler)
    ]
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True) for server in servers]
    hub.hub_port, hub.storage_port = (int(server.server_address[1]) for server in servers)
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()
