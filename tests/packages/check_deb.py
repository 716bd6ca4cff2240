"""Three hosts from the deb by the manual alone: installed, a model delivered, upgraded, purged.

What lives here: running the blocks of ``gossipd help install`` and ``upgrade`` on the hosts that they name. What does
not: the hosts (``hosts``). systemd does not run in them; what its unit says is done by ``start_unit``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.cli.help import page
from tests.packages.hosts import Host, hosts, make_model, newer_deb, package, run, until

_BLOCK = re.compile(r"<!-- on (?P<where>[^>]+) -->\n```sh\n(?P<script>.*?)^```", re.DOTALL | re.MULTILINE)
NAMES = ("gpu-1", "gpu-2", "gpu-3")


def follow(topic: str, made: dict[str, Host]) -> str:
    """Run a page's blocks in its order; daemons start before the first block that is ``after start``."""
    said = ""
    for block in _BLOCK.finditer(page(topic)):
        words = block["where"].split()
        if "start" in words:
            for host in made.values():
                if host.process is None:
                    host.start_unit()
        for name in (word for word in words if word in made):
            host = made[name]
            is_running = host.process is not None
            said += host.sh(block["script"]).stdout
            if "upgrade" in words and is_running:  # as `systemctl try-restart` in the package's script
                assert host.stop() == 0
    return said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    place = tmp_path_factory.mktemp("deb")
    make_model(place / "storage" / "toy")
    (place / "site").mkdir(mode=0o700)
    shutil.copy(package("deb"), place / "site")
    with hosts(place, NAMES) as made:
        for host in made:
            host.bind(place / "site", "/root/site")
            host.bind(place / "storage", "/srv/storage")
            (host.root / "etc/gossipd").mkdir()
            # The roots are overlays, which keep nothing over a power cut.
            (host.root / "etc/gossipd/env").write_text("GOSSIPD_STORE__ANY_FILE_SYSTEM=true\n")
        yield {host.name: host for host in made}


def test_the_manual_alone_leads_from_the_package_to_a_model_for_a_job(cluster: dict[str, Host]) -> None:
    said = follow("install", cluster)
    assert said.endswith('{"model_type": "toy"}\n')
    for host in cluster.values():
        assert "complete" in host.sh("gossipd ls").stdout
        assert host.sh("stat -c %U /var/lib/gossipd/node.key").stdout == "gossipd\n"
        assert host.process is not None
        assert Path(f"/proc/{host.process.pid}/status").read_text().count("CapEff:\t0000000000000000") == 1


def test_what_the_package_brings_is_in_its_place(cluster: dict[str, Host]) -> None:
    host = cluster["gpu-1"]
    for path in (
        "usr/share/man/man1/gossipd-status.1.gz",
        "usr/share/bash-completion/completions/gossipd",
        "usr/lib/systemd/system/gossipd.service",
        "usr/share/doc/gossipd/prometheus-alerts.yml",
    ):
        assert (host.root / path).exists(), path
    assert host.sh("gossipd version").stdout.startswith("gossipd ")
    assert host.sh("gossipd assets unit").stdout == (host.root / "usr/lib/systemd/system/gossipd.service").read_text()
    written = host.sh("find /opt/gossipd -newer /usr/bin/gossipd -name '*.pyc'", check=False).stdout
    assert written == "", "the bytecode came with the package"


def test_the_unit_of_the_package_has_nothing_that_systemd_warns_of(cluster: dict[str, Host]) -> None:
    root = cluster["gpu-1"].root
    # Its program is seen at one of the places where systemd looks, and by nobody else.
    script = f"mount --bind {root}/opt /opt; mount --bind {root}/usr/bin /usr/local/bin; "
    script += f"exec systemd-analyze verify {root}/usr/lib/systemd/system/gossipd.service"
    done = run("unshare", "--mount", "--propagation", "private", "sh", "-ec", script)
    assert done.stdout + done.stderr == ""


def test_the_unit_exposes_little(cluster: dict[str, Host]) -> None:
    unit = cluster["gpu-1"].root / "usr/lib/systemd/system/gossipd.service"
    told = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=17", unit).stdout
    assert "Overall exposure level for gossipd.service: 1." in told


def test_a_reload_by_the_unit_is_applied(cluster: dict[str, Host]) -> None:
    host = cluster["gpu-1"]
    host.sh("sed -i 's/^#level = .*/level = \"debug\"/' /var/lib/gossipd/gossipd.toml")
    assert host.sh("gossipd reload --config /var/lib/gossipd/gossipd.toml").stdout == "applied log.level\n"


def test_an_upgrade_keeps_all_that_the_host_had(cluster: dict[str, Host]) -> None:
    host = cluster["gpu-2"]
    before = host.sh("cat /var/lib/gossipd/node.key.pub /var/lib/gossipd/gossipd.toml").stdout
    newer_deb(host.root.parent.parent / "site" / "new")
    follow("upgrade", cluster)
    assert host.sh("dpkg-query -W -f '${Version}' gossipd").stdout == "99.0"
    assert host.sh("cat /var/lib/gossipd/node.key.pub /var/lib/gossipd/gossipd.toml").stdout == before


def test_a_purge_leaves_keys_and_models_unless_it_is_told_otherwise(cluster: dict[str, Host]) -> None:
    host = cluster["gpu-3"]
    assert host.stop() == 0
    said = host.sh("dpkg --purge gossipd").stdout
    assert "kept: /var/lib/gossipd" in said
    assert host.sh("ls /var/lib/gossipd/models/toy/1").stdout.split() == ["config.json", "model.safetensors"]
    assert not (host.root / "opt/gossipd").exists()
    host.sh("dpkg -i /root/site/gossipd_*_amd64.deb && GOSSIPD_PURGE=yes dpkg --purge gossipd")
    assert not (host.root / "var/lib/gossipd").exists()
    until("the others see that it left", lambda: "2 alive" in cluster["gpu-1"].sh("gossipd status").stdout)
