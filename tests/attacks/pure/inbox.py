"""The inbox of one host in a real directory: the real inbox, and an order for each file that it reads."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import trio

from gossipd.core.errors import GossipdError
from gossipd.deployment import events
from gossipd.inbox.inbox import Inbox
from tests.attacks.builders.inbox import Plant
from tests.attacks.pure.gossip import any_stage
from tests.attacks.pure.orders import believed
from tests.attacks.stage import Stage
from tests.gossipd.deployment.scripted_host import ONE, ScriptedHost
from tests.gossipd.manifest.making import manifest

_LOOKS = 3


def files_of(home: Path, *, without: tuple[str, ...] = ("inbox",)) -> list[tuple[str, str]]:
    """Every path in a host's directory with what it holds; directories by name only."""
    found = []
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if name.split("/", maxsplit=1)[0] not in without:
            content = f"link to {path.readlink()}" if path.is_symlink() else _digest(path) if path.is_file() else ""
            found.append((name, content))
    return found


def reasons_in(inbox: Path) -> Counter[str]:
    """The code of each file that was refused."""
    found = (inbox / "rejected").glob("*.reason") if (inbox / "rejected").is_dir() else ()
    texts = [path.read_text() for path in found if path.is_file() and not path.is_symlink()]
    return Counter(text.partition(":")[0] for text in texts)


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


class InboxSurface:
    """See Surface."""

    payload_bytes = 0

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="gossipd-attacks-")
        self.home = home = Path(self._directory.name)
        for name in ("inbox", "state", "trust", "models"):
            (home / name).mkdir(mode=0o750)
        for name in ("state/register", "trust/pub.key.pub", "authorized_keys"):
            (home / name).write_text("what was there")
        self._host = ScriptedHost(published=[ONE])
        self._host.drop(ONE)
        self._codes: Counter[str] = Counter()

    @property
    def stage(self) -> Stage:
        """See Surface."""
        return any_stage(model=ONE.name)

    def deliver(self, made: Plant) -> None:
        """See Surface."""
        made.plant(self.home)
        for path in (self.home / "inbox").iterdir():
            os.utime(path, (1_000.0, 1_000.0), follow_symlinks=False)  # at rest for long
        trio.run(self._look)
        self._codes += reasons_in(self.home / "inbox")
        made.clear(self.home)

    async def _look(self) -> None:
        inbox = Inbox(self.home / "inbox", self._offer, wall=lambda: 2_000.0)
        for _ in range(_LOOKS):
            await inbox.look()
        if inbox.statistics.trouble is not None:
            self._codes[inbox.statistics.trouble.partition(":")[0]] += 1

    async def _offer(self, content: bytes, name: str) -> str:
        answer = self._host.request(events.ManifestDropped, content, name)
        if answer.error is not None:
            raise answer.error
        self._codes["accepted"] += 1
        return answer.sentence

    def seen(self) -> Counter[str]:
        """See Surface."""
        return self._codes.copy()

    def state(self) -> dict[str, Any]:
        """See Surface."""
        return {"files": files_of(self.home), **believed(self._host.statements)}

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface."""
        return {"files": files_of(self.home)}

    def works(self) -> str:
        """See Surface."""
        path = self.home / "inbox" / "good.gmf"
        path.write_bytes(manifest(version=2).envelope)
        os.utime(path, (1_000.0, 1_000.0))
        try:
            trio.run(self._look)
        except GossipdError as error:
            return f"a good manifest is refused: {error}"
        return "" if self._codes["accepted"] == 1 else "a good manifest is not taken"

    def close(self) -> None:
        """See Surface."""
        self._directory.cleanup()
