"""Settings for the programs beside the daemon: jobs that publish, caches that they load from, hooks that it starts.

What lives here: the sections ``[publish]``, with its tables ``[[publish.watch]]``, ``[hf]``, and ``[hooks]``, with its
tables ``[[hooks.named]]``. What does not: what the daemon does with them (``daemon``), and the other sections
(``sections`` names them).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from gossipd.config import kinds
from gossipd.config.section import Section
from gossipd.config.setting import PATH, check_account, check_label_within, setting
from gossipd.manifest.names import check_model_name

_USER = kinds.Text("the name or the number of a user", partial(check_account, what="a user"))


def _check_marker(text: str) -> None:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"{text[:80]!r} must be a path below the step's directory")


def _check_pattern(text: str) -> None:
    if text.startswith(("/", "./")):
        raise ValueError(f"{text[:80]!r} matches no file: paths begin below the step's directory")


EXCLUDES_MAX = 100  # as a publication takes


class WatchEntry(Section, frozen=True, kw_only=True):
    """One ``[[publish.watch]]``: a directory whose steps are published by themselves. Hashable: it is a key."""

    directory: str = setting(PATH, "Its directories whose names end in digits are steps of a training run.")
    name: str = setting(kinds.Text("a model's name", check_model_name), "The model; steps become its versions.")
    user: str = setting(
        replace(_USER, wanted="the name or the number of a user, or empty", may_be_empty=True),
        "Whose files these are. Empty: those of any owner, in a directory that only the daemon's user may write to.",
        "",
    )
    pattern: str = setting(kinds.Text("a pattern of names"), "Only directories of such names.", "*")
    marker: str = setting(
        kinds.Text("a path in the step's directory, or empty", _check_marker, may_be_empty=True),
        "The file that is written last. Empty: .metadata, or safetensors files.",
        "",
    )
    keep_last: int = setting(kinds.Whole(0, 1_000_000), "The newest so many versions live; 0 is no rule.", 0)
    keep_every: int = setting(kinds.Whole(0, 2**32 - 1), "With keep_last: steps that this divides, too.", 0)
    exclude: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("a pattern of paths in the step's directory", _check_pattern)),
        'Files that are no part of a version: ["*.pt", "optimizer/"].',
        (),
    )


class PublishSection(Section, frozen=True, kw_only=True):
    """Publishing by jobs on this host: the daemon signs, so that a job holds no key."""

    keys: tuple[Path, ...] = setting(
        kinds.Texts(PATH),
        "Secret keys of publishers that this daemon signs with; the first that is trusted here for a name is used.\n"
        "Must be 0600. Empty: nobody publishes through this daemon. gossipd 0.1 does not know this section.",
        (),
        reload=True,
    )
    users: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        kinds.Table(_USER, kinds.Text('a pattern of model names, such as "train/*"')),
        'Users of this host that may publish, and the names that each may: {"alice" = ["train/*"]}. The daemon\'s own\n'
        "user and root may publish all.",
        (),
        reload=True,
    )

    watch: tuple[WatchEntry, ...] = setting(
        kinds.Records(WatchEntry, "publish.watch", 64),
        "Directories whose finished steps are published as gossipd watch does:\n"
        'directory = "/scratch/run-7", name = "train/run-7", user = "alice". The user may publish that name. Where\n'
        "several hosts share the directory, only one may watch it. gossipd 0.1 does not know it.",
        (),
        reload=True,
    )


def _check_repository(text: str) -> None:
    parts = text.split("/")
    if len(parts) > 2 or any(not part or part.startswith(".") or "--" in part or ".." in part for part in parts):
        raise ValueError(f"{text[:80]!r} must be ORG/NAME as the Hub writes it")
    for part in parts:
        check_label_within(part, chars_max=96)


class HfSection(Section, frozen=True, kw_only=True):
    """Models under their names on the Hugging Face Hub, for programs that load by such a name, offline."""

    caches: tuple[Path, ...] = setting(
        kinds.Texts(PATH),
        "Directories as HF_HUB_CACHE names them (~/.cache/huggingface/hub). Each gets links to the complete models of\n"
        "this host; entries of real downloads are left alone. gossipd 0.1 does not know this section.",
        (),
        reload=True,
    )
    names: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        kinds.Table(
            kinds.Text("a model's name", kinds.check_path), kinds.Text("a repository, ORG/NAME", _check_repository)
        ),
        'Repositories that a model stands for: {"llama-prod" = ["meta-llama/Llama-3.1-8B"]}. A model that is not\n'
        "listed has its own name there.",
        (),
        reload=True,
    )


_COMMAND = kinds.Texts(kinds.Text("a program's path, then its arguments"))


class HookEntry(Section, frozen=True, kw_only=True):
    """One ``[[hooks.named]]``: a program that runs for some names only."""

    on: str = setting(kinds.Choice(("complete", "failed", "alarm")), "What it runs for.")
    command: tuple[str, ...] = setting(_COMMAND, "The program and its arguments.")
    names: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("a pattern of names")),
        "Patterns of models' names, of which one must match; of an alarm its code.",
    )
    timeout_s: float = setting(kinds.Seconds(1, 3600), "Time after which it is killed.", 30.0)


class HooksSection(Section, frozen=True, kw_only=True):
    """Programs that this daemon starts, as its own user, with a JSON object on standard input and 30 s of time."""

    complete: tuple[str, ...] = setting(
        _COMMAND,
        'When a version is complete here, after "current" has moved; also for those that are at the daemon\'s start:\n'
        '["/usr/local/bin/label_node.py", "label"]. No shell reads it. gossipd 0.1 does not know this section.',
        (),
        reload=True,
    )
    failed: tuple[str, ...] = setting(_COMMAND, "When a deployment has failed here.", (), reload=True)
    alarm: tuple[str, ...] = setting(_COMMAND, "When an alarm begins.", (), reload=True)
    named: tuple[HookEntry, ...] = setting(
        kinds.Records(HookEntry, "hooks.named", 64),
        'The same for some names only, each beside the ones above: on = "complete", names = ["train/*"],\n'
        'command = ["/usr/local/bin/evaluate"], timeout_s = "5m". An alarm\'s name is its code.',
        (),
        reload=True,
    )
