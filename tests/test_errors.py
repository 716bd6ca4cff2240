"""Errors as a whole: stable codes, exit codes, whose fault it is; nothing is caught without being named.

A code is matched by scripts, so one that changes or vanishes is a break: the list below is what has been promised.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import gossipd
import membership
from gossipd.control.trigger_client import TriggerRefusedError
from gossipd.core.errors import ExitCode, GossipdError
from gossipd.core.reasons import _OF_CODES, HostReason, reason_of_code
from gossipd.manifest.errors import ManifestError
from gossipd.publish.errors import (
    NothingSelectedError,
    PublishError,
    StorageNotFoundError,
    TreeChangedError,
    blaming_the_caller,
)
from gossipd.runtime.ports import StoreWriteError
from membership.errors import MembershipError
from tests.rule import rule_for
from tests.test_house import MODULES, nodes

CODE = re.compile(r"E_[A-Z]+(_[A-Z]+)*")
PREFIXES = {"E_KEY", "E_SIG"}  # what several codes begin with; told to nobody

EXIT_CODES = {
    "DONE": 0, "OTHER": 1, "USAGE": 2, "NOT_FOUND": 3, "DAEMON_UNREACHABLE": 4, "TIMEOUT": 5, "VERIFICATION": 6,
    "TRUST": 7, "DISK": 8, "PARTIAL": 9, "SOURCE_AUTH": 10, "SOURCE_UNREACHABLE": 11, "INTERRUPTED": 130,
}  # fmt: skip
_PROMISED = """
    E_HOLE E_WANT_ORDERS E_MODEL_SIGNATURE
    E_ADDRESS_CONFLICT E_ADOPT E_ALONE E_AUDIT E_AUDIT_BROKEN E_AUDIT_CUT E_BIND E_BUDGETS E_BULK_PROTOCOL
    E_BULK_VERSION E_BUSY E_CANCELLED E_CASE_FOLDED E_CERTIFICATE E_CHUNK_LAYOUT E_CHUNK_RANGE E_CHUNK_UNAVAILABLE
    E_CLOCK E_CREDENTIALS_END
    E_COMPLETE E_CONFIG E_CONNECTIONS E_DAEMON_UNREACHABLE E_DECODE E_DEMO E_DEMO_DIFFERS E_DIGEST E_DRIFT
    E_EMPTY E_EQUIVOCATION E_EXISTS E_EXPIRED E_EXTRA_MISSING E_FILE_TYPE E_GONE E_GOSSIP_FULL E_HANDLES E_HANDSHAKE
    E_HASH_LENGTH E_HELD E_HISTORY_FORMAT E_IDENTITY_MISMATCH E_IDENTITY_TWICE E_INDEX E_INIT E_INSPECTION
    E_INTERNAL E_ISOLATED E_REGISTER_LOST
    E_JOIN_REFUSED E_KEY_EXISTS E_KEY_EXPOSED E_KEY_FILE E_KEY_FORMAT E_KEY_MISSING E_KEY_NAME E_KEY_REFUSED
    E_KEY_UNKNOWN E_LENGTH E_LIMIT E_MANIFEST_PULL E_MAY_NOT_CANCEL E_MAY_NOT_PUBLISH E_MEMBERSHIP E_MEMBERSHIP_PUBLISH
    E_MEMBERSHIP_RECORD E_MEMBERSHIP_SEAL E_MEMBERSHIP_SETTINGS E_MEMBERSHIP_WIRE E_MEMBER_ALIVE E_NAME
    E_NAME_CONFLICT E_NODE_SILENT E_NODE_UNREACHABLE E_NOT_ALLOWED E_NOT_A_TARGET E_NOT_DEPLOYED E_NOT_FOUND
    E_NOT_HELD E_NOT_OWNER E_NOT_READY E_NOT_WHOLE E_NO_INDEX E_NO_INODES E_NO_LINKS E_NO_REFLINK E_NO_SIGNING_KEY
    E_NO_SPACE E_OS
    E_OTHER E_OUTPUT E_PARTIAL E_PATH_ABSOLUTE E_PATH_CHAR E_PATH_COLLISION E_PATH_COMPONENT E_PATH_LENGTH E_PATH_PREFIX
    E_PATH_KIND E_PATH_RESERVED E_PATH_SYMLINK E_PATH_UNICODE E_PEER_SILENT E_PEER_UNREACHABLE E_PIN_LIMIT E_POOL
    E_PORT_FULL
    E_PROGRESS_FORMAT E_PROGRESS_TABLE E_QUEUE_FULL E_READ_SOCKET E_REFUSED E_RELAY_ENDED E_RELOAD E_RESTART_NEEDED
    E_ROLLBACK E_ROOT_HASH E_SCHEMA_VERSION E_SECRET E_SECURITY_CHECK E_SELF_CHECK E_SELF_CHECK_UNANSWERED
    E_SIG_INVALID E_SIG_MISSING E_SIG_THRESHOLD E_SLOW E_SOURCE E_SOURCE_ACCOUNT E_SOURCE_ARCHIVED E_SOURCE_AUTH
    E_SOURCE_BUSY E_SOURCE_CHANGED E_SOURCE_CLOCK E_SOURCE_ENCODING E_SOURCE_ENCRYPTED E_SOURCE_FORBIDDEN
    E_SOURCE_BUDGET E_SOURCE_HASH E_SOURCE_KEY E_SOURCE_LISTING E_SOURCE_LONG E_SOURCE_NOT_FOUND E_SOURCE_NO_BUCKET
    E_SOURCE_NO_CREDENTIALS E_SOURCE_NO_RANGES E_SOURCE_PAYER E_SOURCE_PROXY E_SOURCE_RANGE E_SOURCE_READ
    E_SOURCE_REDIRECT E_SOURCE_REGION E_SOURCE_SHORT E_SOURCE_SLOW E_SOURCE_TOKEN_EXPIRED E_SOURCE_TRUNCATED
    E_SOURCE_UNREACHABLE E_SOURCE_WHOLE_ONLY E_STATEMENT_BOUNDS E_STATE_MOVED E_STATE_SILENT E_STATE_WRITE
    E_STATUS_REQUEST E_STATUS_SOCKET
    E_STORE_FILE_SIZE
    E_STORE E_STORE_ACCESS E_STORE_FORMAT E_STORE_HANDLES E_STORE_IO E_STORE_LOCKED E_STORE_MODE E_STORE_MOVED
    E_STORE_READ E_STORE_READ_ONLY E_STORE_SILENT E_STORE_VERSION E_STORE_WRITE E_THREADS E_TIMEOUT E_TOKEN
    E_TOO_MANY_ASKS E_TRIGGER_FIELD E_TWO_WORDS E_UNKNOWN_MANIFEST
    E_SHARDS E_UNTRUSTED E_USAGE E_VERIFICATION E_VERSION_TAKEN E_WANT E_WATCH_DIRECTORY E_WATCH_DISK E_WATCH_EMPTY
    E_SOURCE_TLS E_STEPS E_WATCH_OWNER E_WATCH_PERMISSION E_WATCH_SIZE E_WATCH_TYPE E_WATERMARK E_WEB_ADDRESS
"""
CODES = frozenset(_PROMISED.split())
EXTRAS = ("gossipd.torch", "gossipd.mlflow", "gossipd.vllm")  # built on what is not installed; they define no errors


def _kinds() -> list[type[Exception]]:
    """Every error class of the product."""
    for package in (gossipd, membership):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and not module.name.startswith(EXTRAS):
                importlib.import_module(module.name)
    found: list[type[Exception]] = [GossipdError, MembershipError]
    for kind in found:
        found += [child for child in kind.__subclasses__() if child not in found]
    return [kind for kind in found if kind.__module__.startswith(("gossipd", "membership"))]


KINDS = _kinds()


def codes_in_the_product() -> set[str]:
    """Text constants that are a code, or begin with one as in a sentence; docstrings do not count."""
    found = set()
    for module in MODULES:
        said = {id(node.value) for node in nodes(module) if isinstance(node, ast.Expr)}
        for node in nodes(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                code = CODE.fullmatch(node.value.partition(":")[0].strip())
                if code is not None:
                    found.add(code[0])
    return found - PREFIXES


def test_no_code_changes_or_vanishes_unnoticed() -> None:
    assert sorted(codes_in_the_product()) == sorted(CODES)


def test_exit_codes_are_the_promised_ones() -> None:
    assert {code.name: code.value for code in ExitCode} == EXIT_CODES


@rule_for(KINDS)
def test_an_error_has_a_stable_code_and_says_whose_fault_it_is_or_when_to_try_again(kind: type[Exception]) -> None:
    words = kind.__doc__ or ""
    assert "Fault" in words or "Retry" in words
    code = getattr(kind, "code", "")
    assert CODE.fullmatch(code)
    assert code in CODES
    assert isinstance(getattr(kind, "exit_code", ExitCode.OTHER), ExitCode)


def test_every_code_that_gives_a_host_its_reason_is_given_by_something() -> None:
    """As a constant outside the table of reasons."""
    said = {
        node.value
        for module in MODULES
        if module != "gossipd.core.reasons"
        for node in nodes(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {f"E_{name}" for name in _OF_CODES} <= said & CODES


def test_a_sentence_is_the_code_and_one_line() -> None:
    error = GossipdError("net.port is 0, must be a whole number from 1 to 65535", code="E_CONFIG")
    assert error.sentence == "E_CONFIG: net.port is 0, must be a whole number from 1 to 65535"


@rule_for(MODULES)
def test_nothing_is_caught_without_a_name_unless_it_is_raised_again(module: str) -> None:
    for node in nodes(module):
        if not isinstance(node, ast.ExceptHandler):
            continue
        names = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else {""}
        if names & {"", "Exception", "BaseException"}:
            last = node.body[-1]
            assert isinstance(last, ast.Raise) and last.exc is None, f"{module}:{node.lineno} catches everything"


def _raised_with_a_code() -> Iterator[tuple[type[GossipdError], str]]:
    """Each class of error with its own code, and with each that the product gives it by ``code=``."""
    kinds = {kind.__name__: kind for kind in KINDS if issubclass(kind, GossipdError)}
    for kind in kinds.values():
        yield kind, kind.code
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.Call) and (raised := kinds.get(ast.unparse(node.func).rpartition(".")[2])):
                told = [word.value for word in node.keywords if word.arg == "code"]
                yield from ((raised, str(one.value)) for one in told if isinstance(one, ast.Constant))


# A file or address that a caller gives is no storage of a deployment: `publish` says in its help what it ends with.
_OF_WHAT_WAS_GIVEN = {
    (NothingSelectedError, "E_EMPTY"), (StorageNotFoundError, "E_SOURCE_NOT_FOUND"),
    (StorageNotFoundError, "E_SOURCE_NO_BUCKET"), (TreeChangedError, "E_SOURCE_CHANGED"),
    (PublishError, "E_SOURCE_CHANGED"),
}  # fmt: skip
# A manifest that is refused as such, where a host has the reason for what it wants, or may read, of a good one.
_OF_THE_MANIFEST = {(ManifestError, "E_INDEX"), (ManifestError, "E_SOURCE_FORBIDDEN")}


def test_an_error_ends_a_command_as_the_reason_that_its_code_gives_a_host() -> None:
    for kind, code in sorted(set(_raised_with_a_code()), key=str):
        reason = reason_of_code(code, HostReason.NONE)
        if reason is HostReason.NONE or (kind, code) in _OF_WHAT_WAS_GIVEN | _OF_THE_MANIFEST:
            continue
        ends: int = kind.exits_of_codes.get(code, kind.exit_code)
        if kind is TriggerRefusedError:  # by the code of the node that refused
            ends = TriggerRefusedError("no", code=code).code_of_exit
        assert ends == reason.exit_code, f"{kind.__name__} {code}: {ends!r}, {reason.value}: {reason.exit_code!r}"


def test_the_exit_code_of_an_error_is_looked_up_in_one_place() -> None:
    for path in MODULES.values():
        assert 'getattr(error, "code_of_exit"' not in path.read_text(), path
    assert GossipdError("x").code_of_exit == ExitCode.OTHER
    assert StoreWriteError("x").code_of_exit == ExitCode.DISK
    assert StoreWriteError("x", code="E_PATH_KIND").code_of_exit == ExitCode.USAGE
    assert GossipdError("x", code_of_exit=99).code_of_exit == 99, "of a later daemon's"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("E_NAME", ExitCode.USAGE), ("E_PATH_UNICODE", ExitCode.USAGE), ("E_EMPTY", ExitCode.NOT_FOUND)],
)
def test_what_a_caller_gave_wrong_ends_as_wrong_usage_and_nothing_as_not_found(code: str, exit_code: ExitCode) -> None:
    with pytest.raises(PublishError) as caught, blaming_the_caller():
        raise ManifestError("some rule", code=code)
    assert (caught.value.code, caught.value.code_of_exit) == (code, exit_code)
    for given in ("E_FILE_TYPE", "E_OUTPUT", "E_SOURCE_LISTING"):
        assert PublishError("x", code=given).code_of_exit == ExitCode.USAGE
