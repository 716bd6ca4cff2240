"""``latest`` while the network is broken: ``python -m tests.chaos.latest [--json]``.

Two racks of two real daemons in namespaces. All have step 1; then the cable between the racks is out, and step 2 is
saved on one side. Each host is asked from which step a job goes on that names all four: none may say one, because each
side would say another. Then the cable is in again, and all say step 2. Needs root and iproute2.

``answers_apart``: of the four while each side sees the other as dead, and in ``said_apart`` how many name a step;
``answers_joined``: of the four afterwards; ``agreed_s``: how long after the cable was in. ``answers_unnamed``: what is
said meanwhile of all hosts that live.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gossipd.api.client import RefusedByDaemonError
from gossipd.client import Client
from gossipd.demo.hosts import DemoHost
from tests.bench.lab.fabric import Fabric, LabError, fabric, missing
from tests.bench.lab.systems.gossip import converge, publishing_hosts

NAME = "run"
_PATIENCE_S = 180.0


def answer(client: Client, where: str | list[str]) -> str:
    """The step, or the code of the refusal."""
    try:
        return str(client.latest(NAME, where).version)
    except RefusedByDaemonError as error:
        return error.code


def play(network: Fabric, base: Path) -> dict[str, Any]:
    """The figures. Raises LabError."""
    with publishing_hosts(network, base) as hosts:
        for host in hosts:
            host.start()
        converge(hosts)
        clients = [Client(host.directory / "gossipd.sock") for host in hosts]
        names = [host.name for host in hosts]
        clients[0].publish(_saved(base, 1), name=NAME, step=1, keep_last=4)
        for client in clients:
            client.wait(NAME, 1, hosts="100%", timeout=_PATIENCE_S)
        network.part(1, is_parted=True)
        clients[0].publish(_saved(base, 2), name=NAME, step=2, keep_last=4)
        clients[1].wait(NAME, 2, timeout=_PATIENCE_S)
        _until("each side sees the other as dead", lambda: all(_dead(host) == 2 for host in hosts))
        apart = [answer(client, names) for client in clients]
        unnamed = [answer(client, "everywhere") for client in clients]
        network.part(1, is_parted=False)
        joined_s = time.monotonic()
        _until("all say step 2", lambda: {answer(client, names) for client in clients} == {"2"})
        agreed_s = time.monotonic() - joined_s
        return {
            "answers_apart": apart,
            "answers_unnamed": unnamed,
            "answers_joined": [answer(client, names) for client in clients],
            "agreed_s": round(agreed_s, 1),
            "said_apart": sum(one.isdecimal() for one in apart),
        }


def _saved(base: Path, step: int) -> Path:
    directory = base / f"step-{step}"
    directory.mkdir()
    (directory / "weights.bin").write_bytes(bytes([step]) * 300_000)
    return directory


def _dead(host: DemoHost) -> int:
    page = host.status()
    return 0 if page is None else sum(one["state"] == "dead" for one in page["members"])


def _until(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise LabError(f"not within {_PATIENCE_S:g} s: {what}")
        time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when a side has said a step; 2 where it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.latest", description=__doc__)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if (lack := missing()) is not None:
        print(f"this needs {lack}", file=sys.stderr)
        return 2
    base = Path(tempfile.mkdtemp(prefix="gossipd-latest-"))
    try:
        with fabric((2, 2), mbit=100) as network:
            row = play(network, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(json.dumps(row) if given.json else "\n".join(f"{name:16} {value}" for name, value in row.items()))
    return 1 if row["said_apart"] else 0


if __name__ == "__main__":
    sys.exit(main())
