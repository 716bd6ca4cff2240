"""A host whose models directory hangs, as one of a server that is away: its daemon lives, answers and ends."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.cluster import alive_count, cluster, gossipd, until
from tests.e2e.toy import make_model

# Each call to a directory whose path has what is in a file ``hangs`` waits while there is one; the calls of the main
# thread, in which the event loop runs, are told in the file ``looks``, from the moment on that there is one.
HANGING = """
import os, sys, threading, time
from pathlib import Path
from gossipd.store.disk.posix_disk import PosixDisk
from gossipd.store.disk.root_place import RootPlace
from gossipd.daemon import deployment_executor
from gossipd.store.disk import waiting_calls
deployment_executor.READ_S, waiting_calls.LOOKS_MAX = 1.0, 3
home = Path(sys.argv[sys.argv.index("--config") + 1]).parent
hangs, held_up, looks = home / "hangs", home / "held_up", home / "looks"

def place(one):
    return str(one.path) if hasattr(one, "path") else os.readlink(f"/proc/self/fd/{one._root}")

def watched(name, look):
    def call(*words, **more):
        if threading.current_thread() is threading.main_thread() and looks.exists():
            with looks.open("a") as told:
                told.write(f"{name} {words[1:]}\\n")
        while hangs.exists() and hangs.read_text() in place(words[0]):
            held_up.touch()
            time.sleep(0.05)
        return look(*words, **more)
    return call

for kind in (PosixDisk, RootPlace):
    for name, look in list(vars(kind).items()):
        if callable(look) and not name.startswith("_"):
            setattr(kind, name, watched(name, look))
from gossipd.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_models_directory_that_hangs_stops_no_daemon(tmp_path: Path) -> None:
    with cluster(tmp_path / "c", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{tmp_path}"])}) as made:
        well, poor = made.add("node-1", "rack-1"), made.add("node-2", "rack-1")
        well.start()
        poor.start(("-c", HANGING))
        made.wait_together()
        looks = poor.home / "looks"
        looks.touch()
        manifests = [
            made.publish(make_model(tmp_path / f"model-{version}", shards=1), "m", version) for version in (1, 2, 3)
        ]

        def current() -> list[int]:
            gossipd("status", "--config", poor.config)
            return [row["version"] for row in poor.client.models("m")["models"] if row["current"]]

        for version, manifest in enumerate(manifests[:2], start=1):
            made.drop(manifest, well)
            made.wait_complete("m", version, at=poor, hosts=2)
            assert current() == [version]
        gossipd("rollback", "m", "--config", poor.config)
        assert current() == [1], "what the daemon did is told at once"
        gossipd("rm", "m@1", "--config", poor.config)
        until("the version after it is the current one", lambda: current() == [2])
        assert looks.read_text() == "", "the event loop looks at the models directory"

        def alarms() -> list[str]:
            return [row["code"] for row in poor.client.status()["alarms"]]

        (poor.home / "hangs").write_text("/models")
        made.drop(manifests[2], well)
        made.wait_complete("m", 3, at=well, hosts=1)
        until("a look hangs", (poor.home / "held_up").exists)
        assert current() == [2]
        until("others see it alive", lambda: alive_count(well) == 2)
        until("its status says that the disk is silent", lambda: poor.client.status()["store"]["condition"] == "silent")
        until("an alarm tells it", lambda: "E_STORE_SILENT" in alarms())
        refused = gossipd("pin", "m@2", "--config", poor.config, check=False)
        assert "E_STORE_SILENT" in refused.stderr and "does not answer" in refused.stderr

        def reason() -> str:
            rows = well.client.status()["deployments"]
            hosts = next(row for row in rows if row["version"] == 3)["hosts"]
            return str(next(row["reason"] for row in hosts if row["name"] == "node-2"))

        until("others are told so, too", lambda: reason() == "disk_silent")
        (poor.home / "hangs").unlink()
        until("what waited comes when the disk answers", lambda: current() == [3])
        until("the alarm has ended", lambda: not alarms())
        (poor.home / "hangs").write_text("/")
        gossipd("rm", "m@3", "--config", poor.config, check=False)
        until("another tells of the daemon's own directory", lambda: "E_STATE_SILENT" in alarms())
        assert looks.read_text() == ""
        assert poor.stop() == 1, "what cannot be ended is left"
        assert "not stopped in time" in poor.log()
