"""The files of one host in a real directory, and the readers that a daemon opens them with at its start."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossipd.audit.chain_file import AuditFile
from gossipd.deployment.statement_file import register_to_bytes
from gossipd.identity.cluster_key import new_key_ring
from gossipd.identity.key_files import read_secret_key, write_key_pair, write_key_ring, write_public_key
from gossipd.store.disk.posix_disk import PosixDisk
from tests.attacks.pure.gossip import LIAR, any_stage
from tests.attacks.stage import Stage
from tests.gossipd.deployment.scripted_host import KEY, ONE, ScriptedHost


class DiskSurface:
    """See Surface."""

    payload_bytes = 0

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="gossipd-attacks-")
        self._home = home = Path(self._directory.name)
        for name in ("state", "trust", "models", "elsewhere"):
            (home / name).mkdir(mode=0o700)
        write_key_pair(home / "node.key", KEY)
        write_key_ring(home / "cluster.key", new_key_ring(bytes(range(48))))
        write_public_key(home / "trust/pub.key.pub", KEY.public)
        write_key_pair(home / "good.key", LIAR)
        host = ScriptedHost(published=[ONE])
        host.drop(ONE)
        (home / "state/register").write_bytes(register_to_bytes(host.statements))
        AuditFile(home / "audit.log").append([{"event": "accepted"}] * 4, "2026-01-02T03:04:05Z")
        self._codes: Counter[str] = Counter()

    @property
    def stage(self) -> Stage:
        """See Surface."""
        return any_stage()

    def deliver(self, made: Callable[[Path], None]) -> None:
        """See Surface."""
        try:
            made(self._home)
        except OSError as error:
            self._codes[os.strerror(error.errno or 0)] += 1

    def seen(self) -> Counter[str]:
        """See Surface."""
        return self._codes.copy()

    def state(self) -> dict[str, Any]:
        """See Surface. The attack has changed what it did; nothing else may."""
        return {
            "elsewhere": sorted(os.listdir(self._home / "elsewhere")),
            "good": (self._home / "good.key").read_bytes(),
        }

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface."""
        return self.state()

    def works(self) -> str:
        """See Surface."""
        read_secret_key(self._home / "good.key")
        (self._home / "models").chmod(0o700)
        PosixDisk(self._home / "models").shut()
        return ""

    def close(self) -> None:
        """See Surface."""
        self._directory.cleanup()
