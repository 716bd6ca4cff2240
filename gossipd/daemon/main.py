"""``gossipd run``: from a configuration file to an exit code.

What lives here: signals, what systemd is told, and how each failure ends. What does not: the daemon (``app``).

SIGTERM or SIGINT: stop within five seconds, exit 0; a second one ends the process at once. SIGHUP: read the
configuration and keys again, apply what can be applied, say what cannot; a wrong one changes nothing.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - the first look-up of a name imports it, in the middle of a host's first fetches
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import structlog
import trio

from gossipd.config.changes import diff, with_changes
from gossipd.config.keys import read_keys
from gossipd.config.load import load_config
from gossipd.config.places import check_places
from gossipd.config.sections import Config
from gossipd.core.errors import ExitCode, GossipdError
from gossipd.daemon.app import App
from gossipd.daemon.systemd import Notifier
from gossipd.runtime import logs
from gossipd.runtime.buffer_pool import limit_arenas
from gossipd.runtime.thread_priority import use_batch_policy
from gossipd.store.errors import StoreLockedError

STOP_S = 5.0
log = structlog.get_logger("run")


def main(config_path: str) -> int:
    """Be the daemon until a signal; the process's exit code. Errors are logged as one sentence."""
    try:
        config = load_config(Path(config_path).absolute())
        read_keys(config)
        check_places(config)
    except GossipdError as error:
        print(error.sentence, file=sys.stderr)  # noqa: T201 - before logging is set up, and in words for a person
        return error.exit_code
    as_json = {"auto": None, "json": True, "text": False}[config.log.format]
    logs.configure(level=config.log.level, as_json=as_json)
    code = int(ExitCode.OTHER)
    limit_arenas()
    use_batch_policy()
    try:
        code = trio.run(_live, config)
    except* (GossipdError, OSError) as group:
        code = _failed(group)
    return code


def _failed(group: BaseExceptionGroup[GossipdError | OSError]) -> int:
    code = int(ExitCode.OTHER)
    for error in _leaves(group):
        if isinstance(error, GossipdError):
            log.error("cannot run", code=error.code, reason=str(error.args[0]))
            code = 3 if isinstance(error, StoreLockedError) else int(error.exit_code)
        elif isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            log.error("cannot run", code="E_OS", reason=f"{where}{error.strerror or error}")
    return code


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


async def _live(config: Config) -> int:
    try:
        await _serve_until_a_signal(config)
    finally:
        # The interpreter takes its handlers away before it ends: on a busy host it would die of the alarm, with that
        # code.
        signal.setitimer(signal.ITIMER_REAL, 0)
    log.info("stopped")
    return int(ExitCode.DONE)


async def _serve_until_a_signal(config: Config) -> None:
    notifier = Notifier()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            node = App(config, read_keys(config), nursery)
            threading.excepthook = lambda args: node.reports.bugs.report(
                args.exc_value or AssertionError(args.exc_type.__name__)
            )
            async with node.serving(ending=_limit_the_end):
                notifier.ready(f"{config.node.name} serves on port {config.net.port}")
                nursery.start_soon(notifier.run_watchdog)
                log.info("ready", node=config.node.name, rack=config.node.rack, port=config.net.port)
                async for number in signals:
                    if number != signal.SIGHUP:
                        break
                    notifier.reloading(time.monotonic_ns() // 1000)
                    _reload(node)
                    notifier.ready()
                notifier.stopping()
                log.info("stopping")
                _limit_the_end()
            nursery.cancel_scope.cancel()


def _limit_the_end() -> None:
    """From now on five seconds; a second signal must not wait for anything."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        return
    signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, STOP_S)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _at_once)


def _too_slow(number: int, frame: object) -> None:
    """The disk or a thread holds up the end: nothing verified is lost by leaving, so leave."""
    del number, frame
    log.error("not stopped in time; exiting", limit_s=STOP_S)
    os._exit(int(ExitCode.OTHER))


def _at_once(number: int, frame: object) -> None:
    del frame
    os._exit(128 + number)


def _reload(node: App) -> None:
    """Apply a changed configuration; a wrong one changes nothing."""
    try:
        config = load_config(node.live.config.file)
        keys = read_keys(config)
    except GossipdError as error:
        log.error("not reloaded", code=error.code, reason=str(error.args[0]))
        return
    applied, changed = diff(node.live.config, config)
    done = [change.key for change in applied]
    restart = [change.key for change in changed]
    cluster = keys.cluster
    if cluster.cluster_id != node.live.keys.cluster.cluster_id:
        restart.append("security.cluster_key")
        cluster = node.live.keys.cluster
    elif cluster != node.live.keys.cluster:
        done.append("security.cluster_key")
    if keys.node != node.live.keys.node:
        restart.append("security.node_key")
    node.change(with_changes(node.live.config, applied), replace(keys, cluster=cluster, node=node.live.keys.node))
    log.info("reloaded", applied=done, needs_restart=sorted(set(restart)))
