"""The end of credentials for storage is told before it comes, and not of what another program renews in time."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.audit.log import AuditLog
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.credentials_watch import CODE, CredentialsWatch
from gossipd.sources.credential_expiry import CredentialFound

NOW_S = 1_800_000_000.0


@pytest.fixture
def watch(tmp_path: Path) -> CredentialsWatch:
    sources = SimpleNamespace(enabled=True, allow=("s3://bucket", "az://container", "gs"))
    live = SimpleNamespace(config=SimpleNamespace(sources=sources))
    manifest = SimpleNamespace(sources=("s3a://other/x", "gs://models/y"))
    lifecycle = [SimpleNamespace(manifest=manifest), SimpleNamespace(manifest=None)]
    return CredentialsWatch(cast(Any, live), cast(Any, lifecycle), Alarms(AuditLog(tmp_path / "audit.jsonl")))


def sentences(watch: CredentialsWatch) -> list[str]:
    assert {row.code for row in watch.alarms.rows.values()} <= {CODE}
    return [row.sentence for row in watch.alarms.rows.values()]


def found(ends_in_s: float | None, *, is_renewed: bool = False) -> dict[str, CredentialFound]:
    return {"s3": CredentialFound("AWS_ACCESS_KEY_ID", None if ends_in_s is None else NOW_S + ends_in_s, is_renewed)}


def test_it_rings_an_hour_before_the_end_and_is_cured_by_new_ones(watch: CredentialsWatch) -> None:
    watch.take(found(3601.0), NOW_S)
    assert (sentences(watch), watch.ends) == ([], {"s3": NOW_S + 3601.0})
    watch.take(found(3599.0), NOW_S)
    [sentence] = sentences(watch)
    place = "the credentials of this host's daemon for s3 (AWS_ACCESS_KEY_ID)"
    assert sentence == f"{place} end at 2027-01-15T08:59:59Z"
    watch.take(found(3599.0), NOW_S + 3600.0)
    assert sentences(watch) == [f"{place} ended at 2027-01-15T08:59:59Z"], "one alarm, as it is now"
    watch.take(found(7200.0), NOW_S)
    assert sentences(watch) == []


def test_what_is_renewed_rings_only_when_nobody_has(watch: CredentialsWatch) -> None:
    watch.take(found(5.0, is_renewed=True), NOW_S)
    assert sentences(watch) == []
    watch.take(found(-5.0, is_renewed=True), NOW_S)
    assert len(sentences(watch)) == 1


def test_keys_without_an_end_are_none_of_its_business(watch: CredentialsWatch) -> None:
    watch.take(found(3.0), NOW_S)
    watch.take(found(None), NOW_S)
    assert (sentences(watch), watch.ends) == ([], {})


async def test_storages_of_manifests_and_of_the_settings_are_looked_at(
    watch: CredentialsWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token(ends_s: float) -> str:
        body = urlsafe_b64encode(json.dumps({"exp": int(ends_s)}).encode()).decode().rstrip("=")
        return f"e30.{body}.x"

    monkeypatch.setenv("AZURE_STORAGE_TOKEN", token(1.0))
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c",
                        "AWS_CREDENTIAL_EXPIRATION": "2001-01-01T00:00:00Z"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    await watch.look()
    assert watch.ends.keys() == {"az", "s3"}
    [sentence] = sentences(watch)
    assert "az (AZURE_STORAGE_TOKEN) ended at 1970-01-01T00:00:01Z; for s3 (AWS_ACCESS_KEY_ID) ended" in sentence
    cast(Any, watch.live.config.sources).enabled = False
    await watch.look()
    assert (sentences(watch), watch.ends) == ([], {})
