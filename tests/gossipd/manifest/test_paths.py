"""Paths together: what clashes is found whatever the order, and no list of them costs more than its bytes."""

from __future__ import annotations

import random
import tracemalloc
import unicodedata

import pytest

from gossipd.manifest import paths as paths_module
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.paths import _FOLDED_SLASH, DIRECTORIES_MAX, FOLDED_CHARS_MAX, check_paths


def refusal(paths: list[str]) -> str | None:
    try:
        check_paths(paths)
    except ManifestError as error:
        return error.code
    return None


def clashes(paths: list[str]) -> bool:
    """The same by the plain definition: every directory of every path is kept."""
    files: set[str] = set()
    directories: dict[str, str] = {}
    for path in paths:
        if path.lower() in files:
            return True
        files.add(path.lower())
        parts = path.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            if directories.setdefault(parent.lower(), parent) != parent:
                return True
    return bool(files & directories.keys())


def test_clashes_are_those_of_the_plain_definition() -> None:
    rng = random.Random(7)
    found = [0, 0]
    for _ in range(20_000):
        paths = ["/".join(rng.choices("aAb.-Bcd", k=rng.randint(1, 3))) for _ in range(rng.randint(1, 4))]
        paths = [path.replace(".", "a.b").replace("-", "-a") for path in paths]
        expected = clashes(paths)
        assert (refusal(paths) is not None) == expected, paths
        found[expected] += 1
    assert min(found) > 2_000


def test_a_hundred_thousand_files_of_usual_depth_pass() -> None:
    check_paths([f"layers/{i % 97:03}/experts/{i % 31:02}/weight-{i:06}.safetensors" for i in range(100_000)])


def test_each_directory_counts_once_and_there_is_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module, "DIRECTORIES_MAX", 12)
    paths = [f"{one}/{two}/{three}/f{four}" for one in "ab" for two in "12" for three in "xy" for four in range(3)]
    random.Random(3).shuffle(paths)
    assert refusal(paths[:-1]) == "E_LIMIT"  # 2 + 4 + 8
    assert refusal([path for path in paths if not path.startswith("b/2")]) is None
    assert DIRECTORIES_MAX == 200_000


def test_directories_are_not_kept_in_memory() -> None:
    paths = [f"{index}/" + "d/" * 30 + "f" for index in range(5_000)]
    tracemalloc.start()
    try:
        check_paths(paths)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_only_names_that_need_normalising_count_against_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module, "FOLDED_CHARS_MAX", 400)
    usual = [f"模型/权重-{index}.é" for index in range(1_000)]
    assert refusal(usual) is None
    assert refusal([*usual, "\uff11" * 80]) is None
    assert refusal([*usual, "\ufdfa" * 80]) == "E_LIMIT"  # each is eighteen characters
    assert FOLDED_CHARS_MAX == 1 << 20


def test_every_character_that_folds_to_a_slash_is_known() -> None:
    found = {one for one in map(chr, range(0x110000)) if "/" in unicodedata.normalize("NFKC", one.casefold())}
    assert {one for one in map(chr, range(0x110000)) if _FOLDED_SLASH.fullmatch(one)} == found


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        (["a\uff0fb", "a/b"], "E_PATH_COLLISION"),
        (["x\uff0fy/f", "x/y/g"], "E_PATH_COLLISION"),
        (["x\uff0fy/f", "x\uff0fy/g"], None),
        (["\u2100/f", "a/c/g"], "E_PATH_COLLISION"),
        (["straße/one", "strasse/two"], "E_PATH_COLLISION"),
        (["straße/one", "straße/two"], None),
        (["ordner/straße", "ordner/strase"], None),
    ],
)
def test_folded_forms_are_compared_by_directory(paths: list[str], code: str | None) -> None:
    assert refusal(paths) == code
    assert refusal(paths[::-1]) == code


_BAD = [
    "", "/a", "a/", "a//b", ".", "a/..", "a.", "a /b", "CON", "lpt1 .x/y", ".gossipd-x", "x.PART", "a:b", "a\nb",
    "e\u0301", "a\u200b", "n" * 256, "\u20ac" * 86, "d/" * 32 + "f", "a/" + "p/" * 20 + "q" * 4096,
]  # fmt: skip


@pytest.mark.parametrize("bad", _BAD)
@pytest.mark.parametrize("at", [0, 5, 299])
def test_a_bad_path_is_found_among_hundreds_of_good_ones(bad: str, at: int) -> None:
    usual = [f"layer-{index}/weights" for index in range(300)]
    alone = refusal([bad])
    assert alone is not None
    assert refusal([*usual[:at], bad, *usual[at:]]) == alone
