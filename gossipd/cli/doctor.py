"""``gossipd doctor``: what is wrong with this host, its daemon, and its way to the others; changes nothing.

What lives here: display and exit code. What does not: reading (``host_readings``), judging (``diagnosis.checks``).
"""

from __future__ import annotations

import click

from gossipd.api.client import StatusClient, find_sockets
from gossipd.cli.layout import Part, TextTable, show_lines
from gossipd.cli.options import config_of_host, echo_json, examples, file_of_host
from gossipd.diagnosis.checks import Check, CheckFinding, CheckVerdict, HostReadings, examine


@click.command(
    epilog=examples(
        "gossipd doctor --config /var/lib/gossipd/gossipd.toml", "gossipd doctor --peers",
        "gossipd doctor --as jobs --json | jq '.checks[] | select(.verdict==\"fail\")'",
    )
)  # fmt: skip
@config_of_host
@click.option("--peers", is_flag=True, help="Also try three other members: UDP small and large, both TCP ports.")
@click.option("--as", "as_user", metavar="USER", help="Also whether this user can read the models.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def doctor(*, config_file: str | None, peers: bool, as_user: str | None, as_json: bool) -> int:
    """Look at everything that is often wrong on a host, whether its daemon runs or not.

    Each check is ok, warn or fail, with what was found and the cure. Exits with 1 when one fails, else with 0. Run it
    as the daemon's user, or as root: then storage is read with the daemon's credentials. It takes some three seconds,
    and a few more where storage is silent.
    """
    found = examine(_read(config_file, peers, as_user))
    is_failed = any(finding.verdict is CheckVerdict.FAIL for _, finding in found)
    if as_json:
        rows = [
            {
                "code": check.code, "verdict": finding.verdict.value, "sentence": check.sentence,
                "evidence": finding.evidence, "cure": check.cure,
            }
            for check, finding in found
        ]  # fmt: skip
        echo_json({"schema_version": 1, "checks": rows})
    else:
        show_lines(lines_of(found))
    return int(is_failed)


def _read(config_file: str | None, peers: bool, as_user: str | None) -> HostReadings:
    from gossipd.cli.disk_readings import why_silent
    from gossipd.cli.host_readings import DAEMON_TIMEOUT_S, read_host

    if words := why_silent(config_file):
        return HostReadings(answers_problem=words)
    file = file_of_host(config_file).absolute()
    path, questions = find_sockets(None, str(file)) if file.is_file() else find_sockets(None, None)
    client = StatusClient(path, questions=questions, timeout_s=DAEMON_TIMEOUT_S)
    return read_host(file, client=client, with_peers=peers, as_user=as_user)


def lines_of(found: list[tuple[Check, CheckFinding]]) -> list[Part]:
    """A line for each check, what is wrong last, where a terminal shows it."""
    order = list(CheckVerdict)
    ranked = sorted(found, key=lambda one: order.index(one[1].verdict))
    cells = [(check.code, one.verdict.value, one.evidence.replace("\n", "; ") or "-") for check, one in ranked]
    lines: list[Part] = [TextTable(("CHECK", "VERDICT", "FOUND"), cells)]
    wrong = [(check, finding) for check, finding in ranked if finding.verdict is not CheckVerdict.OK]
    lines += ["", *(f"{check.code}: it should be so that {check.sentence}; cure: {check.cure}" for check, _ in wrong)]
    return lines if wrong else [*lines, "all is well"]
