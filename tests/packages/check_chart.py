"""The chart by Helm's own code: linted, rendered with few and with all values, refused, and its containers run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from tests.packages.hosts import ROOT, Host, hosts, make_model, run, until

CHART = ROOT / "config" / "helm" / "gossipd"
MINIMAL: dict[str, Any] = {
    "image": {"repository": "registry.example/gossipd"},
    "clusterKey": {"existingSecret": "cluster-key"},
    "trust": {"existingConfigMap": "trust"},
}
FULL: dict[str, Any] = {
    "image": {"repository": "registry.example/gossipd", "tag": "9", "pullPolicy": "Always"},
    "clusterKey": {"value": "gossipd-cluster-key 1\ncluster 00\nkey 00\n"},
    "trust": {"keys": {"a.pub": "gossipd-public-key 1\n", "b.pub": "gossipd-public-key 1\n"}},
    "racks": {"node-1": "r1", "node-2": "r2"},
    "home": "/data/gossipd",
    "port": 7000,
    "metricsPort": 9100,
    "settings": {
        "sources": {"allow": ["https", "s3://models"]},
        "limits": {"upload_slots": 8},
        "log": {"level": "debug"},
    },
    "credentialsSecret": "s3",
    "resources": {"limits": {"memory": "1Gi"}},
    "nodeSelector": {"gpu": "yes"},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "system-node-critical",
    "podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"enabled": True, "nodes": ["10.0.0.0/16", "fd00::/64"], "monitoring": ["10.9.0.0/24"]},
}


def rendered(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every object by kind."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="gossipd", namespace="gossipd")
    found = [one for text in files.values() for one in yaml.safe_load_all(text) if one]
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


@pytest.mark.parametrize("values", [MINIMAL, FULL], ids=["minimal", "full"])
def test_helm_has_nothing_against_the_chart(values: dict[str, Any]) -> None:
    report = helm_python.lint(CHART, values, strict=True)
    assert [one for one in report["messages"] if one["severity"] >= 2] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {**MINIMAL, "clusterKey": {}},
        {**MINIMAL, "trust": {"keys": {"a.pub": "no key"}}},
        {**MINIMAL, "prot": 7946},
        {**MINIMAL, "port": 70000},
        {**MINIMAL, "racks": {"node-1": "a rack"}},
        {**MINIMAL, "networkPolicy": {"enabled": True}},
        {**MINIMAL, "networkPolicy": {"enabled": True, "nodes": ["everywhere"]}},
        {**MINIMAL, "podMonitor": {"interval": "often"}},
        {**MINIMAL, "settings": {"net": {"port": {"is": 1}}}},
    ],
)
def test_values_that_cannot_work_are_refused_by_the_schema(wrong: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmError):
        rendered(wrong)


def test_few_values_make_a_daemon_on_every_node() -> None:
    made = rendered(MINIMAL)
    assert set(made) == {"ConfigMap/gossipd-racks", "Service/gossipd", "DaemonSet/gossipd"}
    pod = made["DaemonSet/gossipd"]["spec"]["template"]
    assert pod["metadata"]["labels"] == made["Service/gossipd"]["spec"]["selector"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["containers"][0]["image"] == "registry.example/gossipd:0.2.0"


def test_all_values_arrive() -> None:
    made = rendered(FULL)
    assert {"Secret/gossipd-cluster-key", "ConfigMap/gossipd-trust"} <= set(made)
    pod = made["DaemonSet/gossipd"]["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value", one.get("valueFrom")) for one in pod["containers"][0]["env"]}
    assert env == {
        "GOSSIPD_STATUS__METRICS_BIND": {"fieldRef": {"fieldPath": "status.hostIP"}},
        "GOSSIPD_STATUS__METRICS_PORT": "9100",
        "GOSSIPD_NODE__RACK_FILE": "/etc/gossipd/racks/racks",
        "GOSSIPD_SECURITY__CLUSTER_KEY": "/etc/gossipd/cluster-key/cluster.key",
        "GOSSIPD_SECURITY__TRUST": '["/etc/gossipd/trust"]',
        "GOSSIPD_SOCKET": "/var/lib/gossipd/home/gossipd.sock",
        "GOSSIPD_SOURCES__ALLOW": '["https","s3://models"]',
        "GOSSIPD_LIMITS__UPLOAD_SLOTS": "8",
        "GOSSIPD_LOG__LEVEL": "debug",
    }
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"gpu": "yes"}, "system-node-critical")
    assert pod["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert pod["containers"][0]["livenessProbe"]["httpGet"] == {"port": 9100, "path": "/livez"}, "at the pod's address"
    assert made["ConfigMap/gossipd-racks"]["data"]["racks"] == "node-1 r1\nnode-2 r2\n"


def test_changed_keys_or_racks_roll_the_pods_out() -> None:
    def annotations(values: dict[str, Any]) -> Any:
        return rendered(values)["DaemonSet/gossipd"]["spec"]["template"]["metadata"]["annotations"]

    before = annotations(FULL)
    assert before == annotations({**FULL, "maxUnavailable": "20%"})
    assert before != annotations({**FULL, "racks": {"node-1": "r9"}})
    other = {"keys": {"other.pub": next(iter(FULL["trust"]["keys"].values()))}}
    assert before != annotations({**FULL, "trust": other})


def test_monitoring_finds_the_daemons_and_has_the_alerts_of_the_wheel() -> None:
    made = rendered(FULL)
    monitor, rule = made["PodMonitor/gossipd"], made["PrometheusRule/gossipd"]
    pod = made["DaemonSet/gossipd"]["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [one["name"] for one in pod["spec"]["containers"][0]["ports"]]
    assert monitor["metadata"]["labels"] == rule["metadata"]["labels"] == {"release": "prometheus"}
    assert rule["spec"] == yaml.safe_load((ROOT / "gossipd" / "assets" / "prometheus-alerts.yml").read_text())


def test_a_network_policy_admits_nodes_and_monitoring_to_their_ports() -> None:
    nodes, monitoring = rendered(FULL)["NetworkPolicy/gossipd"]["spec"]["ingress"]
    assert [one["ipBlock"]["cidr"] for one in nodes["from"]] == ["10.0.0.0/16", "fd00::/64"]
    assert [(one["protocol"], one["port"]) for one in nodes["ports"]] == [("TCP", 7000), ("UDP", 7000), ("TCP", 7001)]
    assert [one["ipBlock"]["cidr"] for one in monitoring["from"]] == ["10.9.0.0/24"]
    assert monitoring["ports"] == [{"protocol": "TCP", "port": 9100}]


def test_the_rendered_containers_deliver_a_model_between_three_nodes(
    image: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    root, config = image
    make_model(tmp_path / "storage" / "toy")
    names = ("node-1", "node-2", "node-3")
    settings = {"store": {"any_file_system": True}, "sources": {"allow": ["file:///storage"]}}
    key = tmp_path / "keys"
    key.mkdir()
    for words in (("keygen", key / "p.key"), ("keygen", "--cluster", key / "cluster.key")):
        run(sys.executable, "-m", "gossipd", *words)
    values = {**MINIMAL, "racks": dict.fromkeys(names[:2], "r1"), "settings": settings}
    made_of = rendered(values)
    pod = made_of["DaemonSet/gossipd"]["spec"]["template"]["spec"]
    (init,), (daemon,) = pod["initContainers"], pod["containers"]
    assert [one["secret"]["defaultMode"] for one in pod["volumes"] if one["name"] == "cluster-key"] == [0o440]
    mounted = {"cluster-key": {"cluster.key": (key / "cluster.key").read_text()},
               "trust": {"p.pub": (key / "p.key.pub").read_text()},
               "racks": made_of["ConfigMap/gossipd-racks"]["data"]}  # fmt: skip
    with hosts(tmp_path, names, base=root) as made:
        service = "".join(f"{host.address} gossipd.gossipd.svc.cluster.local\n" for host in made)
        for host in made:
            _mount(host, tmp_path, mounted, service, pod["securityContext"]["fsGroup"])
            env = {"NODE_NAME": host.name, "NODE_IP": host.address, **dict(one.split("=", 1) for one in config["Env"])}
            for _ in range(2):  # a pod that restarts finds its node set up
                run(*host.words(["env", "-i", *(f"{name}={value}" for name, value in env.items()), *init["command"]]))
            given = {one["name"]: one["value"] for one in daemon["env"]}
            context = daemon["securityContext"]
            user = [f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", "--clear-groups"]
            command = [
                "setpriv",
                *user,
                "--no-new-privs",
                "--bounding-set=-all",
                *config["Entrypoint"],
                *daemon["args"],
            ]
            host.start(command, **{**env, **given})
        at = ["env", f"GOSSIPD_SOCKET={given['GOSSIPD_SOCKET']}", "gossipd", "members", "--json"]

        def alive() -> bool:
            done = run(*made[2].words(at), check=False)
            rows: list[dict[str, Any]] = json.loads(done.stdout).get("members", [])
            return [one["state"] for one in rows].count("alive") == len(names)

        until("all nodes are there", alive)
        racks = {one["name"]: one["rack"] for one in json.loads(run(*made[0].words(at)).stdout)["members"]}
        assert racks == {"node-1": "r1", "node-2": "r1", "node-3": "rack-unknown"}
        shutil.copy(key / "p.key", tmp_path / "node-1-data")
        publish = "gossipd publish /storage/toy --name toy --version 1 --key /var/lib/gossipd/p.key"
        made[0].sh(f"{publish} --out /var/lib/gossipd/m")
        in_pod = (
            "sh -c 'cat > /tmp/m && gossipd deploy /tmp/m --wait --timeout 60s' < /var/lib/gossipd/m"  # the manual's
        )
        assert "complete on 3 of 3 hosts" in made[0].sh(f"export {at[1]}; {in_pod}").stdout
        for path in (daemon["livenessProbe"]["httpGet"], daemon["readinessProbe"]["httpGet"]):
            url = f"http://{path['host']}:{path['port']}{path['path']}"
            asked = f"import urllib.request as u; print(u.urlopen({url!r}).status)"
            assert run(*made[0].words(["python3", "-c", asked])).stdout == "200\n"


def _mount(host: Host, place: Path, mounted: dict[str, dict[str, str]], service: str, fs_group: int) -> None:
    """What the pod's volumes and the cluster's names are, and then nothing else can be written."""
    data = place / f"{host.name}-data"
    data.mkdir()
    host.bind(data, "/var/lib/gossipd")
    host.bind(place / "storage", "/storage")
    (place / f"{host.name}-tmp").mkdir()
    host.bind(place / f"{host.name}-tmp", "/tmp")
    for name, files in mounted.items():
        directory = place / f"{host.name}-{name}"
        directory.mkdir()
        for file, text in files.items():
            (directory / file).write_text(text)
            if name == "cluster-key":  # as a Secret is mounted: root's, and of the pod's group
                os.chown(directory / file, 0, fs_group)
                (directory / file).chmod(0o440)
        host.bind(directory, f"/etc/gossipd/{name}")
    with (host.root / "etc" / "hosts").open("a") as resolved:
        resolved.write(service)
    os.sync()
    host.make_read_only()
