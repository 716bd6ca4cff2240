"""What obstore itself makes of refusals, missing credentials and bare redirects, and what a reader says of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from gossipd.sources import aws_credentials as aws_module
from gossipd.sources import credential_places as places_module
from gossipd.sources.errors import SourceError
from gossipd.sources.settings import SourceSettings
from tests.gossipd.sources.models import sign, toy_files
from tests.gossipd.sources.test_reader import Seat
from tests.gossipd.sources.test_refusal_documents import xml
from tests.servers import web_server

FILES = toy_files(Random(11))
CANARIES = ("AKIACANARY7", "canary-secret", "canary-session")
VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE",
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN",
)  # fmt: skip


@contextmanager
def answering(
    status: int, document: str, asked: list[Message] | None = None, *,
    certificate: tuple[Path, Path] | None = None, **headers: str,
) -> Iterator[str]:  # fmt: skip
    """A storage that refuses everything in one way. ``asked``: takes the headers of requests. ``certificate``: with its
    key, for TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None:
                asked.append(self.headers)
            body = document.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with web_server(Handler, certificate=certificate) as address:
        yield address


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials but those of a test, and no home that has some."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # botocore's own look at the machine
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,169.254.169.254")


def with_keys(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    for name, value in zip(names, CANARIES, strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT", url)


def last_error(scheme: str = "s3") -> SourceError:
    """The error of a read, which repeats no secret."""
    seat = Seat(sign(FILES, f"{scheme}://models/llama"), allow=[scheme])
    outcome = seat.read(0)
    error = outcome.errors[-1]
    assert isinstance(error, SourceError)
    said = "".join(str(one) + repr(one) + one.sentence for one in outcome.errors) + repr(seat.reader.statistics())
    assert not any(canary in said for canary in CANARIES)
    return error


@pytest.mark.parametrize(
    ("status", "name", "code"),
    [
        (400, "ExpiredToken", "E_SOURCE_TOKEN_EXPIRED"),
        (403, "RequestTimeTooSkewed", "E_SOURCE_CLOCK"),
        (403, "InvalidAccessKeyId", "E_SOURCE_KEY"),
        (403, "AccessDenied", "E_SOURCE_AUTH"),
        (403, "InvalidObjectState", "E_SOURCE_ARCHIVED"),
        (404, "NoSuchBucket", "E_SOURCE_NO_BUCKET"),
        (404, "NoSuchKey", "E_SOURCE_NOT_FOUND"),
        (412, "PreconditionFailed", "E_SOURCE_CHANGED"),
    ],
)
def test_a_reader_tells_the_storage_s_own_reason(
    status: int, name: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(status, xml(name, f"echo {CANARIES[0]} {CANARIES[1]}")) as url:
        with_keys(monkeypatch, url)
        assert last_error().code == code


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (407, "E_SOURCE_PROXY", "the proxy asks for credentials"),
        (403, "E_SOURCE_UNREACHABLE", "the proxy does not connect to it"),
        (None, "E_SOURCE_UNREACHABLE", "no connection"),
    ],
)
def test_a_proxy_that_leads_to_no_bucket_is_named(
    status: int | None, code: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys(monkeypatch, "https://bucket.invalid")
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        place = f"127.0.0.1:{proxy.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", f"http://{place}")

        def refuse() -> None:
            with suppress(OSError):
                while True:
                    with proxy.accept()[0] as asked:
                        asked.recv(4096)
                        asked.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % (status or 0))

        answering = threading.Thread(target=refuse)
        if status is not None:
            answering.start()
        else:
            proxy.close()
        error = last_error()
        if status is not None:
            proxy.shutdown(socket.SHUT_RDWR)
            answering.join()
    assert error.code == code
    assert words in str(error) and f"the proxy {place} of https_proxy" in str(error)


def test_a_wrong_region_names_the_right_one_from_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(400, xml("AuthorizationHeaderMalformed", Region="eu-west-3")) as url:
        with_keys(monkeypatch, url)
        assert "set AWS_REGION=eu-west-3" in last_error().sentence


def test_a_bare_redirect_names_the_region_that_s3_tells_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(301, xml("PermanentRedirect"), x_amz_bucket_region="eu-west-3") as url:
        with_keys(monkeypatch, url)
        assert last_error().sentence.startswith("E_SOURCE_REGION: s3://models: the bucket is in region eu-west-3; ")
    with answering(301, "", x_amz_bucket_region="canary; x") as url:
        with_keys(monkeypatch, url)
        assert last_error().sentence.endswith("the bucket is in another region; set AWS_REGION")


def test_a_reader_that_pays_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Message] = []
    with answering(403, xml("AccessDenied"), asked) as url:
        with_keys(monkeypatch, url)
        assert "AWS_REQUEST_PAYER=requester" in last_error().sentence
        monkeypatch.setenv("AWS_REQUEST_PAYER", "requester")
        last_error()
    assert (asked[0]["x-amz-request-payer"], asked[-1]["x-amz-request-payer"]) == (None, "requester")


@pytest.mark.parametrize(
    ("scheme", "places"),
    [
        ("s3", ["AWS_ACCESS_KEY_ID", "profile 'default' of ~/.aws/credentials and ~/.aws/config", "metadata"]),
        ("gs", ["GOOGLE_APPLICATION_CREDENTIALS", "~/.config/gcloud/application_default_credentials.json"]),
        ("az", ["AZURE_STORAGE_ACCOUNT_NAME is not set", "managed identity"]),
    ],
)
def test_without_credentials_the_places_that_were_looked_at_are_named(scheme: str, places: list[str]) -> None:
    error = last_error(scheme)
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert all(place in str(error) for place in places), str(error)
    assert scheme == "az" or "_SKIP_SIGNATURE=true" in str(error)


TOKEN_FILES = [("s3", "AWS_WEB_IDENTITY_TOKEN_FILE"), ("az", "AZURE_FEDERATED_TOKEN_FILE")]


def with_role(monkeypatch: pytest.MonkeyPatch, file: Path, service: str) -> None:
    """A pod's identity: a file with a token, for which a service gives credentials."""
    names = {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_STS": service, "AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_CLIENT_ID": "c",
        "AZURE_TENANT_ID": "t", "AZURE_AUTHORITY_HOST": service,
        **{variable: str(file) for _, variable in TOKEN_FILES},
    }  # fmt: skip
    for name, value in names.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("scheme", "variable"), TOKEN_FILES)
def test_a_token_file_that_is_not_there_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str, variable: str
) -> None:
    file = tmp_path / "not's"
    with_role(monkeypatch, file, "https://127.0.0.1:1")
    error = last_error(scheme)
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert f"{variable} names a file that cannot be read: {file}" in str(error)


@pytest.mark.parametrize(("scheme", "variable"), TOKEN_FILES)
def test_a_token_service_that_is_down_is_not_told_as_the_storage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str, variable: str
) -> None:
    (tmp_path / variable).write_text("canary-secret.a.b")
    with_role(monkeypatch, tmp_path / variable, "https://127.0.0.1:1")
    error = last_error(scheme)
    assert (error.code, error.is_of_connection) == ("E_SOURCE_UNREACHABLE", False)
    assert "the service that gives tokens for it did not answer" in str(error)


def test_a_token_service_in_clear_text_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("canary-secret.a.b")
    with answering(200, "") as url:
        with_role(monkeypatch, tmp_path / "token", url)
        monkeypatch.setenv("AWS_ENDPOINT", "https://127.0.0.1:1")
        error = last_error()
    assert error.code == "E_SOURCE_NO_CREDENTIALS" and "must begin with https://" in str(error)


GIVEN = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "IDENTITY_ENDPOINT")


@pytest.mark.parametrize("variable", GIVEN)
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((404, '{"error":"not_found"}'), ("E_SOURCE_NO_CREDENTIALS", "gave none (status 404); looked in")),
        ((404, "<Code>NoSuchKey</Code>"), ("E_SOURCE_NO_CREDENTIALS", "gave none (status 404); looked in")),
        ((400, '{"error":"canary-secret"}'), ("E_SOURCE_NO_CREDENTIALS", "gave none (status 400); looked in")),
        ((403, '{"error":"forbidden"}'), ("E_SOURCE_AUTH", "refuses them to this host (status 403)")),
        ((429, "{}"), ("E_SOURCE_BUSY", "asks to be asked less often (status 429)")),
        ((500, "oops"), ("E_SOURCE_UNREACHABLE", "failed (status 500)")),
        ((200, "<html>canary-secret</html>"), ("E_SOURCE_UNREACHABLE", "gave none, but something else")),
    ],
)
def test_a_service_that_the_environment_names_is_not_told_as_the_storage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, said: tuple[int, str], told: tuple[str, str]
) -> None:
    monkeypatch.setattr(aws_module, "wants_boto", lambda environ: False)
    (tmp_path / "token").write_text("canary-secret")
    with answering(*said) as url:
        monkeypatch.setenv(variable, f"{url}/given/token")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("IDENTITY_HEADER", "canary-secret")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        monkeypatch.setenv("AWS_ENDPOINT", "https://127.0.0.1:1")
        error = last_error("s3" if variable == GIVEN[0] else "az")
    assert error.code == told[0] and f"the service that gives tokens for it {told[1]}" in str(error), str(error)


@pytest.mark.parametrize("given", ["http://[", "", "/relative", "http://127.0.0.1:1/other", "http://127.0.0.1:1/"])
def test_an_address_that_the_environment_does_not_name_is_the_storage_s(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CANARIES[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARIES[1])
    monkeypatch.setenv(GIVEN[0], given)
    with answering(404, xml("NoSuchKey", "gone")) as url:
        monkeypatch.setenv("AWS_ENDPOINT", url)
        assert last_error().code == "E_SOURCE_NOT_FOUND"


def test_without_boto_a_machine_service_that_refuses_means_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_module, "wants_boto", lambda environ: False)
    monkeypatch.setattr(places_module, "has_boto", lambda: False)
    monkeypatch.setenv("AWS_PROFILE", "prod")
    with answering(403, "forged page") as url:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", url)
        error = last_error()
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert "pip install gossipd[aws]" in str(error)


def test_half_a_pair_of_keys_names_the_missing_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CANARIES[0])
    error = last_error()
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert "AWS_SECRET_ACCESS_KEY is not set" in str(error)


@pytest.mark.parametrize("content", ['{"type": "external_account", "x": "canary-secret"}', "not json", None])
def test_a_google_file_that_obstore_cannot_read_is_said_to_be_one(
    content: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "adc.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    error = last_error("gs")
    assert error.code == "E_SOURCE_NO_CREDENTIALS", str(error)
    assert str(path) in str(error)


@contextmanager
def giving(body: bytes, given: Callable[[int, int], tuple[int, int]]) -> Iterator[str]:
    """A storage of one object that answers a range with the one that ``given`` makes of it; the end is exclusive."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            start, stop = given(int(first), int(last) + 1)
            part = body[start:stop]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with web_server(Handler) as address:
        yield address


SEGMENT = 96 * 1024  # of no chunk's length


@pytest.mark.parametrize("whole_rate", [1, 1 << 40], ids=["whole", "pieces"])
@pytest.mark.parametrize(
    "given",
    [
        lambda start, stop: (start // SEGMENT * SEGMENT, -(-stop // SEGMENT) * SEGMENT),
        lambda start, stop: (start, min(stop, start + SEGMENT)),
    ],
    ids=["segments", "at most so many"],
)
def test_a_bucket_that_gives_another_range_is_read_by_what_it_gives(
    monkeypatch: pytest.MonkeyPatch, given: Callable[[int, int], tuple[int, int]], whole_rate: int
) -> None:
    chunk_bytes = 256 * 1024
    body = Random(36).randbytes(3 * chunk_bytes)
    with giving(body, given) as url:
        with_keys(monkeypatch, url)
        manifest = sign({"a.bin": body}, "s3://models/llama", chunk_bytes=chunk_bytes)
        settings = replace(SourceSettings(), whole_rate_bytes_min=whole_rate)
        seat = Seat(manifest, allow=["s3"], settings=settings, pool_bytes=16 * 1024 * 1024)
        for chunk in range(3):
            outcome = seat.read(chunk)
            assert (outcome.failed, outcome.errors) == ((), ())


@pytest.mark.parametrize(
    "given",
    [lambda start, stop: (start + 1, stop + 1), lambda start, stop: (start, max(start + 1, stop - 9)),
     lambda start, stop: (max(0, start - 1), stop + 1), lambda start, stop: (0, 1)],
)  # fmt: skip
def test_a_bucket_that_never_gives_what_is_asked_is_named_with_both_ranges(
    monkeypatch: pytest.MonkeyPatch, given: Callable[[int, int], tuple[int, int]]
) -> None:
    with giving(Random(36).randbytes(1 << 20), given) as url:
        with_keys(monkeypatch, url)
        manifest = sign({"a.bin": Random(36).randbytes(1 << 20)}, "s3://models/llama", chunk_bytes=256 * 1024)
        seat = Seat(manifest, allow=["s3"], settings=SourceSettings(), pool_bytes=16 * 1024 * 1024)
        outcome = seat.read(1)
        assert outcome.errors[-1].code == "E_SOURCE_RANGE" and outcome.errors[-1].is_permanent  # type: ignore[attr-defined]
        assert "asked for bytes " in str(outcome.errors[-1]) and "was sent " in str(outcome.errors[-1])
