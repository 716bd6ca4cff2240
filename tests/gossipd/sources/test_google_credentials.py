"""Application default credentials that obstore cannot read, by the real google-auth, against a token service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gossipd.sources import google_credentials as google_module
from gossipd.sources.errors import SourceError
from gossipd.sources.google_credentials import GoogleCredentials, kind_of_file
from tests.gossipd.sources.certificates import issue
from tests.gossipd.sources.test_obstore_errors import VARIABLES, answering, last_error
from tests.servers import web_server

WHAT = "gs://models/a"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextmanager
def token_service(
    status: int, lifetime_s: int, asked: list[str], said: str = "canary",
    *, certificate: tuple[Path, Path] | None = None,
) -> Iterator[str]:  # fmt: skip
    """Exchanges a subject's token for one of ours, numbered, or refuses."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            given = {
                "access_token": f"token-{len(asked)}", "expires_in": lifetime_s, "token_type": "Bearer",
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }  # fmt: skip
            body = json.dumps(given if status == 200 else {"error": "invalid_grant", "error_description": said})
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with web_server(Handler, certificate=certificate) as address:
        yield f"{address}/v1/token"


def federate(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``gcloud iam workload-identity-pools create-cred-config`` writes."""
    (tmp_path / "subject").write_text("canary-subject")
    pool = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/o"
    (tmp_path / "adc.json").write_text(
        json.dumps(
            {
                "type": "external_account", "audience": pool, "token_url": url,
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "credential_source": {"file": str(tmp_path / "subject")},
            }
        )
    )  # fmt: skip
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))


def refused() -> SourceError:
    with pytest.raises(SourceError) as caught:
        GoogleCredentials().options("gs", WHAT)
    assert "canary" not in str(caught.value)
    return caught.value


def test_a_federated_identity_gives_tokens_and_renews_them_before_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    with token_service(200, 3600, asked) as url:
        federate(tmp_path, url, monkeypatch)
        credentials = GoogleCredentials()
        assert credentials.options("gs", WHAT) == {"credential_provider": credentials}
        credentials.options("gs", WHAT)
        assert credentials()["token"] == "token-1"
    assert len(asked) == 1
    with token_service(200, 120, asked) as url:  # less than google-auth's margin, so each request renews it
        federate(tmp_path, url, monkeypatch)
        credentials = GoogleCredentials()
        credentials.options("gs", WHAT)
        first = credentials()["token"]
        credentials.options("gs", WHAT)
        assert credentials()["token"] != first


def test_the_token_service_is_asked_through_the_proxy_of_the_one_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    with token_service(200, 3600, asked) as url:
        federate(tmp_path, "http://sts.invalid/v1/token", monkeypatch)
        monkeypatch.setenv("http_proxy", url)
        GoogleCredentials().options("gs", WHAT)
        monkeypatch.setenv("NO_PROXY", "one;sts.invalid")  # which requests takes for one name
        assert refused().code == "E_SOURCE_UNREACHABLE"
        monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "other")
        assert refused().code == "E_SOURCE_PROXY"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Invalid JWT: Token must be a short-lived token and in a reasonable timeframe", "E_SOURCE_CLOCK"),
        ("Invalid JWT Signature.", "E_SOURCE_KEY"),
        ("canary", "E_SOURCE_TOKEN_EXPIRED"),
    ],
)
def test_a_refused_exchange_is_told_by_what_the_service_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: str
) -> None:
    with token_service(400, 0, [], said) as url:
        federate(tmp_path, url, monkeypatch)
        assert refused().code == code


def test_a_reader_shows_the_token_to_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Message] = []
    with token_service(200, 3600, []) as url, answering(403, "{}", seen) as storage:
        federate(tmp_path, url, monkeypatch)
        monkeypatch.setenv("GOOGLE_BASE_URL", storage)
        error = last_error("gs")
    assert error.code == "E_SOURCE_AUTH"
    assert seen[0]["Authorization"] == "Bearer token-1"


def test_a_refused_exchange_and_a_silent_service_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with token_service(400, 3600, []) as url:
        federate(tmp_path, url, monkeypatch)
        assert refused().code == "E_SOURCE_TOKEN_EXPIRED"
    federate(tmp_path, "http://127.0.0.1:1/v1/token", monkeypatch)
    assert refused().code == "E_SOURCE_UNREACHABLE"


def test_without_google_auth_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federate(tmp_path, "http://127.0.0.1:1/v1/token", monkeypatch)
    monkeypatch.setattr(google_module, "find_spec", lambda name: None)
    error = refused()
    assert error.code == "E_SOURCE_NO_CREDENTIALS"
    assert "pip install gossipd[gcp]" in str(error)


@pytest.mark.parametrize("content", ['{"type": "service_account"}', '{"type": 7}', "[]", "[" * 60_000, "no"])
def test_other_files_stay_obstore_s_own_concern(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adc.json").write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
    assert kind_of_file({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "adc.json")}) in ("service_account", None)
    assert GoogleCredentials().options("gs", WHAT) == {}
    assert GoogleCredentials().options("s3", "s3://models/a") == {}


def test_the_token_service_is_checked_against_the_authorities_of_the_one_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, certificate, key = issue(tmp_path, "127.0.0.1")
    asked: list[str] = []
    with token_service(200, 3600, asked, certificate=(certificate, key)) as url:
        federate(tmp_path, url, monkeypatch)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        assert refused().code == "E_SOURCE_TLS", "the rule does not know this variable"
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        GoogleCredentials().options("gs", WHAT)
    assert len(asked) == 1
