"""``gossipd deploy``: give a manifest to the daemon of this host, or only say what would come of it.

What lives here: the command and its text. What does not: judging the manifest (the daemon), who would take it
(``diagnosis.plan``), and the model of links (``sim.scenario``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossipd.api.client import StatusClient
from gossipd.cli.options import daemon_options, echo_json, examples, label_words, table, tell, time_words
from gossipd.cli.simulate_options import RateParam
from gossipd.core.errors import ExitCode
from gossipd.core.units import show_bytes

if TYPE_CHECKING:
    from gossipd.diagnosis.plan import PlannedHost
    from gossipd.sim.scenario import Scenario

HOSTS_SHOWN = 24
_SURE = "would take it"


@click.command(
    epilog=examples(
        "gossipd deploy qwen-3.manifest --dry-run --link 25Gbit",
        "gossipd deploy qwen-3.manifest",
        "gossipd deploy qwen-3.manifest --budget 600GB",
    )
)
@click.argument("manifest", metavar="MANIFEST", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Deploy nothing: who would take it, and how long it would last at least.")
@click.option("--link", type=RateParam(), default="10Gbit", show_default=True, help="Of each host, for --dry-run.")
@click.option("--external", type=RateParam(), help="Of storage, for --dry-run. Default: as one host's link.")
@click.option(
    "--budget", metavar="BYTES|MONEY",
    help="What all hosts may read of it from storage: 600GB, or money such as 50 (sources.money_per_gb), or none.",
)  # fmt: skip
@daemon_options
def deploy(
    *, manifest: Path, dry_run: bool, link: float, external: float | None, budget: str | None, client: StatusClient,
    as_json: bool,
) -> int:  # fmt: skip
    """Deploy a signed manifest from this host on.

    The daemon judges it as one in its inbox. With --dry-run nothing is deployed: its signature and version are judged
    here, and for every target it is said whether it is alive, has room, and trusts the same keys. Exit code 9 when a
    target would not take it. `gossipd wait NAME@VERSION` then waits.

    With --budget reads of storage are held when it is spent, and hosts say so (`source_budget`); deploying it again
    with another one changes it.
    """
    options: dict[str, object] = {"dry_run": True} if dry_run else {}
    options |= {} if budget is None else {"budget": budget}
    answer = client.order("deploy", manifest=str(manifest.absolute()), **options)
    if not dry_run:
        return tell(answer, as_json=as_json)
    return _dry_run(answer["manifest"], client.status(), link, external or link, as_json=as_json)


def _dry_run(row: dict[str, Any], page: dict[str, Any], link: float, external: float, *, as_json: bool) -> int:
    from gossipd.diagnosis.plan import planned_hosts

    known = [one for one in page["deployments"] if one["id"] == row["id"]]
    held = {
        host["name"]: host["chunks_verified"] * row["chunk_bytes"] for one in known for host in one["hosts"]
    }  # fmt: skip
    hosts = planned_hosts(row, page["members"], page["node"]["name"], held)
    takers = [host for host in hosts if not host.lacks]
    is_somewhere = any(one["hosts_complete"] for one in known)
    external_bytes = 0 if is_somewhere or not takers else row["bytes_total"]
    scenario = _scenario(row, takers, link, external) if takers else None
    if as_json:
        echo_json(_json(row, hosts, external_bytes, scenario))
    else:
        click.echo("\n".join(plan_lines(row, hosts, external_bytes, scenario)))
    return int(ExitCode.PARTIAL if len(takers) < len(hosts) or not hosts else ExitCode.DONE)


def _scenario(row: dict[str, Any], takers: list[PlannedHost], link: float, external: float) -> Scenario:
    from gossipd.sim.scenario import Scenario

    racks = len({host.rack for host in takers})
    return Scenario(len(takers), racks, row["bytes_total"], max(1, row["chunks_total"]), link, external)


def _json(
    row: dict[str, Any], hosts: list[PlannedHost], external_bytes: int, scenario: Scenario | None
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "manifest": row,
        "external_bytes": external_bytes,
        "seconds_least": None if scenario is None else scenario.bound_s,
        "limiting_resource": None if scenario is None else scenario.limiting_resource,
        "hosts": [
            {"name": one.name, "rack": one.rack, "takes": not one.lacks, "lacks": one.lacks, "unsure": one.unsure}
            for one in hosts
        ],
    }


def plan_lines(
    row: dict[str, Any], hosts: list[PlannedHost], external_bytes: int, scenario: Scenario | None
) -> list[str]:
    """The dry run for people: what, who, how long; then the hosts that lack something or may."""
    takers = sum(not host.lacks for host in hosts)
    lines = [
        f"{label_words(row)}  {show_bytes(row['bytes_total'])} in {row['chunks_total']} chunks, "
        f"signed by {row['signed_by']}: accepted here; nothing is deployed",
        f"{takers} of {len(hosts)} targets {_SURE}; {show_bytes(external_bytes)} from storage",
    ]
    if scenario is not None:
        lines.append(
            f"at least {time_words(scenario.bound_s)}, by {scenario.limiting_resource}, at "
            f"{show_bytes(int(scenario.link))}/s a host and {show_bytes(int(scenario.external))}/s from storage"
        )
    told = [host for host in hosts if host.lacks or host.unsure]
    if told:
        cells = [(one.name, one.rack, "; ".join((*one.lacks, *(f"perhaps: {word}" for word in one.unsure))))
                 for one in told[:HOSTS_SHOWN]]  # fmt: skip
        lines += ["", *table(("HOST", "RACK", "LACKS"), cells)]
    if len(told) > HOSTS_SHOWN:
        lines.append(f"and {len(told) - HOSTS_SHOWN} more; --json has all")
    return lines
