"""Looks every second whether this host's wall clock is right, as the others' words show.

What lives here: the alarm ``E_CLOCK``, and telling the deployment brain. What does not: the estimate
(``deployment.cluster_clock``).
"""

from __future__ import annotations

from gossipd.daemon.alarms import Alarms
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.gossip_rules import Clocks
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.events import ClockJudged
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look

LOOK_S = 1.0
log = get_logger("node")


class ClockWatch:
    """One per daemon."""

    def __init__(self, clock: ClusterClock, clocks: Clocks, alarms: Alarms, driver: DeploymentDriver) -> None:
        self._clock = clock
        self._clocks = clocks
        self._alarms = alarms
        self._driver = driver
        self._told = ""

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            self.look()

    def look(self) -> None:
        """Compare with the last look."""
        clock, was_wrong = self._clock, self._told != ""
        clock.look(self._clocks.wall_s(), self._clocks.monotonic_s())
        told = sentence(clock) if clock.is_wrong else ""
        if told != self._told:
            self._told = told
            self._alarms.cured("E_CLOCK")
            if told:
                log.warning("clock wrong", reason=told)
                self._alarms.ring("E_CLOCK", told)
        if clock.is_wrong is not was_wrong:
            self._driver.post(ClockJudged())


def sentence(clock: ClusterClock) -> str:
    """What is wrong, to the next ten minutes, and its cure."""
    minutes = round(abs(clock.offset_s) / 600) * 10
    where = "ahead of" if clock.offset_s > 0 else "behind"
    return (
        f"this host's clock is {minutes} minutes {where} those of most other hosts: set it, and keep it by NTP "
        "(chronyd, systemd-timesyncd); deployments that wait for it go on by themselves"
    )
