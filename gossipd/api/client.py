"""The client side of the status socket, by which the commands ask the daemon: one method each; standard library only.

What lives here: finding the socket, one request, one answer. What does not: the fields of answers (``schema``) and
their display (``cli``). Importing is quick, because ``gossipd status`` runs in scripts and loops.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gossipd.core.errors import ExitCode, GossipdError, LocalError, NotFoundError, UsageError
from gossipd.core.versions import as_written

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPException, HTTPResponse

SOCKET_NAME = "gossipd.sock"
READ_SOCKET_NAME = "gossipd-read.sock"
SOCKET_VARIABLE = "GOSSIPD_SOCKET"
MODELS_VARIABLE = "GOSSIPD_MODELS"
PACKAGE_HOME = Path("/var/lib/gossipd")  # where the packages' unit keeps its daemon
_CONFIG_BYTES_MAX = 64 * 1024  # as ``config.load`` reads
_WANT_BYTES_MAX = 3_000  # a request has 4,096 at most
DELETING_S = 120.0  # 100,000 files take some ten seconds to delete
TIMEOUT_S = 10.0  # the daemon answers from memory within milliseconds, unless it is stopped
LATE_S = 1.0  # what the answer to a round of waiting may come after the caller's deadline


class DaemonUnreachableError(LocalError):
    """No daemon answers at the status socket. Fault: the path, or no daemon runs. Retry: when it runs."""

    code = "E_DAEMON_UNREACHABLE"
    exit_code: ClassVar[ExitCode] = ExitCode.DAEMON_UNREACHABLE


class DaemonSilentError(DaemonUnreachableError):
    """A daemon is at the status socket, and says nothing. Fault: it hangs, is stopped, or its host is. Retry: soon."""


class RefusedByDaemonError(GossipdError):
    """The daemon's refusal, with its code, sentence and exit code. Fault and retry: see the code."""

    def __init__(self, code: str, message: str, exit_code: int) -> None:
        super().__init__(message, code=code, code_of_exit=exit_code)


def find_sockets(socket_path: str | None, config_path: str | None) -> tuple[Path, Path]:
    """The socket of orders and that of questions: by ``--socket``, else ``--config``, else ``$GOSSIPD_SOCKET``, else
    ``./gossipd.sock`` or the one of the packages' daemon. Raises UsageError when the configuration cannot be read."""
    if socket_path is None and config_path is not None:
        return _sockets_of(Path(config_path))
    path = Path(socket_path or os.environ.get(SOCKET_VARIABLE) or SOCKET_NAME)
    if str(path) == SOCKET_NAME and not path.exists() and (PACKAGE_HOME / READ_SOCKET_NAME).exists():
        path = PACKAGE_HOME / SOCKET_NAME
    return path, path.with_name(READ_SOCKET_NAME)


def _as_others(version: int, known: list[dict[str, Any]]) -> str:
    """A version as others of its name are written, where one of them shows how."""
    for row in known:
        if (told := as_written(version, row["version"], row.get("version_label") or "")) != str(version):
            return told
    return str(version)


def _sockets_of(config: Path) -> tuple[Path, Path]:
    if config.is_dir():
        config = config / "gossipd.toml"
    import tomllib  # most callers name a socket

    from gossipd.runtime.regular_file import read_regular

    try:
        tables = tomllib.loads(read_regular(config, bytes_max=_CONFIG_BYTES_MAX).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {config}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{config} is not TOML: {error}") from None
    status = tables.get("status")
    given = status if isinstance(status, dict) else {}

    def named(key: str, default: str) -> Path:
        path = os.environ.get(f"GOSSIPD_STATUS__{key.upper()}") or given.get(key)
        return config.parent / (path if isinstance(path, str) and path else default)

    return named("socket", SOCKET_NAME), named("read_socket", READ_SOCKET_NAME)


class StatusClient:
    """Asks one daemon. Every method raises DaemonUnreachableError, or RefusedByDaemonError with its sentence.

    ``questions`` is the socket that takes no orders: it is asked where this user may not open the other."""

    def __init__(self, path: Path, *, questions: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._orders, self._questions = path, questions
        self._timeout_s = timeout_s

    @property
    def path(self) -> Path:
        """The socket that is asked now: a daemon that starts later makes both, and says then who may open which."""
        if self._questions is not None and not _may_open(self._orders):
            return self._questions if os.access(self._questions, os.R_OK | os.W_OK) else self._orders
        return self._orders

    def status(
        self, name: str | None = None, version: int | None = None, *, hosts_max: int | None = None,
        host: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The whole page; with a name only that model's deployments. ``hosts_max``: of deployments on more hosts, the
        complete ones are counted in ``left_out``, which takes a fraction of the time. ``host``: only the deployments
        that are meant for this host, with its row alone."""
        query = {"name": name, "version": version, "hosts_max": hosts_max, "host": host}
        return self._get("/v1/status", {key: str(value) for key, value in query.items() if value is not None})

    def members(self) -> dict[str, Any]:
        return self._get("/v1/members")

    def events(self, since: str | None, *, wait_s: int = 0) -> dict[str, Any]:
        """What comes after ``since``, BOOT:ID; waits at most ``wait_s`` for it, which must be under the timeout."""
        query = {"wait_s": str(wait_s), **({} if since is None else {"since": since})}
        return self._get("/v1/events", query)

    def models(self, name: str | None = None) -> dict[str, Any]:
        return self._get("/v1/models", {} if name is None else {"name": name})

    def manifest(
        self, name: str | None = None, version: int | None = None, deployment: str | None = None
    ) -> dict[str, Any]:
        """What a publisher says in a manifest; of several versions the newest."""
        given = {"name": name, "version": None if version is None else str(version), "id": deployment}
        answer = self._get("/v1/manifest", {key: value for key, value in given.items() if value is not None})
        row: dict[str, Any] = answer["manifest"]
        return row

    def _why_unused(self, name: str, version: int | None) -> str:
        """Why a version that may lie here is not used; empty where nothing is known."""
        from gossipd.core.reasons import reason_of_word  # of an error only

        try:
            rows = self.status(name, version)["deployments"] if version is not None else []
        except RefusedByDaemonError:  # it knows no such deployment
            rows = []
        reasons = [reason_of_word(host["reason"]) for row in rows[:1] for host in row["hosts"] if host.get("here")]
        return "".join(f", or is not used: {one.sentence} ({one.cure})" for one in reasons if one.value)

    def complete_model(
        self, name: str, version: int | None = None, *, part: bool = False, prefix: str | None = None
    ) -> dict[str, Any]:
        """The row of a version that is whole on this host, with its ``path``; without a version, of the current one.

        Args:
            part: of a part, too, so that nobody takes one for the whole unasked.
            prefix: where the daemon's ``store.models`` is mounted for this process, else ``$GOSSIPD_MODELS``, else at
                the same place; ``path`` then lies there.
        Raises: NotFoundError.
        """
        known = self.models(name)["models"]
        models = [each for each in known if (each["current"] if version is None else each["version"] == version)]
        label = name if version is None else f"{name}@{_as_others(version, known)}"
        if not models:
            raise NotFoundError(f"{label} is not on this host{self._why_unused(name, version)}; see: gossipd ls")
        found: dict[str, Any] = models[0]
        if found["path"] is not None and found.get("want") and not part:
            raise NotFoundError(f"of {label} only a part is on this host; ask for it: gossipd path --part {label}")
        if found["path"] is None:
            raise NotFoundError(f"{label} is not complete on this host, it is {found['state']}; see: gossipd wait")
        if trouble := found.get("trouble"):  # an older daemon tells none
            raise NotFoundError(f"{label} is not whole at {found['path']}: {trouble}")
        mounted = prefix or os.environ.get(MODELS_VARIABLE)
        return found | {"path": str(Path(mounted, name, Path(found["path"]).name))} if mounted else found

    def report(self, name: str, version: int | None = None) -> dict[str, Any]:
        """What a deployment did; of several versions the newest."""
        query = {"name": name, **({} if version is None else {"version": str(version)})}
        row: dict[str, Any] = self._get("/v1/report", query)["report"]
        return row

    def sketches(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Which chunks hosts have, as far as the daemon knows; of several versions the newest."""
        return self._get("/v1/sketch", {"name": name, **({} if version is None else {"version": str(version)})})

    def peers(self) -> dict[str, Any]:
        return self._get("/v1/peers")

    def log(self) -> list[str]:
        """The latest lines of the daemon's log; its own user and root may ask."""
        lines: list[str] = self._get("/v1/log")["lines"]
        return lines

    def tasks(self) -> list[dict[str, Any]]:
        """The daemon's tasks, each below its parent: ``depth``, ``name``, ``waits_at``."""
        rows: list[dict[str, Any]] = self._get("/v1/tasks")["tasks"]
        return rows

    def metrics(self) -> str:
        """The page for Prometheus, as text."""
        with self._answer("GET", "/metrics", None) as answer:
            return answer.read().decode()

    def wait_round(
        self, name: str, version: int | None, hosts: str, round_s: float, *, goal: str = "complete",
        left_s: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One round of waiting, see ``long_poll.WaitRow``. ``hosts``: here, a share or a number; ``goal``: complete,
        current or removed; ``left_s``: until the caller's deadline, which a daemon that hangs holds up by ``LATE_S``
        at most."""
        query = {"name": name, "hosts": hosts, "round_s": f"{round_s:.3f}"}
        if goal != "complete":
            query["goal"] = goal
        if version is not None:
            query["version"] = str(version)
        patience_s = self._timeout_s + round_s
        if left_s is not None:
            patience_s = min(patience_s, max(0.0, left_s) + LATE_S)
        return self._get("/v1/wait", query, timeout_s=patience_s)

    def latest(self, name: str, where: str, before: int | None = None) -> dict[str, Any]:
        """The row of the newest version that is complete there, see ``readiness.newest``."""
        below = {} if before is None else {"before": str(before)}
        row: dict[str, Any] = self._get("/v1/latest", {"name": name, "where": where, **below})["deployment"]
        return row

    def answer_to(self, target: str) -> tuple[int, bytes]:
        """The HTTP status and the body of ``GET target``, unread: a refusal of the daemon's is an answer, too."""
        from http.client import HTTPException

        from gossipd.api.unix_connection import UnixConnection

        connection = UnixConnection(self.path, self._timeout_s)
        try:
            answer = _response(connection, "GET", target, None)
            return answer.status, answer.read()
        except (OSError, HTTPException) as error:
            raise _unreachable(self.path, self._timeout_s, error) from None
        finally:
            connection.close()

    def order(self, verb: str, **fields: object) -> dict[str, Any]:
        """``deploy``, ``cancel``, ``pause``, ``resume``, ``rm``, ``rollback``, ``untrust``, ``override``, ``forget``,
        ``pin``, ``unpin``, ``prune``, ``want`` or ``reload``."""
        timeout_s = max(DELETING_S, self._timeout_s) if verb in ("rm", "prune") else None
        with self._answer("POST", f"/v1/{verb}", json.dumps(fields).encode(), timeout_s=timeout_s) as answer:
            return _object(answer.read(), is_whole=True)

    def wants(self) -> dict[str, Any]:
        """What this host wants of models that it need not take whole."""
        return self._get("/v1/wants")

    def want(
        self, name: str, terms: Sequence[str], *, clear: bool, free: bool, holder: str = ""
    ) -> dict[str, Any]:  # fmt: skip
        """Have this host take parts of a model. Raises UsageError: the terms are too long for one request."""
        if any("\n" in term or not term.strip() for term in terms):
            raise UsageError("a PART is one term, as in ep:3/16")
        text = "\n".join(terms)
        if len(json.dumps(text)) > _WANT_BYTES_MAX:
            cure = "give the terms in several orders, which add up, or in parts.wants of the configuration"
            raise UsageError(f"a want of over {_WANT_BYTES_MAX} bytes is too long for one order; {cure}")
        whose = {"holder": holder} if holder else {}  # an older daemon knows no such field
        return self.order("want", name=name, want=text, clear=clear, free=free, **whose)

    def verify(self, name: str, version: int) -> Iterator[dict[str, Any]]:
        """Yield lines as they arrive; the last one has ``done``."""
        return self._lines("/v1/verify", {"name": name, "version": version})

    def publish(self, **fields: object) -> Iterator[dict[str, Any]]:
        """The daemon makes, signs and deploys a version of a directory: ``api.ports.PublishStep`` a line."""
        return self._lines("/v1/publish", fields)

    def adopt(self, **fields: object) -> Iterator[dict[str, Any]]:
        """The daemon takes a directory as its copy of a version that is signed already; lines as of ``publish``."""
        return self._lines("/v1/adopt", fields)

    def shards(self, **fields: object) -> Iterator[dict[str, Any]]:
        """The daemon hashes and signs the files of one rank; the last line has the ``envelope``."""
        return self._lines("/v1/shards", fields)

    def assemble(self, **fields: object) -> Iterator[dict[str, Any]]:
        """The daemon signs the manifest of what all hosts have hashed; the last line has the ``envelope``."""
        return self._lines("/v1/assemble", fields)

    def adopt_shards(self, **fields: object) -> Iterator[dict[str, Any]]:
        """The daemon takes a directory as its copy of some files of a version."""
        return self._lines("/v1/adopt-shards", fields)

    def _lines(self, path: str, fields: Mapping[str, object]) -> Iterator[dict[str, Any]]:
        from http.client import HTTPException

        with self._answer("POST", path, json.dumps(fields).encode()) as answer:
            try:
                for line in answer:
                    step = _object(line)
                    _raise_refusal(step)
                    yield step
            except (OSError, HTTPException) as error:
                raise DaemonUnreachableError(f"the daemon at {self.path} stopped answering: {error}") from None

    def _get(
        self, path: str, query: Mapping[str, str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        from urllib.parse import urlencode

        target = f"{path}?{urlencode(query, safe=':')}" if query else path
        with self._answer("GET", target, None, timeout_s=timeout_s) as answer:
            return _object(answer.read(), is_whole=True)

    @contextlib.contextmanager
    def _answer(
        self, method: str, target: str, body: bytes | None, *, timeout_s: float | None = None
    ) -> Iterator[HTTPResponse]:
        from http.client import HTTPException

        from gossipd.api.unix_connection import UnixConnection

        asked_s = timeout_s or self._timeout_s
        connection = UnixConnection(self.path, asked_s)
        try:
            with _response(connection, method, target, body) as answer:
                if answer.status >= 400:
                    _raise_refusal(_object(answer.read()))
                    what = f"the program at {self.path} answers {answer.status}"
                    raise DaemonUnreachableError(f"{what} without a reason")
                yield answer
        except (OSError, HTTPException) as error:  # while the answer is read, too
            raise _unreachable(self.path, asked_s, error) from None
        finally:
            connection.close()


def _response(connection: HTTPConnection, method: str, target: str, body: bytes | None) -> HTTPResponse:
    """A daemon that refuses may close the connection before it has read the request: its answer is there then."""
    from http.client import HTTPException

    try:
        connection.request(method, target, body, {"Connection": "close"})
    except (BrokenPipeError, ConnectionResetError):
        with contextlib.suppress(OSError, HTTPException):
            return connection.getresponse()
        raise
    return connection.getresponse()


def _unreachable(path: Path, timeout_s: float, error: OSError | HTTPException) -> DaemonUnreachableError:
    kind = DaemonSilentError if isinstance(error, TimeoutError | BlockingIOError) else DaemonUnreachableError
    return kind(_why(path, timeout_s, error))


def _why(path: Path, timeout_s: float, error: OSError | HTTPException) -> str:
    from http.client import IncompleteRead

    match error:
        case IncompleteRead():
            return f"the daemon at {path} stopped in the middle of its answer"
        case TimeoutError():
            return f"the daemon at {path} did not answer within {timeout_s:g} s"
        case PermissionError():
            who = "its own user and root may give commands, and status.readers says who may ask"
            return f"this user may not use the daemon at {path}; {who}"
        case BrokenPipeError() | ConnectionResetError() | BlockingIOError():
            is_full = isinstance(error, BlockingIOError)
            did = "has a full queue of callers" if is_full else "closed the connection without an answer"
            return f"the program at {path} {did}; try again"
        case OSError():
            cure = "start it with 'gossipd run', or name another by --config or --socket"
            return f"no daemon answers at {path}: {error.strerror or error}; {cure}"
    return f"the program at {path} is not gossipd: {error!r}"


def _may_open(path: Path) -> bool:
    """Whether this user may connect to the socket; also true where nothing is known of it, which connecting tells."""
    return not os.access(path, os.F_OK) or os.access(path, os.R_OK | os.W_OK, effective_ids=True)


def _object(text: bytes, *, is_whole: bool = False) -> dict[str, Any]:
    """``is_whole``: no line of a stream, so that it says its schema."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or (is_whole and "schema_version" not in value):
        raise DaemonUnreachableError(f"the answer is not from gossipd: {text[:60].decode('latin-1')!a}")
    return value


def _raise_refusal(answer: dict[str, Any]) -> None:
    error = answer.get("error")
    if isinstance(error, dict):
        code, message = str(error.get("code", "E_OTHER")), str(error.get("message", ""))
        raise RefusedByDaemonError(code, message, int(error.get("exit_code", 1)))
