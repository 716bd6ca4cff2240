"""Models on a hub: redirects to signed addresses that expire, tokens that stay at home, and refusals in words."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.errors import (
    SourceBusyError,
    SourceError,
    SourceRangeError,
    SourceRedirectError,
    SourceUnreachableError,
)
from gossipd.sources.hub import Hub, HubRoutes
from gossipd.sources.location import Location
from gossipd.sources.settings import SourceSettings
from tests.gossipd.sources.models import CHUNK_BYTES, sign
from tests.gossipd.sources.test_reader import QUICK, Seat
from tests.hub import Repository, SmallHub, served_hub

RNG = Random(12)
FILES = {
    "config.json": RNG.randbytes(500),
    "model 1+2.safetensors": RNG.randbytes(5 * CHUNK_BYTES + 99),
    "tokenizer/vocab.json": RNG.randbytes(9000),
}
COMMIT = Repository({}).commit
SOURCE = f"hf://org/model@{COMMIT}/"
SETTINGS = replace(QUICK, whole_file_bytes_max=1 << 20)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with served_hub(org__model=Repository(dict(FILES))) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def seat_of(source: str = SOURCE, allow: str = "hf", settings: SourceSettings = SETTINGS) -> Seat:
    return Seat(sign(FILES, source), allow=[allow], settings=settings)


def only_error(seat: Seat) -> SourceError:
    error = seat.read(0).errors[-1]
    assert isinstance(error, SourceError)
    return error


@pytest.mark.parametrize("source", [SOURCE, "hf://org/model", "hf://org/model@main", "hf://org/model@refs/pr/1"])
def test_every_chunk_of_a_repository_comes_from_the_hub_and_the_storage_behind_it(hub: SmallHub, source: str) -> None:
    seat = seat_of(source)
    assert seat.reader.probe(seat.manifest).readable
    outcome = seat.read()
    assert (outcome.failed, outcome.errors) == ((), ())
    assert len(seat.store.chunks) == seat.manifest.chunk_count


def test_a_signed_address_is_asked_for_once_and_used_for_all_ranges_of_its_file(hub: SmallHub) -> None:
    seat = seat_of()
    for chunk in range(5):
        assert seat.read(chunk).errors == ()
    assert len([one for one in hub.to("hub") if "model%201" in one.target]) == 1


@pytest.mark.parametrize("status", [400, 403, 410])
def test_a_signed_address_that_has_expired_is_asked_for_again(hub: SmallHub, status: int) -> None:
    hub.storage_status = status
    seat = seat_of()
    for chunk in range(3):
        assert seat.read(chunk).errors == ()
        hub.advanced_s += hub.lives_s + 1
    assert len([one for one in hub.to("hub") if "model%201" in one.target]) == 3


def test_an_address_that_is_refused_fresh_is_told_and_not_asked_for_for_ever(hub: SmallHub) -> None:
    hub.is_storage_broken = True
    error = only_error(seat_of())
    assert error.code == "E_SOURCE_AUTH"
    assert "the storage behind the hub refuses" in str(error)
    assert len(hub.asked) <= 4


def test_the_token_goes_to_the_hub_and_never_to_the_storage_behind_it(
    hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    hub.repositories["org/model"].token = "hf_canary"
    assert seat_of().read().errors == ()
    assert {one.authorization for one in hub.to("hub")} == {"Bearer hf_canary"}
    assert {one.authorization for one in hub.to("storage")} == {None}


@pytest.mark.parametrize(("is_gated", "code"), [(True, "E_SOURCE_AUTH"), (False, "E_SOURCE_NOT_FOUND")])
def test_a_repository_that_this_host_may_not_see_is_told_with_the_token_to_set(
    hub: SmallHub, is_gated: bool, code: str
) -> None:
    hub.repositories["org/model"].token = "hf_other"
    hub.repositories["org/model"].is_gated = is_gated
    error = only_error(seat_of())
    assert error.code == code
    assert "HF_TOKEN" in str(error)
    assert ("consent" in str(error)) == is_gated
    assert str(error).startswith(f"{SOURCE}model 1+2.safetensors: ")


@pytest.mark.parametrize(
    ("source", "said"),
    [("hf://org/nowhere", "no such repository"), ("hf://org/model@v9", "no such revision")],
)
def test_what_the_hub_does_not_have_is_told_as_that(hub: SmallHub, source: str, said: str) -> None:
    error = only_error(seat_of(source))
    assert (error.code, error.is_permanent) == ("E_SOURCE_NOT_FOUND", True)
    assert said in str(error)


def test_a_file_that_is_not_in_the_repository_is_told_as_that(hub: SmallHub) -> None:
    del hub.repositories["org/model"].files["model 1+2.safetensors"]
    assert "no such file" in str(only_error(seat_of()))


def test_a_renamed_repository_is_followed_on_the_hub(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    hub.repositories["org/old"] = Repository({}, moved_to="org/model")
    hub.repositories["org/model"].token = "hf_canary"
    assert seat_of("hf://org/old").read().errors == ()


def test_a_hub_that_is_busy_is_asked_again_when_it_says(hub: SmallHub) -> None:
    hub.busy = ["0", "0", "0"]
    assert seat_of().read().errors == ()
    hub.busy = ['"resolvers";r=0;t=3600']
    seat = seat_of(settings=replace(SETTINGS, retry_after_max_s=60.0))
    assert only_error(seat).code == "E_SOURCE_BUSY"


@pytest.mark.parametrize("allow", ["https", "hf://other", "hf://org/model2", "http://127.0.0.1:1"])
def test_a_repository_that_is_not_listed_is_never_asked_for(hub: SmallHub, allow: str) -> None:
    assert only_error(seat_of(allow=allow)).code == "E_SOURCE_FORBIDDEN"
    assert hub.asked == []


@pytest.mark.parametrize("allow", ["hf", "hf://org", "hf://org/model", f"hf://org/model@{COMMIT}", "{endpoint}"])
def test_a_repository_is_read_where_it_or_its_hub_is_listed(hub: SmallHub, allow: str) -> None:
    assert seat_of(allow=allow.format(endpoint=hub.endpoint)).read().errors == ()


@pytest.mark.parametrize("host", ["127.0.0.2", "169.254.169.254", "localhost", "[::1]"])
def test_a_hub_cannot_lead_to_a_local_address_that_is_not_listed(hub: SmallHub, host: str) -> None:
    hub.storage_host = host
    addresses = {"localhost": "127.0.0.3"}
    seat = Seat(
        sign(FILES, SOURCE), allow=["hf"], settings=SETTINGS,
        find=lambda source, _: (addresses.get(source.host, source.host),),
    )  # fmt: skip
    error = only_error(seat)
    assert error.code == "E_SOURCE_FORBIDDEN"
    assert "Signature" not in str(error)
    assert hub.to("storage") == []


def test_a_hub_whose_name_leads_to_a_local_address_must_be_listed_with_it(
    hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint.replace("127.0.0.1", "hub.example"))
    seats = [
        Seat(sign(FILES, SOURCE), allow=allow, settings=SETTINGS, find=lambda *_: ("127.0.0.1",))
        for allow in (["hf"], ["hf", "http://127.0.0.1:*"])
    ]
    assert only_error(seats[0]).code == "E_SOURCE_FORBIDDEN"
    assert hub.asked == []
    assert seats[1].read().errors == ()


def test_a_local_hub_by_the_name_of_this_machine_is_read(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint.replace("127.0.0.1", "localhost"))
    assert seat_of().read().errors == ()


def test_no_error_shows_a_signed_address_or_a_token(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    hub.is_storage_broken = True
    seats = [seat_of(), seat_of(allow="s3"), seat_of("hf://org/nowhere")]
    texts = [str(error) + repr(error) for seat in seats for error in seat.read().errors]
    texts += [repr(seat.reader.statistics()) for seat in seats]
    assert not [text for text in texts if "canary" in text or "Signature" in text or "/xet/" in text]


def test_an_endpoint_that_is_no_address_is_told(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    assert "HF_ENDPOINT" in str(only_error(seat_of()))


PLACE = Location.of(parse_source_url("hf://org/model"), "a b/c.bin")


def test_the_usual_hub_is_asked_over_tls_at_the_address_that_its_own_client_uses() -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    at = Hub.of({}, "x").location(PLACE)
    wanted = huggingface_hub.hf_hub_url("org/model", "a b/c.bin", endpoint="https://huggingface.co")
    assert f"{at.source.text}{at.target}" == wanted
    assert at.shown == "hf://org/model/a b/c.bin"


@pytest.mark.parametrize(
    ("environment", "token"),
    [
        ({"HF_TOKEN": "hf_a", "HUGGING_FACE_HUB_TOKEN": "hf_b"}, "hf_a"),
        ({"HF_TOKEN": " ", "HUGGING_FACE_HUB_TOKEN": "hf_b\n"}, "hf_b"),
    ],
)
def test_the_token_is_found_where_the_hubs_own_client_finds_it(environment: dict[str, str], token: str) -> None:
    assert Hub.of(environment, "x").authorization == f"Bearer {token}"


@pytest.mark.parametrize(
    ("target", "host", "has_token"),
    [
        ("https://cdn.example/x?sig=1", "cdn.example", False),
        ("/org/other/resolve/main/c.bin", "hub.example", True),
        ("https://hub.example/x", "hub.example", True),
        ("https://hub.example:8443/x", "hub.example", False),
        ("https://sub.hub.example/x", "sub.hub.example", False),
    ],
)
def test_only_the_very_host_of_the_hub_is_given_the_token(target: str, host: str, has_token: bool) -> None:
    hub = Hub.of({"HF_ENDPOINT": "https://hub.example", "HF_TOKEN": "hf_t"}, "x")
    at = hub.redirected(hub.location(PLACE), target)
    assert (at.source.host, bool(at.authorization)) == (host, has_token)
    assert "sig" not in repr(at)


def test_a_hub_at_an_ipv6_address_leads_within_itself() -> None:
    hub = Hub.of({"HF_ENDPOINT": "http://[fd00::1]:8080", "HF_TOKEN": "hf_t"}, "x")
    at = hub.redirected(hub.location(PLACE), "/api/resolve-cache/models/a")
    assert (at.source.host, at.source.port, at.target) == ("fd00::1", 8080, "/api/resolve-cache/models/a")
    assert at.authorization


@pytest.mark.parametrize(
    "target",
    ["http://cdn.example/x", "file:///etc/passwd", "https://u:p@cdn.example/", "https://2130706433/x", "https://[",
     "https://cdn.example/\u00e9", "ftp://cdn.example/", "https://cdn.example/a b"],
)  # fmt: skip
def test_a_redirect_that_leads_nowhere_proper_is_refused_without_showing_it(target: str) -> None:
    hub = Hub.of({"HF_ENDPOINT": "https://hub.example"}, "x")
    with pytest.raises(SourceRedirectError) as caught:
        hub.redirected(hub.location(PLACE), target)
    assert "passwd" not in str(caught.value)


@pytest.mark.parametrize("failure", [SourceBusyError, SourceUnreachableError, SourceRangeError])
def test_the_hub_is_asked_again_where_the_host_behind_it_is_ill(failure: type[SourceError]) -> None:
    ill, asked = "one", list[str]()
    routes = HubRoutes({"HF_ENDPOINT": "https://hub"}, cast(Any, SimpleNamespace(admit_hub=lambda *_: None)))

    def attempt(at: Location, addresses: object) -> None:
        asked.append(at.source.host)
        if at.source.host == "hub":
            redirect = SourceRedirectError(at.shown, "elsewhere")
            redirect.target = "https://two/x" if ill in asked else f"https://{ill}/x"
            raise redirect
        if at.source.host == ill and asked.count(ill) > 1:
            raise failure(at.shown, "it is ill")

    location = Location.of(parse_source_url(SOURCE), "config.json")
    routes.lead(location, attempt)
    with pytest.raises(failure):
        routes.lead(location, attempt)
    routes.lead(location, attempt)
    routes.lead(location, attempt)
    assert asked == ["hub", "one", "one", "hub", "two", "two"]


@pytest.mark.parametrize("leads_to", ["/maintenance", "ftp://nowhere.example/"])
def test_the_hub_is_asked_again_after_a_page_that_leads_to_itself_or_nowhere(leads_to: str) -> None:
    asked, is_well = list[str](), False
    routes = HubRoutes({"HF_ENDPOINT": "https://hub"}, cast(Any, SimpleNamespace(admit_hub=lambda *_: None)))

    def attempt(at: Location, addresses: object) -> None:
        asked.append(at.target)
        if at.target == "/maintenance" or not is_well:
            redirect = SourceRedirectError(at.shown, "elsewhere")
            redirect.target = leads_to if at.target == "/maintenance" else "/maintenance"
            raise redirect

    location = Location.of(parse_source_url(SOURCE), "config.json")
    with pytest.raises(SourceRedirectError):
        routes.lead(location, attempt)
    is_well, before = True, len(asked)
    routes.lead(location, attempt)
    assert "/maintenance" not in asked[before:]
