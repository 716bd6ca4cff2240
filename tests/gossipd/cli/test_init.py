"""``gossipd init``: what it writes, what it says, what it refuses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from gossipd.cli.main import main
from gossipd.config.keys import read_keys
from gossipd.config.load import load_config
from gossipd.identity.key_files import read_key_ring, read_secret_key, write_key_pair
from gossipd.identity.keys import SecretKey

FIRST = ["--name", "a", "--rack", "r1", "--bind", "127.0.0.1", "--port", "7946"]


def test_a_directory_is_written_that_the_daemon_can_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publisher = SecretKey(b"p" * 32)
    write_key_pair(tmp_path / "publisher.key", publisher)
    place = tmp_path / "deep" / "node"
    options = ["--zone", "z1", "--advertise", "10.1.2.3", "--bulk-bind", "10.9.9.9"]
    options += ["--join", "h1:7946", "--join", "[fd00::1]:7946", "--trust", str(tmp_path / "publisher.key.pub")]
    assert main(["init", str(place), *FIRST, *options]) == 0
    config = load_config(place / "gossipd.toml", {})
    assert (config.node.name, config.node.rack, config.node.zone) == ("a", "r1", "z1")
    assert (config.net.bind, config.net.port, config.advertised) == ("127.0.0.1", 7946, "10.1.2.3")
    assert config.bulk_address == ("10.9.9.9", 7947)
    assert config.net.join == ("h1:7946", "[fd00::1]:7946")
    keys = read_keys(config)
    assert keys.publishers == (publisher.public,)
    assert len(keys.cluster.keys) == 1
    assert {path.name for path in place.iterdir()} == {
        "gossipd.toml", "node.key", "node.key.pub", "cluster.key", "inbox", "models", "trust",
    }  # fmt: skip
    for secret in ("node.key", "cluster.key"):
        assert stat.S_IMODE((place / secret).stat().st_mode) == 0o600
    modes = [stat.S_IMODE((place / made).stat().st_mode) for made in ("", "models", "inbox", "gossipd.toml")]
    assert modes == [0o755, 0o755, 0o750, 0o644]
    shown = capsys.readouterr().out
    assert f"next: gossipd run --config {place}/gossipd.toml" in shown
    assert "--join 10.1.2.3:7946" in shown
    for key in (read_secret_key(place / "node.key").seed, keys.cluster.keys[0]):
        assert key.hex() not in shown


def test_a_second_host_shares_the_cluster_and_nothing_else(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "a"), *FIRST]) == 0
    joining = ["--cluster-key", str(tmp_path / "a" / "cluster.key"), "--join", "127.0.0.1:7946"]
    assert main(["init", str(tmp_path / "b"), *FIRST, *joining]) == 0
    one, other = (load_config(tmp_path / name / "gossipd.toml", {}) for name in "ab")
    assert read_keys(one).cluster == read_keys(other).cluster
    assert read_keys(one).node != read_keys(other).node
    (tmp_path / "a" / "cluster.key").unlink()
    assert read_keys(other).cluster.keys  # it was copied, so that each directory is whole by itself


def test_with_if_missing_a_second_call_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["init", str(tmp_path / "a"), *FIRST, "--if-missing"]
    assert main(words) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([*words, "--name", "other"]) == 0
    assert "is there already; nothing was changed" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == []
    assert {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()} == before
    (tmp_path / "a" / "gossipd.toml").unlink()
    assert main(words) == 2, "a directory that is half there is no host"


def test_json_names_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "a"), *FIRST, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert all(Path(path).is_file() for path in answer["files"])
    assert answer["config"] == str(tmp_path / "a" / "gossipd.toml")
    assert answer["cluster"] == read_key_ring(tmp_path / "a" / "cluster.key").cluster_id.hex()
    assert answer["public_key"] == read_secret_key(tmp_path / "a" / "node.key").public.ed25519.hex()


def test_any_setting_can_be_given_and_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["status.metrics_port=9100", "sources.allow=s3://models,https", "limits.upload_bytes_per_s=1GiB"]
    options = [word for one in (*given, "node.zone=z1", "store.models=/srv/m") for word in ("--set", one)]
    assert main(["init", str(tmp_path / "a"), *FIRST, *options]) == 0
    config = load_config(tmp_path / "a", {})
    assert (config.status.metrics_port, config.limits.upload_bytes_per_s) == (9100, 1024**3)
    assert config.sources.allow == ("s3://models", "https")
    assert (config.node.zone, config.store.models) == ("z1", Path("/srv/m"))
    capsys.readouterr()
    wrong = ["limits.upload_slot=3", "net.port=7", "nonsense", "log.level=loud", "security.trust=x", "store.models"]
    options = [word for one in wrong for word in ("--set", one)]
    assert main(["init", str(tmp_path / "b"), *FIRST, *options]) == 2
    assert not (tmp_path / "b").exists()
    assert capsys.readouterr().err.splitlines() == [
        "E_CONFIG: 6 problems",
        "--set: limits.upload_slot is not a setting; did you mean limits.upload_slots?",
        "--set: net.port is given twice",
        "--set: nonsense must be SECTION.KEY=VALUE",
        '--set: log.level must be "debug" or "info" or "warning" or "error"',
        "--set: security.trust is made by init; see --cluster-key and --trust",
        "--set: store.models must be SECTION.KEY=VALUE",
    ]


@pytest.mark.parametrize("there", ["gossipd.toml", "node.key", "node.key.pub", "cluster.key"])
def test_nothing_is_overwritten_and_nothing_else_written(
    tmp_path: Path, there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / there).write_text("mine")
    assert main(["init", str(tmp_path), *FIRST]) == 2
    assert "E_EXISTS" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_all_wrong_values_are_named_at_once_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--name", "a b", "--rack", "a b", "--bind", "nowhere", "--port", "70000", "--join", "x"]
    assert main(["init", str(tmp_path / "a"), *options]) == 2
    shown = capsys.readouterr().err
    for key in ("node.name", "node.rack", "net.bind", "net.port", "net.join"):
        assert key in shown
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("option", "content", "mode", "code"),
    [
        ("--cluster-key", "gossipd-cluster-key 9\n", 0o600, "E_KEY_FORMAT"),
        ("--cluster-key", None, 0, "E_KEY_MISSING"),
        ("--cluster-key", f"gossipd-cluster-key 1\ncluster {'a' * 32}\nkey {'b' * 64}\n", 0o640, "E_KEY_EXPOSED"),
        ("--trust", "not a key", 0o644, "E_KEY_FORMAT"),
        ("--trust", None, 0, "E_KEY_MISSING"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, option: str, content: str | None, mode: int, code: str
) -> None:
    given = tmp_path / "given"
    if content is not None:
        given.write_text(content)
        given.chmod(mode)
    assert main(["init", str(tmp_path / "a"), *FIRST, option, str(given)]) == 7
    shown = capsys.readouterr().err
    assert code in shown
    assert "bbbb" not in shown
    assert not (tmp_path / "a").exists()


def test_a_wildcard_address_needs_one_to_advertise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--name", "a", "--rack", "r", "--bind", "0.0.0.0", "--port", "7946"]
    assert main(["init", str(tmp_path / "a"), *options]) == 2
    assert "net.advertise" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "a"), *options, "--advertise", "10.0.0.1"]) == 0


def test_a_missing_option_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "a"), "--rack", "r"]) == 2
    assert "--name" in capsys.readouterr().err
