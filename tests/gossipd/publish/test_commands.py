"""``gossipd keygen`` and ``gossipd publish`` as a person and a script call them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gossipd.cli.main import main
from gossipd.identity.keys import PublicKey, SecretKey
from gossipd.manifest.manifest import open_manifest
from tests.gossipd.publish.trees import TREE, make_tree


@pytest.fixture
def key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["keygen", str(tmp_path / "publisher.key")]) == 0
    capsys.readouterr()
    return tmp_path / "publisher.key"


def arguments(tmp_path: Path, key: Path, *more: str) -> list[str]:
    make_tree(tmp_path / "tree")
    basic = ["--name", "org/m", "--version", "3", "--key", str(key), "--out", str(tmp_path / "m.manifest")]
    return ["publish", str(tmp_path / "tree"), *basic, *more]


def test_keygen_writes_a_secret_for_one_and_a_public_key_for_all(tmp_path: Path, key: Path) -> None:
    secret = SecretKey.from_text(key.read_text())
    public = PublicKey.from_text(key.with_name("publisher.key.pub").read_text())
    assert secret.public == public
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_keygen_of_nothing_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keygen", ""]) == 2
    assert capsys.readouterr().err == "E_USAGE: an argument is empty. Is a variable not set? (see: gossipd --help)\n"


def test_a_version_that_no_manifest_can_have_is_wrong_usage(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments(tmp_path, key), "--version", str(2**53)]) == 2
    assert "9007199254740991" in capsys.readouterr().err


def test_a_manifest_is_not_written_into_the_model_it_describes(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = tmp_path / "tree" / "m.manifest"
    assert main([*arguments(tmp_path, key), "--out", str(inside)]) != 0
    assert "lies in SOURCE" in capsys.readouterr().err
    assert not inside.exists()
    again = [*arguments(tmp_path, key), "--out", str(inside), "--exclude", "*.manifest"]
    assert [main(again), main(again)] == [0, 0], "what is not selected is not in the way"


def test_a_publication_that_is_repeated_is_the_same_deployment(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for now_s, more in ((1_790_000_000, ()), (1_790_000_100, ()), (1_790_000_200, ("--priority", "9"))):
        monkeypatch.setattr("time.time", lambda now_s=now_s: now_s)
        assert main([*arguments(tmp_path, key, *more), "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert [one["is_new"] for one in said] == [True, False, True]
    assert said[0]["id"] == said[1]["id"]
    assert said[2]["id"] != said[0]["id"], "what says something else is another"


def test_keygen_makes_another_key_every_time_and_overwrites_none(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = key.read_text()
    assert main(["keygen", str(key)]) != 0
    assert "not overwritten" in capsys.readouterr().err
    assert key.read_text() == before
    assert main(["keygen", str(tmp_path / "other"), "--json"]) == 0
    words = json.loads(capsys.readouterr().out)
    assert words["schema_version"] == 1
    assert bytes.fromhex(words["ed25519"]) != SecretKey.from_text(before).public.ed25519
    assert before.split()[-1] not in json.dumps(words)


def test_keygen_does_not_leave_half_a_pair(tmp_path: Path) -> None:
    (tmp_path / "k.pub").write_text("in the way")
    assert main(["keygen", str(tmp_path / "k")]) != 0
    assert not (tmp_path / "k").exists()


def test_publish_writes_a_manifest_that_the_public_key_opens(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = ["--targets", "rack=r1,name=gpu-*", "--targets", "rack=r2"]
    more = ["--chunk-size", "64KiB", "--priority", "9", "--exclude", "*/empty", "--expires", "90d", "--json"]
    assert main(arguments(tmp_path, key, "--source", "http://h/m/", *targets, *more)) == 0
    words = json.loads(capsys.readouterr().out)
    public = PublicKey.from_text(key.with_name("publisher.key.pub").read_text())
    manifest = open_manifest((tmp_path / "m.manifest").read_bytes(), [public.ed25519])
    assert words["schema_version"] == 1
    assert (words["id"], words["name"], words["version"]) == (manifest.id.hex(), "org/m", 3)
    assert (words["files"], words["bytes_total"]) == (len(TREE) - 1, manifest.bytes_total)
    assert (words["chunk_bytes"], words["chunks_total"]) == (65536, manifest.chunk_count)
    assert words["sources"] == ["http://h/m/"]
    assert (manifest.targets.racks, manifest.targets.names, manifest.priority) == (("r1", "r2"), ("gpu-*",), 9)
    assert manifest.expires_s == manifest.created_s + 90 * 86400


@pytest.mark.parametrize(
    ("more", "chunk_bytes"),
    [
        (["--link", "100Mbit"], 2 * 2**20),
        (["--chunk-size", "auto", "--link", "100Mbit"], 2 * 2**20),
        (["--link", "100Gbit"], 32 * 2**20),
        (["--link", "100Gbit", "--chunk-borders", "plain"], 64 * 2**20),
    ],
)
def test_chunks_follow_the_hosts_links_where_they_are_told(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str], more: list[str], chunk_bytes: int
) -> None:
    assert main(arguments(tmp_path, key, "--json", *more)) == 0
    assert json.loads(capsys.readouterr().out)["chunk_bytes"] == chunk_bytes


def test_publish_says_what_it_did_and_warns_of_a_path_that_seeds_may_not_see(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, key)) == 0
    said = capsys.readouterr()
    assert "org/m@3" in said.out
    assert "every seed must see that path" in said.err
    assert "\x1b" not in said.err, "no progress bar where nobody looks"


@pytest.mark.parametrize(
    ("more", "end"),
    [
        (["--chunk-size", "much"], (2, "E_USAGE")),
        (["--chunk-size", "100000"], (2, "E_CHUNK_LAYOUT")),
        (["--chunk-size", "auto"], (2, "needs --link")),
        (["--chunk-size", "1MiB", "--link", "1Gbit"], (2, "give it, or --chunk-size")),
        (["--link", "fast"], (2, "is no rate")),
        (["--targets", "zone=a"], (2, "rack=R or name=GLOB")),
        (["--targets", "rack=a b"], (2, "E_NAME")),
        (["--expires", "0s"], (2, "E_USAGE")),
        (["--priority", "10"], (2, "E_USAGE")),
        (["--version", "-1"], (2, "E_USAGE")),
        (["--name", "../up"], (2, "E_NAME")),
        (["--include", "nothing"], (3, "E_EMPTY")),
        (["--source", "http://u:secret@h/"], (2, "E_SOURCE_FORBIDDEN")),
        (["--source", "ftp://h/m/"], (2, "hosts read http, https, hf, s3")),
        (["--key", "/nowhere"], (7, "E_KEY_MISSING")),
        (["--step", "1"], (2, "one of them")),
        (["--attempt", "1"], (2, "goes with --step")),
        (["--keep-every", "10"], (2, "go with --keep-last")),
        (["--keep-last", "0"], (2, "E_USAGE")),
        (["--label", "a"], (2, "KEY=VALUE")),
        (["--label", "a=1", "--label", "a=2"], (2, "each KEY once")),
        (["--label", "a b=1"], (2, "E_NAME")),
        (["--about", "/nowhere"], (3, "--about /nowhere")),
        (["--chunk-borders", "other"], (2, "E_USAGE")),
    ],
)
def test_wrong_arguments_end_with_a_code_a_sentence_and_no_file(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str], more: list[str], end: tuple[int, str]
) -> None:
    assert main(arguments(tmp_path, key, *more)) == end[0]
    error = capsys.readouterr().err
    assert end[1] in error
    assert "secret" not in error
    assert "Traceback" not in error
    assert not (tmp_path / "m.manifest").exists()


@pytest.mark.parametrize(
    ("name", "content", "end"),
    [
        (b"not-\xff-utf8", b"x", (2, "E_PATH_UNICODE")),
        (b"CON", b"x", (2, "E_PATH_RESERVED")),
        (b"empty", b"", (3, "E_EMPTY")),
        (b"pipe", None, (2, "E_FILE_TYPE")),
    ],
)
def test_a_tree_that_no_manifest_can_have_ends_as_wrong_usage(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str], *, name: bytes, content: bytes | None,
    end: tuple[int, str],
) -> None:  # fmt: skip
    call = arguments(tmp_path, key)
    for path in (tmp_path / "tree").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    odd = os.fsencode(tmp_path / "tree") + b"/" + name
    if content is None:
        os.mkfifo(odd)
    else:
        Path(os.fsdecode(odd)).write_bytes(content)
    assert main(call) == end[0]
    assert capsys.readouterr().err.startswith(end[1])


def test_a_lineage_with_a_secret_is_not_signed(tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "about.json").write_text('{"env": {"WANDB_API_KEY": "value"}}')
    assert main(arguments(tmp_path, key, "--about", str(tmp_path / "about.json"))) == 2
    assert capsys.readouterr().err.startswith("E_SECRET: about.env.WANDB_API_KEY looks like a secret")


def test_neither_a_version_nor_a_step_is_wrong_usage(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments(tmp_path, key)
    del words[words.index("--version") : words.index("--version") + 2]
    assert main(words) == 2
    assert "one of them" in capsys.readouterr().err


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key.chmod(0o644)
    assert main(arguments(tmp_path, key)) == 7
    assert "chmod 600" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("keygen", "publish"):
        assert main([command, "--help"]) == 0
        assert "Examples:" in capsys.readouterr().out


def test_on_a_terminal_progress_goes_to_stderr_and_the_result_to_stdout(tmp_path: Path, key: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "gossipd", *arguments(tmp_path, key, "--json")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, check=True)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert f"hashing {len(TREE)} files" in shown
    assert json.loads(done.stdout)["name"] == "org/m"


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d" * 32 + "\nsize 9911\n"


def spoil(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / ".git").mkdir()
    (tree / ".git" / "config").write_text("[remote]")
    (tree / "extra.bin").write_text(POINTER)


def test_what_looks_wrong_is_a_warning_and_what_is_left_out_is_shown(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = arguments(tmp_path, key)
    spoil(tmp_path)
    assert main([*call, "--include", "*.bin", "--include", ".git/", "--json"]) == 0
    said = capsys.readouterr()
    assert (
        "warning: 'extra.bin' is a Git LFS pointer, not the file itself; run 'git lfs pull' there [lfs_pointer]"
        in said.err
    )
    assert "left out by default: .git/ (1); --no-default-excludes takes them in" in said.err
    result = json.loads(said.out)
    assert [(one["kind"], one["path"]) for one in result["findings"]] == [("lfs_pointer", "extra.bin")]
    assert (result["left_out"], result["files"]) == ({".git/": 1}, 1)


def test_strict_refuses_with_a_code_before_anything_is_written(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = arguments(tmp_path, key)
    spoil(tmp_path)
    chosen = ["--include", "*.bin", "--include", ".git/", "--no-default-excludes"]
    assert main([*call, *chosen, "--strict", "--json"]) == 6
    said = capsys.readouterr()
    assert "E_INSPECTION: '.git/config' is Git's own" in said.err
    assert [one["kind"] for one in json.loads(said.out)["error"]["findings"]] == [
        "git_directory",
        "credentials",
        "lfs_pointer",
    ]
    assert not (tmp_path / "m.manifest").exists()
    (tmp_path / "tree" / "extra.bin").unlink()
    (tmp_path / "tree" / "a.bin").write_bytes(bytes(100))
    assert main([*call, "--include", "*.bin", "--strict"]) == 0


def test_files_that_differ_only_in_case_are_named_by_their_paths(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = arguments(tmp_path, key)
    (tmp_path / "tree" / "Config.json").write_text("x")
    assert main(call) == 2
    assert "'Config.json' and 'config.json' are one file to some file systems" in capsys.readouterr().err
