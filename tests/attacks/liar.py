"""``python -m tests.attacks.liar [--json]``: one member of ten says all that the corpus has, for a minute.

A model is deployed to nine honest daemons before the liar is there, while it lies, when it has left, and after all have
been restarted, before and after it. What lives here: those deployments, the lies without a wait for answers, and the
look at what hosts say of each other. What does not: what is said (``corpus.toml``).

A row of a host's status is false when it says that another host is complete, and that host, asked afterwards, does not.

The bar is the first ratio. The liar's own work takes time from the daemons where all share one machine, so a model is
also deployed beside a process that spins, and the second ratio compares with that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

from tests.attacks.attack import Attack, load_corpus
from tests.attacks.builders.bulk import Idle
from tests.attacks.flood import beside
from tests.attacks.real.delivery import bulk, gossip
from tests.attacks.real.hosts import MODEL, AttackedCluster

HONEST = 9
_LOOK_S = 2.0
_WATCH_S = 0.2
_PATIENCE_S = 180.0


class LiarRun:
    """One cluster, one liar."""

    def __init__(self, cluster: AttackedCluster, size_bytes: int) -> None:
        self._cluster = cluster
        self._size_bytes = size_bytes
        self.told: Counter[str] = Counter()
        self.false_rows = 0
        self.rows = 0
        self.daemons_cpu_s = 0.0
        """Of the last deployment."""
        self._lies = self._all_lies()

    def deployed_s(self, version: int, *, lie_s: float = 0.0) -> float:
        """Seconds from the drop until every honest host says itself that it is complete; lies go on for ``lie_s``."""
        cluster = self._cluster
        manifest = cluster.publish(version, size_bytes=self._size_bytes)
        cluster.envelope = manifest.read_bytes()  # lies are about what is under way
        began_s = time.monotonic()
        cluster.cluster.drop(manifest, cluster.daemons[0])
        before_s, looked_s = self.cpu_s(), began_s
        with ThreadPoolExecutor(1) as watching:  # a lie may last for seconds
            watched = watching.submit(self._watch, version, began_s)
            while not watched.done() or time.monotonic() - began_s < lie_s:
                now = time.monotonic()
                if now - began_s < lie_s:
                    self._lie()
                else:
                    time.sleep(0.05) if not lie_s else cluster.insider.live(0.05)
                if now - looked_s > _LOOK_S:
                    looked_s = now
                    self.look(version)
        done_s, cpu_s = watched.result()
        self.daemons_cpu_s = cpu_s - before_s
        return done_s

    def _watch(self, version: int, began_s: float) -> tuple[float, float]:
        """Seconds until all are complete, -1 where that is never, and the daemons' CPU seconds by then."""
        left = set(range(len(self._cluster.daemons)))
        while left and time.monotonic() - began_s < _PATIENCE_S:
            there = {number for number in left if self._cluster.daemons[number].tree(MODEL, version).exists()}
            left -= {
                number for number in there if self._is_complete(number, version)
            }  # asked late: an answer costs them
            time.sleep(_WATCH_S)
        return (-1.0 if left else time.monotonic() - began_s), self.cpu_s()

    def cpu_s(self) -> float:
        """Of all daemons since their start."""
        ticks = 0
        for daemon in self._cluster.daemons:
            assert daemon.process is not None
            fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _is_complete(self, number: int, version: int) -> bool:
        daemon = self._cluster.daemons[number]
        row = daemon.deployment(MODEL, version) or {"hosts": []}
        return any(one["name"] == daemon.name and one["state"] == "complete" for one in row["hosts"])

    def look(self, version: int) -> None:
        """Compare what each host says of the others with what those say of themselves."""
        cluster, names = self._cluster, {one.name: at for at, one in enumerate(self._cluster.daemons)}
        said: list[str] = []
        for daemon in cluster.daemons:
            row = daemon.deployment(MODEL, version) or {"hosts": []}
            said += [
                one["name"] for one in row["hosts"] if one["state"] in ("complete", "failed") and one["name"] in names
            ]
        true = {name for name in set(said) if self._is_complete(names[name], version)}
        self.rows += len(said)
        self.false_rows += sum(name not in true for name in said)

    def alive_views(self) -> int:
        """Pairs of honest hosts of which the one holds the other to be alive."""
        names = {one.name for one in self._cluster.daemons}
        return sum(
            member["state"] in ("alive", "suspect") and member["name"] in names
            for daemon in self._cluster.daemons
            for member in (daemon.try_status() or {"members": []})["members"]
        )

    # ---- lies ----------------------------------------------------------------------------------------

    def _all_lies(self) -> Iterator[Attack]:
        lies = [
            one for one in load_corpus() if one.surface in ("gossip", "bulk") and one.actor in ("member", "keyholder")
        ]
        return cycle(lies)

    def _lie(self) -> None:
        """A few, to a host each, without a wait for what comes of them."""
        cluster = self._cluster
        for _ in range(16):
            attack = next(self._lies)
            number = self.told.total() % len(cluster.daemons)
            if not cluster.records().keys() >= {one.name for one in cluster.daemons}:
                break
            stage = cluster.stage(number, f"{attack.name} {self.told.total()}")
            made = attack.build(stage)
            if isinstance(made, Idle):
                continue  # many hosts' connections; the liar is one host
            (gossip if attack.surface == "gossip" else bulk)(made, cluster, cluster.daemons[number], attack)
            self.told[attack.family] += 1
        cluster.insider.live(0.02)


def measure(seconds: float, size_bytes: int) -> dict[str, object]:
    """One line of figures."""
    with tempfile.TemporaryDirectory(prefix="gossipd-attacks-") as directory:
        cluster = None
        try:
            cluster = AttackedCluster(Path(directory) / "cluster", hosts=HONEST)
            run = LiarRun(cluster, size_bytes)
            found: dict[str, object] = {
                "honest": HONEST,
                "bytes": size_bytes,
                "load_before": round(os.getloadavg()[0], 1),
            }
            found["undisturbed_s"] = undisturbed_s = round(run.deployed_s(2), 1)
            found["undisturbed_cpu_s"] = round(run.daemons_cpu_s, 1)
            with beside(["-c", "while True: pass"]):
                found["beside_a_spinner_s"] = spun_s = round(run.deployed_s(3), 1)
            cluster.restart_all()
            found["undisturbed_after_a_restart_s"] = round(run.deployed_s(4), 1)
            cluster.admit()
            run.false_rows = run.rows = 0
            own_s = time.process_time()
            found["while_it_lies_s"] = lied_s = round(run.deployed_s(5, lie_s=seconds), 1)
            found |= {"ratio": round(lied_s / undisturbed_s, 2), "ratio_to_spinner": round(lied_s / spun_s, 2)}
            found |= {
                "while_it_lies_cpu_s": round(run.daemons_cpu_s, 1), "liar_cpu_s": round(time.process_time() - own_s, 1),
            }  # fmt: skip
            found |= {"told": dict(run.told), "rows": run.rows}
            found |= {"false_rows": run.false_rows, "alive_views": run.alive_views(), "of": HONEST**2}
            cluster.insider.leave()
            cluster.insider.close()
            del cluster.insider
            run.false_rows = 0
            found["after_it_left_s"] = round(run.deployed_s(6), 1)
            cluster.restart_all()
            found["after_a_restart_s"] = round(run.deployed_s(7), 1)
            found |= {"false_rows_afterwards": run.false_rows, "alive_views_afterwards": run.alive_views()}
            found |= {"tracebacks": len(cluster.tracebacks()), "load_after": round(os.getloadavg()[0], 1)}
            return found
        finally:
            if cluster is not None:
                cluster.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.liar", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mib", type=int, default=64)
    options = parser.parse_args(arguments)
    found = measure(options.seconds, options.mib << 20)
    print(json.dumps(found, indent=None if options.json else 1))
    is_whole = found["alive_views"] == found["of"] == found["alive_views_afterwards"] and not found["false_rows"]
    return 0 if is_whole and not found["false_rows_afterwards"] and not found["tracebacks"] else 1


if __name__ == "__main__":
    sys.exit(main())
