"""What others did to the store and the state directory is an alarm, until it is cured: a register that does not tell of
models, a directory that was moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.audit.log import AuditLog
from gossipd.core.ids import DeploymentId
from gossipd.core.versions import step_version
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.state_dir import StateDirectory
from gossipd.daemon.store_watch import REGISTER_LOST, STATE_MOVED, STORE_MOVED, StoreWatch, sentence
from gossipd.deployment.statement import Verb, sign_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import pack_about
from gossipd.runtime.ports import NotHeldError
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.models.catalogue import StoredModel
from tests.gossipd.daemon.quiet_store import quiet_store
from tests.gossipd.store.small_models import build, small

KEY = SecretKey(b"k" * 32)
ONE = small()


class Host:
    """A host whose store has one model, and whose register was lost."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = quiet_store(tmp_path / "store")
        self.state, self.statements = StateDirectory(tmp_path / "state"), StatementStore()
        self.alarms = Alarms(AuditLog(tmp_path / "audit.jsonl"))
        self.watch = StoreWatch(self.store, self.state, self.statements, self.alarms, tmp_path / "store")
        self.store.open(ONE.manifest)

    async def look(self) -> list[str]:
        await self.watch.list_and_look()
        return [row.sentence for row in self.alarms.rows.values() if row.code == REGISTER_LOST]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.state.close()
    host.store.close()


async def test_a_lost_register_is_an_alarm_with_the_manifest_to_deploy(host: Host, tmp_path: Path) -> None:
    assert await host.look() == [], "others may be about to tell"
    [words] = await host.look()
    assert "m@1, of which state/register does not tell" in words
    assert Path(words.rpartition("gossipd deploy ")[2]).read_bytes() == ONE.manifest.envelope


@pytest.mark.parametrize(("name", "code"), [("store", STORE_MOVED), ("state", STATE_MOVED)])
async def test_a_directory_that_is_moved_away_is_an_alarm_until_it_is_back(
    host: Host, tmp_path: Path, name: str, code: str
) -> None:
    (tmp_path / name).rename(tmp_path / "away")
    await host.look()
    assert [row.code for row in host.alarms.rows.values()] == [code] and not host.watch.is_resting
    (tmp_path / "away").rename(tmp_path / name)
    await host.look()
    assert code not in [row.code for row in host.alarms.rows.values()]


async def test_pins_that_cannot_be_read_are_an_alarm_until_they_can(host: Host, tmp_path: Path) -> None:
    pins = tmp_path / "store" / ".pinned"
    pins.write_bytes(b"\xff\x00")
    host.store.close()
    host.watch.store = host.store = quiet_store(tmp_path / "store")
    await host.look()
    [row] = [row for row in host.alarms.rows.values() if row.code == "E_STORE_READ"]
    assert "nothing is evicted until it is mended" in row.sentence
    pins.unlink()
    await host.look()
    assert "E_STORE_READ" not in [row.code for row in host.alarms.rows.values()]


async def test_the_alarm_ends_when_something_tells_of_the_model(host: Host) -> None:
    await host.look()
    assert await host.look()
    said = sign_statement(KEY, ONE.manifest.id, epoch=1, verb=Verb.DEPLOY, manifest_bytes=9, now_s=7)
    host.statements.hear(said, [KEY.public.ed25519])
    assert await host.look() == []


@pytest.mark.parametrize("kind", ["removed", "superseded", "being published"])
async def test_what_is_about_to_go_or_to_be_published_is_no_alarm(host: Host, kind: str) -> None:
    if kind == "removed":
        host.statements.mark_removed(ONE.manifest.id)
    elif kind == "superseded":
        host.statements.supersede(ONE.manifest.id)
    else:
        host.state.note_publication(ONE.manifest.id)
    assert await host.look() == await host.look() == []


def test_some_models_are_named_and_others_counted() -> None:
    many = [StoredModel(DeploymentId(bytes([n]) * 32), "org/m", n) for n in range(1, 6)]
    labels = {one.deployment: f"org/m@{one.version}.2" for one in many}
    assert "the store has org/m@1.2, org/m@2.2, org/m@3.2 and 2 more, of" in sentence(many, Path("/models"), labels)


async def test_an_untold_step_is_named_as_a_step(host: Host) -> None:
    about = pack_about({"step": 300, "attempt": 2})
    step = build({"weights.bin": b"w" * 10}, name="run", version=step_version(300, 2), about=about)
    host.store.open(step.manifest)
    await host.look()
    [words] = await host.look()
    assert "the store has m@1, run@300.2, of which" in words


@pytest.mark.parametrize("found", [None, b"", b"damaged"])
async def test_a_model_whose_manifest_is_lost_is_named_by_its_books(
    host: Host, monkeypatch: pytest.MonkeyPatch, found: bytes | None
) -> None:
    def manifest_bytes(deployment: DeploymentId) -> bytes:
        if found is None:
            raise NotHeldError("no manifest here")
        return found

    monkeypatch.setattr(host.store, "manifest_bytes", manifest_bytes)
    await host.look()
    [words] = await host.look()
    assert "the store has m@1, of which" in words


async def test_a_store_that_cannot_be_looked_into_is_an_alarm_until_it_can(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def alarms() -> list[str]:
        await host.watch.list_and_look()
        return [row.sentence for row in host.alarms.rows.values() if row.code == "E_STORE_READ"]

    def closed() -> list[StoredModel]:
        raise StoreUnreadableError("models cannot be read by the daemon: Permission denied")

    assert await alarms() == []
    with monkeypatch.context() as patch:
        patch.setattr(host.store, "models", closed)
        assert await alarms() == ["models cannot be read by the daemon: Permission denied"]
    assert await alarms() == []


async def test_looks_rest_only_while_nothing_is_untold(host: Host) -> None:
    await host.look()
    assert not host.watch.is_resting
    host.statements.mark_removed(ONE.manifest.id)
    await host.look()
    assert host.watch.is_resting


async def test_a_store_that_cannot_be_read_is_looked_at_often(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed() -> list[StoredModel]:
        raise StoreUnreadableError("models cannot be read by the daemon: Permission denied")

    monkeypatch.setattr(host.store, "models", closed)
    host.watch.is_resting = True
    await host.look()
    assert not host.watch.is_resting
