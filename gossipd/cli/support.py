"""``gossipd support``: one archive with what somebody who helps needs to see, and without secrets.

What lives here: gathering, each part by itself, and the archive. What does not: removing secrets
(``diagnosis.redaction``), the checks (``diagnosis.checks``).
"""

from __future__ import annotations

import io
import json
import os
import platform
import resource
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import click

from gossipd import __version__
from gossipd.api.client import StatusClient, find_sockets
from gossipd.cli.daemon_environment import UNIT_ENVIRONMENT, unit_environment
from gossipd.cli.layout import show_lines
from gossipd.cli.options import GivenFile, NewFile, config_of_host, echo_json, examples, file_of_host
from gossipd.core.errors import GossipdError
from gossipd.diagnosis.redaction import Redactor, secrets_of_environment, secrets_of_file
from gossipd.runtime.regular_file import open_regular, read_regular

AUDIT_LINES, LOG_LINES = 2000, 5000
TEXT_BYTES_MAX = 4 << 20  # of each part
ALL_TEXT_BYTES_MAX = 19 << 20  # of all parts: under 20 MiB even where nothing can be packed
UNIT = "gossipd"  # as the unit of ``gossipd assets unit`` has them
JOURNAL_S_MAX = 20.0
_LACKING = "not to be had: "  # then a sentence, in the place of a part
_SECRET_FILES = ("AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
                 "GOOGLE_SERVICE_ACCOUNT", "AZURE_FEDERATED_TOKEN_FILE")  # fmt: skip


@click.command(epilog=examples("gossipd support --config /var/lib/gossipd/gossipd.toml --out support.tar.gz"))
@config_of_host
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=NewFile(path_type=Path, dir_okay=False),
    help="The archive to write; must not be there.",
)
@click.option(
    "--log", metavar="FILE", type=GivenFile(path_type=Path, dir_okay=False),
    help="The daemon's log. Default: the last 5,000 lines of the journal of the unit gossipd, else of the daemon.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def support(*, config_file: str | None, out: Path, log: Path | None, as_json: bool) -> int:
    """Gather what somebody who helps needs: status, events, causes, checks, settings, limits, log, audit log, versions,
    and what the daemon's tasks wait for.

    Keys, tokens and credentials of this host, of the daemon's unit and of this command's environment are taken out,
    every piece of eight characters of one. Run it as root, or as the daemon's user, who may read the journal perhaps.
    """
    file = file_of_host(config_file).absolute()
    secrets, parts = secrets_of_host(file, {**unit_environment(UNIT_ENVIRONMENT), **os.environ}), gather(file, log)
    written = write_bundle(out, parts, Redactor(secrets))
    lacking = {name: text.removeprefix(_LACKING).strip() for name, text in parts.items() if text.startswith(_LACKING)}
    if as_json:
        echo_json({"schema_version": 1, "file": str(out), "parts": written, "lacking": lacking})
    else:
        show_lines([f"{out}: {', '.join(written)}"])
        for why in dict.fromkeys(lacking.values()):
            show_lines([f"without {', '.join(name for name in lacking if lacking[name] == why)}: {why}"], err=True)
    return 0


def secrets_of_host(config_file: Path, environment: Mapping[str, str]) -> list[str]:
    """The secrets in the environment, in the files that it names, and of every key beside the configuration."""
    found = secrets_of_environment(environment, os.path.exists)
    named = [Path(environment[name]) for name in _SECRET_FILES if name in environment]
    for path in (*sorted(config_file.parent.glob("*.key")), *named):
        try:
            found += secrets_of_file(_beginning(path))
        except OSError:
            continue  # nothing of it can be in the archive by this command either
    return found


def gather(config_file: Path, log: Path | None = None) -> dict[str, str]:
    """Text by name. A part that cannot be had is a sentence that says why. ``log``: instead of the journal."""
    path, questions = find_sockets(None, str(config_file)) if config_file.is_file() else find_sockets(None, None)
    client = StatusClient(path, questions=questions)
    return {
        "status.json": _try(lambda: _text(client.status())),
        "peers.json": _try(lambda: _text(client.peers())),
        "tasks.txt": _try(lambda: _tasks(client)),
        "models.json": _try(lambda: _text(client.models())),
        "events.json": _try(lambda: _text(client.events(None))),
        "metrics.txt": _try(client.metrics),
        "why.json": _try(lambda: _causes(client.status())),
        "doctor.json": _try(lambda: _checks(config_file, client)),
        "gossipd.toml": _try(lambda: _beginning(config_file)),
        "log.txt": _try((lambda: _journal_or_daemon(client)) if log is None else lambda: _tail(log, LOG_LINES)),
        "audit.jsonl": _try(lambda: _tail(config_file.parent / "audit.jsonl", AUDIT_LINES)),
        "host.json": _try(_host),
    }


def _try(read: Callable[[], str]) -> str:
    try:
        return read()
    except OSError as error:
        return f"{_LACKING}{error.filename}: {error.strerror}\n" if error.filename else f"{_LACKING}{error}\n"
    except (GossipdError, subprocess.SubprocessError) as error:
        return f"{_LACKING}{error}\n"


def _text(answer: Any) -> str:
    return json.dumps(answer, indent=1) + "\n"


def _tasks(client: StatusClient) -> str:
    """A line for each, indented below its parent."""
    return "".join(f"{'  ' * one['depth']}{one['name']}  {one['waits_at']}\n" for one in client.tasks())


def _causes(page: dict[str, Any]) -> str:
    from gossipd.cli.why import as_object
    from gossipd.diagnosis.causes import diagnose

    return _text([as_object(diagnose(page, row)) for row in page["deployments"]])


def _checks(config_file: Path, client: StatusClient) -> str:
    from gossipd.cli.host_readings import read_host
    from gossipd.diagnosis.checks import examine

    found = examine(read_host(config_file, client=client, with_peers=True))
    return _text([{"code": check.code, "verdict": one.verdict.value, "evidence": one.evidence} for check, one in found])


def _tail(path: Path, count: int) -> str:
    with open_regular(path) as lines:
        return b"".join(deque(lines, maxlen=count)).decode(errors="replace")


def _beginning(path: Path) -> str:
    return read_regular(path, bytes_max=TEXT_BYTES_MAX).decode(errors="replace")


def _journal_or_daemon(client: StatusClient) -> str:
    """The journal reaches over restarts; where there is none, as in a container, the daemon has its latest lines."""
    try:
        return _journal()
    except (OSError, subprocess.SubprocessError):
        return "\n".join(client.log()) + "\n"


def _journal() -> str:
    words = ["journalctl", "--unit", UNIT, "--lines", str(LOG_LINES), "--no-pager", "--output", "short-iso"]
    done = subprocess.run(words, capture_output=True, timeout=JOURNAL_S_MAX, check=True)
    lines = done.stdout.decode(errors="replace")
    if not lines or lines.startswith("-- No entries --"):
        raise FileNotFoundError(f"no lines of the unit {UNIT}")
    return lines


def _host() -> str:
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    packages = sorted(f"{one.metadata['Name']} {one.version}" for one in distributions())
    told = {"gossipd": __version__, "python": sys.version, "platform": platform.platform(), "time": time.time()}
    return _text({**told, "limits": limits, "packages": packages, "user": os.geteuid()})


def write_bundle(out: Path, parts: Mapping[str, str], redactor: Redactor) -> list[str]:
    """Write the archive, readable by this user only. Raises FileExistsError."""
    from gossipd.runtime.logs import redacted

    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in _cut(parts.items()):
            content = redactor.redact(redacted(text)).encode(errors="replace")
            entry = tarfile.TarInfo(f"gossipd-support/{name}")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return list(parts)


def _cut(parts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The end of what is too long, and where all are too long together, of the longest."""
    raw = [(name, text.encode(errors="replace")) for name, text in parts]
    limit = TEXT_BYTES_MAX
    while sum(min(limit, len(content)) for _, content in raw) > ALL_TEXT_BYTES_MAX:
        limit = limit * 7 // 8
    return [(name, content[-limit:].decode(errors="ignore")) for name, content in raw]
