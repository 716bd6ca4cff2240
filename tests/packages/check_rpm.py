"""Two hosts from the rpm, by the real rpm: a model, a repeated installation, removal.

The hosts are Debian's, because no other distribution can be had here: what the rpm asks for (``python(abi)``) is in no
database there, and is not judged. Needs root and Debian's ``rpm``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages.hosts import Host, hosts, make_model, package, run, until

HOME = "/var/lib/gossipd"
AS_DAEMON = "setpriv --reuid=gossipd --regid=gossipd --init-groups"


def rpm(host: Host, *words: str | Path) -> str:
    return run("rpm", "--root", host.root, *words).stdout


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    place = tmp_path_factory.mktemp("rpm")
    make_model(place / "storage" / "toy")
    (place / "given").mkdir(mode=0o755)
    with hosts(place, ("r1", "r2")) as made:
        for host in made:
            host.bind(place / "storage", "/srv/storage")
            host.bind(place / "given", "/given")
            rpm(host, "--install", "--nodeps", package("rpm"))
        yield made


def test_two_hosts_from_the_rpm_deliver_a_model(pair: list[Host]) -> None:
    one, two = pair
    one.sh("gossipd keygen /given/p.key && gossipd keygen --cluster /given/cluster.key")
    one.sh("chgrp gossipd /given/cluster.key && chmod 640 /given/cluster.key")
    for host, other in ((one, two), (two, one)):
        host.sh(
            f"{AS_DAEMON} gossipd init {HOME} --name {host.name} --rack a --bind {host.address} --port 7946 "
            f"--cluster-key /given/cluster.key --trust /given/p.key.pub --join {other.address}:7946 "
            "--set store.any_file_system=true --set sources.allow=file:///srv/storage"
        )
        host.start_unit()
    until("both are there", lambda: "2 alive" in two.sh("gossipd status", check=False).stdout)
    one.sh("gossipd publish /srv/storage/toy --name toy --version 1 --key /given/p.key --out /given/toy.manifest")
    assert two.sh("gossipd deploy /given/toy.manifest --wait --timeout 60s").stdout.endswith(
        "toy@1 complete on 2 of 2 hosts\n"
    )
    for host in pair:
        assert host.sh("cat $(gossipd path toy)/config.json").stdout == '{"model_type": "toy"}\n'
        assert host.sh(f"stat -c %U {HOME}/node.key").stdout == "gossipd\n"


def test_what_was_installed_is_as_the_rpm_says(pair: list[Host]) -> None:
    assert rpm(pair[0], "--query", "gossipd").startswith("gossipd-")
    assert rpm(pair[0], "--verify", "--nodeps", "gossipd") == ""
    assert "/usr/lib/systemd/system/gossipd.service" in rpm(pair[0], "--query", "--list", "gossipd").splitlines()


def test_the_same_rpm_once_more_keeps_all_that_the_host_had(pair: list[Host]) -> None:
    before = pair[0].sh(f"cat {HOME}/node.key.pub {HOME}/gossipd.toml && gossipd ls").stdout
    rpm(pair[0], "--upgrade", "--nodeps", "--replacepkgs", package("rpm"))
    assert pair[0].sh(f"cat {HOME}/node.key.pub {HOME}/gossipd.toml && gossipd ls").stdout == before


def test_a_removal_leaves_keys_and_models(pair: list[Host]) -> None:
    host = pair[1]
    assert host.stop() == 0
    rpm(host, "--erase", "gossipd")
    assert host.sh(f"ls {HOME}/models/toy/1").stdout.split() == ["config.json", "model.safetensors"]
    assert not (host.root / "opt/gossipd/bin").exists()
    assert not (host.root / "usr/bin/gossipd").exists()
