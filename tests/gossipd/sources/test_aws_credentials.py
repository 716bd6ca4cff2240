"""AWS' profiles and SSO sessions by the real botocore, against files and a token service on loopback."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gossipd.sources import aws_credentials, credential_look
from gossipd.sources.aws_credentials import FRESH_S, AwsCredentials, wants_boto
from gossipd.sources.errors import SourceError
from tests.gossipd.sources.certificates import issue
from tests.gossipd.sources.models import sign, write_tree
from tests.gossipd.sources.test_reader import Seat
from tests.servers import S3Server, web_server

WHAT = "s3://models/llama/a.safetensors"
OWN = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE",
       "AWS_SKIP_SIGNATURE", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT")  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home directory without credentials, and an environment without any."""
    for name in OWN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def write_keys(home: Path, secret: str, *, profile: str = "default", at_ns: int | None = None) -> None:
    path = home / ".aws" / "credentials"
    path.write_text(f"[{profile}]\naws_access_key_id = AKIA7\naws_secret_access_key = {secret}\n")
    if at_ns is not None:
        os.utime(path, ns=(at_ns, at_ns))


def refused(credentials: AwsCredentials) -> SourceError:
    with pytest.raises(SourceError) as caught:
        credentials.options("s3", WHAT)
    assert "canary" not in str(caught.value)
    return caught.value


def test_keys_in_the_environment_stay_obstore_s_own_concern() -> None:
    assert wants_boto({})
    assert wants_boto({"AWS_PROFILE": "prod"})
    for name in OWN[:2] + OWN[3:5]:
        assert not wants_boto({name: "x"})
    assert wants_boto({"AWS_SKIP_SIGNATURE": "false"}), "obstore signs then, and needs keys"


def test_a_profile_gives_its_keys_region_and_endpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_keys(home, "secret", profile="prod")
    (home / ".aws" / "config").write_text("[profile prod]\nregion = eu-west-3\nendpoint_url = http://127.0.0.1:9\n")
    monkeypatch.setenv("AWS_PROFILE", "prod")
    credentials = AwsCredentials()
    options = credentials.options("s3", WHAT)
    assert options == {"credential_provider": credentials, "region": "eu-west-3", "endpoint": "http://127.0.0.1:9"}
    assert credentials.options("gs", WHAT) == {}
    assert credentials()["secret_access_key"] == "secret"


def test_a_file_that_is_written_again_is_read_again_within_a_minute(home: Path) -> None:
    clock = Clock()
    credentials = AwsCredentials(clock=clock)
    write_keys(home, "old", at_ns=1)
    credentials.options("s3", WHAT)
    write_keys(home, "new", at_ns=2)
    credentials.options("s3", WHAT)
    assert credentials()["secret_access_key"] == "old"
    clock.now_s += FRESH_S
    credentials.options("s3", WHAT)
    assert credentials()["secret_access_key"] == "new"


def test_a_file_put_in_its_place_with_the_same_date_is_read(home: Path) -> None:
    clock = Clock()
    credentials = AwsCredentials(clock=clock)
    write_keys(home, "old", at_ns=1)
    credentials.options("s3", WHAT)
    path = home / ".aws" / "credentials"
    path.rename(home / "old")  # as the links of a mounted secret are swapped
    write_keys(home, "new", at_ns=1)
    clock.now_s += FRESH_S
    credentials.options("s3", WHAT)
    assert credentials()["secret_access_key"] == "new"


def test_a_container_s_service_that_refuses_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(404, "{}") as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/v1/creds")
        error = refused(AwsCredentials())
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert "the service of the container's credentials gives no credentials" in str(error)


def test_without_any_the_places_are_named_and_a_later_file_is_found(home: Path) -> None:
    credentials = AwsCredentials()
    error = refused(credentials)
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert "~/.aws/credentials" in str(error)
    write_keys(home, "late")
    credentials.options("s3", WHAT)
    assert credentials()["secret_access_key"] == "late"


def test_a_profile_that_is_not_there_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_keys(home, "canary")
    monkeypatch.setenv("AWS_PROFILE", "prdo")
    error = refused(AwsCredentials())
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert "there is no profile 'prdo'" in str(error)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"Expiration": "2020-01-01T00:00:00Z"}, "E_SOURCE_TOKEN_EXPIRED"),
        ({"Expiration": 17}, "E_SOURCE_NO_CREDENTIALS"),
        (None, "E_SOURCE_NO_CREDENTIALS"),
    ],
)
def test_a_command_that_gives_what_cannot_be_used_is_told_so(
    home: Path, said: dict[str, object] | None, code: str
) -> None:
    keys = {"Version": 1, "AccessKeyId": "AKIA7", "SecretAccessKey": "canary", "SessionToken": "canary"}
    (home / "said.json").write_text(json.dumps([] if said is None else {**keys, **said}))
    (home / ".aws" / "config").write_text(f"[default]\ncredential_process = /bin/cat {home}/said.json\n")
    assert refused(AwsCredentials()).code == code


def test_a_command_that_fails_says_nothing_of_its_output(home: Path) -> None:
    script = home / "give"
    script.write_text("#!/bin/sh\necho canary-out; echo canary-err >&2; exit 3\n")
    script.chmod(0o755)
    (home / ".aws" / "config").write_text(f"[default]\ncredential_process = {script}\n")
    error = refused(AwsCredentials())
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert "the program (credential_process) of profile 'default' gives no credentials" in str(error)


@pytest.mark.parametrize(
    ("document", "code", "said"),
    [
        ("<Code>SignatureDoesNotMatch</Code><Message>Signature expired: 1</Message>", "E_SOURCE_CLOCK", "clock"),
        ("<Code>ExpiredToken</Code><Message>canary</Message>", "E_SOURCE_TOKEN_EXPIRED", "have expired"),
        ("<Code>InvalidClientTokenId</Code><Message>canary</Message>", "E_SOURCE_KEY", "does not know"),
        ("<Code>AccessDenied</Code><Message>not sts:AssumeRole</Message>", "E_SOURCE_AUTH", "refused the role"),
    ],
)
def test_a_token_service_is_told_by_what_it_says(
    home: Path, monkeypatch: pytest.MonkeyPatch, document: str, code: str, said: str
) -> None:
    lines = ["[base]", "aws_access_key_id = a", "aws_secret_access_key = b", "[default]", "source_profile = base"]
    (home / ".aws" / "credentials").write_text("\n".join([*lines, "role_arn = arn:aws:iam::1:role/r"]))
    with answering(403, f"<ErrorResponse><Error>{document}</Error></ErrorResponse>") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        assert "set AWS_REGION" in str(refused(AwsCredentials()))
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
        error = refused(AwsCredentials())
    assert error.code == code and said in str(error), str(error)
    assert "profile 'default'" in str(error)


def test_token_services_are_asked_through_the_proxy_of_the_one_rule(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["[base]", "aws_access_key_id = a", "aws_secret_access_key = b", "[default]", "source_profile = base"]
    (home / ".aws" / "credentials").write_text("\n".join([*lines, "role_arn = arn:aws:iam::1:role/r"]))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    document = "<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>"
    with answering(403, document) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://sts.invalid")
        monkeypatch.setenv("ALL_PROXY", proxy)  # which botocore does not read
        assert refused(AwsCredentials()).code == "E_SOURCE_TOKEN_EXPIRED"
        monkeypatch.setenv("NO_PROXY", "sts.invalid,127.0.0.0/8")  # nor networks
        assert refused(AwsCredentials()).code == "E_SOURCE_UNREACHABLE"
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", proxy)
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        assert refused(AwsCredentials()).code == "E_SOURCE_TOKEN_EXPIRED"
        monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")
        monkeypatch.delenv("NO_PROXY")
        assert refused(AwsCredentials()).code == "E_SOURCE_PROXY"


def test_token_services_are_checked_against_the_authorities_of_the_one_rule(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["[base]", "aws_access_key_id = a", "aws_secret_access_key = b", "[default]", "source_profile = base"]
    (home / ".aws" / "credentials").write_text("\n".join([*lines, "role_arn = arn:aws:iam::1:role/r"]))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    authority, *certificate = issue(home, "127.0.0.1")
    document = "<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>"
    with answering(403, document, certificate=(certificate[0], certificate[1])) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))  # which the rule does not know
        assert refused(AwsCredentials()).code != "E_SOURCE_TOKEN_EXPIRED"
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate[0]))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert refused(AwsCredentials()).code == "E_SOURCE_TOKEN_EXPIRED"


def test_the_machine_s_own_service_is_asked_past_any_proxy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.say(b"token")

        def do_GET(self) -> None:
            ends = (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
            keys = {"AccessKeyId": "AKIA7", "SecretAccessKey": "secret", "Token": "t", "Expiration": ends}
            is_list = self.path.endswith("security-credentials/")
            self.say(b"role" if is_list else json.dumps(keys | {"Code": "Success"}).encode())

        def say(self, body: bytes) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with web_server(Handler) as url:
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.delenv("NO_PROXY")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{url}/")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_REGION", "eu-west-3")
        credentials = AwsCredentials()
        credentials.options("s3", WHAT)
        assert credentials()["secret_access_key"] == "secret"
    assert asked[-1].startswith("/latest/meta-data/")


@contextmanager
def answering(status: int, document: str, *, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """A service that says the same to everybody. ``certificate``: with its key, for TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(document)))
            self.end_headers()
            self.wfile.write(document.encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with web_server(Handler, certificate=certificate) as url:
        yield url


@contextmanager
def portal(lifetime: timedelta, asked: list[str], status: int = 200) -> Iterator[str]:
    """SSO's portal: gives role credentials that live for ``lifetime``, each with the number of its request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(threading.current_thread().name)
            ends_ms = int((datetime.now(UTC) + lifetime).timestamp() * 1000)
            role = {"accessKeyId": "AKIA7", "secretAccessKey": f"secret-{len(asked)}", "sessionToken": "canary"}
            body = json.dumps({"roleCredentials": role | {"expiration": ends_ms}}).encode()
            if status != 200:
                body = b'{"message": "Session token not found or invalid canary"}'
            self.send_response(status)
            if status != 200:
                self.send_header("x-amzn-ErrorType", "UnauthorizedException")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with web_server(Handler) as address:
        yield address


def log_in(home: Path, url: str, monkeypatch: pytest.MonkeyPatch, *, ends: timedelta = timedelta(hours=8)) -> None:
    """What ``aws sso login`` leaves behind."""
    start = "https://example.awsapps.com/start"
    (home / ".aws" / "config").write_text(
        f"[profile research]\nsso_session = s\nsso_account_id = 123456789012\nsso_role_name = reader\n"
        f"region = eu-west-3\n[sso-session s]\nsso_start_url = {start}\nsso_region = eu-west-3\n"
    )
    cache = home / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    token = {
        "startUrl": start, "region": "eu-west-3", "accessToken": "canary",
        "expiresAt": (datetime.now(UTC) + ends).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }  # fmt: skip
    (cache / f"{sha1(b's').hexdigest()}.json").write_text(json.dumps(token))
    for kind in ("botocore.tokens.SSOTokenProvider", "botocore.credentials.SSOProvider"):
        monkeypatch.setattr(f"{kind}._SSO_TOKEN_CACHE_DIR", str(cache))  # expanded when botocore was imported
    monkeypatch.setenv("AWS_PROFILE", "research")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", url)


def test_an_sso_session_gives_keys_and_renews_them_before_their_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = Clock(), list[str]()
    with portal(timedelta(minutes=12), asked) as url:  # botocore renews from fifteen minutes before the end on
        log_in(home, url, monkeypatch)
        credentials = AwsCredentials(clock=clock)
        credentials.options("s3", WHAT)
        credentials.options("s3", WHAT)
        assert len(asked) <= 2
        first = credentials()["secret_access_key"]
        clock.now_s += FRESH_S
        credentials.options("s3", WHAT)
        assert credentials()["secret_access_key"] != first


def test_an_sso_session_that_is_over_says_how_to_log_in_and_logs_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log_in(home, "http://127.0.0.1:1", monkeypatch, ends=timedelta(hours=-1))
    error = refused(AwsCredentials())
    assert error.code == "E_SOURCE_TOKEN_EXPIRED"
    assert "aws sso login" in str(error)
    with portal(timedelta(hours=1), [], status=401) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", url)
        cache = next((home / ".aws" / "sso" / "cache").iterdir())
        cache.write_text(cache.read_text().replace(str(datetime.now(UTC).year), "2999", 1))
        assert refused(AwsCredentials()).code in ("E_SOURCE_TOKEN_EXPIRED", "E_SOURCE_AUTH")
    assert caplog.records == []  # botocore would log the exception with its traceback


def test_a_reader_uses_a_profile_s_keys(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_server: S3Server
) -> None:
    files = {"a.bin": bytes(200_000)}
    write_tree(files, tmp_path / "tree")
    s3_server.upload("profile-bucket", tmp_path / "tree")
    write_keys(home, "secret", profile="prod")
    (home / ".aws" / "config").write_text(f"[profile prod]\nregion = us-east-1\nendpoint_url = {s3_server.endpoint}\n")
    monkeypatch.setenv("AWS_PROFILE", "prod")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    seat = Seat(sign(files, "s3://profile-bucket/"), allow=["s3"])
    assert seat.read().failed == ()


def test_many_readers_fetch_once(home: Path) -> None:
    write_keys(home, "secret")
    credentials = AwsCredentials()
    threads = [threading.Thread(target=credentials.options, args=("s3", WHAT)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert credentials()["access_key_id"] == "AKIA7"


def test_a_command_that_never_ends_holds_nobody_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = home / "never"
    os.mkfifo(fifo)
    (home / ".aws" / "config").write_text(f"[default]\ncredential_process = cat {fifo}\n")
    monkeypatch.setattr(credential_look, "WAIT_S", 0.3)
    error = refused(AwsCredentials())
    assert error.code == "E_SOURCE_UNREACHABLE"
    assert f"{WHAT}: the credentials of AWS' profile have not come for 0.3 s: see the service or the" in str(error)
    with fifo.open("w") as command:
        command.write("{}")


def test_a_token_service_that_is_silent_is_told_in_seconds(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("a.b.c")
    (home / ".aws" / "config").write_text(
        f"[default]\nrole_arn = arn:aws:iam::123456789012:role/r\nweb_identity_token_file = {home}/token\n"
        "region = us-east-1\n"
    )
    monkeypatch.setattr(aws_credentials, "_READ_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "the service that gives tokens to profile 'default' is silent" in str(refused(AwsCredentials()))
