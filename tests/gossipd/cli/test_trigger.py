"""``gossipd trigger`` as a command: which keys speak, what it prints, how it exits."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from gossipd.cli.main import main
from gossipd.daemon.state_dir import StateDirectory
from gossipd.identity.cluster_key import new_key_ring
from gossipd.identity.key_files import read_key_ring, write_key_pair, write_key_ring, write_public_key
from gossipd.identity.keys import verify
from gossipd.manifest.envelope import seal
from gossipd.manifest.manifest import deployment_id
from gossipd.wire import control
from membership.member import Record, node_id
from membership.record import sign_record
from tests.gossipd.control.nodes import secret_of
from tests.gossipd.control.test_trigger import CLIENT, PUBLISHER, ServedNode, served_node

ENVELOPE = seal("gossipd-manifest", b"payload", [PUBLISHER])


async def run(*arguments: str) -> int:
    return await trio.to_thread.run_sync(main, ["trigger", *arguments])


def files(d: ServedNode, place: Path) -> list[str]:
    write_key_pair(place / "client.key", CLIENT)
    write_public_key(place / "node.pub", d.node.host.secret.public)
    (place / "m.manifest").write_bytes(ENVELOPE)
    return ["--key", str(place / "client.key"), "--server-key", str(place / "node.pub")]


async def test_a_client_deploys_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with served_node() as d:
        keys = files(d, tmp_path)
        address = f"127.0.0.1:{d.node.port}"
        assert await run(address, str(tmp_path / "m.manifest"), *keys) == 0
        shown = capsys.readouterr().out
        assert shown == f"qwen@3 is being deployed (deployment {deployment_id(ENVELOPE).hex()[:12]}, epoch 1)\n"
        assert await run(address, str(tmp_path / "m.manifest"), *keys, "--cancel", "--json") == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer == {
            "schema_version": 1,
            "accepted": True,
            "verb": "cancel",
            "id": deployment_id(ENVELOPE).hex(),
            "epoch": 1,
            "already": False,
            "sentence": "qwen@3 is being deployed",
        }


async def test_a_client_gives_a_budget_in_bytes_and_a_node_in_money(tmp_path: Path) -> None:
    async with served_node() as d:
        keys, known = files(d, tmp_path), deployment_id(ENVELOPE)
        d.host.states[known] = control.TriggerState(known, 0, "", 0, budget_ms=int(time.time() * 1000))
        order = (f"127.0.0.1:{d.node.port}", str(tmp_path / "m.manifest"))
        assert await run(*order, *keys, "--budget", "600GB") == 0
        configured(d, tmp_path, port=d.node.port, number=1)
        with (tmp_path / "gossipd.toml").open("a") as file:
            file.write("[sources]\nmoney_per_gb = 0.5\n")
        assert await run(*order, "--config", str(tmp_path / "gossipd.toml"), "--budget", "50") == 0
        assert await run(*order, *keys, "--budget", "none") == 0
        assert [one.bytes_max for one in d.host.budgets if one] == [600 * 10**9, 100 * 10**9, 0]
        assert await run(*order, *keys, "--budget", "50") == 2, "a client has no price"
        assert await run(*order, *keys, "--budget", "600GB", "--cancel") == 2


def configured(d: ServedNode, place: Path, *, port: int, number: int) -> None:
    """A node's directory; its key is ``number``'s."""
    (place / "gossipd.toml").write_text(f'[node]\nname = "a"\nrack = "r"\n[net]\nbind = "127.0.0.1"\nport = {port}\n')
    write_key_pair(place / "node.key", secret_of(number))
    write_key_ring(place / "cluster.key", new_key_ring(bytes(range(48))))


async def test_a_node_triggers_itself_with_its_own_keys(tmp_path: Path) -> None:
    async with served_node() as d:
        configured(d, tmp_path, port=d.node.port, number=1)
        (tmp_path / "m.manifest").write_bytes(ENVELOPE)
        address = f"127.0.0.1:{d.node.port}"
        assert await run(address, str(tmp_path / "m.manifest"), "--config", str(tmp_path / "gossipd.toml")) == 0
        assert d.host.orders[0][0].node == d.node.host.node


async def test_another_members_key_is_found_in_the_roster_and_only_if_it_is_signed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served_node() as d:
        configured(d, tmp_path, port=1, number=2)
        member = secret_of(2)
        d.node.host.known[member.public.curve25519] = node_id(member.public.ed25519)
        d.node.host.directory[node_id(member.public.ed25519)] = d.node.host.directory[d.node.host.node]
        (tmp_path / "m.manifest").write_bytes(ENVELOPE)
        order = [f"127.0.0.1:{d.node.port}", str(tmp_path / "m.manifest"), "--config", str(tmp_path / "gossipd.toml")]
        order[0] = f"127.0.0.2:{d.node.port}"
        assert await run(*order) == 3
        assert "--server-key" in capsys.readouterr().err
        secret = d.node.host.secret
        unsigned = Record(
            secret.public.ed25519, 1, 1, "b", "r", "", "127.0.0.2", d.node.port, 2,
            secret.public.curve25519, 0, "x", b"", b"",
        )  # fmt: skip
        ring = read_key_ring(tmp_path / "cluster.key")
        for cluster, expected in ((b"another cluster!", 3), (ring.cluster_id, 4)):
            signed, _ = sign_record(unsigned, cluster, secret.sign)
            assert verify(secret.public.ed25519, signed.signature, b"") is False
            state = StateDirectory(tmp_path / "state")
            state.keep_roster([signed])
            state.close()
            # 4: the key was found, and then nothing listens at 127.0.0.2, where only the record says that it is
            assert await run(*order) == expected
        other = secret_of(3)
        named = replace(unsigned, name="c", public_key=other.public.ed25519, transport_key=other.public.curve25519)
        liar, _ = sign_record(named, ring.cluster_id, other.sign)
        state = StateDirectory(tmp_path / "state")
        state.keep_roster([liar, signed])
        state.close()
        capsys.readouterr()
        assert await run(*order) == 3
        assert f"b and c name 127.0.0.2 port {d.node.port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["127.0.0.1", "x@1", "--key", "k", "--server-key", "s"], 2, "HOST:PORT"),
        (["127.0.0.1:1", "x@1"], 2, "--config"),
        (["127.0.0.1:1", "x@1", "--key", "k"], 2, "--server-key"),
        (["127.0.0.1:1", "x@1", "--key", "k", "--config", "c"], 2, "either"),
        (["127.0.0.1:1", "no-file", "--key", "k", "--server-key", "s"], 3, "neither a file nor"),
        (["127.0.0.1:1", "x@1", "--key", "missing", "--server-key", "s"], 7, "E_KEY_MISSING"),
        (["127.0.0.1:1", "x@1", "--config", "missing"], 2, "E_CONFIG"),
    ],
)
def test_wrong_use_is_told_before_anything_is_sent(
    arguments: list[str], exit_code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trigger", *arguments]) == exit_code
    assert words in capsys.readouterr().err


async def test_failures_have_their_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with served_node() as d:
        keys = files(d, tmp_path)
        address = f"127.0.0.1:{d.node.port}"
        assert await run(address, "qwen@9", *keys) == 3
        d.node.host.clients.clear()
        assert await run(address, "qwen@9", *keys) == 7
        assert "security.clients" in capsys.readouterr().err
        d.node.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert await run(address, "qwen@9", *keys, "--json") == 4
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "E_NODE_UNREACHABLE"


async def test_a_silent_node_is_a_timeout(tmp_path: Path) -> None:
    async with served_node() as d:
        d.node.host.on_request = lambda *_: None  # type: ignore[method-assign]
        assert await run(f"127.0.0.1:{d.node.port}", "x@1", *files(d, tmp_path), "--timeout", "200ms") == 5


def test_the_state_reply_has_what_the_command_needs() -> None:
    assert {"deployment", "epoch", "manifest_bytes"} <= set(control.TriggerState.__struct_fields__)
