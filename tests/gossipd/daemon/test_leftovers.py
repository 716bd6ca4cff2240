"""What a start deletes of the last run, and what it keeps, on a real store and real state files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.daemon.leftovers import clear, delete_cut_short, finish_removals, settle_publication
from gossipd.daemon.state_dir import SCRATCH, StateDirectory
from gossipd.deployment.statement import Verb, sign_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.keys import SecretKey
from tests.gossipd.daemon.quiet_store import quiet_store
from tests.gossipd.store.small_models import Model, small

KEY = SecretKey(b"k" * 32)
ONE = small()


class Host:
    """A host whose store has begun one model."""

    def __init__(self, tmp_path: Path, model: Model) -> None:
        self.store = quiet_store(tmp_path / "store")
        self.state, self.statements = StateDirectory(tmp_path / "state"), StatementStore()
        self.incoming = tmp_path / "store" / ".incoming"
        self.store.open(model.manifest)
        self.store.put(model.manifest.id, 0, model.chunks[0], SOURCE, 0.0)

    def start(self) -> None:
        delete_cut_short(self.state, self.statements, self.store)
        finish_removals(self.state, self.statements, self.store)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path, ONE)
    yield host
    host.state.close()
    host.store.close()


def test_a_publication_that_was_cut_short_leaves_nothing(host: Host) -> None:
    host.state.note_publication(ONE.manifest.id)
    host.start()
    assert host.store.models() == []
    assert os.listdir(host.incoming) == []
    assert host.state.publications() == []


def test_a_start_whose_deletions_do_not_end_names_the_models_directory(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def hang() -> list[DeploymentId]:
        until_s = time.monotonic() + 20
        while not caplog.records and time.monotonic() < until_s:
            time.sleep(0.001)
        return []

    monkeypatch.setattr(host.state, "envelopes", hang)
    with caplog.at_level("WARNING"):
        trio.run(partial(clear, host.state, host.statements, host.store, models=Path("models"), wait_s=0.01))
    assert [record.getMessage() for record in caplog.records] == ["the start waits for a directory"]


def test_what_a_publication_was_writing_when_its_daemon_was_killed_goes(host: Host) -> None:
    left = host.state.path / f"{SCRATCH}abcd"
    left.mkdir()
    (left / "manifest").write_text("half")
    host.start()
    assert not left.exists()


def test_chunks_whose_statement_the_register_has_forgotten_are_kept(host: Host) -> None:
    host.start()
    assert list(host.store.held(ONE.manifest.id)) == [0]


@pytest.mark.parametrize("verb", [Verb.DEPLOY, Verb.CANCEL])
def test_a_publication_that_was_told_is_kept_whatever_was_said_since(host: Host, verb: Verb) -> None:
    host.state.note_publication(ONE.manifest.id)
    epoch = host.statements.next_epoch(ONE.manifest.id, verb)
    statement = sign_statement(KEY, ONE.manifest.id, epoch=epoch, verb=verb, manifest_bytes=9, now_s=7)
    host.statements.hear(statement, [KEY.public.ed25519])
    host.start()
    assert list(host.store.held(ONE.manifest.id)) == [0]
    assert host.state.publications() == [], "a later loss of the statement deletes nothing"


def test_a_publication_that_users_see_is_kept(host: Host) -> None:
    for chunk, body in enumerate(ONE.chunks):
        host.store.put(ONE.manifest.id, chunk, body, SOURCE, 0.0)
    host.store.finish(ONE.manifest.id)
    host.state.note_publication(ONE.manifest.id)
    host.start()
    assert host.store.versions("m") == [1]


def test_shards_that_nobody_has_told_of_go_while_the_daemon_runs(host: Host) -> None:
    host.state.note_publication(ONE.manifest.id)
    assert settle_publication(ONE.manifest.id, host.state, host.statements, host.store)
    assert host.store.models() == []
    assert os.listdir(host.incoming) == []
    assert host.state.publications() == []


def test_a_removal_that_was_not_finished_is_finished(host: Host) -> None:
    host.statements.mark_removed(ONE.manifest.id)
    host.start()
    assert host.store.models() == []
