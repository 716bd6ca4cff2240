"""Systems without a swarm: one download by one host, a download by every host, and chains of hosts."""

from __future__ import annotations

from gossipd.manifest.chunk_layout import default_chunk_bytes
from tests.bench.lab.fabric import Counters, Station
from tests.bench.lab.process import Agent
from tests.bench.lab.systems.base import Bench, Outcome, run_agents

CHAIN_PORT = 9000


def run_single(bench: Bench) -> tuple[float, Counters]:
    """Seconds of one plain download on the same link, and what it put on the wires: what all else is divided by."""
    station = bench.fabric.hosts[0]
    outcome = _download(bench, "single", [station])
    return outcome.done_s[station.name] - outcome.began_s, outcome.counters


def run_direct(bench: Bench) -> Outcome:
    """Every host from storage."""
    return _download(bench, "direct", bench.fabric.hosts)


def _download(bench: Bench, system: str, stations: list[Station]) -> Outcome:
    agents, copies = [], {}
    try:
        for station in stations:
            directory = bench.directory(system, station)
            copies[station.name] = directory / bench.model.name
            agents.append(Agent(station, "direct", bench.url, str(copies[station.name]), log=directory / "agent.log"))
        return run_agents(bench, system, agents, copies)
    finally:
        for agent in agents:
            agent.process.kill()


def run_chain(bench: Bench) -> Outcome:
    """Each host hands on what it gets to the next, rack after rack; a dead or slow one stops all behind it."""
    return _chain(bench, "chain", 0)


def run_checked_chain(bench: Bench) -> Outcome:
    """A chain whose hosts hash each chunk and keep a journal: what verified bytes on a disk cost at the least."""
    return _chain(bench, "checked-chain", bench.chunk_bytes or default_chunk_bytes(bench.size))


def _chain(bench: Bench, system: str, chunk_bytes: int) -> Outcome:
    hosts = bench.fabric.hosts
    agents, copies = [], {}
    try:
        for index, station in enumerate(hosts):
            directory = bench.directory(system, station)
            copies[station.name] = directory / bench.model.name
            listen = f"{station.address}:{CHAIN_PORT}" if index else "-"
            following = f"{hosts[index + 1].address}:{CHAIN_PORT}" if index + 1 < len(hosts) else "-"
            arguments = [str(copies[station.name]), str(bench.size), listen, bench.url, following]
            arguments += [str(chunk_bytes)] if chunk_bytes else []
            agents.append(Agent(station, "chain", *arguments, log=directory / "agent.log"))
        return run_agents(bench, system, agents, copies)
    finally:
        for agent in agents:
            agent.process.kill()
