"""One host's rack, out of a file for a whole cluster, through the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipd.config.changes import diff
from gossipd.config.load import ConfigError, load_config, load_with_origins
from gossipd.config.rack_file import FILE_BYTES_MAX

FILE = '[node]\nname = "gpu-7"\nrack = "unknown"\nrack_file = "racks"\n[net]\nbind = "127.0.0.1"\n'


def configured(directory: Path, racks: str | None) -> Path:
    (directory / "gossipd.toml").write_text(FILE)
    if racks is not None:
        (directory / "racks").write_text(racks)
    return directory / "gossipd.toml"


@pytest.mark.parametrize(
    ("racks", "rack"),
    [
        ("gpu-6 r1\ngpu-7\tr2  # by the window\n", "r2"),
        ("# none\n\ngpu-70 r1\n", "unknown"),
        ("", "unknown"),
        ("gpu-6 not/a/rack at all\ngpu-7 r2\n", "r2"),
    ],
)
def test_a_host_takes_the_rack_of_its_own_line(tmp_path: Path, racks: str, rack: str) -> None:
    assert load_config(configured(tmp_path, racks)).node.rack == rack


def test_where_the_rack_comes_from_is_shown(tmp_path: Path) -> None:
    path = configured(tmp_path, "a b\ngpu-7 r2\n")
    assert load_with_origins(path)[1]["node.rack"] == f"{tmp_path}/racks:2"
    path = configured(tmp_path, "a b\n")
    assert load_with_origins(path)[1]["node.rack"] == f"{path}:3"


@pytest.mark.parametrize(
    ("racks", "reason"),
    [
        (None, "racks cannot be read: No such file"),
        ("gpu-7 r1\ngpu-7 r2\n", "has two lines of gpu-7, 1 and 2"),
        ("gpu-7\n", "racks:1 must be a host's name and its rack"),
        ("gpu-7 r 2\n", "racks:1 must be a host's name and its rack"),
        (f"gpu-7 {'r' * 33}\n", "racks:1 '" + "r" * 33),
        ("gpu-7 r\x1b[2J\n", "racks:1 'r\\x1b"),
        ("#" * (FILE_BYTES_MAX + 1), f"has more than {FILE_BYTES_MAX} bytes"),
    ],
)
def test_a_file_that_is_unclear_is_refused_with_its_place(tmp_path: Path, racks: str | None, reason: str) -> None:
    path = configured(tmp_path, racks)
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert f"{path}:4: node.rack_file {tmp_path}/racks" in str(error.value)
    assert reason in str(error.value)


def test_another_rack_needs_a_restart(tmp_path: Path) -> None:
    before = load_config(configured(tmp_path, "gpu-7 r1\n"))
    after = load_config(configured(tmp_path, "gpu-7 r2\n"))
    assert [[one.key for one in changes] for changes in diff(before, after)] == [[], ["node.rack"]]
