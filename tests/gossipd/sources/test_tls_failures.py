"""What is wrong with a server's TLS is told as that, with what helps, by each way to storage."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from email.message import Message
from pathlib import Path

import pytest

from gossipd.core.errors import ExitCode, GossipdError
from gossipd.core.reasons import Heals, HostReason, reason_of_code
from gossipd.manifest.source_url import parse_source_url
from gossipd.publish.bucket import find_objects, open_storage
from gossipd.publish.selection import EVERYTHING
from gossipd.sources.aws_credentials import AwsCredentials
from gossipd.sources.tls_failures import is_of_tls, tls_failure_in, words_of_openssl, words_of_rustls
from tests.gossipd.sources.certificates import issue
from tests.gossipd.sources.models import sign
from tests.gossipd.sources.test_obstore_errors import answering
from tests.gossipd.sources.test_reader import ONE_FILE, Seat


@dataclass(frozen=True)
class Wrong:
    """A server whose TLS is wrong in one way. ``names``: of its certificate; none: it speaks none."""

    said: str
    names: tuple[str, ...] = ("127.0.0.1",)
    ended_ago: timedelta | None = None
    is_known: bool = True


WRONG = {
    "unknown authority": Wrong("name a file with its authority there, and restart", is_known=False),
    "another time": Wrong("renew it there; see this host's clock, too", ended_ago=timedelta(minutes=1)),
    "another name": Wrong("give the server one for this name", names=("other.example",)),
    "in clear": Wrong("the server speaks no TLS there; see the address", names=()),
}
Serve = Callable[[Wrong, list[Message]], str]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Serve:
    """Starts a server; its address as if it had TLS, and the environment that has its storage there."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)

    def begin(wrong: Wrong, asked: list[Message]) -> str:
        authority, certificate, key = issue(tmp_path, *wrong.names or ("a.example",), ended_ago=wrong.ended_ago)
        if wrong.is_known:
            monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        server = answering(404, "", asked, certificate=(certificate, key) if wrong.names else None)
        address = server.__enter__().replace("http:", "https:")
        request.addfinalizer(lambda: server.__exit__(None, None, None))
        monkeypatch.setenv("AWS_ENDPOINT", address)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        return address

    return begin


@pytest.mark.parametrize("scheme", ["https", "s3"])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_read_tells_at_once_what_is_wrong_and_what_helps(serve: Serve, scheme: str, wrong: Wrong) -> None:
    asked: list[Message] = []
    address = serve(wrong, asked)
    url = address if scheme == "https" else "s3://bucket"
    outcome = Seat(sign(ONE_FILE, url), allow=[url]).read(0)
    error = outcome.errors[-1]
    assert (error.code, error.exit_code) == ("E_SOURCE_TLS", ExitCode.SOURCE_UNREACHABLE)
    assert wrong.said in str(error) and f"{url}/a.bin" in str(error), str(error)
    assert len(outcome.errors) == 1 and not asked, "it is not tried again at once: time does not cure it"
    reason = reason_of_code(error.code, HostReason.OTHER)
    assert reason is HostReason.SOURCE_TLS and reason.heals is Heals.BY_ITSELF and "renew" in reason.cure


def test_publish_tells_the_same_of_a_bucket(serve: Serve) -> None:
    wrong = WRONG["unknown authority"]
    serve(wrong, [])
    url = parse_source_url("s3://bucket/model/")
    with pytest.raises(GossipdError) as caught:
        find_objects(open_storage(url), url, EVERYTHING)
    assert (caught.value.code, caught.value.exit_code) == ("E_SOURCE_TLS", ExitCode.SOURCE_UNREACHABLE)
    assert wrong.said in str(caught.value)


def test_a_token_service_whose_certificate_is_wrong_is_not_told_as_missing_credentials(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = serve(WRONG["another name"], [])
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    lines = ["[base]", "aws_access_key_id = a", "aws_secret_access_key = b", "[default]", "source_profile = base"]
    (tmp_path / "credentials").write_text("\n".join([*lines, "role_arn = arn:aws:iam::1:role/r"]))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
    with pytest.raises(GossipdError) as caught:
        AwsCredentials().options("s3", "s3://bucket/a.bin")
    assert caught.value.code == "E_SOURCE_TLS", str(caught.value)
    assert "the service that gives tokens: its TLS certificate is not valid" in str(caught.value)


@pytest.mark.parametrize("code", [9, 10])
def test_a_certificate_of_another_time_may_be_this_hosts_clock(code: int) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "certificate is not yet valid"
    assert words_of_openssl(error) == (
        "its TLS certificate is not valid: certificate is not yet valid; renew it there; see this host's clock, too"
    )


def test_a_connection_that_ends_is_no_failure_of_tls() -> None:
    assert not is_of_tls(ssl.SSLEOFError()) and not is_of_tls(ConnectionResetError())
    assert not is_of_tls(ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed"))
    assert tls_failure_in(ConnectionResetError(), "a", "b") is None


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("error: InvalidCertificate(\n    NotValidYetContext {", "is not valid yet"),
        ("error: InvalidCertificate(\n    BadEncoding", "give the server another"),
        ("error: AlertReceived(\n    HandshakeFailure", "the server refused to set TLS up"),
        ("error: PeerIncompatible(\n   Tls12NotOffered", "no version of TLS"),
    ],
)
def test_what_obstore_prints_of_tls_is_told_in_words(printed: str, said: str) -> None:
    assert said in str(words_of_rustls(printed))
    assert words_of_rustls("tcp connect error") is None
