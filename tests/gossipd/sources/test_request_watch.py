"""When one request looks slow, by its bytes and the seconds that were waited for them."""

from __future__ import annotations

from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.location import Location
from gossipd.sources.mirror_rates import Brought, MirrorRates
from gossipd.sources.request_watch import RequestWatch

LENGTH, USUAL = 1_000_000, 8e6
WHERE = Location.of(parse_source_url("http://a.example/m"), "model.bin")


class Others:
    """Requests beside it have brought USUAL bytes a second each."""

    def __init__(self) -> None:
        self._mirrors = MirrorRates()
        self._mirrors.came("a", int(USUAL), 1.0, 1, 0.0)
        self.ended: list[str] = []

    def is_slow(self, mirror: str, location: Location, brought: Brought) -> bool:
        return self._mirrors.is_slow(mirror, brought, 1)

    def given_up(self, mirror: str) -> None:
        self.ended.append(mirror)


def slow_at(*looks: tuple[int, float], length: int = LENGTH) -> float | None:
    """The look, by its time, at which the request is slow; None at none of them."""
    watch = RequestWatch(Others(), "a", WHERE, length)
    return next((waited_s for received, waited_s in looks if watch.look(received, waited_s)), None)


def test_a_request_that_brings_nothing_is_slow_after_the_least_time() -> None:
    assert slow_at((0, 0.25), (0, 0.5), (0, 0.75)) == 0.5


def test_a_request_that_is_answered_late_and_moves_is_never_slow() -> None:
    """Until its end it has brought less than a quarter of the usual in all."""
    moving = [(600_000 * number, 2.0 + 0.25 * number) for number in range(6)]
    assert slow_at((235, 2.0), *moving, length=4_000_000) is None
    assert slow_at((235, 2.0), (20_000, 2.25), length=4_000_000) == 2.25, "it is answered, and does not move"


def test_a_request_that_stops_in_the_midst_is_slow() -> None:
    assert slow_at((8192, 0.1), (90_000, 0.35), (90_000, 0.6), (90_000, 0.85)) == 0.6


def test_a_drip_is_slow_though_something_comes_at_each_look() -> None:
    drip = [(1000 * number, 0.1 * number) for number in range(1, 10)]
    assert (slow_at(*drip) or 1.0) <= 0.7


def test_a_rest_that_is_nearly_here_is_waited_for_while_it_moves() -> None:
    late = LENGTH - 60_000
    assert slow_at((late - 1000, 2.0), (late, 2.25), (late + 1000, 2.5)) is None
    assert slow_at((late - 1000, 2.0), (late, 2.25), (late, 2.5)) == 2.5


def test_the_error_names_the_object_and_others_hear_that_it_was_given_up() -> None:
    others = Others()
    error = RequestWatch(others, "a", WHERE, LENGTH).given_up(800, 0.5)
    assert "http://a.example/m/model.bin" in error.sentence and "800 bytes in 0.5 s" in error.sentence
    assert others.ended == ["a"]
