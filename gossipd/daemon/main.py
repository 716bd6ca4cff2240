"""``gossipd run``: from a configuration file to an exit code.

What lives here: signals, what systemd is told, and how each failure ends. What does not: the daemon (``app``).

SIGTERM or SIGINT: stop within five seconds, also in the middle of a start, exit 0; a second one ends the process at
once. SIGHUP: read the configuration and keys again, apply what can be applied, say what cannot; a wrong one changes
nothing. Signals that come before there is a daemon: ``start_signals``.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - the first look-up of a name imports it, in the middle of a host's first fetches
import errno
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import trio
from zmq import ZMQError

from gossipd.config.check import load_checked
from gossipd.config.environment import unknown_variables
from gossipd.config.keys import Keys
from gossipd.config.load import ConfigError
from gossipd.config.sections import Config
from gossipd.core.errors import ExitCode, GossipdError, LocalError
from gossipd.daemon import start_signals
from gossipd.daemon.app import App
from gossipd.daemon.slow_start import print_wait, told_if_slow
from gossipd.daemon.start_limits import check_limits
from gossipd.daemon.systemd import Notifier
from gossipd.runtime import logs
from gossipd.runtime.buffer_pool import limit_arenas
from gossipd.runtime.logs import get_logger
from gossipd.runtime.loop_clock import LoopClock
from gossipd.runtime.process_limits import descriptors_max, thread_rooms
from gossipd.runtime.system_refusals import NO_DESCRIPTORS
from gossipd.runtime.thread_priority import use_batch_policy

STOP_S = 5.0
LAST_LINES_S = 1.0  # for a reader of the log that is behind
log = get_logger("run")


def main(config_path: str) -> int:
    """Be the daemon until a signal; the process's exit code. Errors are logged as one sentence."""
    file = Path(config_path).absolute()
    try:
        with told_if_slow(file, tell=print_wait):
            config, keys = load_checked(file)
    except GossipdError as error:
        print(error.sentence, file=sys.stderr)  # noqa: T201 - before logging is set up, and in words for a person
        return int(error.code_of_exit)
    as_json = {"auto": None, "json": True, "text": False}[config.log.format]
    logs.configure(level=config.log.level, as_json=as_json, node=config.node.name)
    for sentence in unknown_variables(os.environ):
        log.warning(sentence)
    code = int(ExitCode.OTHER)
    limit_arenas()
    use_batch_policy()
    ending, clock = _Ending(), LoopClock()
    try:
        check_limits(descriptors_max(), thread_rooms())
        code = trio.run(_live, config, keys, ending, clock=clock, instruments=[clock])
    except* (GossipdError, OSError, ZMQError) as group:
        ending.tell(group)
        code = ending.code
    logs.flush_lines(LAST_LINES_S)
    return code


class _Ending:
    """The end of the daemon: what led to it, told at once, because closing may take too long to say it afterwards."""

    def __init__(self) -> None:
        self.code = int(ExitCode.OTHER)
        """Of the first cause; for an end that is cut short, too."""
        self._told: list[BaseException] = []

    def begin(self) -> None:
        """From now on five seconds; a second signal must not wait for anything. Tells the error that is on its way."""
        cause = sys.exception()
        if cause is not None:
            self.tell(cause)
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            return
        signal.signal(signal.SIGALRM, self._too_slow)
        signal.setitimer(signal.ITIMER_REAL, STOP_S)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _at_once)

    def tell(self, cause: BaseException) -> None:
        """Log each error once. The first decides the exit code."""
        for error in _leaves(cause):
            if error in self._told or not isinstance(error, GossipdError | OSError | ZMQError):
                continue
            typed = error if isinstance(error, GossipdError) else _typed(error)
            log.error("cannot run", code=typed.code, reason=str(typed.args[0]))
            code = int(typed.code_of_exit)
            self.code = self.code if self._told else code
            self._told.append(error)

    def _too_slow(self, number: int, frame: object) -> None:
        """The disk or a thread holds up the end: nothing verified is lost by leaving, so leave."""
        del number, frame
        log.error("not stopped in time; exiting", limit_s=STOP_S, code=self.code)
        logs.flush_lines(LAST_LINES_S)
        os._exit(self.code)


def _typed(error: OSError | ZMQError) -> GossipdError:
    """The same in our words."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return LocalError(NO_DESCRIPTORS, code="E_HANDLES")
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    return LocalError(f"{where}{error.strerror or error}", code="E_OS")


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for one in error.exceptions for leaf in _leaves(one)]


async def _live(config: Config, keys: Keys, ending: _Ending) -> int:
    try:
        await _serve_until_a_signal(config, keys, ending)
    finally:
        # The interpreter takes its handlers away before it ends: on a busy host it would die of the alarm, with that
        # code.
        signal.setitimer(signal.ITIMER_REAL, 0)
    log.info("stopped")
    return int(ExitCode.DONE)


async def _serve_until_a_signal(config: Config, keys: Keys, ending: _Ending) -> None:
    async with trio.open_nursery() as nursery:
        node = App(config, keys, nursery)  # reads the store, in this thread: a signal ends it at once
        threading.excepthook = lambda args: node.reports.bugs.report(
            args.exc_value or AssertionError(args.exc_type.__name__)
        )
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            start_signals.release()
            await _serve(node, config, _Signals(signals, ending, nursery), nursery)
        nursery.cancel_scope.cancel()


async def _serve(node: App, config: Config, signals: _Signals, nursery: trio.Nursery) -> None:
    notifier = signals.notifier
    async with node.serving(ending=signals.ending.begin):
        signals.ends_start = False
        notifier.ready(f"{config.node.name} serves on port {config.net.port}")
        nursery.start_soon(notifier.run_watchdog)
        log.info("ready", node=config.node.name, rack=config.node.rack, port=config.net.port)
        # What a start has made stays for the daemon's life: 80,000 objects, of which every full collection of garbage
        # would go through each, and hold up the loop for 50 ms.
        gc.freeze()
        while await signals.is_reload():
            notifier.reloading(time.monotonic_ns() // 1000)
            with contextlib.suppress(ConfigError):  # it is in the log, and an alarm
                await node.reloader.reload()
            notifier.ready()


class _Signals:
    """The signals as they come. One that ends the daemon ends its start, too, which may take minutes on a slow disk."""

    def __init__(self, signals: AsyncIterator[int], ending: _Ending, nursery: trio.Nursery) -> None:
        self.notifier = Notifier()
        self.ending = ending
        self.ends_start = True
        """Whether the daemon still starts."""
        self._is_reload, self._is_end = False, False
        self._changed = trio.Event()
        nursery.start_soon(self._listen, signals, nursery.cancel_scope)

    async def _listen(self, signals: AsyncIterator[int], starting: trio.CancelScope) -> None:
        async for number in signals:
            if number == signal.SIGHUP:
                self._is_reload = True
                self._changed.set()
                continue
            self.notifier.stopping()
            log.info("stopping")
            self.ending.begin()
            self._is_end = True
            self._changed.set()
            if self.ends_start:
                starting.cancel()
            return

    async def is_reload(self) -> bool:
        """Wait for the next signal. True: reload; False: end. Several reloads at once are one."""
        while not (self._is_reload or self._is_end):
            await self._changed.wait()
            self._changed = trio.Event()
        is_reload, self._is_reload = not self._is_end, False
        return is_reload


def _at_once(number: int, frame: object) -> None:
    del frame
    os._exit(128 + number)
