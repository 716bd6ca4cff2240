"""Which credentials are found for a storage, and when they end."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from botocore.utils import JSONFileCache, SSOTokenLoader

from gossipd.sources import credential_expiry
from gossipd.sources.credential_expiry import CredentialFound, credential_found
from gossipd.sources.credential_places import GCP_FILE

END_S = 1_900_000_000.0
END = "2030-03-17T17:46:40Z"
SIGNATURE = f"?sv=1&se={END.replace(':', '%3A')}&sig=x"


def web_token(claims: object) -> str:
    part = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.c2ln"


@pytest.mark.parametrize(
    ("scheme", "environ", "place", "ends_s"),
    [
        ("s3", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, "AWS_ACCESS_KEY_ID", None),
        ("s3", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c",
                "AWS_CREDENTIAL_EXPIRATION": END}, "AWS_ACCESS_KEY_ID", END_S),
        ("s3", {"AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_CONFIG_FILE": "/none"}, "the container's or", None),
        ("az", {"AZURE_STORAGE_SAS_TOKEN": SIGNATURE}, "AZURE_STORAGE_SAS_TOKEN", END_S),
        ("az", {"AZURE_STORAGE_SAS_TOKEN": "sv=1&se=soon"}, "AZURE_STORAGE_SAS_TOKEN", None),
        ("az", {"AZURE_STORAGE_TOKEN": web_token({"exp": END_S})}, "AZURE_STORAGE_TOKEN", END_S),
        ("abfss", {"AZURE_STORAGE_ACCOUNT_KEY": "k"}, "AZURE_STORAGE_ACCOUNT_KEY", None),
        ("az", {"AZURE_CLIENT_SECRET": "k"}, "AZURE_CLIENT_SECRET", None),
        ("az", {}, "the machine's managed identity", None),
        ("gs", {"GOOGLE_APPLICATION_CREDENTIALS": "/f"}, "GOOGLE_APPLICATION_CREDENTIALS", None),
        ("hf", {"HF_TOKEN": "t"}, "HF_TOKEN", None),
    ],
)  # fmt: skip
def test_the_first_that_is_there_is_found_with_its_end(
    scheme: str, environ: dict[str, str], place: str, ends_s: float | None
) -> None:
    found = credential_found(scheme, environ)
    assert found is not None
    assert found.place.startswith(place)
    assert found.ends_s == ends_s


@pytest.mark.parametrize("variable", ["AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE"])
def test_a_token_in_a_file_is_renewed_there(tmp_path: Path, variable: str) -> None:
    file, scheme = tmp_path / "token", "s3" if variable.startswith("AWS") else "az"
    file.write_text(web_token({"exp": END_S}) + "\n")
    found = credential_found(scheme, {variable: str(file)})
    assert found is not None
    assert (found.place, found.ends_s, found.is_renewed) == (f"{variable} ({file})", END_S, True)


@pytest.mark.parametrize(
    ("scheme", "variable"),
    [("s3", "AWS_WEB_IDENTITY_TOKEN_FILE"), ("az", "AZURE_FEDERATED_TOKEN_FILE"),
     ("gs", "GOOGLE_APPLICATION_CREDENTIALS")],
)  # fmt: skip
def test_a_file_that_is_not_there_is_found_with_that_trouble(tmp_path: Path, scheme: str, variable: str) -> None:
    file = tmp_path / "token"
    found = credential_found(scheme, {variable: str(file)})
    assert found is not None
    assert (found.place, found.trouble) == (f"{variable} ({file})", "no such file or directory")
    file.write_text("{}")
    found = credential_found(scheme, {variable: str(file)})
    assert found is not None and found.trouble == ""


@pytest.mark.parametrize(
    "text", ["", "a.b", "a.b.c", web_token([]), web_token({"exp": "x"}), web_token({"exp": 1e300}), "..", "\udcff.é.x"]
)
def test_what_is_no_token_has_no_end(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(text.encode(errors="surrogateescape"))
    found = credential_found("s3", {"AWS_WEB_IDENTITY_TOKEN_FILE": str(file)})
    assert found is not None
    assert found.ends_s is None


def test_a_profile_tells_the_end_that_its_tool_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_expiry, "has_boto", lambda: True)
    file = tmp_path / "credentials"
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_CONFIG_FILE": "/none", "AWS_PROFILE": "ml"}
    file.write_text(f"[ml]\naws_access_key_id = a\nx_security_token_expires = {END}\n")
    found = credential_found("s3", environ)
    assert found is not None
    assert (found.place, found.ends_s) == (f"profile 'ml' of {file}", END_S)
    file.write_text("no profile\n")
    found = credential_found("s3", environ)
    assert found is not None and "metadata" in found.place


def signed_on(session: str | None, token: dict[str, str]) -> Path:
    """What ``aws sso login`` keeps, written by botocore's own code."""
    directory = Path(credential_expiry.SSO_CACHE).expanduser()
    cache = JSONFileCache(str(directory))
    SSOTokenLoader(cache=cache).save_token("https://sso.example", {"accessToken": "t", **token}, session_name=session)
    [file] = directory.iterdir()
    return file


@pytest.mark.parametrize(
    ("session", "token", "ends"),
    [
        ("corp", {"expiresAt": END, "refreshToken": "r"}, (END_S, True)),
        ("corp", {"expiresAt": END}, (END_S, False)),
        (None, {"expiresAt": END.replace("Z", "UTC")}, (END_S, False)),
        ("corp", {"expiresAt": "soon"}, (None, False)),
    ],
)
def test_a_profile_of_a_sign_on_ends_with_its_cached_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: str | None, token: dict[str, str],
    ends: tuple[float | None, bool],
) -> None:  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(credential_expiry, "has_boto", lambda: True)
    file, settings = signed_on(session, token), tmp_path / "config"
    profile = f"sso_session = {session}" if session else "sso_start_url = https://sso.example"
    settings.write_text(f"[profile role]\nrole_arn = r\nsource_profile = people\n[profile people]\n{profile}\n")
    environ = {"AWS_CONFIG_FILE": str(settings), "AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_PROFILE": "role"}
    place = f"profile 'role' of {settings} ({file})"
    assert credential_found("s3", environ) == CredentialFound(place, *ends)


@pytest.mark.parametrize("more", ["", "source_profile = ml", "source_profile = other", "source_profile = gone"])
def test_profiles_that_lead_in_a_circle_or_nowhere_have_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    monkeypatch.setattr(credential_expiry, "has_boto", lambda: True)
    file = tmp_path / "config"
    file.write_text(f"[profile ml]\n{more}\n[profile other]\nsource_profile = ml\n")
    environ = {"AWS_CONFIG_FILE": str(file), "AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_PROFILE": "ml"}
    assert credential_found("s3", environ) == CredentialFound(f"profile 'ml' of {file}")


SUBJECT = {"type": "external_account", "credential_source": {"file": "TOKEN"}}
NAMED = {"file": "TOKEN", "format": {"type": "json", "subject_token_field_name": "t"}}
IMPERSONATED = {"type": "impersonated_service_account", "source_credentials": SUBJECT}


@pytest.mark.parametrize(
    ("entry", "text", "ends_s"),
    [
        (SUBJECT, web_token({"exp": END_S}), END_S),
        (IMPERSONATED, web_token({"exp": END_S}), END_S),
        ({"credential_source": NAMED}, json.dumps({"t": web_token({"exp": END_S})}), END_S),
        ({"credential_source": NAMED}, "[]", None),
        (SUBJECT, "", None),
    ],
)
def test_a_federated_account_of_google_ends_with_its_subject_token(
    tmp_path: Path, entry: object, text: str, ends_s: float | None
) -> None:
    token, file = tmp_path / "token", tmp_path / "adc.json"
    token.write_text(text)
    file.write_text(json.dumps(entry).replace("TOKEN", str(token)))
    place = f"GOOGLE_APPLICATION_CREDENTIALS ({token})"
    found = credential_found("gs", {"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
    assert found == CredentialFound(place, ends_s, is_renewed=True)


@pytest.mark.parametrize(
    ("text", "ends_s", "is_renewed"),
    [
        (json.dumps({"type": "external_account_authorized_user", "expiry": END}), END_S, False),
        (json.dumps({"type": "authorized_user", "refresh_token": "r"}), None, True),
        (json.dumps({"type": "service_account"}), None, False),
        ("{", None, False),
        ("[" * 60_000, None, False),
    ],
)
def test_other_accounts_of_google_tell_an_end_where_they_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, ends_s: float | None, is_renewed: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = Path(GCP_FILE).expanduser()
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert credential_found("gs", {}) == CredentialFound(GCP_FILE, ends_s, is_renewed)


@pytest.mark.parametrize(
    ("scheme", "environ"),
    [("file", {}), ("https", {}), ("hf", {}), ("s3", {"AWS_SKIP_SIGNATURE": "true"}),
     ("gs", {"GOOGLE_SKIP_SIGNATURE": "true"}), ("az", {"AZURE_SKIP_SIGNATURE": "true"})],
)  # fmt: skip
def test_none_is_found_where_none_is_used(scheme: str, environ: dict[str, str]) -> None:
    assert credential_found(scheme, environ) is None
    assert not environ or credential_found(scheme, dict.fromkeys(environ, "false")) is not None


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "hf"])
def test_a_user_without_a_home_has_the_credentials_of_its_environment(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    found = credential_found(scheme, {"HF_TOKEN": "t", "AWS_SHARED_CREDENTIALS_FILE": "~nobody-known/credentials"})
    assert found is not None and not found.trouble


@pytest.mark.parametrize("name", ["a\0b", "a\0", "\ud800"])
def test_a_file_of_a_name_that_no_file_has_is_told_as_unreadable(name: str) -> None:
    found = credential_found("az", {"AZURE_FEDERATED_TOKEN_FILE": name})
    assert found is not None and found.trouble


def test_a_home_that_may_not_be_entered_has_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    found = credential_found("gs", {})
    assert found is not None and found.place == "the instance's metadata"
