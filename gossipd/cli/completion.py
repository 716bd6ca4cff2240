"""Names that a shell completes: deployments, hosts and racks, asked of the daemon that the command would ask.

What lives here: the kinds of arguments, and bash's script. What does not: scripts of other shells (click's), and what a
command makes of an argument. A daemon that does not answer quickly, or none, completes nothing and says nothing.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from gossipd.cli.options import NameVersion, label_words

ASKED_S = 2.0  # a person waits at the keyboard; on a busy machine a daemon answers within a second

# click's, but for words: `@` breaks words of bash, and is a part of NAME@VERSION.
BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    local line=${COMP_LINE:0:COMP_POINT} words prefix=
    IFS=' ' read -r -a words <<< "$line"
    [[ $line == *' ' ]] && words+=('')
    local last=$((${#words[@]} - 1))
    [[ $COMP_WORDBREAKS == *@* && ${words[last]} == *@* ]] && prefix=${words[last]%%@*}@

    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$last %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$prefix"}")
        fi
    done

    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class KnownModel(NameVersion):
    """``NAME@VERSION`` of a deployment."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        rows = _asked(ctx)["deployments"]
        found = [label_words(row) for row in rows]
        if not self.version_needed and "@" not in incomplete:
            found = [*dict.fromkeys(row["name"] for row in rows), *found]
        return _starting(found, incomplete)


class KnownName(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """The name of a deployment, without a version."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _starting([row["name"] for row in _asked(ctx)["deployments"]], incomplete)


class KnownHost(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """The name of a host on the roster."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _starting([member["name"] for member in _asked(ctx)["members"]], incomplete)


class KnownTargets(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """``rack=R,name=GLOB`` of racks and hosts on the roster."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        members = _asked(ctx)["members"] if "=" in last else []
        found = [f"{kind}={member[kind]}" for kind in ("rack", "name") for member in members] or ["rack=", "name="]
        return _starting([f"{before}{comma}{one}" for one in found], incomplete)


def _asked(ctx: click.Context) -> dict[str, Any]:
    from gossipd.api.client import StatusClient, find_sockets
    from gossipd.core.errors import GossipdError

    try:
        path, questions = find_sockets(ctx.params.get("socket"), ctx.params.get("config"))
        return StatusClient(path, questions=questions, timeout_s=ASKED_S).status()
    except (GossipdError, OSError):
        return {"deployments": [], "members": []}


def _starting(words: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(incomplete)]
