"""``python -m tests.attacks.liar [--json]``: one member of ten says all that the corpus has, for a minute.

Models are deployed to nine honest daemons before the liar is there, while it lies, when it has left, and after all have
been restarted, before and after it. What lives here: those deployments, the lies without a wait for answers, and the
look at what hosts say of each other. What does not: what is said (``corpus.toml``).

A row of a host's status is false when it says that another host is complete, and that host, asked afterwards, does not.

One deployment takes some five seconds of both cores and differs from the next by half, so each situation has three of
them and their median counts. The bar is the first ratio. The liar's own work takes time from the daemons where all
share one machine, so models are also deployed beside a process that spins, and the second ratio compares with that.
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
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

from gossipd.core.errors import GossipdError
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
        self._version = 1

    def deployments(self, repeats: int, *, lie_s: float = 0.0) -> Deployments:
        """Deploy that many new versions one after another, each beside lies of ``lie_s`` seconds."""
        seconds, cpu_s = [], []
        for _ in range(repeats):
            self._version += 1
            seconds.append(round(self.deployed_s(self._version, lie_s=lie_s), 1))
            cpu_s.append(self.daemons_cpu_s)
        return Deployments(tuple(seconds), tuple(cpu_s))

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
            left -= {number for number in there if self._is_complete(number, version)}
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
        """The host's own word: a short answer, as what is asked here is work of the daemons, too."""
        try:
            models = self._cluster.daemons[number].client.models(MODEL)["models"]
        except GossipdError:  # busy, or ended: what it cannot say does not hold
            return False
        return any((one["version"], one["state"]) == (version, "complete") for one in models)

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


@dataclass(frozen=True, slots=True)
class Deployments:
    """Some deployments under the same conditions, one after another: the median decides, all are shown."""

    seconds: tuple[float, ...]
    cpu_s: tuple[float, ...]
    """Of the nine daemons."""

    @property
    def median_s(self) -> float:
        return round(median(self.seconds), 1)

    def row(self, name: str) -> dict[str, object]:
        """The fields that a line of figures has of them."""
        return {
            f"{name}_s": self.median_s, f"{name}_each_s": list(self.seconds),
            f"{name}_cpu_s": round(median(self.cpu_s), 1),
        }  # fmt: skip


def measure(seconds: float, size_bytes: int, repeats: int) -> dict[str, object]:
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
            undisturbed = run.deployments(repeats)
            found |= undisturbed.row("undisturbed")
            with beside(["-c", "while True: pass"]):
                spun = run.deployments(repeats)
            found |= spun.row("beside_a_spinner")
            cluster.restart_all()
            found |= run.deployments(repeats).row("undisturbed_after_a_restart")
            cluster.admit()
            run.false_rows = run.rows = 0
            own_s = time.process_time()
            lied = run.deployments(repeats, lie_s=seconds / repeats)
            found |= lied.row("while_it_lies")
            found |= {
                "ratio": round(lied.median_s / undisturbed.median_s, 2),
                "ratio_to_spinner": round(lied.median_s / spun.median_s, 2),
                "liar_cpu_s": round(time.process_time() - own_s, 1),
            }
            found |= {"told": dict(run.told), "rows": run.rows}
            found |= {"false_rows": run.false_rows, "alive_views": run.alive_views(), "of": HONEST**2}
            cluster.insider.leave()
            cluster.insider.close()
            del cluster.insider
            run.false_rows = 0
            found |= run.deployments(repeats).row("after_it_left")
            cluster.restart_all()
            found |= run.deployments(repeats).row("after_a_restart")
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
    parser.add_argument("--repeats", type=int, default=3, help="deployments in each of the five situations")
    options = parser.parse_args(arguments)
    found = measure(options.seconds, options.mib << 20, options.repeats)
    print(json.dumps(found, indent=None if options.json else 1))
    is_whole = found["alive_views"] == found["of"] == found["alive_views_afterwards"] and not found["false_rows"]
    return 0 if is_whole and not found["false_rows_afterwards"] and not found["tracebacks"] else 1


if __name__ == "__main__":
    sys.exit(main())
