"""Daemons of a demo that is killed: they end by themselves."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from gossipd.identity.key_files import write_key_pair
from gossipd.identity.keys import SecretKey

PATIENCE_S = 180.0
STARTER = """
import sys, time
from pathlib import Path
from gossipd.demo.hosts import make_hosts
from gossipd.demo.play import wait_together

base = Path(sys.argv[1])
(host,) = hosts = make_hosts(base, hosts=1, racks=1, trust=[base / "publisher.key.pub"], sources=[])
host.start()
wait_together(hosts)
print(host.process.pid, flush=True)
sys.stdin.read()
"""


def test_a_daemon_ends_when_the_demo_that_started_it_is_killed(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "publisher.key", SecretKey(b"p" * 32))
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        daemon = os.pidfd_open(int(starter.stdout.readline()))
        try:
            starter.kill()
            assert select.select([daemon], [], [], PATIENCE_S)[0], "the daemon still runs"
        finally:
            os.close(daemon)
    assert "stopped" in (tmp_path / "node-1" / "gossipd.log").read_text()
