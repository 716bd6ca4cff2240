"""A reload: configuration and keys are read again, what can be applied is applied, the rest is said.

What lives here: one reload at a time, its outcome, and the alarms that it leaves. What does not: who asks (SIGHUP in
``main``, the local socket), comparing (``config.changes``) and applying (``app``).

``E_RELOAD`` is shown until a reload succeeds: such a host would not start again. ``E_RESTART_NEEDED`` is shown until
the file says again what runs, or the daemon was restarted.
"""

from __future__ import annotations

from collections.abc import Callable

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from gossipd.api.ports import Reloaded
from gossipd.config.changes import diff, with_changes
from gossipd.config.check import load_checked
from gossipd.config.keys import Keys
from gossipd.config.load import ConfigError
from gossipd.config.sections import Config
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.runtime.logs import get_logger
from gossipd.runtime.worker_threads import run_blocking

FAILED, RESTART_NEEDED = "E_RELOAD", "E_RESTART_NEEDED"
log = get_logger("run")


class Reloader(Struct, eq=False):
    """One per daemon. ``apply`` puts a configuration and keys into force."""

    live: LiveSettings
    alarms: Alarms
    apply: Callable[[Config, Keys], None]
    _one_at_a_time: trio.Lock = field(default_factory=trio.Lock)

    async def reload(self) -> Reloaded:
        """Read and apply. Raises ConfigError with every problem; then nothing has changed."""
        async with self._one_at_a_time:
            try:
                config, keys = await run_blocking(load_checked, self.live.config.file)
            except ConfigError as error:
                log.error("not reloaded", code=error.code, reason=str(error.args[0]))
                self.alarms.ring_as(FAILED, f"not reloaded: {'; '.join(map(str, error.problems))}")
                raise
            applied, restart = self._take(config, keys)
        log.info("reloaded", applied=applied, needs_restart=restart)
        self.alarms.cured(FAILED)
        if restart:
            self.alarms.ring_as(RESTART_NEEDED, f"restart this daemon to apply {', '.join(restart)}")
        else:
            self.alarms.cured(RESTART_NEEDED)
        return Reloaded(
            changed=bool(applied), sentence=_words(applied, restart), applied=applied, needs_restart=restart
        )  # fmt: skip

    def _take(self, config: Config, keys: Keys) -> tuple[list[str], list[str]]:
        """Apply; the settings that have changed, and those that cannot while the daemon runs."""
        live = self.live
        reloadable, fixed = diff(live.config, config)
        done, restart = [change.key for change in reloadable], [change.key for change in fixed]
        cluster = keys.cluster
        if cluster.cluster_id != live.keys.cluster.cluster_id:
            restart.append("security.cluster_key")
            cluster = live.keys.cluster
        elif cluster != live.keys.cluster:
            done.append("security.cluster_key")
        if keys.node != live.keys.node:
            restart.append("security.node_key")
        done += [f"security.{name}" for name in ("trust", "clients") if self._has_new_keys(name, keys, done)]
        self.apply(with_changes(live.config, reloadable), replace(keys, cluster=cluster, node=live.keys.node))
        return done, sorted(set(restart))

    def _has_new_keys(self, name: str, keys: Keys, done: list[str]) -> bool:
        """Whether other keys lie in the same files."""
        attribute = {"trust": "publishers", "clients": "clients"}[name]
        return f"security.{name}" not in done and getattr(keys, attribute) != getattr(self.live.keys, attribute)


def _words(applied: list[str], restart: list[str]) -> str:
    words = f"applied {', '.join(applied)}" if applied else "nothing to apply"
    return f"{words}; restart to apply {', '.join(restart)}" if restart else words
