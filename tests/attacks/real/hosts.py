"""The four daemons that are attacked: starting them, what they count, and what must not change.

What lives here: one cluster with a model on every host and an insider in it. What does not: delivering attacks
(``delivery``).
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from gossipd.core.ids import DeploymentId
from gossipd.deployment.statement import Statement, Verb
from gossipd.identity.key_files import read_key_ring, read_secret_key, write_public_key
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import deployment_id
from membership.member import Record
from tests.attacks.pure.inbox import files_of
from tests.attacks.real.insider import Insider
from tests.attacks.stage import TRAINER, TRAINER_NAMES, Stage
from tests.e2e.cluster import PATIENCE_S, Cluster, Daemon, free_port_pair, set_up, until

HOSTS = 4
MODEL, OTHERS_MODEL = "org/model", "org/others"
_REFUSED = re.compile(r'^gossipd_refused_total\{reason="([^"]+)"\} ([0-9.e+]+)$', re.MULTILINE)
_RECEIVED = re.compile(r"^gossipd_(?:received|wasted)_bytes_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)
_CHANGING = ("inbox", "log", "audit.jsonl", "gossipd.sock", "gossipd-read.sock", "state", "models")


class AttackedCluster:
    """Four daemons with one small model; ``insider`` is the fifth member."""

    def __init__(self, base: Path, *, hosts: int = HOSTS) -> None:
        self.base = base
        (base / "site").mkdir(parents=True)
        client = base / "client.key"
        set_up("keygen", client)
        self.client = read_secret_key(client)
        publisher, trainer = f"{base}/publisher.key.pub", f"{base}/trainer.key.pub"
        write_public_key(Path(trainer), TRAINER.public)
        self.cluster = Cluster(
            base,
            environment={
                "GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{base}/site"]),
                "GOSSIPD_SECURITY__CLIENTS": json.dumps([f"{client}.pub"]),
                "GOSSIPD_SECURITY__TRUST": json.dumps([publisher, trainer]),
                "GOSSIPD_SECURITY__TRUST_NAMES": f'{{"{trainer}" = {json.dumps(TRAINER_NAMES)}}}',
                "GOSSIPD_MEMBERSHIP__SUSPICION_BASE_S": "6",  # a busy machine must not look like a lie that works
            },
        )
        for number in range(1, hosts + 1):
            self.cluster.add(f"node-{number}", f"rack-{number % 2}").start()
        for daemon in self.cluster.daemons.values():
            self.wait(f"{daemon.name} is ready", lambda one=daemon: one.try_status() is not None)
        self.cluster.wait_together()
        self.publisher = read_secret_key(self.cluster.key)
        self.daemons: list[Daemon] = list(self.cluster.daemons.values())
        self.envelope = self.deploy(1)
        self._for_others = self.deploy(1, OTHERS_MODEL, "--targets", "name=node-*")

    def admit(self) -> None:
        """Have the insider join, as the last member."""
        ring = read_key_ring(self.daemons[0].home / "cluster.key")
        self.insider = Insider(ring, SecretKey(Random(5).randbytes(32)), free_port_pair())
        self.insider.join([("127.0.0.1", daemon.port) for daemon in self.daemons])
        assert self.insider.live(PATIENCE_S, lambda: len(self.records()) == len(self.daemons)), (
            "the insider is not let in"
        )

    def deploy(self, version: int, name: str = MODEL, *more: str) -> bytes:
        """A small model to all hosts, and the envelope of its manifest."""
        manifest = self.publish(version, name, *more, size_bytes=1 << 20)
        self.cluster.drop(manifest, self.daemons[0])
        self.wait(f"{name}@{version} on all hosts", lambda: self.is_everywhere(version, name))
        return manifest.read_bytes()

    def is_everywhere(self, version: int, name: str = MODEL) -> bool:
        """Whether every host says of itself, and has heard of every other, that it is complete."""
        return all(self.is_complete(one, version, name) for one in self.daemons)

    def publish(self, version: int, name: str = MODEL, *more: str, size_bytes: int) -> Path:
        """The manifest of a model of random bytes."""
        site = self.base / "site" / name / str(version)
        site.mkdir(parents=True)
        random = Random(f"{name} {version}")
        with (site / "model.bin").open("wb") as file:
            file.writelines(random.randbytes(_PART_BYTES) for _ in range(size_bytes // _PART_BYTES))
        return self.cluster.publish(site, name, version, "--source", f"file://{site}/", *more)

    def is_complete(self, daemon: Daemon, version: int, name: str = MODEL) -> bool:
        """Whether the host says so itself, and all other hosts say so by what it has heard."""
        row = daemon.deployment(name, version) or {"hosts": []}
        states = {one["name"]: one["state"] for one in row["hosts"]}
        return all(states.get(one.name) == "complete" for one in self.daemons)

    def wait(self, what: str, condition: Any, *, patience_s: float = PATIENCE_S) -> None:
        """Until the condition holds; the insider lives meanwhile."""
        insider = getattr(self, "insider", None)
        if insider is None:
            until(what, condition, patience_s=patience_s)
        else:
            assert insider.live(patience_s, condition), f"not within {patience_s:g} s: {what}"

    def records(self) -> dict[str, Record]:
        """The daemons' records, as the insider has heard them."""
        names = {one.name for one in self.daemons}
        return {one.record.name: one.record for one in self.insider.swim.members() if one.record.name in names}

    def stage(self, number: int, salt: str) -> Stage:
        """What an attack on that daemon may name."""
        records = self.records()
        target, victim, other = (records[self.daemons[(number + step) % len(self.daemons)].name] for step in range(3))
        deployment = DeploymentId(deployment_id(self.envelope))
        deployer = records[self.daemons[0].name].public_key
        said = Statement(deployment, 1, Verb.DEPLOY, len(self.envelope), int(time.time()), deployer, b"")
        return Stage(
            self.insider.ring, target, victim, other, self.insider.record, self.insider.secret, self.publisher,
            self.insider.seal, deployment, said, time.time(), model=MODEL, salt=f"{salt} {target.name}".encode(),
            for_others=DeploymentId(deployment_id(self._for_others)), incarnation_of=self._incarnation_of,
        )  # fmt: skip

    def _incarnation_of(self, record: Record) -> int:
        member = self.insider.swim.member(record.node)
        return 0 if member is None else member.incarnation

    # ---- what is looked at ---------------------------------------------------------------------------

    def counters(self, daemon: Daemon) -> Counter[str]:
        """All refusals that the host counts, by reason; those of the control port without that word."""
        found: Counter[str] = Counter()
        for reason, value in _REFUSED.findall(self._metrics(daemon)):
            found[reason.removeprefix("control_").removeprefix("control_")] += int(float(value))
        return found

    def received_bytes(self) -> int:
        """Bytes of models that all hosts have received, for whatever."""
        return sum(int(float(one)) for daemon in self.daemons for one in _RECEIVED.findall(self._metrics(daemon)))

    def _metrics(self, daemon: Daemon) -> str:
        return daemon.client.metrics()

    def state(self, daemon: Daemon) -> dict[str, Any]:
        """What must not change on one host; the insider's own rows are not part of it."""
        status, names = daemon.client.status(), {one.name for one in self.daemons}
        told = {one["sentence"] for one in status["alarms"] if one["code"] in _TOLD}
        members = [one for one in status["members"] if one["name"] in names]
        rows = [
            (row["name"], row["version"], row["stall"], sorted(
                (one["name"], one["state"], one["chunks_verified"]) for one in row["hosts"] if one["name"] in names
            ))
            for row in status["deployments"]
        ]  # fmt: skip
        return {
            "members": [(one["name"], one["id"], one["address"], _settled(one["state"])) for one in members],
            "deployments": rows,
            "models": [[one[key] for key in _MODEL_KEYS] for one in daemon.client.models()["models"]],
            "security": [status["security"]["bulk_encryption"], *sorted(set(status["security"]["reasons"]) - told)],
            "alarms": sorted(one["code"] for one in status["alarms"] if one["code"] not in _TOLD),
            "files": files_of(daemon.home, without=_CHANGING),
            "models on the disk": files_of(daemon.home / "models", without=(".manifests",)),
        }  # fmt: skip

    def tracebacks(self) -> list[str]:
        """Lines of the daemons' logs that begin one."""
        return [line for daemon in self.daemons for line in daemon.log().splitlines() if "Traceback (most" in line]

    def restart_all(self) -> None:
        """Stop all daemons, then start them."""
        for daemon in self.daemons:
            code = daemon.stop()
            assert code == 0, f"{daemon.name} ended with {code}:\n{daemon.log()[-1000:]}"
        for daemon in self.daemons:
            daemon.start()
        for daemon in self.daemons:
            self.wait(f"{daemon.name} is back", lambda one=daemon: one.try_status() is not None)
        self.cluster.wait_together()

    def close(self) -> None:
        """End all of it."""
        if hasattr(self, "insider"):
            self.insider.close()
        self.cluster.close()


_PART_BYTES = 1 << 20  # sizes are multiples of it
_MODEL_KEYS = ("name", "version", "state", "current", "bytes_total")
_TOLD = ("E_EQUIVOCATION", "E_NAME_CONFLICT", "E_WATCH_DIRECTORY", "E_PORT_FULL")  # alarms that are how one is told


def _settled(state: str) -> str:
    """A suspect lives until it is judged; on a busy machine there are some."""
    return "alive" if state == "suspect" else state
