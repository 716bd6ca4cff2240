"""Looks for credentials that end, fail or hang, and the threads that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.system_refusals import NoThreadError
from gossipd.sources import credential_look
from gossipd.sources.credential_look import CredentialLook
from gossipd.sources.errors import SourceNoCredentialsError, SourceUnreachableError


class Service:
    """What gives credentials, when it does."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.was_asked, self.answers = threading.Event(), threading.Event()

    def look(self, what: str) -> str:
        self.asked.append(what)
        self.was_asked.set()
        assert self.answers.wait(10)
        return f"key {len(self.asked)}"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.answers.set()


def begun(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """The call in a thread, and where its outcome comes."""
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(call())
        except SourceUnreachableError as error:
            outcomes.append(str(error.args[0]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcomes


def test_all_that_wait_have_the_outcome_of_one_look(service: Service) -> None:
    look = CredentialLook(service.look, "the credentials")
    waiting = [begun(lambda: look.get("s3://a")) for _ in range(4)]
    assert service.was_asked.wait(10)
    service.answers.set()
    for thread, _ in waiting:
        thread.join(10)
    assert {outcome for _, outcomes in waiting for outcome in outcomes} <= {"key 1", "key 2"}
    assert look.get("s3://b") == f"key {len(service.asked)}" and service.asked[-1] == "s3://b"


def test_a_look_that_hangs_fails_for_each_at_once_until_it_ends(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_look, "WAIT_S", 0.05)
    look = CredentialLook(service.look, "the credentials")
    for what in ("s3://a", "s3://b"):
        with pytest.raises(SourceUnreachableError, match=f"{what}: the credentials have not come for 0.05 s"):
            look.get(what)
    assert service.asked == ["s3://a"]
    service.answers.set()
    monkeypatch.setattr(credential_look, "WAIT_S", 10)
    assert look.get("s3://c") in ("key 1", "key 2")


def test_a_failure_names_what_is_read_by_who_asked(service: Service) -> None:
    service.answers.set()

    def fail(what: str) -> str:
        service.look(what)
        raise SourceNoCredentialsError("s3://first", "there are none, see s3://first: it")

    look = CredentialLook(fail, "the credentials")
    with pytest.raises(SourceNoCredentialsError, match=r"^s3://b: there are none, see s3://first: it"):
        look.get("s3://b")


def test_nobody_waits_when_reads_are_ended(service: Service) -> None:
    look = CredentialLook(service.look, "the credentials")
    thread, outcomes = begun(lambda: look.get("s3://a"))
    assert service.was_asked.wait(10)
    look.close()
    thread.join(5)
    assert outcomes == ["s3://a: this host's reads are being ended"]
    with pytest.raises(SourceUnreachableError, match="being ended"):
        look.get("s3://b")


def test_a_system_without_threads_is_told_and_asked_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: NamedThread) -> None:
        raise NoThreadError("no")

    service.answers.set()
    look = CredentialLook(service.look, "the credentials")
    with monkeypatch.context() as without:
        without.setattr(NamedThread, "start", refuse)
        with pytest.raises(SourceUnreachableError, match="refuses new threads"):
            look.get("s3://a")
    assert look.get("s3://a") == "key 1"
