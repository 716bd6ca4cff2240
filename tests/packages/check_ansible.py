"""The Ansible role on three hosts: installed, run again without a change, and a model delivered.

What lives here: running the role inside each host, because these hosts have no sshd. What does not: restarting by
systemd, which does not run in them.
"""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

from tests.packages.hosts import ROOT, Host, hosts, make_model, package, run, until

NAMES = ("gpu-1", "gpu-2", "gpu-3")
SECRET = 'a $(touch /root/was-run) "b" `c` \\ d'  # what a shell would not leave alone


def play(host: Host, variables: dict[str, object]) -> str:
    """The closing line of the role's run on this host."""
    script = "PYTHONPATH=/ansible HOME=/root LC_ALL=C.UTF-8 ANSIBLE_LOCALHOST_WARNING=false exec python3 -m ansible "
    script += f"playbook -i '{host.name},' -c local /role/site.yml -e @/given/{host.name}.json "
    script += f"-e ansible_python_interpreter=/usr/bin/python3 --limit {host.name}"
    given = host.root / "given" / f"{host.name}.json"
    given.write_text(json.dumps(variables))
    out = host.sh(script).stdout
    return next(line for line in reversed(out.splitlines()) if line.startswith(host.name))


def test_the_role_makes_three_hosts_and_changes_nothing_the_second_time(tmp_path: Path) -> None:
    make_model(tmp_path / "storage" / "toy")
    given = tmp_path / "given"
    given.mkdir()
    (given / "gossipd.deb").write_bytes(package("deb").read_bytes())
    playbook = (ROOT / "config" / "ansible" / "site.yml").read_text()
    (tmp_path / "role").mkdir()
    run("cp", "-r", ROOT / "config" / "ansible" / "roles", tmp_path / "role")
    (tmp_path / "role" / "site.yml").write_text(playbook.replace("hosts: gossipd", "hosts: all"))
    with hosts(tmp_path, NAMES) as made:
        for host in made:
            host.bind(Path(sysconfig.get_path("purelib")), "/ansible", read_only=True)
            host.bind(tmp_path / "role", "/role")
            host.bind(given, "/given")
            host.bind(tmp_path / "storage", "/srv/storage")
        first = made[0]
        first.sh("dpkg -i /given/gossipd.deb && cd /given && gossipd keygen p.key && gossipd keygen --cluster c.key")
        for host in made:
            variables: dict[str, object] = {
                "gossipd_deb": "/given/gossipd.deb", "gossipd_cluster_key": "/given/c.key",
                "gossipd_publishers": ["/given/p.key.pub"], "gossipd_rack": "r1", "gossipd_address": host.address,
                "gossipd_join": [f"{one.address}:7946" for one in made if one is not host], "gossipd_start": False,
                "gossipd_settings": {"store": {"any_file_system": True}, "sources": {"allow": ["file:///srv/storage"]},
                                     "limits": {"schedule": ["sat,sun 00:00-24:00 upload=900MiB"]},
                                     "security": {"trust_names": {"trust/p.key.pub": ["to*"]}}},
                "gossipd_credentials": {"AWS_SECRET_ACCESS_KEY": SECRET},
                "gossipd_become": False,
            }  # fmt: skip
            assert "failed=0" in play(host, variables)
            host.start_unit()
            again = play(host, variables)
            assert "changed=0 " in again and "failed=0" in again
        until("all are there", lambda: "3 alive" in first.sh("gossipd status", check=False).stdout)
        first.sh("gossipd publish /srv/storage/toy --name toy --version 1 --key /given/p.key --out /root/m && "
                 "cp /root/m /var/lib/gossipd/inbox/ && gossipd wait toy@1 --timeout 60s")  # fmt: skip
        assert not (made[1].root / "root" / "was-run").exists()
        environment = (made[1].root / "etc" / "gossipd" / "env").read_text()
        assert 'AWS_SECRET_ACCESS_KEY="a $(touch /root/was-run) \\"b\\" `c` \\\\ d"' in environment
        status = json.loads(made[1].sh("gossipd status --json").stdout)
        assert status["limits"]["until"], "the timetable has arrived"
        assert made[2].sh("gossipd path toy").stdout == "/var/lib/gossipd/models/toy/1\n"
