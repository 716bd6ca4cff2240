"""``gossipd audit verify``: whether the audit log is intact. Needs no daemon."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import GivenFile, config_of_host, echo_json, examples, file_of_host
from gossipd.core.errors import ExitCode, GossipdError, NotFoundError, UsageError


class AuditBrokenError(GossipdError):
    """A record was changed, removed or inserted. Fault: a user who could write the file. Retry: no."""

    code = "E_AUDIT_BROKEN"
    exit_code: ClassVar[ExitCode] = ExitCode.VERIFICATION


@click.group(epilog=examples("gossipd audit verify", "gossipd audit verify /srv/gossipd/audit.jsonl"))
def audit() -> None:
    """Check the audit log: a hash chain of what was accepted, refused, elected and published."""


@audit.command(
    "verify",
    epilog=examples(
        "gossipd audit verify --config /srv/gossipd/gossipd.toml",
        "gossipd audit verify audit.jsonl --head $(cat head-of-yesterday) --json",
        "gossipd audit verify audit.jsonl --witness witness-of-node-2 --host node-1",
    ),
)
@click.argument("file", required=False, type=GivenFile(path_type=Path))
@config_of_host
@click.option("--head", help="A hash that 'status --json' once showed: it must be in the chain. Finds a cut-off end.")
@click.option(
    "--witness",
    type=GivenFile(path_type=Path),
    help="A copy of state/witness of another host: what it heard must be in the log. Finds an end that was rewritten.",
)
@click.option("--host", help="With --witness: the name of the host whose log this is.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def audit_verify(
    *, file: Path | None, config_file: str | None, head: str | None, witness: Path | None, host: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Check every record's hash and that each follows the one before it.

    FILE.1 and what was rotated before it are checked, too, that they join, and that none is missing while fewer files
    are there than a log keeps (8). Without FILE it is the log beside this host's configuration. Exits with 3 when there
    is no log, 6 when the chain is broken.
    """
    from gossipd.audit.chain_file import verify_audit, verify_rotated

    if file is not None and config_file is not None:
        raise UsageError("give FILE or --config, not both")
    if file is None:
        file = file_of_host(config_file).parent / "audit.jsonl"
    if not file.exists():
        raise NotFoundError(f"{file}: no such file; a daemon writes it with its first record")
    if (problem := verify_rotated(file)) is not None:
        raise AuditBrokenError(problem)
    report = verify_audit(file, head=head)
    if report.problem is not None:
        raise AuditBrokenError(f"{file}: {report.problem}; {report.records} records before it are good")
    if witness is not None:
        _check_witness(file, witness, host)
    if as_json:
        answer = {"records": report.records, "first_at": report.first_at, "last_at": report.last_at}
        echo_json({"schema_version": 1, "file": str(file), "verified": True, **answer, "head": report.head})
    else:
        span = f" from {report.first_at} to {report.last_at}" if report.records else ""
        show_lines([f"{file}: {report.records} records{span}, chain whole, head {report.head}"])
    return int(ExitCode.DONE)


def _check_witness(file: Path, witness: Path, host: str | None) -> None:
    from gossipd.audit.chain_file import check_witnessed
    from gossipd.audit.witness import Witness
    from gossipd.daemon.state_dir import FILE_BYTES_MAX
    from gossipd.runtime.regular_file import read_regular

    try:
        heard = Witness.from_bytes(read_regular(witness, bytes_max=FILE_BYTES_MAX))
    except FileNotFoundError:
        raise NotFoundError(f"--witness: {witness}: no such file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"--witness: {witness}: {error}") from None
    heads = heard.heads_of(host or "")
    if not heads:
        raise UsageError(f"--host: {witness} knows the hosts {', '.join(heard.names()) or 'none'}, not {host}")
    if (problem := check_witnessed(file, heads)) is not None:
        raise AuditBrokenError(f"{file}: {problem}")
