"""Publishing repositories of a hub, which the hub's own client reads, too."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import huggingface_hub
import pytest
from blake3 import blake3

from gossipd.core.errors import ExitCode, GossipdError
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.source_url import parse_source_url
from gossipd.publish.extents import FileExtent, runs
from gossipd.publish.hub_listing import ATTEMPTS, HubFiles, list_repository
from gossipd.publish.selection import EVERYTHING
from tests import servers
from tests.gossipd.publish.trees import CHUNK, check_against, published
from tests.gossipd.sources.certificates import issue
from tests.gossipd.sources.models import sign
from tests.gossipd.sources.test_obstore_errors import answering
from tests.gossipd.sources.test_reader import Seat
from tests.hub import Repository, SmallHub, served_hub

RNG = Random(13)
FILES = {
    "config.json": RNG.randbytes(500),
    "model-1.safetensors": RNG.randbytes(5 * CHUNK + 99),
    "tokenizer/vocab.json": RNG.randbytes(9000),
    "empty.txt": b"",
}
COMMIT = Repository({}).commit


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SmallHub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    with served_hub(org__model=Repository(dict(FILES))) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub
        close_client()


def close_client() -> None:
    """It keeps connections for ever; before 1.0 they cannot be closed, and need not be."""
    getattr(huggingface_hub, "close_session", lambda: None)()


def on_disk(directory: Path) -> Path:
    for path, body in FILES.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(body)
    return directory


def error_of(source: str, out: Path, **options: object) -> GossipdError:
    with pytest.raises(GossipdError) as caught:
        published(source, out, **options)
    assert not out.is_file()
    return caught.value


def test_the_hubs_own_client_lists_resolves_and_downloads_from_the_small_hub(hub: SmallHub, tmp_path: Path) -> None:
    api = huggingface_hub.HfApi(endpoint=hub.endpoint)
    assert api.model_info("org/model").sha == COMMIT
    assert sorted(api.list_repo_files("org/model")) == sorted(FILES)
    for path, body in FILES.items():
        got = huggingface_hub.hf_hub_download(
            "org/model", path, endpoint=hub.endpoint, local_dir=tmp_path / "down", cache_dir=tmp_path / "cache"
        )
        assert Path(got).read_bytes() == body


@pytest.mark.parametrize("revision", ["", "@main", "@refs/pr/1", f"@{COMMIT}"])
def test_a_repository_becomes_a_manifest_that_names_its_commit(hub: SmallHub, tmp_path: Path, revision: str) -> None:
    result, manifest = published(f"hf://org/model{revision}", tmp_path / "out")
    assert manifest.sources == (f"hf://org/model@{COMMIT}/",)
    assert {entry.path: entry.size for entry in manifest.files} == {path: len(body) for path, body in FILES.items()}
    check_against(manifest, on_disk(tmp_path / "tree"))
    assert b"Signature" not in (tmp_path / "out").read_bytes()
    assert result.sources == manifest.sources


def test_what_is_published_from_a_hub_is_what_seeds_read_from_it(hub: SmallHub, tmp_path: Path) -> None:
    _, manifest = published("hf://org/model", tmp_path / "out")
    seat = Seat(manifest, allow=["hf://org"])
    assert seat.read().errors == ()
    seat.reader.close()
    assert len(seat.store.chunks) == manifest.chunk_count
    assert sign(FILES, "hf://org/model").bytes_total == manifest.bytes_total


def test_selected_files_of_a_private_repository_are_published_with_the_token(
    hub: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["org/model"].token = "hf_canary"
    assert error_of("hf://org/model", tmp_path / "out").code == "E_SOURCE_NOT_FOUND"
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    selection = type(EVERYTHING)(include=("*.safetensors",))
    _, manifest = published("hf://org/model", tmp_path / "out", selection=selection)
    assert [entry.path for entry in manifest.files] == ["model-1.safetensors"]
    assert {one.authorization for one in hub.to("storage")} == {None}
    assert b"canary" not in (tmp_path / "out").read_bytes()


def test_the_token_that_the_hubs_own_client_keeps_is_used(hub: SmallHub, tmp_path: Path) -> None:
    hub.repositories["org/model"].token = "hf_kept"
    (tmp_path / "token").write_text("hf_kept\n")
    published("hf://org/model", tmp_path / "out")
    assert {one.authorization for one in hub.to("hub")} == {"Bearer hf_kept"}
    assert "hf_kept" not in repr(list_repository(parse_source_url("hf://org/model"), EVERYTHING))


def test_a_renamed_repository_is_published_under_its_present_name(hub: SmallHub, tmp_path: Path) -> None:
    hub.repositories["org/old"] = Repository({}, moved_to="org/model")
    _, manifest = published("hf://org/old", tmp_path / "out")
    assert manifest.sources == (f"hf://org/model@{COMMIT}/",)


def test_a_hub_as_the_source_of_a_local_tree_is_resolved_to_its_commit(hub: SmallHub, tmp_path: Path) -> None:
    tree = on_disk(tmp_path / "tree")
    _, manifest = published(tree, tmp_path / "out", sources=("hf://org/model@main",))
    assert manifest.sources == (f"hf://org/model@{COMMIT}/",)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("hf://org/nowhere", "E_SOURCE_NOT_FOUND"),
        ("hf://org/model@v9", "E_SOURCE_NOT_FOUND"),
        ("hf://org", "E_SOURCE_FORBIDDEN"),
        ("hf://org/a/b", "E_SOURCE_FORBIDDEN"),
        ("hf://org/model@", "E_SOURCE_FORBIDDEN"),
    ],
)
def test_what_the_hub_does_not_have_is_refused_with_its_name(
    hub: SmallHub, tmp_path: Path, source: str, code: str
) -> None:
    assert error_of(source, tmp_path / "out").code == code


def test_a_repository_of_which_nothing_is_selected_is_not_found(hub: SmallHub, tmp_path: Path) -> None:
    error = error_of("hf://org/model", tmp_path / "out", selection=type(EVERYTHING)(include=("nothing",)))
    assert (error.code, error.exit_code) == ("E_EMPTY", ExitCode.NOT_FOUND)


def test_a_gated_repository_is_told_with_what_helps(hub: SmallHub, tmp_path: Path) -> None:
    hub.repositories["org/model"].token = "hf_other"
    hub.repositories["org/model"].is_gated = True
    error = error_of("hf://org/model", tmp_path / "out")
    assert error.code == "E_SOURCE_AUTH"
    assert "consent" in error.sentence


def test_a_busy_hub_is_waited_for_as_long_as_it_asks(hub: SmallHub) -> None:
    hub.busy = ["7", "3600", '"api";r=0;t=17']
    pauses: list[float] = []
    listing = list_repository(parse_source_url("hf://org/model"), EVERYTHING, sleep=pauses.append)
    assert len(listing.files) == len(FILES)
    assert (pauses[0] >= 7, pauses[1], pauses[2]) == (True, 60.0, 17.0)
    hub.busy = ["1"] * 2 * ATTEMPTS
    with pytest.raises(GossipdError) as caught:
        list_repository(parse_source_url("hf://org/model"), EVERYTHING, sleep=pauses.append)
    assert caught.value.code == "E_SOURCE_BUSY"


def test_a_signed_address_that_expires_while_a_file_is_hashed_is_asked_for_again(hub: SmallHub) -> None:
    listing = list_repository(parse_source_url("hf://org/model"), EVERYTHING)
    files, layout = HubFiles(listing), Layout([one.size for one in listing.files], CHUNK)
    asked = len(hub.to("hub"))
    whole = next(runs(layout))
    for at in range(whole.count):
        segment = layout.segments(at)[0]
        one = FileExtent(at, (segment.length,), (segment,))
        body = FILES["model-1.safetensors"][segment.offset : segment.offset + segment.length]
        assert files.hash_extent(one) == blake3(body).digest()
        hub.advanced_s += hub.lives_s + 1
    assert len(hub.to("hub")) - asked == whole.count == 6


def test_without_the_hubs_client_the_extra_is_named(
    hub: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    error = error_of("hf://org/model", tmp_path / "out")
    assert error.code == "E_SOURCE_LISTING"
    assert "gossipd[hf]" in error.sentence


def test_a_hub_that_is_not_there_is_told(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(GossipdError) as caught:
        list_repository(parse_source_url("hf://org/model"), EVERYTHING, sleep=lambda _: None)
    assert caught.value.code == "E_SOURCE_UNREACHABLE"


def test_a_hub_s_certificate_is_checked_by_the_one_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, certificate, key = issue(tmp_path, "127.0.0.1")

    def code() -> str:
        close_client()  # which looks at the environment once
        with pytest.raises(GossipdError) as caught:
            list_repository(parse_source_url("hf://org/model"), EVERYTHING, sleep=lambda _: None)
        return str(caught.value.code)

    with answering(404, "", certificate=(certificate, key), X_Error_Code="RevisionNotFound") as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        assert code() == "E_SOURCE_TLS"
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert code() == "E_SOURCE_NOT_FOUND"
        assert os.environ["REQUESTS_CA_BUNDLE"] == str(certificate)
    close_client()


def test_a_hub_that_may_not_be_asked_is_told_at_once_with_the_variable(
    hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_client()  # which looks at the variable once
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(GossipdError) as caught:
        list_repository(
            parse_source_url("hf://org/model"), EVERYTHING, sleep=lambda _: pytest.fail("it is no passing trouble")
        )
    assert "HF_HUB_OFFLINE" in caught.value.sentence
    assert hub.asked == []


@pytest.fixture
def proxy() -> Iterator[servers.Squid]:
    directory = Path(tempfile.mkdtemp())  # which squid's own user can read, as it cannot read pytest's
    directory.chmod(0o755)
    with servers.squid(directory / "squid") as running:
        yield running
    shutil.rmtree(directory)


@pytest.mark.needs("squid")
@pytest.mark.parametrize("excluded", ["127.0.0.0/8", "10.0.0.0/8"])
def test_the_hub_is_listed_and_read_by_the_rule_for_proxies(
    hub: SmallHub, proxy: servers.Squid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excluded: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", excluded)
    close_client()  # which looks at the environment once
    published("hf://org/model", tmp_path / "out")
    assert {one.is_proxied for one in hub.asked} == {excluded == "10.0.0.0/8"}
    assert os.environ["NO_PROXY"] == excluded
    assert "http_proxy" not in os.environ
