"""Where the authorities' certificates lie, for every reader alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipd.sources.authorities import authorities, authorities_in
from tests.gossipd.sources.certificates import issue


def test_a_file_of_authorities_counts_before_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, _, _ = issue(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent"))
    assert authorities() == str(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert authorities() == str(authority)


@pytest.mark.parametrize("is_directory", [False, True])
def test_all_variables_say_the_same_for_a_while_and_then_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_directory: bool
) -> None:
    authority, _, _ = issue(tmp_path, "127.0.0.1")
    path, name = (tmp_path, "SSL_CERT_DIR") if is_directory else (authority, "SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv(name, str(path))
    before = {"AWS_CA_BUNDLE": "a", "CURL_CA_BUNDLE": "c", "REQUESTS_CA_BUNDLE": "r", "HOME": "/", name: str(path)}
    environment = dict(before)
    with authorities_in(environment):
        assert environment == {name: str(path), "REQUESTS_CA_BUNDLE": str(path), "HOME": "/"}
    assert environment == before
