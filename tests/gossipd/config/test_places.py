"""Where models and trust may be kept: asked before anything is made or bound."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.config import places
from gossipd.config.load import ConfigError, parse_config
from gossipd.config.sections import Config
from gossipd.core.errors import ExitCode
from gossipd.store.models import layout

LEAST = '[node]\nname = "a"\nrack = "r"\n[net]\nbind = "10.0.0.1"\n'


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gossipd-places-", dir="/dev/shm") as directory:
        yield Path(directory)


def config(home: Path, text: str = "") -> Config:
    inbox = home / "inbox"
    if not inbox.exists():
        inbox.mkdir(mode=0o750)
    return parse_config(LEAST + text, home / "gossipd.toml", {})


def test_b35_a_store_in_memory_is_refused_with_every_place_named(memory: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        places.check_places(config(memory))
    assert (caught.value.code, caught.value.exit_code) == ("E_CONFIG", ExitCode.USAGE)
    assert [problem.key for problem in caught.value.problems] == ["store.models", ""]
    assert all("tmpfs" in problem.reason and "any_file_system" in problem.reason for problem in caught.value.problems)


def test_b35_a_store_on_the_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nfs(path: Path) -> str | None:
        return "lies on NFS, which is elsewhere" if path.name == "models" else None

    monkeypatch.setattr(places, "why_unfit", nfs)
    with pytest.raises(ConfigError) as caught:
        places.check_places(config(tmp_path))
    assert f"store.models {tmp_path}/models lies on NFS" in caught.value.sentence


def test_an_operator_may_insist(memory: Path) -> None:
    places.check_places(config(memory, "[store]\nany_file_system = true\n"))


def test_a_place_that_cannot_be_looked_at_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> str | None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(places, "why_unfit", denied)
    with pytest.raises(ConfigError, match="cannot be checked: Permission denied"):
        places.check_places(config(tmp_path))


@pytest.mark.parametrize("insists", ["", "[store]\nany_file_system = true\n"])
def test_a_home_that_others_may_write_to_is_refused_for_all_that_lies_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, insists: str
) -> None:
    monkeypatch.setattr(places, "why_unfit", lambda path: None)
    home = tmp_path / "home"
    home.mkdir(mode=0o750)
    places.check_places(config(home, insists))
    home.chmod(0o770)
    with pytest.raises(ConfigError, match="can be exchanged by other users") as caught:
        places.check_places(config(home, insists))
    keys = ["", "store.models", "store.inbox", "status.socket", "status.read_socket"]
    assert [problem.key for problem in caught.value.problems] == keys


def test_a_socket_behind_a_link_is_as_safe_as_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "why_unfit", lambda path: None)
    shared = tmp_path / "shared" / "run"
    shared.mkdir(parents=True)
    shared.parent.chmod(0o777)
    home = tmp_path / "home"
    home.mkdir(mode=0o750)
    (home / "run").symlink_to(shared)
    with pytest.raises(ConfigError) as caught:
        places.check_places(config(home, '[status]\nsocket = "run/gossipd.sock"\n'))
    assert [problem.key for problem in caught.value.problems] == ["status.socket"]


def test_a_watched_directory_of_an_unknown_user_is_refused(tmp_path: Path) -> None:
    table = '[[publish.watch]]\ndirectory = "d"\nname = "m"\nuser = "no-such-user"\n'
    text = f'[store]\nany_file_system = true\n[publish]\nkeys = ["k"]\n{table}'
    with pytest.raises(ConfigError) as caught:
        places.check_places(config(tmp_path, text))
    assert [str(problem.key) for problem in caught.value.problems] == ["publish.watch"]
    assert "names user 'no-such-user', which this host does not have" in str(caught.value)


INSISTS = "[store]\nany_file_system = true\n"


def told(home: Path) -> list[str]:
    """The problems, each with its key and what follows the path."""
    with pytest.raises(ConfigError) as caught:
        places.check_places(config(home, INSISTS))
    return [f"{problem.key}: {problem.reason.partition(' ')[2]}" for problem in caught.value.problems]


def test_what_stands_in_the_place_of_a_directory_or_socket_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    for name in ("models", "state", "inbox"):
        (tmp_path / name).write_text("")
    for name in ("gossipd.sock", "gossipd-read.sock"):
        (tmp_path / name).mkdir()
    assert told(tmp_path) == [
        "store.models: is no directory; move it away",
        "store.inbox: is no directory; move it away",
        ": is no directory; move it away",
        "status.socket: is a directory; move it away",
        "status.read_socket: is a directory; move it away",
    ]


def test_an_inbox_of_others_and_links_are_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    (tmp_path / "models").symlink_to("nowhere")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox").chmod(0o777)
    assert told(tmp_path) == [
        "store.models: is a link that leads nowhere; make what it leads to, or remove it",
        "store.inbox: is writable by other users (mode 777); use 0750",
    ]
    (tmp_path / "inbox").rename(tmp_path / "elsewhere")
    (tmp_path / "inbox").symlink_to("elsewhere")
    assert told(tmp_path)[1] == "store.inbox: is a link, which is not followed; name the directory itself"


def test_a_socket_that_is_not_made_or_cannot_be_looked_at_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    tmp_path.chmod(0o750)
    (tmp_path / "gossipd-read.sock").mkdir()
    places.check_places(config(tmp_path, f'{INSISTS}[status]\nreaders = "none"\n'))
    (tmp_path / "gossipd-read.sock").rmdir()
    made = config(tmp_path, INSISTS)
    monkeypatch.setattr(Path, "is_dir", denied)
    monkeypatch.setattr(places, "why_unusable", lambda path: None)
    places.check_places(made)


def test_root_asks_as_the_owner_of_the_configuration(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    made = config(tmp_path, INSISTS)
    made.file.touch()
    for path in (made.file, made.store.inbox):
        os.chown(path, 65534, 65534)
    places.check_places(made)
    os.chown(made.store.inbox, 65533, 65533)
    with pytest.raises(ConfigError, match="belongs to user 65533"):
        places.check_places(made)


def restored(home: Path, *foreign: str) -> Config:
    """Directories as a daemon of another user leaves them, with these files as root has restored them."""
    home.chmod(0o755)
    made = config(home, INSISTS)
    (home / "state" / "manifests").mkdir(parents=True)
    (home / "models" / ".trash").mkdir(parents=True)
    for path in ("state/register", "state/boot", "models/.lock", "models/.store"):
        (home / path).touch(mode=0o600)
    for made_path in home.rglob("*"):
        owner = 0 if str(made_path.relative_to(home)) in foreign else NOBODY
        os.chown(made_path, owner, owner)
    made.file.touch()
    os.chown(made.file, NOBODY, NOBODY)
    return made


NOBODY = 65534
NEEDED = ["state/register", "state/boot", "state/manifests", "models/.lock", "models/.store", "models/.trash"]


@pytest.mark.needs("root")
@pytest.mark.parametrize("path", NEEDED)
def test_root_finds_the_files_that_are_closed_to_the_daemon(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        places.check_places(restored(tmp_path, path))
    [problem] = caught.value.problems
    root = (tmp_path / path).parent
    assert problem.key == ("store.models" if root.name == "models" else "")
    assert problem.reason.startswith(f"{tmp_path / path} belongs to user root and is closed to user ")
    assert problem.reason.endswith(f" {root}") and "; chown -R " in problem.reason


def test_the_check_knows_every_file_of_the_store_that_its_start_needs() -> None:
    assert set(places.STORE_NEEDS) == {layout.LOCK, layout.MARKER, *layout.DIRECTORIES}


@pytest.mark.needs("root")
def test_many_closed_files_of_one_directory_are_one_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        places.check_places(restored(tmp_path, "state/register", "state/boot", "state/manifests"))
    assert [problem.reason.endswith("; 2 more in it are closed") for problem in caught.value.problems] == [True]


@pytest.mark.needs("root")
def test_no_fault_is_found_where_the_daemon_may_open_all(tmp_path: Path) -> None:
    made = restored(tmp_path, "state/register", "models/.store")
    for path in ("state/register", "models/.store"):
        (tmp_path / path).chmod(0o644)
    (tmp_path / "state" / "notes").touch(mode=0o600)  # root's own, which the daemon does not look at
    (tmp_path / "state" / "boot.part").touch(mode=0o600)
    places.check_places(made)
    for name in ("state", "models"):  # the daemon is root's own
        os.chown(tmp_path / name, 0, 0)
    places.check_places(made)


@pytest.mark.needs("root")
def test_a_daemons_user_finds_a_directory_that_is_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = restored(tmp_path)
    os.chown(tmp_path / "state", 0, 0)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(ConfigError, match=r"/state belongs to user root, and this is user .*; be root, or chown -R"):
        places.check_places(made)


def test_an_inbox_that_is_not_there_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    made = config(tmp_path, INSISTS)
    made.store.inbox.rmdir()
    with pytest.raises(ConfigError, match=r"store\.inbox .*/inbox is not there; make it"):
        places.check_places(made)
