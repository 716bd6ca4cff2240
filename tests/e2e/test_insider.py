"""What a member that keeps no rule may do to real daemons: waste its own breath."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.daemon.state_dir import REGISTER
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_file import register_from_bytes
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import deployment_id
from tests import servers
from tests.e2e.cluster import Cluster, Daemon, cluster, same_tree, until
from tests.e2e.insider import Insider
from tests.e2e.toy import make_model

HOSTS, FAKES, NOBODIES = 4, 100, 60
LIAR, OTHER_LIAR, WATCHER = SecretKey(b"l" * 32), SecretKey(b"o" * 32), SecretKey(b"w" * 32)


@pytest.fixture
def four(tmp_path: Path) -> Iterator[tuple[Cluster, servers.Nginx]]:
    (tmp_path / "root").mkdir()
    with servers.nginx(tmp_path / "root", tmp_path / "nginx") as site:
        environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([site.url.rstrip("/")])}
        with cluster(tmp_path / "four", environment=environment) as made:
            made.start(HOSTS, 2)
            yield made, site


def fake(number: int) -> Statement:
    return sign_statement(
        LIAR, DeploymentId(number.to_bytes(32, "big")), epoch=1, verb=Verb.DEPLOY, manifest_bytes=900,
        now_s=time.time(),
    )  # fmt: skip


def deliver(made: Cluster, site: servers.Nginx, name: str, into: int) -> DeploymentId:
    model = make_model(site.root / name, shards=1)
    manifest = made.publish(model, name, 1, "--source", f"{site.url.rstrip('/')}/{name}/")
    made.drop(manifest, made[into])
    made.wait_complete(name, 1, at=made[HOSTS - into + 1], hosts=HOSTS)
    for daemon in made.daemons.values():
        until(f"{name} on {daemon.name}", daemon.tree(name, 1).exists)
        assert same_tree(model, daemon.tree(name, 1))
    return deployment_id(manifest.read_bytes())


def names(daemon: Daemon) -> set[str]:
    return {str(one["name"]) for one in (daemon.try_status() or {"members": []})["members"] if one["state"] == "alive"}


def is_told(daemon: Daemon) -> bool:
    """Whether it knows of all members that do not exist."""
    members: list[dict[str, str]] = daemon.client.members()["members"]
    return sum(one["name"].startswith("nobody-") for one in members) == NOBODIES


def counts_those_that_speak(daemon: Daemon) -> bool:
    """Whether its deployment has no targets but the hosts and the insider."""
    page = daemon.client.status()
    [row] = page["deployments"]
    unheard = sum(one["state"] == "unheard" for one in page["members"])
    seen: tuple[int, int, int] = (unheard, row["hosts_total"], row["hosts_complete"])
    return seen == (NOBODIES, HOSTS + 1, HOSTS)


def kept(daemon: Daemon) -> set[DeploymentId]:
    """On which deployments the host keeps statements on its disk."""
    [register] = daemon.home.rglob(f"state/{REGISTER}")
    return {one.deployment for one in register_from_bytes(register.read_bytes()).statements()}


@pytest.mark.needs("nginx")
def test_a_hundred_statements_about_nothing_stop_no_delivery_and_are_gone_after_a_restart(
    four: tuple[Cluster, servers.Nginx],
) -> None:
    made, site = four
    fakes = [fake(number) for number in range(FAKES)]
    evil, watcher = Insider("evil", LIAR, made[1]), Insider("watcher", WATCHER, made[3])
    with ThreadPoolExecutor(1) as threads:
        lies = threads.submit(evil.live, fakes, members=HOSTS + 2, seconds=600.0)
        try:
            watcher.live([], members=HOSTS + 2, seconds=600.0, hears=FAKES)
        finally:
            evil.is_over = True
        lies.result()
    assert watcher.heard.keys() == {one.deployment for one in fakes}, "the hosts have heard all of them"
    first = deliver(made, site, "good", 1)
    for daemon in made.daemons.values():
        assert [row["name"] for row in daemon.client.status()["deployments"]] == ["good"]
    for daemon in made.daemons.values():
        assert daemon.stop() == 0
        assert kept(daemon) == {first}
    for daemon in made.daemons.values():  # when none is left that could tell the fakes to one that runs again
        daemon.start()
    made.wait_together()
    second = deliver(made, site, "better", 2)
    again = Insider("watcher-2", SecretKey(b"v" * 32), made[3])
    again.live([], members=HOSTS + 1, seconds=600.0, hears=2)
    assert again.heard.keys() == {first, second}, "the fakes have ended with the lives that heard them"


@pytest.mark.needs("nginx")
def test_lies_about_a_real_manifest_keep_it_from_no_late_joiner(
    four: tuple[Cluster, servers.Nginx],
) -> None:
    made, site = four
    found = deliver(made, site, "good", 1)
    wrong = sign_statement(LIAR, found, epoch=2, verb=Verb.DEPLOY, manifest_bytes=77, now_s=time.time())
    cancel = sign_statement(OTHER_LIAR, found, epoch=999_999, verb=Verb.CANCEL, manifest_bytes=77, now_s=time.time())
    evil, worse = Insider("evil", LIAR, made[1]), Insider("worse", OTHER_LIAR, made[1])
    late = made.add("late", "rack-1")
    with ThreadPoolExecutor(2) as threads:
        lies = [threads.submit(evil.live, [wrong], members=HOSTS + 1, seconds=600.0)]
        try:
            log = made[4].home / "audit.jsonl"
            until("the lie is the last word", lambda: '"epoch":2' in log.read_text())
            # Not earlier: what the other tells has the higher rank, and would end the first lie in its own liar.
            lies.append(threads.submit(worse.live, [cancel], members=HOSTS + 2, seconds=600.0))
            until("the other liar is a member", lambda: "worse" in names(made[4]))
            late.start()
            late.wait_ready()
            until("the late joiner has it", late.tree("good", 1).exists)
        finally:
            evil.is_over = worse.is_over = True
        for lie in lies:
            lie.result()


@pytest.mark.needs("nginx")
def test_no_deployment_waits_for_members_that_one_has_made_up(four: tuple[Cluster, servers.Nginx]) -> None:
    made, site = four
    evil = Insider("evil", LIAR, made[1], made_up=NOBODIES)
    with ThreadPoolExecutor(1) as threads:
        lies = threads.submit(evil.live, [], members=HOSTS + 1, seconds=600.0)
        try:
            for daemon in made.daemons.values():
                until(f"{daemon.name} has heard of them", partial(is_told, daemon))
            deliver(made, site, "good", 1)
            for daemon in made.daemons.values():
                until(f"{daemon.name} counts those that speak", partial(counts_those_that_speak, daemon))
        finally:
            evil.is_over = True
        lies.result()
