"""Completion of commands, options and names in a shell: the scripts, and the kinds of arguments that have names.

What lives here: the scripts of bash, zsh and fish, and the table of the commands in them. What does not: the program
that reads the table at each tab (``completion_program``), and what a command makes of an argument. A daemon that does
not answer at once, or none, completes nothing and says nothing.

The scripts do not run ``gossipd``, which imports click before it can look at a word: ten times the CPU of the program,
and more than a person waits for on a busy host. click's own way (``_GOSSIPD_COMPLETE``) stays for scripts that were
printed by 0.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gossipd.cli.completion_program import is_safe
from gossipd.cli.options import NameVersion
from gossipd.core.versions import label_words

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ASKED_S = 2.0  # a person waits at the keyboard; on a busy machine a daemon answers within a second

# In front of each: the Python that gossipd itself runs with, which its first line names, and else any.
_BASH = """\
_gossipd_program=@PROGRAM@

_gossipd_completion() {
    local IFS=$' \\t\\n' line=${COMP_LINE:0:COMP_POINT} words prefix= python= completion type value
    read -r -a words <<< "$line"
    [[ $line == *' ' ]] && words+=('')
    local last=$((${#words[@]} - 1))
    local word=${words[last]}
    # What bash takes for a word begins behind the last of its separators.
    [[ $COMP_WORDBREAKS == *@* && $COMP_WORDBREAKS == *=* ]] && prefix=${word%"${word##*[@=]}"}
    read -r python 2> /dev/null < "$(type -P "${words[0]}")"
    [[ $python == '#!'*python* ]] && python=${python#'#!'} || python=python3

    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$prefix"}") ;;
        esac
    done < <($python -I -S -c "$_gossipd_program" bash "${words[@]:1:last}" 2> /dev/null)
    return 0
}

complete -o nosort -F _gossipd_completion gossipd
"""

_ZSH = """\
#compdef gossipd

_gossipd_program=@PROGRAM@

_gossipd_completion() {
    local -a completions described response
    local python= type key descr
    read -r python 2> /dev/null < "$commands[gossipd]"
    [[ $python == '#!'*python* ]] && python=${python#'#!'} || python=python3
    response=("${(@f)$(${=python} -I -S -c "$_gossipd_program" zsh "${(@)words[2,CURRENT]}" 2> /dev/null)}")

    for type key descr in ${response}; do
        if [[ "$type" == "plain" ]]; then
            if [[ "$descr" == "_" ]]; then
                completions+=("$key")
            else
                described+=("$key":"$descr")
            fi
        elif [[ "$type" == "dir" ]]; then
            _path_files -/
        elif [[ "$type" == "file" ]]; then
            _path_files -f
        fi
    done
    [ -n "$described" ] && _describe -V unsorted described -U
    [ -n "$completions" ] && compadd -U -V unsorted -a completions
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _gossipd_completion "$@"
else
    compdef _gossipd_completion gossipd
fi
"""

_FISH = """\
set -g _gossipd_program @PROGRAM@

function _gossipd_completion
    set -l python (head -n 1 (command -s gossipd) 2> /dev/null)
    if string match -q '#!*python*' -- $python
        set python (string split ' ' -- (string replace '#!' '' -- $python))
    else
        set python python3
    end
    set -l words (commandline -opc)
    for completion in ($python -I -S -c "$_gossipd_program" fish $words[2..-1] (commandline -ct) 2> /dev/null)
        set -l told (string split -m 1 ',' -- $completion)
        switch $told[1]
            case dir
                __fish_complete_directories $told[2]
            case file
                __fish_complete_path $told[2]
            case plain
                echo $told[2]
        end
    end
end

complete --no-files --command gossipd --arguments '(_gossipd_completion)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
SHELLS = tuple(_SCRIPTS)
_HELP_CHARS_MAX = 80


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


_KINDS: dict[type[click.ParamType], str] = {  # type: ignore[type-arg]  # generic only since click 8.3
    KnownName: "name", KnownHost: "host", KnownTargets: "targets", click.File: "file",
}  # fmt: skip
_BY_METAVAR = {"FILE": "file", "PATH": "file", "DIR": "dir"}


def _asked(ctx: click.Context) -> dict[str, Any]:
    from gossipd.api.client import StatusClient, find_sockets
    from gossipd.core.errors import GossipdError

    try:
        path, questions = find_sockets(ctx.params.get("socket"), ctx.params.get("config"))
        return StatusClient(path, questions=questions, timeout_s=ASKED_S).status()
    except (GossipdError, OSError):
        return {"deployments": [], "members": []}


def script(shell: str, cli: click.Group) -> str:
    """The completion script for one of ``SHELLS``, of all commands below ``cli``."""
    text = program_text(cli, with_help=shell != "bash")
    if shell == "fish":
        quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    else:
        quoted = "'" + text.replace("'", "'\\''") + "'"
    return _SCRIPTS[shell].replace("@PROGRAM@", quoted)


def program_text(cli: click.Group, *, with_help: bool) -> str:
    """``completion_program`` with the table of all commands below ``cli``, without its docstring."""
    from importlib.resources import files  # no command but `assets` needs it

    text = (files("gossipd") / "cli" / "completion_program.py").read_text(encoding="utf-8")
    before, _, after = text[text.index("from __future__") :].partition("TABLE: tuple")
    row = command_row(cli, click.Context(cli, info_name="gossipd"), with_help=with_help)
    return f"{before}TABLE = {row!r}\n{after.partition(chr(10))[2]}"


def command_row(command: click.Command, context: click.Context, *, with_help: bool) -> tuple[object, ...]:
    """The row of ``completion_program.TABLE`` for a command and those below it."""
    options: dict[str, tuple[str, str]] = {}
    arguments = []
    for one in command.get_params(context):
        if isinstance(one, click.Option) and not one.hidden:
            kind = "flag" if one.is_flag or one.count else _kind(one)
            options |= {name: (kind, _first(one.help or "", with_help)) for name in (*one.opts, *one.secondary_opts)}
        elif isinstance(one, click.Argument):
            arguments.append(_kind(one) + ("..." if one.nargs == -1 else ""))
    below = {}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                below[name] = command_row(found, click.Context(found, context, name), with_help=with_help)
    return _first(command.get_short_help_str(_HELP_CHARS_MAX), with_help), options, tuple(arguments), below


def _kind(parameter: click.Parameter) -> str:
    """Of ``completion_program.of_kind``."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return "=" + "|".join(map(str, kind.choices))
    if isinstance(kind, click.Path):
        return "file" if kind.file_okay else "dir"
    if isinstance(kind, KnownModel):
        return "version" if kind.version_needed else "model"
    known = next((word for one, word in _KINDS.items() if isinstance(kind, one)), None)
    return known or _BY_METAVAR.get(parameter.metavar or "", "")


def _first(text: str, with_help: bool) -> str:
    """The first sentence, in one line."""
    line = " ".join(text.replace("\b", " ").split())
    return line.partition(". ")[0].rstrip(".")[:_HELP_CHARS_MAX] if with_help else ""


def _starting(words: list[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    found = [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
    return [CompletionItem(word) for word in found if is_safe(word.replace("=", "").replace(",", ""))]
