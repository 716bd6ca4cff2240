"""Three hosts from the OCI image: its root unpacked and read-only, its command, its user, and a model delivered."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.packages.conftest import manifest_digest
from tests.packages.hosts import BASE, ROOT, Host, hosts, make_model, package, run, until

IMAGE_BYTES_MAX = 120_000_000
HOME = "/var/lib/gossipd"
USER = 10_001


def test_the_image_is_small_and_names_an_unprivileged_user(image: tuple[Path, dict[str, Any]]) -> None:
    root, config = image
    assert package("tar").stat().st_size <= IMAGE_BYTES_MAX
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["/usr/bin/gossipd"]
    assert config["Cmd"] == ["run", "--config", f"{HOME}/gossipd.toml"]
    assert (root / HOME.lstrip("/")).stat().st_uid == USER


def test_a_command_in_a_container_compiles_no_module(image: tuple[Path, dict[str, Any]]) -> None:
    modules = [path for path in image[0].glob("usr/lib/python3.*/**/*.py") if "__pycache__" not in path.parts]
    assert len(modules) > 100
    for path in modules:
        headers = [one.read_bytes()[4:8] for one in path.parent.glob(f"__pycache__/{path.stem}.cpython-*[0-9].pyc")]
        assert headers == [b"\1\0\0\0"], f"{path}: bytecode that is taken without a look at the file's time"


def test_an_image_that_is_built_again_has_the_same_digest(tmp_path: Path) -> None:
    run(ROOT / "config" / "packages" / "image", tmp_path / "again.tar", package("deb"), BASE)
    assert manifest_digest(tmp_path / "again.tar") == manifest_digest(package("tar"))


def test_three_containers_with_a_read_only_root_deliver_a_model(
    image: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    root, config = image
    make_model(tmp_path / "storage" / "toy")
    given = tmp_path / "given"
    given.mkdir()
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]

    def gossipd(host: Host, *words: str) -> str:
        return run(*host.words(["env", "-i", *config["Env"], *user, *config["Entrypoint"], *words])).stdout

    with hosts(tmp_path, ("c1", "c2", "c3"), base=root) as made:
        for number, host in enumerate(made, start=1):
            data = tmp_path / f"data-{number}"
            data.mkdir()
            os.chown(data, USER, USER)
            host.bind(data, HOME)
            host.bind(given, "/given")
            host.bind(tmp_path / "storage", "/storage")
            host.make_read_only()
            if host is made[0]:
                os.chown(given, USER, USER)
                gossipd(host, "keygen", "/given/p.key")
                gossipd(host, "keygen", "--cluster", "/given/cluster.key")
            words = ["init", HOME, "--name", host.name, "--rack", "r1", "--bind", host.address, "--port", "7946"]
            words += ["--cluster-key", "/given/cluster.key", "--trust", "/given/p.key.pub"]
            words += ["--set", "store.any_file_system=true", "--set", "sources.allow=file:///storage"]
            gossipd(host, *words, "--join", f"{made[0].address if host is not made[0] else made[1].address}:7946")
            environment = dict(one.split("=", 1) for one in config["Env"])
            host.start([*user, *config["Entrypoint"], *config["Cmd"]], **environment)
        until("all are there", lambda: _alive(gossipd, made[2]) == 3)
        gossipd(made[0], "publish", "/storage/toy", "--name", "toy", "--version", "1", "--key", "/given/p.key",
                "--out", f"{HOME}/inbox/toy.manifest")  # fmt: skip
        gossipd(made[1], "wait", "toy@1", "--timeout", "60s")
        for host in made:
            assert gossipd(host, "path", "toy").strip() == f"{HOME}/models/toy/1"
            refused = run(*host.words([*user, "touch", "/usr/x"]), check=False)
            assert "Read-only" in refused.stderr
            assert host.stop() == 0


def _alive(gossipd: Any, host: Host) -> int:
    try:
        members = json.loads(gossipd(host, "members", "--json"))["members"]
    except AssertionError:  # it does not answer yet
        return 0
    return sum(one["state"] == "alive" for one in members)
