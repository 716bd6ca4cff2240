"""All faults mixed at random over a quarter of the hosts, every rule looking on: the rest must not notice."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from membership.events import PayloadKind
from tests.membership.checkers import all_rules
from tests.membership.simulated_cluster import FAULTS, SimulatedCluster

MEMBERS, SICK = 20, 5


class Campaign:
    """Random faults on the sick hosts of one cluster, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.sick = self.rng.sample(range(MEMBERS), SICK)
        self.rules = all_rules(set(self.sick))
        self.cluster = SimulatedCluster(MEMBERS, racks=5, seed=seed, checkers=self.rules)
        self.cluster.start_all_known()
        self.cluster.run(2.0)
        self.cluster.loss, self.cluster.duplicate, self.cluster.reorder = 0.02, 0.05, 0.1
        self.version = 0

    def run(self, seconds: float) -> None:
        """One fault or word after another."""
        acts = (self.restart, self.freeze, self.cut, self.deafen, self.slow, self.jump, self.talk)
        end = self.cluster.now + seconds
        while self.cluster.now < end:
            self.rng.choice(acts)(self.rng.choice(self.sick))
            self.cluster.run(self.cluster.now + self.rng.uniform(0.2, 6.0))

    def calm(self) -> None:
        """Every fault ends; a host that is down starts again."""
        cluster = self.cluster
        cluster.loss = cluster.duplicate = cluster.reorder = 0.0
        cluster.heal()
        for index in self.sick:
            host = cluster.hosts[index]
            host.loss_in = host.loss_out = host.slow_s = 0.0
            if host.frozen:
                cluster.thaw(index)
            if not host.up:
                cluster.restart(index, join=(self.healthy(),))

    def is_whole(self) -> bool:
        """All views are full and equal."""
        swims = [self.cluster.swim(index) for index in range(MEMBERS)]
        return (
            all(swim.statistics()["members_live"] == MEMBERS for swim in swims)
            and len({swim.view_digest for swim in swims}) == 1
        )

    def healthy(self) -> int:
        """A host with no fault of its own."""
        return self.rng.choice([index for index in range(MEMBERS) if index not in self.sick])

    def restart(self, index: int) -> None:
        """Off, and on again: at once or later, with or without what it knew, here or elsewhere."""
        host = self.cluster.hosts[index]
        if host.up:
            self.cluster.crash(index)
            if self.rng.random() < 0.5:
                return
        if self.rng.random() < 0.3:
            self.cluster.readdress(index)
        self.cluster.restart(index, join=(self.healthy(), self.healthy()), keep_roster=self.rng.random() < 0.5)

    def freeze(self, index: int) -> None:
        """Stopped, or going on."""
        host = self.cluster.hosts[index]
        if host.frozen:
            self.cluster.thaw(index)
        elif host.up:
            self.cluster.freeze(index)

    def cut(self, index: int) -> None:
        """Some sick hosts without a network, or all cables back."""
        if any(host.group for host in self.cluster.hosts):
            self.cluster.heal()
            return
        others = self.rng.sample(self.sick, self.rng.randint(0, SICK - 1))
        self.cluster.cut({index, *others}, together=self.rng.random() < 0.5, queue=self.rng.random() < 0.5)

    def deafen(self, index: int) -> None:
        """Loses what comes in, or what goes out, or nothing any more."""
        host = self.cluster.hosts[index]
        host.loss_in, host.loss_out = self.rng.choice(((0.0, 0.0), (0.9, 0.0), (0.0, 0.9), (0.4, 0.4)))

    def slow(self, index: int) -> None:
        """Everything takes longer, or not."""
        self.cluster.hosts[index].slow_s = self.rng.choice((0.0, 0.02, 0.15))

    def jump(self, index: int) -> None:
        """A suspended machine."""
        self.cluster.jump_clock(index, self.rng.uniform(1.0, 600.0))

    def talk(self, index: int) -> None:
        """A healthy host has something to say, and a new payload."""
        del index
        self.version += 1
        speaker, now = self.healthy(), self.cluster.now
        swim = self.cluster.swim(speaker)
        swim.publish(PayloadKind.STATEMENT, b"key", self.version, b"word", now)
        swim.update_payload(b"%d" % self.version, now)


@pytest.mark.parametrize("seed", range(1, 5))
def test_any_mixture_of_faults_on_a_quarter_harms_no_other_host_and_heals(seed: int) -> None:
    campaign = Campaign(seed)
    campaign.run(150.0)
    campaign.calm()
    assert campaign.cluster.run_until(campaign.is_whole, 40.0) is not None
    assert all(rule.looked for rule in campaign.rules)


def test_every_fault_class_strikes_and_says_how_often() -> None:
    struck: Counter[str] = Counter()
    for seed in (1, 3):
        campaign = Campaign(seed)
        assert set(campaign.cluster.struck) == set(FAULTS)
        campaign.run(150.0)
        campaign.calm()
        struck += campaign.cluster.struck
    assert set(struck) == set(FAULTS), f"never struck: {set(FAULTS) - set(struck)}"
