"""``gossipd deploy``: give a manifest to the daemon of this host, or only say what would come of it.

What lives here: the command and its text. What does not: judging the manifest (the daemon), who would take it,
and how long that lasts (``diagnosis.plan``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossipd.api.client import StatusClient
from gossipd.cli.layout import Part, TextTable, show_lines
from gossipd.cli.options import (
    Duration,
    GivenFile,
    daemon_options,
    echo_json,
    examples,
    tell,
    time_words,
)
from gossipd.cli.simulate_options import RateParam
from gossipd.core.errors import ExitCode, UsageError
from gossipd.core.units import show_bytes, show_count
from gossipd.core.versions import label_words

if TYPE_CHECKING:
    from gossipd.diagnosis.plan import Plan

HOSTS_SHOWN = 24
_SURE = "would take it"


@click.command(
    epilog=examples(
        "gossipd deploy qwen-3.manifest --dry-run --link 25Gbit",
        "gossipd deploy qwen-3.manifest --wait --timeout 2h",
        "gossipd deploy qwen-3.manifest --budget 600GB",
    )
)
@click.argument("manifest", metavar="MANIFEST", type=GivenFile(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Deploy nothing: who would take it, and how long it would last at least.")
@click.option("--link", type=RateParam(), default="10Gbit", show_default=True, help="Of each host, for --dry-run.")
@click.option("--external", type=RateParam(), help="Of storage, for --dry-run. Default: as one host's link.")
@click.option(
    "--budget", metavar="BYTES|MONEY",
    help="What all hosts may read of it from storage: 600GB, or money such as 50 (sources.money_per_gb), or none.",
)  # fmt: skip
@click.option("--wait", "waits", is_flag=True, help="Come back when all targets have it, as `gossipd wait` does.")
@click.option("--timeout", "timeout_s", default="30m", show_default=True, type=Duration(), help="Of --wait.")
@daemon_options
def deploy(
    *, manifest: Path, dry_run: bool, link: float, external: float | None, budget: str | None, waits: bool,
    timeout_s: float, client: StatusClient, as_json: bool,
) -> int:  # fmt: skip
    """Deploy a signed manifest from this host on.

    The daemon judges it as one in its inbox. With --dry-run nothing is deployed: its signature and version are judged
    here, and for every target it is said whether it is alive, has room, and trusts the same keys. Exit code 9 when a
    target would not take it. With --wait it ends as `gossipd wait NAME@VERSION` would, with its exit codes.

    With --budget reads of storage are held when it is spent, and hosts say so (`source_budget`); deploying it again
    with another one changes it.
    """
    if waits and dry_run:
        raise UsageError("give --wait or --dry-run, not both")
    options: dict[str, object] = {"dry_run": True} if dry_run else {}
    options |= {} if budget is None else {"budget": budget}
    answer = client.order("deploy", manifest=str(manifest.absolute()), **options)
    if dry_run:
        return _dry_run(answer, client.status(), link, external or link, as_json=as_json)
    if not waits:
        return tell(answer, as_json=as_json)
    from gossipd.cli.wait import ready_words, wait_for

    show_lines([answer["sentence"]], err=as_json)
    row = wait_for(client, (answer["manifest"]["name"], answer["manifest"]["version"]), "100%", timeout_s)
    if as_json:
        echo_json({"schema_version": 1, "deployment": row})
    else:
        show_lines([ready_words(label_words(row), row)])
    return 0


def _dry_run(answer: dict[str, Any], page: dict[str, Any], link: float, external: float, *, as_json: bool) -> int:
    from gossipd.diagnosis.plan import costs_of, plan

    found = plan(answer, page, link=link, external=external)
    if as_json:
        echo_json(_json(answer["manifest"], found, costs_of(answer)["distinct_bytes"]))
    else:
        show_lines(plan_lines(answer["manifest"], found, link, external))
    is_whole = found.hosts and len(found.takers) == len(found.hosts)
    return int(ExitCode.DONE if is_whole else ExitCode.PARTIAL)


def _json(row: dict[str, Any], plan: Plan, distinct_bytes: int) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "manifest": row,
        "distinct_bytes": distinct_bytes,
        "external_bytes": plan.external_bytes,
        "seconds_least": plan.seconds_least,
        "limiting_resource": plan.limiting_resource,
        "hosts": [
            {
                "name": one.name, "rack": one.rack, "takes": not one.lacks, "lacks": one.lacks, "unsure": one.unsure,
                "fetched_bytes": one.fetched_bytes, "room_bytes": one.room_bytes,
            }
            for one in plan.hosts
        ],
    }  # fmt: skip


def plan_lines(row: dict[str, Any], plan: Plan, link: float, external: float) -> list[Part]:
    """The dry run for people: what, who, how long; then the hosts that lack something or may."""
    takers = plan.takers
    lines: list[Part] = [
        f"{label_words(row)}  {show_bytes(row['bytes_total'])} in {show_count(row['chunks_total'], 'chunk')}, "
        f"signed by {row['signed_by']}: accepted here; nothing is deployed",
        f"{len(takers)} of {len(plan.hosts)} targets {_SURE}; {show_bytes(plan.external_bytes)} from storage",
    ]
    if plan.seconds_least is not None:
        least, most = (show_bytes(of(host.fetched_bytes for host in takers)) for of in (min, max))
        if any(host.fetched_bytes < row["bytes_total"] for host in takers):
            words = least if least == most else f"{least} to {most}"
            lines.append(f"a host fetches {words} of it: the rest are chunks that are equal, or that it has")
        lines.append(
            f"at least {time_words(plan.seconds_least)}, by {plan.limiting_resource}, at {show_bytes(int(link))}/s a "
            f"host and {show_bytes(int(external))}/s from storage"
        )
    told = [host for host in plan.hosts if host.lacks or host.unsure]
    if told:
        cells = [(one.name, one.rack, "; ".join((*one.lacks, *(f"perhaps: {word}" for word in one.unsure))))
                 for one in told[:HOSTS_SHOWN]]  # fmt: skip
        lines += ["", TextTable(("HOST", "RACK", "LACKS"), cells)]
    if len(told) > HOSTS_SHOWN:
        lines.append(f"and {len(told) - HOSTS_SHOWN} more; --json has all")
    return lines
