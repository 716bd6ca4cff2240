"""Planted bugs of the page: who is answered by its web server, what is passed on, and what hosts are asked for it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SERVER = "tests/gossipd/web/test_server.py"
_FORWARDING = "tests/gossipd/web/test_forwarding.py"

_SETTLED = "tests/gossipd/daemon/test_settled_rows.py"
_SKETCHES = "tests/gossipd/daemon/test_fine_sketches.py"

MUTANTS = (
    Mutant(
        "a-refused-question-is-taken-for-no-hosts",
        "While a daemon has too many clients, a model's page lacks all complete hosts, and does not say so.",
        "gossipd/web/forwarding.py",
        "        if status not in (200, 404):\n",
        "        if False:\n",
        (_FORWARDING,),
    ),
    Mutant(
        "the-row-of-one-host-names-who-is-no-target",
        "A host's page names another host as the cause than the model's page does.",
        "gossipd/daemon/settled_rows.py",
        "targets = kept.targets if kept else [host for host in hosts if is_target(host.name, host.rack)]",
        "targets = hosts",
        (_SETTLED,),
    ),
    Mutant(
        "a-step-has-two-labels-in-the-metrics",
        "Of a step of a second attempt, sums of one deployment do not join with its counters.",
        "gossipd/api/metrics.py",
        'f"{row.name}@{row.version_label or row.version}"',
        'f"{row.name}@{row.version}"',
        ("tests/gossipd/api/test_metrics.py",),
    ),
    Mutant(
        "a-page-in-pieces-is-copied-whole",
        "The page of a hundred models on 1,000 hosts, 24 MB, holds up the loop for 0.1 s.",
        "gossipd/api/http_messages.py",
        "if len(part) >= PART_BYTES:",
        "if False:",
        ("tests/gossipd/api/test_http_exchange.py",),
    ),
    Mutant(
        "a-page-asks-for-all-hosts-of-all-deployments",
        "A browser on any page costs a daemon a row of each host of each model every second.",
        "gossipd/web/forwarding.py",
        '"/v1/status?hosts_max=0"',
        '"/v1/status"',
        (_FORWARDING,),
    ),
    Mutant(
        "the-row-of-one-host-counts-the-others-as-left-out",
        "A question about one host is answered with complete hosts that nobody asked for.",
        "gossipd/daemon/settled_rows.py",
        ", now=now), left_out=[])",
        ", now=now))",
        (_SETTLED,),
    ),
    Mutant(
        "a-live-page-forgets-the-hosts-that-were-left-out",
        "`status --watch` says nothing of 355 complete hosts.",
        "gossipd/cli/live_status.py",
        "select(hosts, max(1, rows_max - 1), left_out=left_out)",
        "select(hosts, max(1, rows_max - 1))",
        ("tests/gossipd/cli/test_live_status.py",),
    ),
    Mutant(
        "a-row-holds-though-a-host-tells-something-else",
        "A model that is complete everywhere looks so for ever.",
        "gossipd/daemon/settled_rows.py",
        "self.hosts is hosts and self.revision == revision and",
        "self.hosts is hosts and",
        (_SETTLED,),
    ),
    Mutant(
        "hosts-that-are-left-out-are-in-no-rack",
        "A page of few hosts counts racks without the hosts that are complete.",
        "gossipd/cli/host_selection.py",
        '    for each in (*row["hosts"], *row.get("left_out", ())):\n',
        '    for each in row["hosts"]:\n',
        ("tests/gossipd/api/test_host_groups.py",),
    ),
    Mutant(
        "a-metric-counts-one-rack-of-many",
        "Hosts that are complete are counted for the last rack alone.",
        "gossipd/api/metrics.py",
        "            states[group.state] += group.hosts\n",
        "            states[group.state] = group.hosts\n",
        ("tests/gossipd/api/test_metrics.py",),
    ),
    Mutant(
        "a-sketch-for-every-question",
        "A member that asks without end has this host count chunks without end.",
        "gossipd/daemon/fine_sketches.py",
        "if not self._asked.take(node, now)",
        "if not self._asked.has(node, now)",
        (_SKETCHES,),
    ),
    Mutant(
        "sketches-for-those-left-out",
        "A member that the manifest leaves out is told who holds what.",
        "gossipd/daemon/fine_sketches.py",
        "if manifest is None or not self.directory.is_target(node, manifest.targets):",
        "if manifest is None:",
        (_SKETCHES,),
    ),
    Mutant(
        "a-look-is-a-question-to-the-host",
        "Every browser that looks costs the host that it looks at a message.",
        "gossipd/daemon/fine_sketches.py",
        "if found.is_open or now < found.due_s:",
        "if found.is_open:",
        (_SKETCHES,),
    ),
    Mutant(
        "the-page-answers-to-any-name",
        "A hostile page whose name is made to lead to loopback reads the cluster (DNS rebinding).",
        "gossipd/web/server.py",
        "if len(named) != 1 or not self.server.is_ours(named[0]):",
        "if len(named) != 1:",
        (_SERVER,),
    ),
    Mutant(
        "the-page-is-open-without-a-token",
        "Others on the network read the page over TLS without the token.",
        "gossipd/web/server.py",
        "if not host.is_loopback and None in (tls_cert, tls_key, token_file):",
        "if not host.is_loopback and None in (tls_cert, tls_key):",
        (_SERVER,),
    ),
    Mutant(
        "a-question-need-not-end",
        "What begins like a question is passed on whole, whatever follows.",
        "gossipd/web/forwarding.py",
        "return _QUESTION.fullmatch(target) is not None",
        "return _QUESTION.match(target) is not None",
        (_FORWARDING,),
    ),
    Mutant(
        "a-name-ends-the-element-of-a-report",
        "A host's reason becomes a script in the file that an operator opens.",
        "gossipd/web/report_file.py",
        r""".replace("<", "\\u003c")""",
        "",
        ("tests/gossipd/web/test_report_file.py",),
    ),
    Mutant(
        "each-browser-asks-the-daemon",
        "Ten browsers cost the daemon ten times as much as one.",
        "gossipd/web/forwarding.py",
        "if kept is not None and time.monotonic() - kept[0] < self._lasts_s(target, kept[1]):",
        "if kept is not None and self._kept_s < 0:",
        (_FORWARDING,),
    ),
    Mutant(
        "a-dribbling-browser-keeps-its-place",
        "Sixty-four connections that never finish a request close the page to all.",
        "gossipd/web/server.py",
        "                socket.socket.shutdown(one, socket.SHUT_RDWR)\n",
        "                pass\n",
        (_SERVER,),
    ),
)
