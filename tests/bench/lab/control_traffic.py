"""What hosts send to be able to move a model, and is none of it: the control channel and membership, on the wire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.lab.fabric import Fabric, LabError, Station
from tests.bench.lab.process import Agent

_START_S_MAX = 20.0
_ANSWER_S_MAX = 10.0


class ControlMeter:
    """Counts since it was first asked; see ``agents.meter``."""

    def __init__(self, agent: Agent, hosts: dict[str, str]) -> None:
        self._agent = agent
        self._hosts = hosts

    def sent(self) -> dict[str, int]:
        """Bytes that each host has sent to or from the port since this was first called. Raises LabError."""
        try:
            self._agent.go()
        except BrokenPipeError:
            raise LabError("the meter of control bytes has ended") from None
        deadline = time.monotonic() + _ANSWER_S_MAX
        while (answer := self._agent.poll()) is None:
            if time.monotonic() > deadline:
                raise LabError(f"the meter of control bytes did not answer within {_ANSWER_S_MAX:.0f} s")
            time.sleep(0.01)
        if answer["lost"]:
            raise LabError(f"the meter of control bytes lost {answer['lost']} packets")
        return {self._hosts[port]: count for port, count in answer["bytes"].items()}


@contextmanager
def control_meter(network: Fabric, number: int, log: Path) -> Iterator[ControlMeter]:
    """Counts for the length of a ``with`` what hosts send to or from this TCP and UDP port."""
    switches = Station("switches", network.switches, "", -1, "")
    agent = Agent(switches, "meter", str(number), *(host.port for host in network.hosts), log=log)
    try:
        agent.wait_ready(_START_S_MAX)
        yield ControlMeter(agent, {host.port: host.name for host in network.hosts})
    finally:
        agent.process.kill()
        agent.stop()
