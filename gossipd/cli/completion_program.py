"""What a completion script runs: it finds the words that may come next, without importing gossipd.

What lives here: one file that ``completion`` puts into each shell's script, with a table of the commands in the place
of ``TABLE``, and that any Python from 3.8 on runs with ``-I -S -c``. What does not: the table, and the scripts.

A shell waits for it at every tab, so it imports nothing that takes milliseconds: a command of gossipd costs many times
as much before it asks anybody. Names of deployments, hosts and racks are the daemon's, where one answers at once: it is
asked for them alone (``GET /v1/names``). Of what it tells only names are offered that no shell could take for anything
else, because what is completed is run.
"""

from __future__ import annotations

import os
import sys

# Of a command: its help, its options (each with its kind and help), the kinds of its arguments, the commands below it.
TABLE: tuple = ("", {}, (), {})  # type: ignore[type-arg]
ASKED_S = 2.0  # a person waits at the keyboard; on a busy machine a daemon answers within a second
ANSWER_BYTES_MAX = 4 << 20
PACKAGE_HOME = "/var/lib/gossipd"
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/@")


def offers(words: list[str], last: str) -> list[tuple[str, str, str]]:
    """What may stand in the place of ``last``, after ``words``: of each its type, the word, its help."""
    command, given, waiting, position, is_plain = TABLE, {}, "", 0, False
    for word in words:
        options, commands = command[1], command[3]
        if waiting:
            given[waiting], waiting = word, ""
        elif word == "--" and not is_plain:
            is_plain = True
        elif word.startswith("-") and len(word) > 1 and not is_plain:
            name, equals, value = word.partition("=")
            given[name] = value
            waiting = "" if equals or options.get(name, ("flag",))[0] == "flag" else name
        elif commands:
            command = commands.get(word, ("", {}, (), {}))
        else:
            position += 1
    if not waiting and not is_plain and last.startswith("-"):
        name, equals, value = last.partition("=")
        if not equals:
            return [("plain", one, text) for one, (_, text) in command[1].items() if one.startswith(last)]
        waiting, last = name, value
    if waiting:
        return of_kind(command[1].get(waiting, ("",))[0], last, given)
    if command[3]:
        return [("plain", one, row[0]) for one, row in command[3].items() if one.startswith(last)]
    return of_kind(of_argument(command[2], position), last, given)


def of_argument(kinds: tuple[str, ...], position: int) -> str:
    """The kind of an argument; the last one may stand for all that follow."""
    if position >= len(kinds) and kinds and kinds[-1].endswith("..."):
        position = len(kinds) - 1
    kind = kinds[position] if position < len(kinds) else ""
    return kind[:-3] if kind.endswith("...") else kind


def of_kind(kind: str, last: str, given: dict[str, str]) -> list[tuple[str, str, str]]:
    """The words of one kind of argument. ``given``: the values of options."""
    if kind in ("file", "dir"):
        return [(kind, last, "")]
    if kind.startswith("="):
        found = kind[1:].split("|")
    elif kind == "targets":
        before, comma, part = last.rpartition(",")
        found = [before + comma + one for one in ("rack=", "name=")]
        if "=" in part:
            found = [before + comma + what + "=" + one for what, one in told(given) if what in ("rack", "name")]
    elif kind in ("version", "model", "name", "host"):
        rows = told(given)
        found = [one for what, one in rows if what == ("name" if kind == "host" else "model")]
        if kind == "name" or (kind == "model" and "@" not in last):
            names = [one.rpartition("@")[0] for one in found]
            found = names if kind == "name" else names + found
    else:
        return []
    return [("plain", one, "") for one in dict.fromkeys(found) if one.startswith(last)]


def told(given: dict[str, str]) -> list[tuple[str, str]]:
    """What the daemon knows by name: pairs of ``model``, ``name`` (of a host) or ``rack``, and the name."""
    import _socket

    for path in sockets(given):
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        directory = -1
        try:
            connection.settimeout(ASKED_S)
            directory = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)
            connection.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
            connection.sendall(b"GET /v1/names HTTP/1.1\r\nHost: gossipd\r\nConnection: close\r\n\r\n")
            answer = b""
            while len(answer) < ANSWER_BYTES_MAX:
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                answer += piece
        except OSError:
            continue
        finally:
            connection.close()
            if directory >= 0:
                os.close(directory)
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            return []
        pairs = [line.partition(" ") for line in body.decode("utf-8", "replace").splitlines()]
        return [(what, name) for what, _, name in pairs if is_safe(name)]
    return []


def is_safe(name: str) -> bool:
    """Whether no shell takes it for anything but a word."""
    return name != "" and name[0] != "-" and SAFE.issuperset(name)


def sockets(given: dict[str, str]) -> list[str]:
    """The socket of orders and that of questions, as the commands look for them (``api.client.find_sockets``)."""
    if "--socket" not in given and "--config" in given:
        return sockets_of(given["--config"])
    path = given.get("--socket") or os.environ.get("GOSSIPD_SOCKET") or "gossipd.sock"
    if path == "gossipd.sock" and not os.path.exists(path) and os.path.exists(PACKAGE_HOME + "/gossipd-read.sock"):
        path = PACKAGE_HOME + "/gossipd.sock"
    return [path, os.path.join(os.path.dirname(path), "gossipd-read.sock")]


def sockets_of(config: str) -> list[str]:
    """Those that a configuration names."""
    if os.path.isdir(config):
        config = os.path.join(config, "gossipd.toml")
    try:
        import tomllib

        # A pipe in its place must not hold the shell.
        with open(os.open(config, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8-sig") as file:
            status = tomllib.loads(file.read()).get("status")
    except (ImportError, OSError, ValueError):
        return []
    found = []
    for key, name in (("socket", "gossipd.sock"), ("read_socket", "gossipd-read.sock")):
        path = os.environ.get("GOSSIPD_STATUS__" + key.upper()) or (status.get(key) if isinstance(status, dict) else "")
        found.append(os.path.join(os.path.dirname(config), path if isinstance(path, str) and path else name))
    return found


def main(shell: str, words: list[str]) -> None:
    """Print for ``shell`` what may stand in the place of the last of ``words``."""
    for kind, word, text in offers(words[:-1], words[-1] if words else ""):
        if shell == "zsh":
            print(kind, word.replace(":", "\\:") if text else word, text or "_", sep="\n")
        else:
            print(kind + "," + word + ("\t" + text if text and shell == "fish" else ""))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
