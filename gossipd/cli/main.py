"""The command ``gossipd``: its verbs, and how each of them ends.

What lives here: the table of commands, imported only when called (``gossipd status`` imports neither trio nor zmq nor
rich; a test checks that), and the one place where errors become a sentence and an exit code. What does not: the verbs.

Every error is one line on stderr, ``E_CODE: sentence``, folded on a terminal; with ``--json`` stdout also gets it as an
object.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import click

from gossipd import __version__
from gossipd.cli.layout import show_lines
from gossipd.core.errors import ExitCode, GossipdError
from gossipd.core.units import printable
from gossipd.core.versions import parse_version

_EXIT_CODES = """\b
Exit codes:
  0 done                     6 verification failed
  1 other error              7 signature or trust refused
  2 wrong usage              8 out of disk
  3 not found                9 partial: some hosts are not ready
  4 daemon not reachable    10 storage refused the credentials
  5 timeout                 11 storage not reachable
                           130 interrupted"""

_EMPTY_OPTION = re.compile(r"--[a-z][a-z-]*=")


class _Verb(NamedTuple):
    module: str
    attribute: str
    summary: str


VERBS = {
    "demo": _Verb("gossipd.cli.demo", "demo", "Watch a model spread over real daemons on this machine."),
    "keygen": _Verb("gossipd.cli.keygen", "keygen", "Make a publisher's key, or a cluster's."),
    "key": _Verb("gossipd.cli.key", "key", "Rotate the cluster key."),
    "publish": _Verb("gossipd.cli.publish", "publish", "Hash and sign a model: the manifest."),
    "sign": _Verb("gossipd.cli.sign", "sign", "Sign a manifest with another key."),
    "init": _Verb("gossipd.cli.init", "init", "Set up this host."),
    "run": _Verb("gossipd.cli.run", "run", "Be the daemon, in the foreground."),
    "config": _Verb("gossipd.cli.config", "config", "Check a configuration, or show it."),
    "reload": _Verb("gossipd.cli.admin", "reload", "Have the daemon read its configuration again."),
    "deploy": _Verb(
        "gossipd.cli.deploy", "deploy", "Deploy a manifest from this host on, or say what would come of it."
    ),
    "trigger": _Verb("gossipd.cli.trigger", "trigger", "Deploy or cancel by a message to any host."),
    "status": _Verb("gossipd.cli.status", "status", "How far the cluster is."),
    "top": _Verb("gossipd.cli.top", "top", "This host's traffic by rack and peer."),
    "why": _Verb("gossipd.cli.why", "why", "Why a model is not on the hosts."),
    "wait": _Verb("gossipd.cli.wait", "wait", "Wait until a model is on the hosts."),
    "report": _Verb("gossipd.cli.report", "report", "What a deployment did, and its course."),
    "events": _Verb("gossipd.cli.events", "events", "What has happened, and what happens."),
    "traces": _Verb("gossipd.cli.traces", "traces", "A trace of each deployment, by OpenTelemetry."),
    "doctor": _Verb("gossipd.cli.doctor", "doctor", "What is wrong with this host."),
    "support": _Verb("gossipd.cli.support", "support", "An archive for who helps, without secrets."),
    "web": _Verb("gossipd.cli.web", "web", "The cluster in a browser."),
    "members": _Verb("gossipd.cli.members", "members", "Who belongs to the cluster."),
    "ls": _Verb("gossipd.cli.models", "ls", "Models on this host."),
    "path": _Verb("gossipd.cli.models", "path", "Where a model lies on this host."),
    "show": _Verb("gossipd.cli.show", "show", "What a manifest says."),
    "lineage": _Verb("gossipd.cli.show", "lineage", "What a version came from."),
    "export": _Verb("gossipd.cli.show", "export", "A version's lineage as an in-toto statement."),
    "latest": _Verb("gossipd.cli.latest", "latest", "The newest version that is complete where it matters."),
    "hold": _Verb("gossipd.cli.latest", "hold", "Keep a version on this host while a command runs."),
    "watch": _Verb("gossipd.cli.watch", "watch", "Publish a training run's steps as they are saved."),
    "verify": _Verb("gossipd.cli.verify", "verify", "Hash a model on this host again."),
    "rm": _Verb("gossipd.cli.admin", "rm", "Remove a model from this host."),
    "pin": _Verb("gossipd.cli.eviction", "pin", "Keep a model on this host, however full its disk is."),
    "unpin": _Verb("gossipd.cli.eviction", "unpin", "Keep it no longer."),
    "warm": _Verb("gossipd.cli.warm", "warm", "Read a model on this host into memory."),
    "want": _Verb("gossipd.cli.want", "want", "Take only parts of a model on this host."),
    "prune": _Verb("gossipd.cli.eviction", "prune", "Evict what is not needed from this host."),
    "cancel": _Verb("gossipd.cli.admin", "cancel", "Stop a deployment everywhere."),
    "pause": _Verb("gossipd.cli.admin", "pause", "Begin no more fetches of a deployment, everywhere."),
    "resume": _Verb("gossipd.cli.admin", "resume", "Let a paused deployment go on."),
    "rollback": _Verb("gossipd.cli.admin", "rollback", "Point 'current' at the version before."),
    "untrust": _Verb("gossipd.cli.trust", "untrust", "Stop using a key's models, or one, on this host."),
    "trust": _Verb("gossipd.cli.trust", "trust", "Let a name with a locked version go on."),
    "forget": _Verb("gossipd.cli.members", "forget", "Take a scrapped host off the roster."),
    "audit": _Verb("gossipd.cli.audit", "audit", "Check the audit log."),
    "simulate": _Verb("gossipd.cli.simulate", "simulate", "Run a cluster of any size on a virtual clock."),
    "assets": _Verb("gossipd.cli.assets", "assets", "Print unit, alerts, completion, API, man pages."),
    "version": _Verb("gossipd.cli.version", "version", "Say which gossipd this is."),
    "help": _Verb("gossipd.cli.help", "manual", "Read the manual."),
}


class _LazyGroup(click.Group):
    """Has the names and summaries of its commands, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command = getattr(importlib.import_module(verb.module), verb.attribute)
        assert isinstance(command, click.Command), f"{verb.module}.{verb.attribute} is no command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        """Raises UsageError, with the command that was meant where one is near."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1, cutoff=0.6)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        name, command, words = super().resolve_command(ctx, args)
        if name != "hold":  # whose words may be another program's
            _refuse_empty(ctx, words)
        return name, command, words

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExamples:\n  gossipd demo\n  gossipd status --watch\n  gossipd wait qwen@3 --timeout 30m\n"
    "  gossipd help operations\n\n" + _EXIT_CODES,
)
@click.version_option(__version__, prog_name="gossipd")
def cli() -> None:
    """Gets a very large model from storage to every host in the time of one download, with no coordinator."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors that a user or the cluster can cause never raise."""
    _open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--version"] and "--json" in given:
        given[0] = "version"
    try:
        result = cli.main(args=given, prog_name="gossipd", standalone_mode=False)
        sys.stdout.flush()
    except (click.ClickException, GossipdError, OSError) as error:
        return _end(error, given)
    except (KeyboardInterrupt, click.Abort):
        return int(ExitCode.INTERRUPTED)
    return int(result) if isinstance(result, int) else int(ExitCode.DONE)


def _refuse_empty(ctx: click.Context, words: Sequence[str]) -> None:
    """``--budget "$BUDGET"`` of a variable that is not set would be no budget, and an empty path this directory."""
    before = ""
    for word in words:
        if word == "--":
            return
        if not word or _EMPTY_OPTION.fullmatch(word):
            subject = word[:-1] or (before if before.startswith("-") else "an argument")
            ctx.fail(f"{subject} is empty. Is a variable not set?")
        before = word


def _open_closed_streams() -> None:
    """`gossipd status >&-`: lead closed streams nowhere, also so that no file of ours gets their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - for the rest of the process, as those below
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115


def _end(error: click.ClickException | GossipdError | OSError, given: Sequence[str]) -> int:
    exit_code: int = ExitCode.OTHER
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return int(ExitCode.USAGE)
    if isinstance(error, BrokenPipeError):  # `gossipd status | head`: nobody reads further
        _lead_output_nowhere()
        return int(exit_code)
    if isinstance(error, GossipdError):
        code, message, exit_code = error.code, str(error), error.code_of_exit
    elif isinstance(error, click.ClickException):
        code, message, exit_code = "E_USAGE", _usage_sentence(error), ExitCode.USAGE
    else:
        name = f"{error.filename}: " if error.filename else ""
        code, message = "E_OS", f"{name}{error.strerror or error}"
    message = _as_typed(message, given)
    harmless = "\n".join(map(printable, message.split("\n")))
    show_lines([f"{code}: {harmless}"], err=True)
    if "--json" in given:
        refusal = {"code": code, "message": message, "exit_code": int(exit_code), **getattr(error, "details", {})}
        try:
            click.echo(json.dumps({"schema_version": 1, "error": refusal}))
            sys.stdout.flush()
        except OSError:  # a full disk, which was the error too
            _lead_output_nowhere()
    return int(exit_code)


def _lead_output_nowhere() -> None:
    """What could not be written stays in the buffer, and Python would complain again at exit."""
    with suppress(OSError):  # of a program that calls us, stdout may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_typed(message: str, given: Sequence[str]) -> str:
    """With ``NAME@STEP.ATTEMPT`` as it was given: where nothing of the name is known, the version is but a number."""
    for text in given:
        name, _, version = text.rpartition("@")
        if name and "." in version:
            with suppress(ValueError):
                message = message.replace(f"{name}@{parse_version(version)}", text)
    return message


def _usage_sentence(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see: {context.command_path} --help)" if context is not None else ""
    return f"{error.format_message()}{hint}"
